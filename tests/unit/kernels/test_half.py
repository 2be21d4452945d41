"""Promise: rows of float16 are added up in float32, and divided without leaving float16's range."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, bfloat16, converted


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
    assert model.explain().count("a matrix product") == 2
    for n in (0, 1, 9, 40):
        a = chance.standard_normal((n, 50)).astype(dtype.numpy)
        for name, b in model(x=a, w=weights).items():
            assert b.dtype == dtype.numpy
            exact = a.astype(np.float64) @ weights.astype(np.float64)
            wanted = converted(exact, dtype.numpy).astype(np.float64)
            unit = np.spacing(np.float32(1)) * 2 ** (16 if dtype == bfloat16 else 13)
            error = abs(b.astype(np.float64) - wanted)
            assert (error <= unit * abs(wanted) + 1e-6).all(), name
