"""Promise: rows of float16 are added up in float32, and divided without leaving float16's range."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad


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
