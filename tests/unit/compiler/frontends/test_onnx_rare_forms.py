"""Promise: forms of nodes that the standard allows and few files have, at sizes 0, 1 and others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import anydim as ad
from anydim.compiler.frontends.builder import Builder
from tests.unit.compiler.frontends.models import model, node


def beside(proto, **feeds):
    (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    (made,) = ad.compile(proto)(**feeds).values()
    assert made.dtype == expected.dtype and made.shape == expected.shape
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("kind", ["f", "l", "b", "u"])
def test_the_places_of_a_scalar(kind):
    proto = model([node("y = NonZero(x)")], [f"x {kind}[]"], ["y"])
    dtype = {"f": np.float32, "l": np.int64, "b": bool, "u": np.uint8}[kind]
    for value in (0, 1):
        beside(proto, x=np.array(value, dtype))


def test_the_places_of_a_scalar_of_a_builder():
    g = Builder("scalar")
    x = g.input("x", ad.float32, ())
    g.output("y", g.nonzero(x))
    compiled = ad.compile(g)
    for value, count in ((0, 0), (-0.0, 0), (2, 1), (np.nan, 1)):
        assert compiled(np.float32(value))["y"].shape == (0, count)


@pytest.mark.parametrize("bounds", [(0, 100), (1, 100), (-100, 100), (2, -1), (5, 2)], ids=str)
def test_a_step_that_is_a_size(bounds):
    """x[start:end:m] of n rows, m the size of another input."""
    start, end = bounds
    nodes = [node("s = Shape(w)"), node("y = Slice(x, a, b, c, s)")]
    proto = model(nodes, ["x f[n, 2]", "w f[m]"], ["y"],
                  a=np.int64([start]), b=np.int64([end]), c=np.int64([0]))  # fmt: skip
    compiled = ad.compile(proto)
    for n in (0, 1, 2, 7, 13):
        for m in (1, 2, 3, 7, 20):
            x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
            made = compiled(x=x, w=np.zeros(m, np.float32))["y"]
            np.testing.assert_array_equal(made, x[start:end:m], f"n = {n}, m = {m}")


def test_a_step_that_is_less_a_size():
    """x[::-m], and a step for each of two axes."""
    nodes = [node("s = Shape(w)"), node("t = Neg(s)"), node("u = Concat(t, k)", axis=0),
             node("y = Slice(x, a, b, c, u)")]  # fmt: skip
    proto = model(nodes, ["x f[n, 5]", "w f[m]"], ["y"], k=np.int64([2]), a=np.int64([1000, 1]),
                  b=np.int64([-1000, 1000]), c=np.int64([0, 1]))  # fmt: skip
    compiled = ad.compile(proto)
    for n in (0, 1, 2, 7, 13):
        for m in (1, 2, 3, 20):
            x = np.arange(5 * n, dtype=np.float32).reshape(n, 5)
            made = compiled(x=x, w=np.zeros(m, np.float32))["y"]
            np.testing.assert_array_equal(made, x[::-m, 1::2], f"n = {n}, m = {m}")


def test_a_step_of_0_is_an_error_of_the_call():
    nodes = [node("s = Shape(w)"), node("y = Slice(x, a, b, c, s)")]
    proto = model(nodes, ["x f[n]", "w f[m]"], ["y"],
                  a=np.int64([0]), b=np.int64([100]), c=np.int64([0]))  # fmt: skip
    compiled = ad.compile(proto)
    with pytest.raises(ad.InputError):
        compiled(x=np.ones(3, np.float32), w=np.zeros(0, np.float32))
    assert compiled(x=np.ones(3, np.float32), w=np.zeros(2, np.float32))["y"].shape == (2,)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(-1, 1), (1, -1), (-2, 2), (0, 0)], ids=str)
def test_pads_that_leave_nothing_of_an_empty_axis(mode, pads):
    proto = model([node("y = Pad(x, p)", mode=mode)], ["x f[n, 2]"], ["y"], opset=19,
                  p=np.int64([pads[0], 0, pads[1], 0]))  # fmt: skip
    compiled = ad.compile(proto)
    assert compiled(x=np.zeros((0, 2), np.float32))["y"].shape == (0, 2)
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    before, after = (max(side, 0) for side in pads)
    wide = np.pad(x, ((before, after), (0, 0)), mode)
    low, high = (max(-side, 0) for side in pads)
    np.testing.assert_array_equal(compiled(x=x)["y"], wide[low : len(wide) - high])


def test_pads_below_nothing_are_an_error():
    proto = model([node("y = Pad(x, p)")], ["x f[n]"], ["y"], p=np.int64([-1, 0]))
    with pytest.raises(ad.InputError, match="at least 1"):
        ad.compile(proto)(x=np.zeros(0, np.float32))
