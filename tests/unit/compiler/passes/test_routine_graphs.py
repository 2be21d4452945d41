"""Promise: routines run inside compiled graphs, between other operators, at every size."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.kernels.routines.cumulative import PIECE, ROWS
from anydim.sizes import as_size

SIZES = [(0, 5), (3, 0), (1, 1), (2, 7), (5, 130), (1, 70000)]


def ranking() -> ad.Builder:
    """What follows and what comes before are other operators."""
    g = ad.Builder("ranking")
    n = g.dim("n", 0, 100_000)
    r = g.dim("r", 0, 64)
    x = g.input("x", ad.float32, (r, n))
    scores = g.softmax(x)
    best, places = g.top_k(scores, k=as_size("n") // 3, axis=1)
    g.output("best", best * 2.0)
    g.output("chosen", g.gather_elements(x, places, axis=1))
    values, order = g.sort(x, axis=0, descending=True)
    g.output("sorted", values + 1.0)
    g.output("order", order)
    g.output("sums", g.cum_sum(values, axis=1))
    return g


@pytest.mark.parametrize("threads", [1, 2])
def test_between_other_operators(threads):
    graph = ranking().graph()
    model = ad.compile(graph, threads=threads)
    for r, n in SIZES:
        x = np.random.default_rng(n).standard_normal((r, n)).astype(np.float32)
        found, right = model(x=x), evaluate(graph, {"x": x})
        for name in graph.outputs:
            np.testing.assert_allclose(found[name], right[name], rtol=1e-4, atol=1e-3)


def test_results_that_nobody_reads():
    g = ad.Builder("places")
    n = g.dim("n", 1, 1000)
    x = g.input("x", ad.int64, (n,))
    _, first, inverse, _, count = g.unique_fill(x)
    g.output("inverse", inverse)
    g.output("count", count)
    model = ad.compile(g.graph())
    for size in (1, 2, 1000):
        x = np.random.default_rng(size).integers(0, 50, size)
        values, inverse = np.unique(x, return_inverse=True)
        found = model(x=x)
        assert found["count"].tolist() == [len(values)]
        np.testing.assert_array_equal(found["inverse"], inverse)
    assert first.dtype == ad.int64


def test_boxes_in_a_graph():
    g = ad.Builder("boxes")
    n = g.dim("n", 0, 1000)
    boxes = g.input("boxes", ad.float32, (1, n, 4))
    scores = g.input("scores", ad.float32, (1, 2, n))
    limits = np.array(5), np.array([0.5], np.float32), np.array([0.1], np.float32)
    rows, count = g.non_max_suppression_fill(boxes, scores, *limits)
    g.output("rows", rows)
    g.output("count", count)
    graph = g.graph()
    model = ad.compile(graph)
    for size in (0, 1, 40, 1000):
        random = np.random.default_rng(size)
        corner = random.random((1, size, 2), np.float32) * 4
        given = {
            "boxes": np.concatenate([corner, corner + 1], -1),
            "scores": random.random((1, 2, size), np.float32),
        }
        found, right = model(**given), evaluate(graph, given)
        kept = right["count"][0]
        assert found["count"][0] == kept
        np.testing.assert_array_equal(found["rows"][:kept], right["rows"][:kept])


@pytest.mark.parametrize("axis", [0, 1])
def test_threads_share_a_long_row(axis):
    size = 40 * (PIECE if axis else ROWS) + 11
    shape = (2, size) if axis else (size, 21)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    found = []
    for threads in (1, 2, 3, 7):
        g = ad.Builder("sums")
        sizes = g.dim("n", 0, 1 << 20), g.dim("m", 0, 1 << 20)
        g.output("y", g.cum_sum(g.input("x", ad.float32, sizes), axis=axis))
        model = ad.compile(g.graph(), threads=threads)
        found += [model(x=x)["y"] for _ in range(10)]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
