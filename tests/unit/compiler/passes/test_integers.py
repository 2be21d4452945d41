"""Sums of products of dequantised numbers: what becomes a sum of integers, and that it is right."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import int8, int32, uint8
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.integers import Integers
from anydim.compiler.passes.lower import Lower

RANDOM = numpy.random.default_rng(4)


def bytes_(*shape: int) -> numpy.ndarray:
    return RANDOM.integers(-127, 128, shape).astype(numpy.int8)


def scales(*shape: int) -> numpy.ndarray:
    return RANDOM.uniform(0.01, 0.1, shape).astype(numpy.float32)


def dequantized(g: ad.Builder, x: Value, zero: int | None = None, axis: int = 1, count: int = 0):
    scale = g.constant(scales(count) if count else scales())
    rest = () if zero is None else (g.constant(numpy.array(zero, x.type.dtype.numpy)),)
    return g.dequantize(x, scale, *rest, axis=axis)


def matrices(g: ad.Builder) -> Value:
    x = dequantized(g, g.input("x", uint8, (g.dim("n", 0, 9), 30)), zero=7)
    return g.matmul(x, dequantized(g, g.constant(bytes_(30, 5)), axis=1, count=5))


def transposed(g: ad.Builder) -> Value:
    """The transpose that exporters write between weights and product."""
    x = dequantized(g, g.input("x", int8, (g.dim("n", 0, 9), 30)))
    return g.matmul(x, g.transpose(dequantized(g, g.constant(bytes_(5, 30)), axis=0, count=5)))


def windows(g: ad.Builder) -> Value:
    x = dequantized(g, g.input("x", uint8, (2, 3, g.dim("n", 0, 9))), zero=128)
    w = dequantized(g, g.constant(bytes_(4, 3, 3)), axis=0, count=4)
    return g.conv(x, w, pads=(1, 1))


def without_zero(g: ad.Builder) -> Value:
    x = dequantized(g, g.input("x", uint8, (2, 3, g.dim("n", 0, 9))))
    return g.conv(x, dequantized(g, g.constant(bytes_(4, 3, 3))), pads=(2, 0))


def long(g: ad.Builder) -> Value:
    """A sum whose length is not bounded may leave int32."""
    n = g.dim("n", 0)
    x = dequantized(g, g.input("x", uint8, (3, n)))
    return g.matmul(x, dequantized(g, g.input("w", uint8, (n, 3))))


def scaled_along(g: ad.Builder) -> Value:
    """A scale for each step of the sum cannot stand outside."""
    x = dequantized(g, g.input("x", uint8, (g.dim("n", 0, 9), 30)), axis=1, count=30)
    return g.matmul(x, dequantized(g, g.constant(bytes_(30, 5))))


def one_side(g: ad.Builder) -> Value:
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), 30))
    return g.matmul(x, dequantized(g, g.constant(bytes_(30, 5))))


def wide(g: ad.Builder) -> Value:
    """int32 values are no bytes."""
    x = dequantized(g, g.input("x", int32, (g.dim("n", 0, 9), 30)))
    return g.matmul(x, dequantized(g, g.constant(bytes_(30, 5))))


TAKEN = (matrices, transposed, windows, without_zero)
LEFT = (long, scaled_along, one_side, wide)


def lowered(make: Callable[[ad.Builder], Value]) -> Graph:
    g = ad.Builder(make.__name__)
    g.output("y", make(g))
    return Lower().run(g.graph())


def sums(graph: Graph) -> list[str]:
    """The element types of the sums of a graph."""
    statements = [s for node in graph.nodes for s in node.group.statements if s.combine]
    return [str(graph.types[s.target].dtype) for s in statements]


@pytest.mark.parametrize("make", TAKEN)
def test_sums_of_integers(make: Callable[[ad.Builder], Value]) -> None:
    before = lowered(make)
    after = Integers().run(before)
    assert sums(before) == ["float32"] and sums(after) == ["int32"]
    for n in (0, 1, 2, 9):
        values = feed(after, n)
        exact = evaluate(before, values, precision=numpy.dtype(numpy.float64))["y"]
        got = evaluate(after, values)["y"]
        numpy.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6)


def feed(graph: Graph, n: int) -> dict[str, numpy.ndarray]:
    values = {}
    for name in graph.inputs:
        kind = graph.types[name]
        shape = [size.evaluate({"n": n}) for size in kind.shape]
        low, high = kind.dtype.range
        values[name] = RANDOM.integers(low, high + 1, shape).astype(kind.dtype.numpy)
    return values


@pytest.mark.parametrize("make", LEFT)
def test_what_stays(make: Callable[[ad.Builder], Value]) -> None:
    before = lowered(make)
    assert sums(Integers().run(before)) == sums(before) == ["float32"]


def test_compiled() -> None:
    g = ad.Builder("net")
    g.output("y", g.quantize(windows(g), g.constant(numpy.float32(0.7)), to=uint8))
    model = ad.compile(g.graph())
    assert "an int8 product" in model.explain(details=True)
    before = g.graph()
    for n in (0, 1, 5, 9):
        values = feed(before, n)
        exact = evaluate(before, values, precision=numpy.dtype(numpy.float64))["y"]
        off = model(**values)["y"].astype(int) - exact.astype(int)
        assert abs(off).max(initial=0) <= 1  # where rounding meets a tie
