"""Promise: a time limit ends a product or convolution of constant weights in mid-work."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

import anydim as ad
from anydim.base import dtypes


def product(threads: int) -> tuple[ad.Model, np.ndarray]:
    """Rows by constant weights."""
    g = ad.Builder("product")
    x = g.input("x", dtypes.float32, (g.dim("n"), 2048))
    g.output("y", g.matmul(x, g.constant(np.ones((2048, 2048), np.float32))))
    return ad.compile(g, threads=threads, strategy="generic"), np.ones((4096, 2048), np.float32)


def convolution(threads: int) -> tuple[ad.Model, np.ndarray]:
    """Images by constant weights."""
    g = ad.Builder("convolution")
    x = g.input("x", dtypes.float32, (g.dim("n"), 64, 64, 64))
    weights = g.constant(np.ones((128, 64, 5, 5), np.float32))
    g.output("y", g.conv(x, weights, pads=(2,) * 4))
    return ad.compile(g, threads=threads, strategy="generic"), np.ones((16, 64, 64, 64), np.float32)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [product, convolution])
def test_a_limit_ends_a_long_product(
    make: Callable[[int], tuple[ad.Model, np.ndarray]], threads: int
) -> None:
    model, x = make(threads)
    start = time.process_time()
    whole = model(x=x)["y"]
    full = time.process_time() - start
    model.limit_time(0.001)
    start = time.process_time()
    with pytest.raises(ad.TimeLimitError):
        model(x=x)
    assert time.process_time() - start < full * 0.7
    model.limit_time(None)
    assert model(x=x)["y"].tobytes() == whole.tobytes()
