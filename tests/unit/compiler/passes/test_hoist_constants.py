"""Groups that differ in numbers alone read them, and are one kernel with the same results."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.compiler.frontends.builder import Value

SLOPES = (0.3, 0.7, 1.5, 3.1)


def wave(size: int) -> numpy.ndarray:
    return numpy.sin(numpy.arange(2 * size, dtype=numpy.float32) + 1).reshape(2, size) * 4


def layers(kind: str) -> ad.Builder:
    """A chain of layers of one form; each has a slope and a shift of its own."""
    g = ad.Builder("layers")
    n, c = g.dim("n", 0, 64), 8
    x: Value = g.input("x", ad.float32, (n, c))
    weights = numpy.linspace(-1, 1, c * c, dtype=numpy.float32).reshape(c, c)
    for number, slope in enumerate(SLOPES):
        low = g.constant(numpy.float32(slope)), g.constant(numpy.float32(-0.1 * (number + 1)))
        x = g.matmul(x, g.constant(weights + number))
        if kind == "rows":
            x = g.softmax(x)
        if kind == "quantised":
            code = g.clip(g.round(x / low[0]), -9.0, 9.0) + g.constant(numpy.float32(number + 1))
            x = code * low[0]
        else:
            x = g.tanh(x * low[0] + low[1]) * numpy.float32(0.5)
    g.output("y", x)
    return g


def expected(kind: str, x: numpy.ndarray) -> numpy.ndarray:
    c = x.shape[1]
    weights = numpy.linspace(-1, 1, c * c, dtype=numpy.float32).reshape(c, c)
    y = x.astype(numpy.float64)
    for number, slope in enumerate(SLOPES):
        slope, shift = numpy.float32(slope), numpy.float32(-0.1 * (number + 1))
        y = y @ (weights + number).astype(numpy.float64)
        if kind == "rows":
            powers = numpy.exp(y - y.max(-1, keepdims=True))
            y = powers / powers.sum(-1, keepdims=True)
        if kind == "quantised":
            y = (numpy.clip(numpy.round(y / slope), -9, 9) + number + 1) * slope
        else:
            y = numpy.tanh(y * slope + shift) * 0.5
    return y


@pytest.mark.parametrize("kind", ["products", "rows", "quantised"])
def test_layers_share_a_kernel(kind: str) -> None:
    model = ad.compile(layers(kind))
    kinds = 2 if kind == "rows" else 1
    assert len(model.report.chosen) == kinds * len(SLOPES)
    assert len(model.report.kernels) == kinds
    for size in (0, 1, 7, 8, 64, 3):
        x = numpy.resize(wave(8), (size, 8))
        got = model(x=x)["y"]
        # exact sums of eight terms; tanh and exp are within some units of the last place
        numpy.testing.assert_allclose(got, expected(kind, x), rtol=2e-4, atol=2e-5)


def test_what_all_have_in_common_stays_a_literal() -> None:
    text = ad.compile(layers("rows")).report.stages["schedule"]()
    assert "float32(0.5)" in text
    assert "float32(0.7" not in text


def test_numbers_that_a_kernel_may_use_are_not_read() -> None:
    """Limits and powers stay what they are: two kernels."""
    g = ad.Builder("limits")
    x = g.input("x", ad.float32, (g.dim("n", 0, 8), 4))
    for limit in (1.0, 2.0):
        x = g.clip(g.softmax(x), 0.0, limit)
    g.output("y", x)
    model = ad.compile(g)
    assert "numbers" not in model.report.stages["schedule"]()
