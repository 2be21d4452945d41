"""Promise: a pool's window longer than its padded axis, by less than its stride, is cut, as in
onnxruntime and onnx's inference of shapes."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import anydim as ad

POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "max": ("max_pool", {}),
    "mean": ("average_pool", {"count_padding": False}),
    "mean of padding": ("average_pool", {"count_padding": True}),
    "norm": ("lp_pool", {"p": 2}),
}
WINDOWS = [
    (kernel, stride, pads)
    for kernel, stride, pads in product((2, 3, 5), (1, 2, 4), ((0, 0), (1, 0), (0, 1), (1, 1)))
]


def expected(kind: str, x: np.ndarray, kernel: int, stride: int, pads: tuple[int, int]) -> Any:
    """The pool of a vector in float64, window after window."""
    before, after = pads
    slack = len(x) + before + after - kernel
    count = int(slack / stride) + 1 if slack > -stride else 0
    found = []
    for first in (n * stride - before for n in range(count)):
        end = min(first + kernel, len(x) + after)
        taps = x[max(first, 0) : end].astype(np.float64)
        found.append({
            "max": partial(np.max, taps), "mean": partial(np.mean, taps),
            "mean of padding": lambda t=taps, n=end - first: t.sum() / n,
            "norm": partial(np.linalg.norm, taps),
        }[kind]())  # fmt: skip
    return np.array(found)


def pool(kind: str, kernel: tuple[int, ...], strides: Any, pads: Any, shape: Any) -> ad.Model:
    operator, more = POOLS[kind]
    g = ad.Builder("pool")
    sizes = [g.dim(size, 0, 64) if isinstance(size, str) else size for size in shape]
    x = g.input("x", ad.float32, (1, 2, *sizes))
    g.output("y", getattr(g, operator)(x, kernel=kernel, strides=strides, pads=pads, **more))
    return ad.compile(g)


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize(("kernel", "stride", "pads"), WINDOWS)
def test_along_one_axis(kind: str, kernel: int, stride: int, pads: tuple[int, int]) -> None:
    free = pool(kind, (kernel,), (stride,), pads, ("n",))
    for n in range(1, 7):
        x = np.random.default_rng(n).standard_normal((1, 2, n)).astype(np.float32)
        right = np.stack([expected(kind, row, kernel, stride, pads) for row in x[0]])
        found = free(x=x)["y"]
        assert found.shape == (1, *right.shape), n
        np.testing.assert_allclose(found[0], right, rtol=1e-5, atol=1e-6)
        if n in (1, kernel - 1):
            again = pool(kind, (kernel,), (stride,), pads, (n,))(x=x)["y"]
            np.testing.assert_array_equal(again, found)
    if pads == (0, 0):
        assert free(x=np.zeros((1, 2, 0), np.float32))["y"].shape == (1, 2, 0)


@pytest.mark.parametrize("kind", POOLS)
def test_along_two_axes(kind: str) -> None:
    """One after the other, as each window is the product of one along each axis."""
    model = pool(kind, (2, 3), (2, 2), (0, 1, 0, 0), ("h", "w"))
    for h, w in product((1, 2, 3, 16, 17), (1, 2, 4, 17)):
        x = np.random.default_rng(h + w).standard_normal((1, 2, h, w)).astype(np.float32)
        columns = np.apply_along_axis(lambda v: expected(kind, v, 2, 2, (0, 0)), 2, x)
        right = np.apply_along_axis(lambda v: expected(kind, v, 3, 2, (1, 0)), 3, columns)
        found = model(x=x)["y"]
        assert found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def test_places_of_a_short_axis() -> None:
    g = ad.Builder("places")
    x = g.input("x", ad.float32, (1, 1, g.dim("h", 0, 64), g.dim("w", 0, 64)))
    y, places = g.max_pool(x, kernel=(2, 2), strides=(2, 2), indices=True)
    g.output("y", y)
    g.output("places", places)
    model = ad.compile(g)
    given = np.array([[[[3.0], [5.0], [1.0]]]], np.float32)
    found = model(x=given)
    assert found["y"].tolist() == [[[[5.0]]]]
    assert found["places"].tolist() == [[[[1]]]]
    assert model(x=given[:, :, :0])["y"].shape == (1, 1, 0, 1)
