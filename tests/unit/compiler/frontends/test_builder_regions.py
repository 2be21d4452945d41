"""Promise: branches, loops and sizes that data decides can be written in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import boolean, float32, int64
from anydim.base.errors import GraphError, InputError
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.verify import verify
from anydim.sizes import Guard, as_size

SIZES = (0, 1, 7, 8, 9, 13)


def both(g: Builder, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Results of the numpy evaluator and of native code, which have to agree."""
    graph = verify(g.graph())
    meant = evaluate(graph, inputs)
    made = ad.compile(graph)(**inputs)
    for name, value in meant.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-5, atol=1e-6)
    return meant


def test_a_branch_with_values_from_outside() -> None:
    g = Builder("choice")
    n = g.dim("n", 0, 64)
    x, c = g.input("x", float32, (n,)), g.input("c", boolean, ())
    w = g.constant(np.float32([2]))
    g.output("y", g.branch(c, lambda b: b.concat(x, x, axis=0), lambda b: x * w))
    for size in SIZES:
        for chosen in (True, False):
            data = np.arange(size, dtype=np.float32)
            found = both(g, {"x": data, "c": np.array(chosen)})["y"]
            expected = np.concatenate([data, data]) if chosen else data * 2
            np.testing.assert_array_equal(found, expected)


def test_a_branch_on_sizes() -> None:
    g = Builder("by_size")
    n = g.dim("n", 0, 64)
    x = g.input("x", float32, (n,))
    small = Guard(n, "<", as_size(8), "small")
    g.output("y", g.branch(small, lambda b: -x, lambda b: b.exp(x)))
    for size in SIZES:
        data = np.linspace(0, 1, size, dtype=np.float32)
        found = both(g, {"x": data})["y"]
        np.testing.assert_allclose(found, -data if size < 8 else np.exp(data), rtol=1e-6)


def test_a_loop_whose_state_grows_has_exact_sizes() -> None:
    g = Builder("growing")
    n, m = g.dim("n", 0, 16), g.dim("m", 0, 16)
    x, w = g.input("x", float32, (n,)), g.input("w", float32, (m,))

    def body(b: Builder, t: Any, state: Any) -> Any:
        now = b.slice(w, starts=(t,), ends=(t + 1,), axes=(0,))
        longer = b.concat(state, now, axis=0)
        b.stack(b.reduce_sum(longer, axes=(0,), keepdims=False))
        return longer

    end, sums = g.loop(body, x, trips=m)
    assert end.shape == (n + m,)
    assert sums.shape == (m,)
    g.output("end", end)
    g.output("sums", sums)
    for size in SIZES:
        inputs = {"x": np.ones(3, np.float32), "w": np.arange(size, dtype=np.float32)}
        found = both(g, inputs)
        np.testing.assert_array_equal(found["end"], np.concatenate([inputs["x"], inputs["w"]]))
        np.testing.assert_allclose(found["sums"], 3 + np.cumsum(inputs["w"]))


def test_a_loop_that_asks_each_time() -> None:
    g = Builder("halving")
    x = g.input("x", float32, ())
    one = g.constant(np.float32(1))

    def body(b: Builder, t: Any, value: Any) -> Any:
        half = value * 0.5
        b.stack(half)
        b.proceed(half > one)
        return half

    last, seen = g.loop(body, x, condition=x > one)
    g.output("last", last)
    g.output("seen", seen)
    for start in (0.5, 1.5, 100.0):
        found = both(g, {"x": np.float32(start)})
        expected = []
        value = start
        while value > 1:
            value /= 2
            expected.append(value)
        np.testing.assert_allclose(found["seen"], expected)
        assert found["last"] == value


def test_sizes_that_data_decides() -> None:
    g = Builder("found")
    n = g.dim("n", 0, 64)
    x, keep = g.input("x", float32, (n,)), g.input("keep", boolean, (n,))
    count = g.input("count", int64, ())
    k = g.find(count, "k", 0, 64, most=n)
    g.output("front", g.slice(x, starts=(0,), ends=(k,), axes=(0,)))
    g.output("kept", g.compress(x, keep, axis=0))
    g.output("places", g.nonzero(x))
    values, *_ = g.unique(x)
    g.output("values", values)
    rng = np.random.default_rng(1)
    for size in SIZES:
        data = rng.integers(-1, 2, size).astype(np.float32)
        mask = rng.random(size) < 0.5
        found = both(g, {"x": data, "keep": mask, "count": np.array(size // 2)})
        np.testing.assert_array_equal(found["front"], data[: size // 2])
        np.testing.assert_array_equal(found["kept"], data[mask])
        np.testing.assert_array_equal(found["places"], np.array(np.nonzero(data)))
        np.testing.assert_array_equal(found["values"], np.unique(data))
    inputs = {"x": np.ones(3, np.float32), "keep": np.ones(3, bool), "count": np.array(4)}
    with pytest.raises(InputError, match="data-dependent size"):
        evaluate(g.graph(), inputs)


def test_detections() -> None:
    g = Builder("detector")
    n = g.dim("n", 0, 64)
    boxes, scores = g.input("boxes", float32, (1, n, 4)), g.input("scores", float32, (1, 2, n))
    numbers = [g.constant(np.array(v)) for v in (np.int64(3), np.float32(0.5), np.float32(0.2))]
    g.output("kept", g.non_max_suppression(boxes, scores, *numbers))
    rng = np.random.default_rng(4)
    for size in SIZES:
        low = rng.uniform(0, 3, (1, size, 2))
        box = np.concatenate([low, low + 1], axis=2).astype(np.float32)
        score = rng.random((1, 2, size)).astype(np.float32)
        both(g, {"boxes": box, "scores": score})


def test_bodies_that_do_not_fit_are_refused() -> None:
    g = Builder("wrong")
    n = g.dim("n", 0, 64)
    x, c = g.input("x", float32, (n,)), g.input("c", boolean, ())
    with pytest.raises(GraphError, match="number of axes must not change"):
        g.loop(lambda b, t, v: b.unsqueeze(v, axes=(0,)), x, trips=3)
    with pytest.raises(GraphError, match="with 1 and 2 axes"):
        g.branch(c, lambda b: b.neg(x), lambda b: b.unsqueeze(x, axes=(0,)))
    with pytest.raises(GraphError, match="is declared already"):
        g.find(g.input("k", int64, ()), "n")
    other = Builder("other").input("z", float32, ())
    with pytest.raises(GraphError, match="no value of the graph"):
        g.neg(other)


def test_the_limits_of_a_suppression_may_be_numbers() -> None:
    g = Builder("kept")
    n = g.dim("n", 0, 10)
    boxes, scores = g.input("b", float32, (1, n, 4)), g.input("s", float32, (1, 1, n))
    g.output("kept", g.non_max_suppression(boxes, scores, 2, 0.5, 0.1))
    corners = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6], [8, 8, 9, 9]]], np.float32)
    ranked = np.array([[[0.8, 0.9, 0.05, 0.2]]], np.float32)
    assert ad.compile(g)(corners, ranked)["kept"].tolist() == [[0, 0, 1], [0, 0, 3]]
