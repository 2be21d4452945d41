"""Inputs that are indices are found through casts and moves, with where they have to lie."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import float32, int32, int64
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.indices import index_ranges
from anydim.sizes import as_size

TABLE = np.zeros((30, 4), np.float32)


def ranges(build):
    g = Builder("g")
    n = g.dim("n", 0, 8)
    ids, x = g.input("ids", int64, (n, 3)), g.input("x", float32, (n, 4))
    g.output("y", build(g, g.constant(TABLE), ids, x))
    return index_ranges(g.graph())


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda g, t, ids, x: g.gather(t, ids), 29),
        (lambda g, t, ids, x: g.gather(t, g.reshape(g.cast(ids, to=int32), shape=(-1,))), 29),
        (lambda g, t, ids, x: g.gather(x, g.transpose(ids)), as_size("n") - 1),
        (lambda g, t, ids, x: g.gather(t, ids, axis=1), 3),
        (lambda g, t, ids, x: g.gather(t, ids) + g.gather(g.constant(TABLE[:7]), ids), 6),
    ],
)
def test_an_input_that_is_indices(build, expected):
    assert ranges(build) == {"ids": (0, as_size(expected))}


@pytest.mark.parametrize(
    "build",
    [
        lambda g, t, ids, x: g.gather(t, ids + ids),
        lambda g, t, ids, x: x,
        lambda g, t, ids, x: g.cast(ids, to=float32),
    ],
)
def test_an_input_that_is_not(build):
    assert ranges(build) == {}


def test_a_check_draws_indices_that_are_valid():
    lib = ad.define("def embed(T(V,D) E, int64(B,L) I) -> (y) { y(b,d) +=! E(I(b,l),d) }")
    model = lib.embed.model(np.ones((3, 4)), np.zeros((2, 2), int))
    assert model.index_ranges == {"I": (0, as_size("V") - 1)}
    report = model.check(samples=40)
    assert report.ok and report.rejected < 8  # those without rows, which both refuse
