"""Models of biases by distance, beside numpy: inputs, nodes, constants, and z of the inputs."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

random = np.random.default_rng(0)
TABLE = np.float32(random.standard_normal((8, 2)))  # eight buckets, two heads
W, B, E = (np.float32(random.standard_normal(s)) for s in ((4, 8), 8, (1, 2, 1, 1)))
COUNT = [node("s = Shape(x)", ""), node("q = Slice(s, o, t)", "")]
ENDS = {"o": np.int64([1]), "t": np.int64([2])}


def relative(both: bool):
    """The buckets of T5, one place after the other, with the largest distance 20."""

    def bucket(behind: int) -> int:
        first, half = 0, 8
        if both:
            half, first = 4, 4 if behind < 0 else 0
            behind = abs(behind)
        behind, exact = max(behind, 0), half // 2
        if behind < exact:
            return first + behind
        grown = np.log(behind / exact) / np.log(20 / exact) * (half - exact)
        return first + min(exact + int(grown), half - 1)

    def reference(x):
        rows = range(x.shape[1])
        return np.array([[[[TABLE[bucket(i - j), h] for j in rows] for i in rows]
                          for h in range(2)]]).reshape(1, 2, len(rows), len(rows))  # fmt: skip

    return reference


def gated(q, r):
    batch, rows, _ = q.shape
    heads = (q + B).reshape(batch, rows, 2, 4).transpose(0, 2, 1, 3)
    sums = (heads @ W + B).reshape(batch, 2, rows, 2, 4).sum(-1)
    update, reset = np.split(1 / (1 + np.exp(-sums)), 2, axis=-1)
    return (update * (reset * E - 1) + 2) * r


NUMPY = {
    "RelativePositionBias": (
        ["x f[n, m]"], [*COUNT, node("z = RelativePositionBias(w, q, q)", max_distance=20)],
        {"w": TABLE.T.reshape(8, 2), **ENDS}, relative(False)),
    "RelativePositionBias both ways": (
        ["x f[n, m]"],
        [*COUNT, node("z = RelativePositionBias(w, q, q)", max_distance=20, is_bidirectional=1)],
        {"w": TABLE.T.reshape(8, 2), **ENDS}, relative(True)),
    "GatedRelativePositionBias": (
        ["q f[n, m, 8]", "r f[1, 2, m, m]"],
        [node("z = GatedRelativePositionBias(q, b, r, w, b, e)", num_heads=2)],
        {"w": W, "b": B, "e": E}, gated),
}  # fmt: skip
