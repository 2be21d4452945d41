"""Promise: a sum over windows has the same bits whether sizes are fixed or free."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad

WINDOWS = [((2, 3), (3, 2)), ((3, 3), (2, 2)), ((2, 3), (1, 1))]


def pooled(size: int | None, window: tuple[int, int], strides: tuple[int, int]) -> ad.Model:
    g = ad.Builder("pooled")
    n = 1 if size else g.dim("n", 0, 4)
    m = size or g.dim("m", 0, 64)
    x = g.input("x", ad.float32, (n, 8, m, m))
    weights = np.random.default_rng(3).standard_normal((8, 1, *window)).astype(np.float32)
    same = {"strides": strides, "pads": "same_upper"}
    g.output("mean", g.average_pool(x, kernel=window, **same))
    g.output("filtered", g.conv(x, g.constant(weights), groups=8, **same))
    return ad.compile(g, threads=1)


@pytest.mark.parametrize(("window", "strides"), WINDOWS)
def test_fixed_and_free(window: tuple[int, int], strides: tuple[int, int]) -> None:
    free = pooled(None, window, strides)
    for size in (9, 16):
        x = np.random.default_rng(size).standard_normal((1, 8, size, size)).astype(np.float32)
        expected, came = free(x=x), pooled(size, window, strides)(x=x)
        for name in ("mean", "filtered"):
            np.testing.assert_array_equal(came[name], expected[name], err_msg=f"{name} {size}")
