"""Promise: a whole tensor is reduced in pieces that threads share, with the same bits on any."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.passes.split_reduction import PIECE

LENGTHS = (0, 1, 100, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 9 * PIECE + 5)
REDUCTIONS = {
    "reduce_sum": lambda x: x.sum(), "reduce_max": lambda x: x.max(initial=-numpy.inf),
    "reduce_min": lambda x: x.min(initial=numpy.inf), "reduce_l2": lambda x: (x * x).sum() ** 0.5,
}  # fmt: skip


def graph(dtype: DType, most: int | None, rank: int = 1) -> ad.Graph:
    g = ad.Builder("g")
    x = g.input("x", dtype, [g.dim(f"n{axis}", 0, most) for axis in range(rank)])
    for name in REDUCTIONS:
        g.output(name, getattr(g, name)(x, axes=tuple(range(rank))))
    return g.graph()


@pytest.mark.parametrize("dtype", [ad.float32, ad.float16, ad.float64], ids=str)
def test_every_length(dtype: DType) -> None:
    one, two = (ad.compile(graph(dtype, None), threads=count) for count in (1, 2))
    random = numpy.random.default_rng(0)
    for length in LENGTHS:
        x = random.uniform(-1, 1, length).astype(dtype.numpy)
        found, shared = one(x=x), two(x=x)
        for name, meaning in REDUCTIONS.items():
            expected = meaning(x.astype(numpy.float64))
            # terms of 1 are rounded to 2**-11 or better, and 4e5 of them are added up in float32
            numpy.testing.assert_allclose(found[name], expected, rtol=2e-3, atol=0.1)
            assert found[name].tobytes() == shared[name].tobytes()


def test_what_is_not_a_number_is_found_in_every_piece() -> None:
    model = ad.compile(graph(ad.float32, None))
    for place in (0, PIECE - 1, PIECE, 3 * PIECE, 3 * PIECE + 9):
        x = numpy.zeros(3 * PIECE + 10, numpy.float32)
        x[place] = numpy.nan
        assert all(numpy.isnan(result) for result in model(x=x).values())


def test_two_axes_are_one() -> None:
    model = ad.compile(graph(ad.float32, None, 2))
    x = numpy.random.default_rng(0).uniform(-1, 1, (700, 300)).astype(numpy.float32)
    numpy.testing.assert_allclose(model(x=x)["reduce_sum"], x.sum(dtype=float), atol=0.02)
    assert model(x=x)["reduce_max"] == x.max()


def test_integers_wrap_alike() -> None:
    g = ad.Builder("g")
    x = g.input("x", ad.int32, [g.dim("n", 0, None)])
    g.output("y", g.reduce_sum(x, axes=(0,)))
    x = numpy.full(5 * PIECE + 3, 2**30, numpy.int32)
    with numpy.errstate(over="ignore"):
        assert ad.compile(g.graph(), threads=2)(x=x)["y"] == x.sum(dtype=numpy.int32)


def test_only_what_may_be_long_is_cut() -> None:
    assert "piece" not in ad.compile(graph(ad.float32, 2 * PIECE)).show("split_reduction")
    assert "piece" in ad.compile(graph(ad.float32, 2 * PIECE + 1)).show("split_reduction")


def test_a_row_whose_elements_are_wanted_stays_whole() -> None:
    g = ad.Builder("g")
    x = g.input("x", ad.float32, [g.dim("n", 0, None)])
    g.output("y", g.softmax(x, axis=0))
    assert "piece" not in ad.compile(g.graph()).show("split_reduction")
