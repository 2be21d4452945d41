"""What the resolver is made of, by plain values: sizes, facts of conditions, types, witnesses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, int8, int64, uint8, uint64
from anydim.base.errors import LanguageError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.binding import fold_sizes
from anydim.lang.resolve.calls import Calls
from anydim.lang.resolve.expand import fold_decided_choices
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.resolve.ranges import expression_range, uses
from anydim.lang.resolve.scope import exact_facts, facts_of
from anydim.lang.resolve.sized import span_in_type
from anydim.lang.resolve.witness import escape, small_sizes
from anydim.lang.resolve.written_parts import (
    Comb,
    Part,
    Range,
    fill_combs,
    is_covered,
    merge_parts,
    over,
    part_of,
)
from anydim.lang.surface.parser import parse as parse_text
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    TensorType,
    Write,
)
from anydim.sizes import Box, Dim, as_size, maximum, minimum, parse
from tests.unit.lang.language import check, known, random, run, run_symbolic

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


YES, NO = Literal(True, None), Literal(False, None)


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("select", (YES, ROW, COLUMN), ROW),
        ("select", (NO, ROW, COLUMN), COLUMN),
        ("select", (Apply("not", (NO,)), ROW, COLUMN), ROW),
        ("not", (YES,), NO),
        ("and", (NO, ROW), NO),
        ("or", (YES, ROW), YES),
        ("and", (YES, ROW), None),
        ("or", (NO, ROW), None),
        ("select", (relation("less"), ROW, COLUMN), None),
        ("select", (Literal(1, None), ROW, COLUMN), None),
    ],
)
def test_choices_that_are_decided(
    function: str, arguments: tuple[Expr, ...], expected: Expr | None
) -> None:
    expr = Apply(function, arguments)
    assert fold_decided_choices(expr) == (expected or expr)


@pytest.mark.parametrize("n", [0, 2, 3, 4])
def test_both_sides_of_a_choice_by_sizes_decide_the_type(n: int) -> None:
    for one in ("1", "c(i)"):
        text = f"def f(int64(N) c) -> (y) {{ y(i) = N > 2 ? {one} : 1.5 where exists c(i) }}"
        check(text, np.full(n, 1 if n > 2 else 1.5, np.float32), np.ones(n, np.int64))


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


def test_what_an_expression_depends_on() -> None:
    for expr in (ROW, twice_of(ROW), Cast(int8, ROW), Read("x", (ROW,)), Read("x", (), False, ROW)):
        assert uses(expr, "i")
        assert not uses(expr, "j")
    assert not uses(SizeTerm(N), "n")


def twice_of(index: Expr) -> Expr:
    return Apply("mul", (index, SizeTerm(as_size(2))))


# ---- what loops write ----------------------------------------------------------------------------


def shifted(stride: Any, first: Any) -> Expr:
    return Apply("add", (Apply("mul", (ROW, SizeTerm(as_size(stride)))), SizeTerm(as_size(first))))


@pytest.mark.parametrize(
    ("places", "spans", "comb"),
    [
        ([ROW], [(0, N)], None),
        ([shifted(1, 1)], [(1, N + 1)], None),
        ([shifted(-1, N - 1)], [(0, N)], None),
        ([shifted(-1, 9)], [(10 - N, 10)], None),
        ([shifted(2, 1)], [(1, 2 * N + 1)], Comb(0, 2)),
        ([COLUMN, shifted(3, 0)], [(0, M), (0, 3 * N)], Comb(1, 3)),
        ([SizeTerm(as_size(3)), ROW], [(3, 4), (0, N)], None),
        ([shifted(-2, 9)], None, None),
        ([shifted(M, 0)], None, None),
        ([ROW, ROW], None, None),
        ([shifted(2, 0), Apply("mul", (COLUMN, SizeTerm(as_size(2))))], None, None),
        ([Apply("add", (ROW, COLUMN))], None, None),
        ([Apply("mod", (ROW, SizeTerm(M)))], None, None),
    ],
)
def test_what_a_write_fills(places: list[Expr], spans: Any, comb: Comb | None) -> None:
    axes = (Axis("i", N), Axis("j", M))
    found = part_of(Write("y", tuple(places), axes, SizeTerm(N)))
    if spans is None:
        assert found is None
    else:
        made = tuple((as_size(low), as_size(high)) for low, high in spans)
        assert found == Part("y", made, (), comb)


def test_parts_that_meet_along_one_dimension_are_one_part() -> None:
    one, zero = as_size(1), as_size(0)
    first, rest = (Part("y", (span, (zero, M), (one, M))) for span in ((zero, one), (one, N)))
    assert merge_parts([first, rest]) == [Part("y", ((zero, N), (zero, M), (one, M)))]
    assert merge_parts([rest, first]) == [Part("y", ((zero, N), (zero, M), (one, M)))]
    apart = Part("y", ((as_size(2), N), (zero, M), (one, M)))
    assert merge_parts([first, apart]) == [first, apart]
    both = Part("y", ((one, N), (zero, N), (one, M)))
    assert merge_parts([first, both]) == [first, both]


def test_what_is_written_in_several_pieces_is_covered() -> None:
    def row(low: Any, high: Any, comb: Comb | None = None) -> Part:
        return Part("y", ((as_size(low), as_size(high)),), (), comb)

    wanted = row(0, N + 3)
    pieces = [row(1, 2), row(0, 1), row(3, N + 3), row(2, 3)]
    assert is_covered(wanted, pieces, BOX)
    for number in range(4):
        assert not is_covered(wanted, pieces[:number] + pieces[number + 1 :], BOX)
    combs = [row(1, 2 * N + 1, Comb(0, 2)), row(0, 2 * N, Comb(0, 2))]
    assert is_covered(row(0, 2 * N), combs, BOX)
    assert not is_covered(row(0, 2 * N), combs[:1], BOX)
    assert fill_combs([row(0, 2, Comb(0, 2)), row(0, 4, Comb(0, 2))]) == [row(0, 1)]


def test_what_a_loop_writes_again_and_again_is_written_where_it_runs() -> None:
    """0 <= t < m runs where m - 1 is not negative."""
    whole = Part("y", ((as_size(0), N),))
    around = Range("t", as_size(0), M, 1)
    assert over([whole], around, as_size(0), M, BOX) == [replace(whole, facts=(M - 1,))]


def test_a_loop_that_may_not_run_writes_nothing_for_sure() -> None:
    text = "def f(float(N) x, float(M) w) -> (y) { for t in M { y(i) = x(i) + w(t) } }"
    with pytest.raises(LanguageError, match=r"y\(0\) is never written"):
        run_symbolic(text, random(3), random(2))
    np.testing.assert_array_equal(run(text, random(3), random(2)), random(3) + random(2)[1])


def test_nothing_is_added_to_what_nothing_defines() -> None:
    with pytest.raises(LanguageError, match="'y' is accumulated into before it is defined"):
        run("def f(float(N) x) -> (y) { y(i) += x(i) }", random(3))


def test_an_attribute_that_is_nearly_spelled_right() -> None:
    text = "def f(float(N) x; float alpha = 1.0) -> (y) { y(i) = alpha * x(i) }"
    with pytest.raises(LanguageError, match="there is no attribute 'alpa'") as caught:
        run(text, random(3), alpa=2.0)
    assert caught.value.hint == "did you mean 'alpha'?"


# ---- calls ---------------------------------------------------------------------------------------

CALLEES = """
def reversed(float(N) x) -> (y) { y(i) = x(N-1-i) }
def scaled(float(N) x, float a) -> (y) { y(i) = a * x(i) }
"""


def calling(text: str) -> Group:
    definition = list(parse_text(CALLEES + text).values())[-1]
    return instantiate(definition, [known(random(3))])


def test_a_call_writes_its_target_itself_but_where_it_reads_it_too() -> None:
    group = calling("def f(float(N) x) -> (y) { y = reversed(x) }")
    assert [statement.target for statement in group.statements] == ["y"]
    group = calling("def f(float(N) c) -> (c) { c = reversed(c) }")
    assert len(group.statements) == 2
    np.testing.assert_array_equal(
        next(iter(evaluate(group, {"c": random(3)}, {}).values())), random(3)[::-1]
    )


def test_a_number_that_is_given_has_the_name_of_the_parameter() -> None:
    group = calling("def f(float(N) x) -> (y) { y = scaled(x, 2 * N) }")
    assert [tensor.name for tensor in group.temporaries] == ["a.1"]


def test_names_of_hidden_tensors_count_up() -> None:
    calls = Calls(lambda *arguments: calling(""), {"a.1", "a.2", "b.2"}, {})
    assert [calls.fresh(stem) for stem in "aabbb"] == ["a.3", "a.4", "b.1", "b.3", "b.4"]


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


def test_small_sizes_come_first() -> None:
    few = Box.of(Dim("n", 0, 9), Dim("m", 2, 9), constraints=(parse("m - n"),))
    first = [{"n": 0, "m": 2}, {"n": 1, "m": 2}, {"n": 0, "m": 3}]
    assert list(small_sizes(few))[:3] == first
    assert {"n": 3, "m": 5} in list(small_sizes(few))[:16]
    many = Box.of(*(Dim(name, 1, 9) for name in "abcdef"))
    assert next(small_sizes(many)) == dict.fromkeys("abcdef", 2)
    assert list(small_sizes(many))[63] == dict.fromkeys("abcdef", 3)


def test_the_first_of_two_early_reads_is_the_one_that_is_named() -> None:
    text = """def f(float(N) x) -> (y, z) {
      for t in 1:N {
        y(t) = y(t - 1) + x(t)
        z(t) = z(t - 1) + x(t)
      }
    }"""
    with pytest.raises(LanguageError, match=r"with t = 1, y\(0\) is read but never written"):
        run(text, random(4))


def test_a_place_that_is_outside_is_written() -> None:
    text = "def f(float(N) x) -> (y) { y(0) = 0.0 for t in 1:N { y(t) += x(t) } }"
    found = r"'y' is written at t to t of dimension 0, whose size is 1: with t = 1 at 1"
    with pytest.raises(LanguageError, match=found):
        run(text, random(4))


EARLY = {
    "at(0) is read before it is written": "y(at(t)) = x(t)  at(t) = int64(x(t))",
    "y(0) is read but never written": "if (t > 0) { y(t) = x(t) }  y(t) += 1",
}


@pytest.mark.parametrize("what", EARLY)
def test_places_and_what_is_added_to_are_read(what: str) -> None:
    text = f"def f(float(N) x) -> (y) {{ for t in 0:N {{ {EARLY[what]} }} }}"
    if what.startswith("at"):
        text = text.replace("{ for", "{ y(i) = 0 where exists x(i)  for")
    with pytest.raises(LanguageError, match=re.escape(what)):
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
    with pytest.raises(LanguageError, match="'y' cannot be proved to be fully written"):
        run(text, random(3))


@pytest.mark.parametrize("m", [0, 1, 2])
def test_a_range_that_ends_at_an_index_times_a_size(m: int) -> None:
    text = """def f(float(N) x, float(M) w) -> (y) {
      y(i) +=! (w(k) else 1) where exists x(i), k in 0:i*M
    }"""
    every = np.concatenate([random(m), np.ones(9, np.float32)])
    expected = np.array([every[: i * m].sum(dtype=np.float32) for i in range(4)], np.float32)
    check(text, expected, random(4), random(m))


HINTS = {
    "def f(float(M,N) x) -> (y) { y(j,t) = y(j,t-1) + x(j,t) }":
        "where order matters, write a loop: "
        "for t in 0:N { y(j, t) = (y(j, t - 1) else 0) + x(j, t) }",
    "def f(float(N) x) -> (y) { y(i) +=! x(k) where i in 0:N, k in i-1:N }": "",
    "def f(float(N) x) -> (y) { y(i) = x(i) else 0 }":
        "add: where i in 0:3 (a read with a default implies no range)",
    "def f(float(N) x) -> (y) { y(i) = x(2 * i) else 0 }":
        "add: where i in 0:... (a read with a default implies no range)",
}  # fmt: skip


@pytest.mark.parametrize("text", HINTS)
def test_what_to_do_about_a_range(text: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(text, random(2, 3) if "M" in text else random(3))
    assert caught.value.hint == HINTS[text]


# ---- sizes that are numbers ----------------------------------------------------------------------


def test_a_size_that_is_freed_is_not_negative() -> None:
    """A range from i + N on needs N >= 0; the text fails at N = 2, and makes sense."""
    text = """def f(float(N) x, bool(B) on) -> (y, s) {
      z(j) = 1.0 where j in 0:2*N
      y(i) +=! z(k) where i in 0:N, k in i+N:2*N
      s = 0.0
      for b in B { if (on(b)) { s = s + x(3) } }
    }"""
    came = run(text, random(2), np.array([False, False]))
    np.testing.assert_array_equal(came, [2, 1])


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("y(i) min=! (y(i) else 1.5) where i in 2:N", [1.5]),
        ("y(i) = (y(i) else x(i)) where i in 2:N", [3]),
        ("a(i) = x(i)  y(i) = a(i) + (y(i + 1) else 0.5) where i in 2:N", [3.5]),
    ],
)
def test_a_statement_may_read_outside_of_what_it_writes(statement: str, expected: Any) -> None:
    """The tensor has one element at N = 3, and the read is at 2 or more."""
    text = f"def f(float(N) x) -> (y) {{ {statement} }}"
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(text, x), np.array(expected, np.float32))
    np.testing.assert_array_equal(ad.define(text, fixed={"N": 3}).f(x), expected)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_range_that_does_not_follow_is_an_error_where_the_loop_never_runs_too(rows: int) -> None:
    """A size that is not known became that of a result of no rows."""
    text = (
        "def f(R(T,C) x) -> (y) { for t in T { y(t,c) = (y(t - 1,c) else 5) - (x(t,c) else 1) } }"
    )
    kind = TensorType(int64, (as_size(rows), as_size(4)))
    with pytest.raises(LanguageError, match="cannot be inferred from any read"):
        instantiate(parse_text(text)["f"], [kind], {}, Box())
