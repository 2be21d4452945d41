"""What the resolver is made of, by plain values: sizes, facts of conditions, types, witnesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anydim.base.dtypes import DType, int8, int64, uint8, uint64
from anydim.base.errors import LanguageError
from anydim.lang.resolve.binding import fold_sizes
from anydim.lang.resolve.ranges import expression_range
from anydim.lang.resolve.scope import exact_facts, facts_of
from anydim.lang.resolve.sized import span_in_type
from anydim.lang.resolve.witness import escape
from anydim.lang.tree import Apply, Expr, Index, Literal, SizeTerm
from anydim.sizes import Box, Dim, as_size, maximum, minimum, parse
from tests.unit.lang.language import check, random, run, run_symbolic

N, M = parse("n"), parse("m")
BOX = Box.of(Dim("n", 0), Dim("m", 0, 200))
ROW, COLUMN = Index("i"), Index("j")
EXTENTS = {"i": N, "j": M}


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("add", N + M), ("sub", N - M), ("mul", N * M), ("neg", -N), ("floordiv", N // M),
        ("mod", N % M), ("min", minimum(N, M)), ("max", maximum(N, M)), ("exp", None),
    ],
)  # fmt: skip
def test_functions_of_sizes_are_sizes(function: str, expected: Any) -> None:
    assert fold_sizes(function, [N] if function in ("neg", "exp") else [N, M]) == expected


def test_a_division_by_0_is_no_size() -> None:
    assert fold_sizes("floordiv", [N, as_size(0)]) is None
    assert fold_sizes("mod", [N, as_size(0)]) is None


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_a_range_may_end_at_the_larger_of_two_sizes(n: int) -> None:
    text = "def f(float(N) x) -> (y) { y(i) = x(i) else 1 where i in 0:max(N,3) }"
    expected = np.ones(max(n, 3), np.float32)
    expected[:n] = random(n)
    check(text, expected, random(n))


# ---- what a condition says -----------------------------------------------------------------------


def relation(function: str, left: Any = N, right: Any = M) -> Expr:
    return Apply(function, (SizeTerm(left), SizeTerm(right)))


BOTH = Apply("and", (relation("less"), relation("greater_equal", M, as_size(2))))
EITHER = Apply("or", (relation("less"), relation("greater_equal", M, as_size(2))))
FACTS = {
    "n < m": (relation("less"), [M - N - 1], [N - M]),
    "n <= m": (relation("less_equal"), [M - N], [N - M - 1]),
    "n > m": (relation("greater"), [N - M - 1], [M - N]),
    "n >= m": (relation("greater_equal"), [N - M], [M - N - 1]),
    "n == m": (relation("equal"), [N - M, M - N], []),
    "n != m": (relation("not_equal"), [], [N - M, M - N]),
    "n != 0": (relation("not_equal", N, as_size(0)), [N - 1], [N, -N]),
    "0 != n": (relation("not_equal", as_size(0), N), [N - 1], [-N, N]),
    "n < m and m >= 2": (BOTH, [M - N - 1, M - 2], []),
    "n < m or m >= 2": (EITHER, [], [N - M, 1 - M]),
    "not (n < m)": (Apply("not", (relation("less"),)), [N - M], [M - N - 1]),
    "n < 3": (Apply("less", (SizeTerm(N), Literal(3, None))), [2 - N], [N - 3]),
    "n < 3.0": (Apply("less", (SizeTerm(N), Literal(3.0, None))), [], []),
    "i < m": (Apply("less", (Index("i"), SizeTerm(M))), [], []),
    "m < i": (Apply("less", (SizeTerm(M), Index("i"))), [], []),
    "i": (Index("i"), [], []),
    "n + m": (relation("add"), [], []),
}


@pytest.mark.parametrize("name", FACTS)
def test_what_a_condition_says_of_sizes(name: str) -> None:
    condition, held, failed = FACTS[name]
    assert facts_of(condition, True, BOX) == held
    assert facts_of(condition, False, BOX) == failed


@pytest.mark.parametrize("name", FACTS)
def test_what_holds_exactly_where_a_condition_does(name: str) -> None:
    condition, held, failed = FACTS[name]
    assert exact_facts(condition, True, BOX) == (held or None)
    assert exact_facts(condition, False, BOX) == (failed or None)


def test_a_part_that_says_nothing_is_no_exact_fact() -> None:
    both = Apply("and", (relation("less"), Index("i")))
    assert facts_of(both, True, BOX) == [M - N - 1]
    assert exact_facts(both, True, BOX) is None


@pytest.mark.parametrize("n", [0, 2, 4, 7])
def test_two_sizes_known_by_one_condition_prove_two_reads(n: int) -> None:
    text = """def f(float(N) x, float(M) w) -> (y) {
      y = 0.0
      if (N > 3 && M > 1) { y = x(3) + w(1) }
    }"""
    for m in (0, 1, 2, 5):
        x, w = random(n), random(m)
        expected = np.float32(x[3] + w[1] if n > 3 and m > 1 else 0)
        np.testing.assert_array_equal(run_symbolic(text, x, w, shared=False), expected)


# ---- bounds in integer types ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "dtype", "expected"),
    [
        (-N, N, int64, (-N, N, True)),
        (as_size(0), N, uint64, (as_size(0), N, True)),
        (as_size(-1), N, uint64, None),
        (-N, N, uint64, None),
        (as_size(0), M, uint8, (as_size(0), M, True)),
        (as_size(0), N, uint8, (as_size(0), as_size(255), False)),
        (as_size(-1), as_size(3), uint8, (as_size(0), as_size(255), False)),
        (as_size(-128), as_size(127), int8, (as_size(-128), as_size(127), True)),
        (as_size(-128), as_size(128), int8, (as_size(-128), as_size(127), False)),
        (as_size(-129), as_size(127), int8, (as_size(-128), as_size(127), False)),
    ],
)
def test_bounds_that_an_integer_type_holds(
    low: Any, high: Any, dtype: DType, expected: Any
) -> None:
    assert span_in_type((low, high, True), dtype, BOX) == expected


def test_bounds_of_an_expression_of_indices() -> None:
    """A factor that may be below 0 or above it has no bounds."""
    twice, unknown = (Apply("mul", (ROW, SizeTerm(size))) for size in (as_size(2), N - M))
    assert expression_range(twice, EXTENTS, BOX) == (as_size(0), 2 * N - 2, True)
    assert expression_range(Apply("neg", (twice,)), EXTENTS, BOX) == (2 - 2 * N, as_size(0), True)
    assert expression_range(unknown, EXTENTS, BOX) is None
    assert expression_range(Apply("min", (twice, unknown)), EXTENTS, BOX) is None


# ---- witnesses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "size", "expected"),
    [
        (ROW, N, None),
        (Apply("add", (ROW, SizeTerm(as_size(1)))), N, ({"n": 1, "i": 0}, 1)),
        (Apply("sub", (ROW, SizeTerm(as_size(1)))), N, ({"n": 1, "i": 0}, -1)),
        (Apply("add", (ROW, COLUMN)), parse("n + m - 1"), None),
        (Apply("add", (ROW, COLUMN)), parse("n + m - 2"), ({"n": 1, "m": 1, "i": 0, "j": 0}, 0)),
        (Apply("mod", (ROW, SizeTerm(as_size(2)))), as_size(0), None),
    ],
)
def test_the_smallest_sizes_at_which_an_index_is_outside(
    index: Expr, size: Any, expected: Any
) -> None:
    """At sizes for which a range is empty nothing is read."""
    assert escape(index, size, EXTENTS, BOX) == expected


def test_the_first_of_two_early_reads_is_the_one_that_is_named() -> None:
    text = """def f(float(N) x) -> (y, z) {
      for t in 1:N {
        y(t) = y(t - 1) + x(t)
        z(t) = z(t - 1) + x(t)
      }
    }"""
    with pytest.raises(LanguageError, match=r"with t = 1, y\(0\) is read but never written"):
        run(text, random(4))


# ---- ranges that end at other indices ------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("begin", "statement", "twice"),
    [
        ("0", "y(i) += x(k)", lambda x: 2 * np.cumsum(x)),
        ("1", "y(i) *= x(k)", lambda x: np.cumprod(x) ** 2),
        ("-10", "y(i) max= x(k)", np.maximum.accumulate),
        ("10", "y(i) min= x(k)", np.minimum.accumulate),
    ],
)
def test_what_an_uneven_range_leaves_out_changes_no_reduction(
    begin: str, statement: str, twice: Any, n: int
) -> None:
    text = f"""def f(float(N) x) -> (y) {{
      y(i) = {begin} where i in 0:N
      for t in 0:2 {{ {statement} where i in 0:N, k in 0:i+1 }}
    }}"""
    check(text, twice(random(n)), random(n))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_an_uneven_range_of_a_tensor_whose_size_follows_from_its_own(n: int) -> None:
    text = """def f(float(N) x) -> (c) {
      c(i) = x(i)
      for t in 0:2 {
        a(i) = c(i) + 1
        c(i) += a(j) where j in 0:i+1
      }
    }"""
    expected = random(n)
    for _ in range(2):
        expected = expected + np.cumsum(expected + 1)
    check(text, expected, random(n))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_an_uneven_range_of_a_loop_writes_a_part(n: int) -> None:
    text = """def f(float(N) x) -> (y) {
      y(i) = 0 where i in 0:N
      for t in 0:N { y(i) = x(t) + i where i in 0:t+1 }
    }"""
    x = random(n)
    check(text, x[-1] + np.arange(n, dtype=np.float32) if n else x, x)


@pytest.mark.parametrize("span", ["0:t+1", "t:N"])
def test_parts_of_which_one_end_stays_do_not_prove_that_all_is_written(span: str) -> None:
    text = f"def f(float(N) x) -> (y) {{ for t in 0:N {{ y(i) = x(i) where i in {span} }} }}"
    with pytest.raises(LanguageError, match="'y' is not known to be written everywhere"):
        run(text, random(3))


# ---- sizes that are numbers ----------------------------------------------------------------------


def test_a_size_that_is_freed_is_not_negative() -> None:
    """That z(i + N) is no place before z needs N >= 0; the text fails at N = 2, and makes sense."""
    text = """def f(float(N) x, bool(B) on) -> (y, s) {
      z(j) = 0.0 where j in 0:2*N
      y(i) = z(i + N) + x(i) where i in 0:N
      s = 0.0
      for b in B { if (on(b)) { s = s + x(3) } }
    }"""
    x = random(2)
    np.testing.assert_array_equal(run(text, x, np.array([False, False])), x)
