"""Attention of queries to keys of another number, with a mask: programs, inputs, their meaning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy

import anydim as ad
from anydim.base.dtypes import float32

HEADS = 3
# queries and keys: none, one, ends of tiles and blocks, and past them
SIZES = ((0, 5), (5, 0), (1, 1), (1, 1000), (17, 17), (15, 64), (64, 65), (65, 64), (1000, 1000))


def attention(depth: int) -> ad.Builder:
    """Scores, a mask of each key, softmax, the weighted sum; of 3 heads."""
    g = ad.Builder("attention")
    b, m, n = g.dim("b", 0, 8), g.dim("m", 0, 2048), g.dim("n", 0, 2048)
    q = g.input("q", float32, (b, HEADS, m, depth))
    k, v = (g.input(name, float32, (b, HEADS, n, depth)) for name in "kv")
    mask = g.input("mask", float32, (b, 1, 1, n))
    scores = g.mul(g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2))), depth**-0.5)
    g.output("y", g.matmul(g.softmax(g.add(scores, mask), axis=-1), v))
    return g


def inputs(depth: int, queries: int, keys: int, batch: int = 2) -> dict[str, numpy.ndarray]:
    """Some of the keys are masked, but not all of them."""
    chance = numpy.random.default_rng([depth, queries, keys])

    def drawn(rows: int) -> numpy.ndarray:
        return 2 * chance.standard_normal((batch, HEADS, rows, depth))

    mask = numpy.where(chance.random((batch, 1, 1, keys)) < 0.3, -numpy.inf, 0.0)
    mask[..., : keys // 2 + 1] = 0.0
    made = {"q": drawn(queries), "k": drawn(keys), "v": drawn(keys), "mask": mask}
    return {name: array.astype(numpy.float32) for name, array in made.items()}


def expected(given: Mapping[str, numpy.ndarray]) -> numpy.ndarray:
    """The result in float64."""
    q, k, v, mask = (given[name].astype(numpy.float64) for name in ("q", "k", "v", "mask"))
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + mask
    powers = numpy.exp(scores - scores.max(-1, keepdims=True, initial=-numpy.inf))
    return (powers / powers.sum(-1, keepdims=True)) @ v
