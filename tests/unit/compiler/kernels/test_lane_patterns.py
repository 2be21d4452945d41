"""Positions that repeat from vector to vector: the runs they read, and what is read by them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.kernels.codegen.lane_patterns import Pattern, pattern, runs_of, step_for
from anydim.compiler.kernels.inference import linear
from anydim.lang.tree import Apply, Expr, Index, SizeTerm
from anydim.sizes import Size, as_size

O = Index("o")  # noqa: E741
N = Size.symbol("N")
SIZES = (0, 1, 2, 3, 7, 8, 13, 15, 16, 17, 31, 32, 33, 64, 101)


def op(function: str, left: Expr, right: int | Size) -> Apply:
    return Apply(function, (left, SizeTerm(as_size(right))))


def test_quotients_and_rests_have_a_pattern_where_they_divide_the_lanes() -> None:
    quarter = Pattern(Fraction(1, 4), (0,) * 4 + (1,) * 4)
    assert pattern(op("floordiv", O, 4), "o", 8) == quarter
    assert pattern(op("mod", O, 4), "o", 8) == Pattern(Fraction(0), (0, 1, 2, 3) * 2)
    assert pattern(op("min", op("mod", O, 4), 2), "o", 8) == Pattern(Fraction(0), (0, 1, 2, 2) * 2)
    assert pattern(op("floordiv", O, 3), "o", 8) is None
    assert pattern(op("mod", O, N), "o", 8) is None
    assert pattern(op("min", O, 3), "o", 8) is None  # not the same in the next vector
    assert pattern(Index("r"), "o", 8) is None


def test_vectors_begin_where_quotients_repeat() -> None:
    third, rest = op("floordiv", O, 3), op("mod", O, 5)
    assert step_for([third], "o", 8) == 6
    assert step_for([third], "o", 16) == step_for([third, rest], "o", 16) == 15
    assert step_for([op("mul", third, 2), op("mod", O, 2)], "o", 16) == 12
    assert step_for([rest, op("mod", O, 7)], "o", 16) == 16  # 35 are more than a vector
    assert step_for([op("floordiv", O, 9)], "o", 16) == 16  # half a vector would be empty
    assert step_for([op("mod", O, N), op("floordiv", Index("r"), 3)], "o", 16) == 16
    found = pattern(third, "o", 8, 6)
    assert found == Pattern(Fraction(1, 3), (0, 0, 0, 1, 1, 1, 2, 2), 6)


def test_a_read_of_phases_is_a_run_each() -> None:
    at = Apply("add", (op("mul", op("mod", O, 2), N), op("floordiv", O, 2)))
    found = runs_of(linear(at), "o", 8)
    assert found is not None
    assert [(run.steps, run.low, run.count) for run in found.runs] == [
        (((N, 0),), 0, 4), (((N, 1),), 0, 4),
    ]  # fmt: skip
    assert found.runs[1].picks == ((1, 0), (3, 1), (5, 2), (7, 3))


@pytest.mark.parametrize("index", [op("mul", O, 2), op("mul", op("mod", O, 8), 9)])
def test_what_is_scattered_is_gathered(index: Expr) -> None:
    assert runs_of(linear(index), "o", 8) is None


BODIES = {
    "x(r, o // 2)": lambda x, r, o: x[r, o // 2],
    "x(r, o // 3)": lambda x, r, o: x[r, o // 3],
    "x(o % 3, o // 11)": lambda x, r, o: x[o % 3, o // 11] + 0 * r,
    "x(o % 3, o // 3)": lambda x, r, o: x[o % 3, o // 3] + 0 * r,
    "x(min(o % 5, 3), o // 5)": lambda x, r, o: x[np.minimum(o % 5, 3), o // 5] + 0 * r,
    "x(o % 2, o // 3) + x(r, o // 6)": lambda x, r, o: x[o % 2, o // 3] + x[r, o // 6],
    "o % 7 < 3 ? x(r, o // 7) : x(0, o)": lambda x, r, o: np.where(
        o % 7 < 3, x[r, o // 7], x[0, o]),
    "x(r, o // 8 + 1)": lambda x, r, o: x[r, o // 8 + 1],
    "x(o % 4, o // 4)": lambda x, r, o: x[o % 4, o // 4] + 0 * r,
    "x(min(o % 4, 2), o // 2)": lambda x, r, o: x[np.minimum(o % 4, 2), o // 2] + 0 * r,
    "x(max(o % 8, 5) - 5, o // 8)": lambda x, r, o: x[np.maximum(o % 8, 5) - 5, o // 8] + 0 * r,
    "o % 2 < 1 ? x(r, o // 2) : x(0, o // 4)": lambda x, r, o: np.where(
        o % 2 < 1, x[r, o // 2], x[0, o // 4]),
    "x(r, o // 2 % 4)": lambda x, r, o: x[r, o // 2 % 4],
    "(x(r, o // 2 - 3) else x(0, 0))": lambda x, r, o: np.where(
        o // 2 < 3, x[0, 0], x[r, np.maximum(o // 2 - 3, 0)]),
}  # fmt: skip


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        *((body, "float32") for body in BODIES),
        *(("x(o % 4, o // 4)", dtype) for dtype in ("float64", "uint8", "float16")),
    ],
)
def test_reads_of_patterns_are_those_of_numpy(body: str, dtype: str) -> None:
    text = f"def f({dtype}(4,N) x, bool(S) m) -> (y) {{ y(r,o) = {body} where r in 0:4, o in 0:S }}"
    lib = ad.define(text)
    values = np.random.default_rng(1).integers(0, 99, (4, 120))
    x = values.astype(dtype)
    rows = np.arange(4)[:, None]
    for size in SIZES:
        want = BODIES[body](x, rows, np.arange(size)[None, :])
        assert np.array_equal(lib.f(x, np.zeros(size, bool)), want), size


def test_threads_share_pieces_of_rows_that_begin_where_quotients_repeat() -> None:
    text = "def f(float(R,N) x, bool(S) m) -> (y) { y(r,o) = x(r, o // 3) where o in 0:S }"
    lib = ad.define(text, threads=2)
    x = np.random.default_rng(2).random((2, 20_000), np.float32)
    for size in (8189, 8190, 8191, 8192, 8205, 60_000):
        places = np.arange(size) // 3
        assert np.array_equal(lib.f(x, np.zeros(size, bool)), x[:, places])


def test_a_single_row_may_be_cut_anywhere() -> None:
    """Threads share one row: vectors then begin at any place."""
    text = "def f(float(N) x, bool(S) m) -> (y) { y(o) = x(o // 2) where o in 0:S }"
    lib = ad.define(text, threads=2)
    x, size = np.arange(1 << 20, dtype=np.float32), (1 << 21) - 3
    assert np.array_equal(lib.f(x, np.zeros(size, bool)), x[np.arange(size) // 2])
