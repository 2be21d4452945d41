"""Promise: numbers that operands of a product are scaled by cost no launch, and no accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType

WEIGHTS = np.random.default_rng(0).standard_normal((8, 24)).astype(np.float32) / 4


def attention(apart: bool, dtype: DType = ad.float32) -> ad.Model:
    """Queries, keys and values of one product; queries and keys, or their scores, are scaled."""
    g = ad.Builder("attention")
    x = g.input("x", dtype, (g.dim("n"), 8))
    parts = g.matmul(x, WEIGHTS.astype(dtype.numpy))
    q, k, v = (parts[:, 8 * part : 8 * part + 8] for part in range(3))
    if apart:
        scores = g.matmul(q * 0.5, g.transpose(k, perm=(1, 0)) * 0.25)
    else:
        scores = g.matmul(q, g.transpose(k, perm=(1, 0))) * 0.125
    g.output("y", g.matmul(g.softmax(scores, axis=1), v))
    return ad.compile(g)


def wanted(x: np.ndarray) -> np.ndarray:
    q, k, v = np.split(x.astype(float) @ WEIGHTS, 3, axis=1)
    scores = q @ k.T / 8
    weights = np.exp(scores - scores.max(axis=1, initial=-np.inf, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def launches(model: ad.Model) -> int:
    return len(model.program.sites)


def test_queries_and_keys_scaled_apart() -> None:
    apart, whole = attention(True), attention(False)
    assert launches(apart) == launches(whole) == 2
    for n in (0, 1, 7, 16, 17, 300):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        assert np.allclose(apart(x)["y"], wanted(x), rtol=1e-5, atol=1e-5)  # sums of 300 float32


def test_factors_stay_in_float16() -> None:
    """Scores of values as large as these have no place in float16 unless operands are scaled."""
    model = attention(True, ad.float16)
    x = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float16) * np.float16(40)
    assert np.isfinite(model(x)["y"]).all()
    assert " unscaled" not in str(model.show("scales"))


def product(kind: str) -> ad.Model:
    g = ad.Builder("product")
    n = g.dim("n")
    x, y = (g.input(name, ad.float32, (n, 8)) for name in "xy")
    left = g.exp(x) if kind == "computed" else x
    scaled = left * {"zero": 0.0, "tiny": 2.0**-60}.get(kind, 3.0)
    if kind == "output":
        g.output("scaled", scaled)
    g.output("z", g.matmul(scaled, g.transpose(y, perm=(1, 0))))
    return ad.compile(g)


@pytest.mark.parametrize("kind, moves", [
    ("input", True), ("computed", False), ("output", False), ("zero", False),
    ("tiny", False),
])  # fmt: skip
def test_factors_that_take_a_launch_move(kind: str, moves: bool) -> None:
    model = product(kind)
    assert ("unscaled" in str(model.show("scales"))) is moves
    for n in (0, 1, 15, 33):
        x, y = np.random.default_rng(n).standard_normal((2, n, 8)).astype(np.float32)
        left = np.exp(x.astype(float)) if kind == "computed" else x.astype(float)
        right = left * {"zero": 0, "tiny": 2.0**-60}.get(kind, 3) @ y.astype(float).T
        assert np.allclose(model(x=x, y=y)["z"], right, rtol=1e-5, atol=1e-4)
