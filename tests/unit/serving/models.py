"""Small models for tests of serving."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import anydim as ad
from examples.minilm.model import SMALL, build_model, random_weights


@cache
def encoder() -> Any:
    """A small MiniLM with ragged rows of 1 to 512 tokens."""
    return ad.compile(encoder_file(), {"seq": (1, 20)}, ragged={"seq": "batch"}, threads=1)


@cache
def encoder_file() -> bytes:
    """The same as an ONNX file."""
    return build_model(SMALL, random_weights(SMALL)).SerializeToString()


@cache
def scaled() -> Any:
    """A ragged model whose results are easily known: y = 2 x, and the sum of each row."""
    g = ad.Builder("scaled")
    x = g.input("x", ad.float32, (g.dim("rows"), g.dim("n", 0, 100_000)))
    g.output("y", x * 2.0)
    g.output("total", g.reduce_sum(x, axes=(1,)))
    return ad.compile(g, ragged={"n": "rows"}, threads=1)


@cache
def images() -> Any:
    """A model without ragged dims whose rows do not depend on each other."""
    g = ad.Builder("images")
    x = g.input("x", ad.float32, (g.dim("batch", 0, 8), 3, g.dim("height", 1, 64)))
    w = g.constant(np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32))
    g.output("y", g.tanh(g.matmul(g.transpose(x, perm=(0, 2, 1)), w)))
    return ad.compile(g, threads=1)


@cache
def dependent() -> Any:
    """A model whose rows depend on each other."""
    g = ad.Builder("dependent")
    x = g.input("x", ad.float32, (g.dim("batch"), 4))
    g.output("y", x - g.reduce_mean(x, axes=(0,)))
    return ad.compile(g, threads=1)


def tokens(count: int, seed: int = 0) -> np.ndarray:
    """Tokens of a row, [1, count]."""
    return np.random.default_rng((count, seed)).integers(0, SMALL.vocabulary, (1, count))


def same(one: Any, other: Any) -> bool:
    """Whether results have the same names, shapes and bits."""
    return one.keys() == other.keys() and all(
        np.asarray(one[n]).shape == np.asarray(other[n]).shape
        and np.asarray(one[n]).tobytes() == np.asarray(other[n]).tobytes() for n in one
    )  # fmt: skip
