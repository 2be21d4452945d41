"""Graphs that the tests of the passes share: name -> builder of a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy

import anydim as ad
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.nodes import Graph


def weights(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((seed, *shape)).standard_normal(shape, numpy.float32) / 4


def pointwise_chain() -> Graph:
    g = ad.Builder("pointwise_chain")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 5))
    g.output("y", g.tanh((x * 2.0 + 1.0) / 3.0) * x)
    return g.graph()


def dense_gelu() -> Graph:
    g = ad.Builder("dense_gelu")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 12))
    h = g.matmul(x, g.constant(weights(12, 20))) + g.constant(weights(20))
    g.output("y", h * (g.erf(h / 1.4142135) + 1.0) * 0.5)
    return g.graph()


def residual_norm() -> Graph:
    g = ad.Builder("residual_norm")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 16))
    y = g.matmul(x, g.constant(weights(16, 16))) + x
    scale, bias = g.constant(weights(16)), g.constant(weights(16, seed=1))
    g.output("y", g.layer_norm(y, scale, bias, axis=-1, epsilon=1e-5))
    return g.graph()


def written_out_norm() -> Graph:
    """Layer normalisation from reductions and arithmetic, as old exporters write it."""
    g = ad.Builder("written_out_norm")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 16))
    centred = x - g.reduce_mean(x, axes=(1,), keepdims=True)
    variance = g.reduce_mean(centred * centred, axes=(1,), keepdims=True)
    g.output("y", centred / g.sqrt(variance + 1e-5))
    return g.graph()


def heads(g: ad.Builder, x: Value, perm: tuple[int, ...], seed: int) -> Value:
    batch, seq, _ = x.shape
    y = g.matmul(x, g.constant(weights(24, 24, seed=seed)))
    return g.transpose(g.reshape(y, shape=(batch, seq, 3, 8)), perm=perm)


def attention() -> Graph:
    g = ad.Builder("attention")
    batch, seq = g.dim("batch", 0, 8), g.dim("seq", 1, 40)
    x = g.input("x", ad.float32, (batch, seq, 24))
    mask = g.input("mask", ad.float32, (batch, 1, 1, seq))
    q, k = heads(g, x, (0, 2, 1, 3), 1), heads(g, x, (0, 2, 3, 1), 2)
    v = heads(g, x, (0, 2, 1, 3), 3)
    p = g.softmax(g.matmul(q, k) / 2.8 + mask, axis=-1)
    out = g.transpose(g.matmul(p, v), perm=(0, 2, 1, 3))
    g.output("y", g.reshape(out, shape=(batch, seq, 24)))
    return g.graph()


def scaled_heads() -> Graph:
    """Queries and keys are scaled behind views; one of them is a result besides."""
    g = ad.Builder("scaled_heads")
    batch, seq = g.dim("batch", 0, 8), g.dim("seq", 0, 40)
    x = g.input("x", ad.float32, (batch, seq, 24))
    q = heads(g, x, (0, 2, 1, 3), 1) * 0.5
    k = g.exp(g.transpose(heads(g, x, (0, 2, 1, 3), 2), perm=(0, 1, 3, 2)) * 0.25)
    v = g.relu(heads(g, x, (0, 2, 1, 3), 3))
    g.output("y", g.matmul(g.matmul(q, k), v))
    g.output("v", v)
    return g.graph()


def views() -> Graph:
    g = ad.Builder("views")
    n, m = g.dim("n", 0, 12), g.dim("m", 0, 12)
    x = g.input("x", ad.float32, (n, 6, m))
    flat = g.reshape(g.transpose(x, perm=(2, 0, 1)), shape=(m, n * 6))
    g.output("y", flat + 1.0)
    g.output("z", g.reshape(x * 2.0, shape=(n * 6, m)))
    return g.graph()


def keepdims_outputs() -> Graph:
    g = ad.Builder("keepdims_outputs")
    n = g.dim("n", 0, 40)
    x = g.input("x", ad.float32, (n, 7))
    total = g.reduce_sum(x, axes=(1,), keepdims=True)
    g.output("total", total)
    g.output("share", x / (total + 10.0))
    return g.graph()


def two_consumers() -> Graph:
    """A value that leaves its group and is used inside it; and one computed twice."""
    g = ad.Builder("two_consumers")
    n = g.dim("n", 0, 40)
    x = g.input("x", ad.float32, (n, 9))
    a, b = g.exp(x), g.exp(x)
    w = g.constant(weights(9, 4))
    g.output("y", g.matmul(a, w))
    g.output("z", a + b)
    return g.graph()


def column_mean() -> Graph:
    g = ad.Builder("column_mean")
    batch, seq = g.dim("batch", 0, 5), g.dim("seq", 1, 20)
    x = g.input("x", ad.float32, (batch, seq, 10))
    mask = g.input("mask", ad.int64, (batch, seq))
    weight = g.cast(g.unsqueeze(mask, axes=(2,)), to="float32")
    total = g.reduce_sum(x * weight, axes=(1,), keepdims=False)
    g.output("y", total / (g.reduce_sum(weight, axes=(1,), keepdims=False) + 1.0))
    return g.graph()


def gates() -> Graph:
    """Sums of two inputs that are used in three parts."""
    g = ad.Builder("gates")
    n, h = g.dim("n", 0, 64), g.dim("h", 0, 64)
    x, y = g.input("x", ad.float32, (n, 3 * h)), g.input("y", ad.float32, (n, 3 * h))
    both = x + y * 2.0
    parts = [g.slice(both, starts=(k * h,), ends=(k * h + h,), axes=(1,)) for k in range(3)]
    g.output("z", g.sigmoid(parts[0]) * g.tanh(parts[1]) + parts[2])
    return g.graph()


GRAPHS: dict[str, Callable[[], Graph]] = {
    make.__name__: make
    for make in (
        pointwise_chain, dense_gelu, residual_norm, written_out_norm, attention, scaled_heads,
        views, keepdims_outputs, two_consumers, column_mean, gates,
    )
}  # fmt: skip


def draw(graph: Graph, sizes: dict[str, int], seed: int = 0) -> dict[str, numpy.ndarray]:
    """Inputs of a graph at given sizes."""
    random = numpy.random.default_rng((seed, *sizes.values()))
    inputs = {}
    for name in graph.inputs:
        kind = graph.types[name]
        shape = tuple(size.evaluate(sizes) for size in kind.shape)
        if kind.dtype.is_float:
            inputs[name] = random.standard_normal(shape).astype(kind.dtype.numpy)
        else:
            inputs[name] = random.integers(0, 2, shape).astype(kind.dtype.numpy)
    return inputs


def some_sizes(graph: Graph) -> list[dict[str, int]]:
    """The lowest sizes of the box, ones, and a few primes inside it."""
    points = []
    for wanted in (0, 1, 3, 17):
        point = {}
        for shift, dim in enumerate(graph.box.dims):
            high = wanted + shift if dim.hi is None else dim.hi
            point[dim.name] = min(max(wanted + shift, dim.lo), high)
        points.append(point)
    return points
