"""Promise: rows of float16 are added up in float32, and divided without leaving float16's range."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, bfloat16, convert_array
from tests.ops.window_cases import convolved


def column(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1, shape).astype(np.float16)


@pytest.mark.parametrize("axis", (0, 1))
def test_a_long_sum_keeps_growing(axis: int) -> None:
    g = ad.Builder("long_sum")
    x = g.input("x", ad.float16, (g.dim("n"), g.dim("m")))
    g.output("y", g.reduce_sum(x, axes=(axis,)))
    model = ad.compile(g.graph())
    for shape in ((5000, 3), (3, 5000), (17, 4099)):
        array = column(*shape)
        want = array.astype(np.float64).sum(axis)
        np.testing.assert_allclose(model(x=array)["y"], want, rtol=1e-3)


def test_a_small_divisor_of_a_row_has_a_reciprocal_out_of_range() -> None:
    g = ad.Builder("small_divisor")
    x = g.input("x", ad.float16, (g.dim("n"), g.dim("m")))
    g.output("y", x / g.reduce_max(x, axes=(1,), keepdims=True))
    array = column(4, 33) * np.float16(1e-5)
    came = ad.compile(g.graph())(x=array)["y"]
    np.testing.assert_allclose(came, array / array.max(1, keepdims=True), rtol=2e-3)


@pytest.mark.parametrize("dtype", (ad.float16, bfloat16), ids=str)
def test_products_are_added_up_in_float32(dtype: DType) -> None:
    """One rounding of the sum, then one for each operation that follows."""
    chance = np.random.default_rng(2)
    g = ad.Builder("product")
    x = g.input("x", dtype, (g.dim("n"), 50))
    w = g.input("w", dtype, (50, 33))
    g.output("y", g.matmul(x, w))
    weights = chance.standard_normal((50, 33)).astype(dtype.numpy)
    g.output("z", g.matmul(x, g.constant(weights)))
    model = ad.compile(g.graph())
    assert model.explain(details=True).count("because: a matrix product") == 2
    for n in (0, 1, 9, 40):
        a = chance.standard_normal((n, 50)).astype(dtype.numpy)
        for name, b in model(x=a, w=weights).items():
            assert b.dtype == dtype.numpy
            exact = a.astype(np.float64) @ weights.astype(np.float64)
            wanted = convert_array(exact, dtype.numpy).astype(np.float64)
            unit = np.spacing(np.float32(1)) * 2 ** (16 if dtype == bfloat16 else 13)
            error = abs(b.astype(np.float64) - wanted)
            assert (error <= unit * abs(wanted) + 1e-6).all(), name


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("channels", (3, 32))
@pytest.mark.parametrize("dtype", (ad.float16, bfloat16), ids=str)
def test_convolutions_run_as_those_of_float32(dtype: DType, channels: int) -> None:
    """One rounding of the sum, one of the sum with its bias: 2 units of the narrow type."""
    chance = np.random.default_rng(4)
    g = ad.Builder("convolution")
    x = g.input("x", dtype, (g.dim("n"), channels, g.dim("h"), g.dim("v")))
    w = chance.standard_normal((33, channels, 3, 3)).astype(dtype.numpy)
    b = chance.standard_normal(33).astype(dtype.numpy)
    y = g.conv(x, g.constant(w), g.constant(b), pads=(1, 1, 1, 1))
    g.output("y", g.relu(y))
    model = ad.compile(g.graph())
    assert "window_reduction" not in model.explain(details=True)
    for n, *places in ((0, 4, 4), (1, 1, 1), (2, 9, 17), (1, 16, 0)):
        a = chance.standard_normal((n, channels, *places)).astype(dtype.numpy)
        wide = (part.astype(np.float64) for part in (a, w, b))
        want = convolved(*wide, pads=(1, 1, 1, 1)).clip(0)
        came = model(x=a)["y"]
        assert came.dtype == dtype.numpy and came.shape == want.shape
        unit = 2.0**-10 if dtype == ad.float16 else 2.0**-7
        largest = np.abs(want).max(initial=1)
        np.testing.assert_allclose(came.astype(np.float64), want, rtol=0, atol=2 * unit * largest)
