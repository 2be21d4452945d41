"""Scales and shifts of channels by constants become one, in weights where they can."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import float64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.channels import Channels
from anydim.compiler.passes.flow import unpack
from anydim.compiler.passes.lower import Lower
from anydim.compiler.passes.options import EXACT, FAST
from anydim.compiler.passes.simplify import Simplify
from anydim.lang.tree.affine import reads

CHANNELS = 5


def numbers(*shape: int, seed: int = 0) -> numpy.ndarray:
    random = numpy.random.default_rng(seed)
    return random.uniform(0.5, 1.5, shape).astype(numpy.float32)


def normalised(g: ad.Builder, x: Value, seed: int = 1) -> Value:
    """(x - mean) / sqrt(variance + eps) * gamma + beta per channel, written out."""
    mean, variance, gamma, beta = (
        g.constant(numbers(CHANNELS, 1, 1, seed=seed + n)) for n in range(4)
    )
    return (x - mean) / g.sqrt(variance + numpy.float32(1e-5)) * gamma + beta


def scaled(g: ad.Builder, x: Value) -> Value:
    return x * g.constant(numbers(CHANNELS, 1, 1, seed=8)) + g.constant(numbers(CHANNELS, 1, 1))


def convolution(g: ad.Builder, x: Value) -> Value:
    return g.conv(x, g.constant(numbers(CHANNELS, 3, 3, 3)), pads=(1, 1, 1, 1))


def built(kind: str) -> Graph:
    g = ad.Builder("channels")
    n, h = g.dim("n", 0, 4), g.dim("h", 0, 16)
    inner = 3 if kind.startswith("conv") else CHANNELS
    x = g.input("x", ad.float32, (n, inner, h, h))
    if kind == "value":
        y = normalised(g, x)
    elif kind == "chain":
        y = g.relu(scaled(g, normalised(g, scaled(g, x))))
    elif kind == "padded behind":
        y = g.pad(normalised(g, x), before=(0, 0, 0, 0), after=(0, 1, 1, 2))
    elif kind == "padded rows":
        y = g.pad(normalised(g, x), before=(0, 0, 0, 0), after=(0, 0, 1, 2))
    elif kind == "convolution":
        y = g.relu(scaled(g, normalised(g, convolution(g, x))))
    elif kind == "convolution used twice":
        t = convolution(g, x)
        y = normalised(g, t) + t
    elif kind == "convolution, both parts kept":
        t = normalised(g, convolution(g, x))
        g.output("t", t)
        y = scaled(g, t)
    else:
        y = g.relu(convolution(g, x)) * g.constant(numbers(CHANNELS, 1, 1))
    g.output("y", y)
    return Simplify().run(Lower().run(g.graph()))


KINDS = (
    "value", "chain", "convolution", "convolution used twice", "convolution, both parts kept",
    "conv, relu before", "padded behind", "padded rows",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(0, 3), (1, 1), (2, 7)], ids=str)
@pytest.mark.parametrize("precision", [EXACT, FAST])
def test_the_meaning_stays(kind: str, sizes: tuple[int, int], precision: str) -> None:
    before = built(kind)
    after = Channels(precision).run(before)
    n, h = sizes
    shape = (n, 3 if kind.startswith("conv") else CHANNELS, h, h)
    feeds = {"x": numbers(*shape, seed=h)}
    expected = evaluate(before, feeds, precision=float64)
    found = evaluate(after, feeds, precision=float64)
    for name in expected:  # new constants are rounded to float32
        numpy.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)


def operations(graph: Graph) -> list[str]:
    """The functions that the bodies of pointwise statements apply, in order."""
    bodies = [line.statement.body for line in unpack(graph) if not line.statement.combine]
    return [part.function for body in bodies for part in _applied(body)]


def _applied(expr: object) -> list:
    arguments = getattr(expr, "arguments", ())
    inner = [found for argument in arguments for found in _applied(argument)]
    return [*inner, expr] if arguments else inner


def test_a_normalised_value_is_scaled_and_shifted_once() -> None:
    assert operations(Channels(FAST).run(built("value"))) == ["mul", "add"]
    assert operations(Channels(FAST).run(built("chain"))) == ["mul", "add", "max"]


def test_a_quotient_stays_one() -> None:
    assert operations(Channels().run(built("value"))) == ["sub", "div", "mul", "add"]


def test_weights_take_the_scale_in() -> None:
    graph = Channels(FAST).run(built("convolution"))
    assert operations(graph) == ["add", "max"]
    (product,) = (line.statement for line in unpack(graph) if line.statement.combine)
    assert any(r.tensor.endswith("weights") for r in reads(product.body))


def test_what_others_read_keeps_its_scale() -> None:
    assert "mul" in operations(Channels().run(built("convolution used twice")))
    assert "mul" in operations(Channels().run(built("conv, relu before")))


def test_a_scale_that_is_not_finite_stays_out_of_the_weights() -> None:
    g = ad.Builder("infinite")
    x = g.input("x", ad.float32, (1, 3, 4, 4))
    scale = numbers(CHANNELS, 1, 1)
    scale[2] = numpy.inf
    g.output("y", convolution(g, x) * g.constant(scale))
    graph = Channels().run(Simplify().run(Lower().run(g.graph())))
    assert operations(graph) == ["mul"]
