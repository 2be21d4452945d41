"""Models of attention: inputs, nodes, constants. Two heads of depth 4 over rows of 6 numbers."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

random = np.random.default_rng(0)
W, B = np.float32(random.standard_normal((6, 24))), np.float32(random.standard_normal(24))
WB = {"w": W, "b": B}
X = ["x f[n, m, 6]"]
QKV = ["q f[n, m, 8]", "k f[n, 5, 8]", "v f[n, 5, 6]"]
HEADS = {"num_heads": 2}
PAST = ["k f[n, m, 8]", "v f[n, m, 8]", "p f[n, 2, 3, 4]", "o f[n, 2, 3, 4]"]

CASES = {
    "Attention": (X, [node("z = Attention(x, w, b)", **HEADS)], WB),
    "Attention mask": ([*X, "a i[n, m]"], [node("z = Attention(x, w, b, a)", **HEADS)], WB),
    "Attention filter": (
        [*X, "a i[n, m]"],
        [node("z = Attention(x, w, b, a)", mask_filter_value=-3e38, scale=0.3, **HEADS)], WB),
    "Attention mask of rows": (
        [*X, "a i[n, m, m]"], [node("z = Attention(x, w, b, a)", **HEADS)], WB),
    "Attention ends": ([*X, "a i[n]"], [node("z = Attention(x, w, b, a)", **HEADS)], WB),
    "Attention bias": (
        [*X, "c f[n, 2, m, m]"], [node("z = Attention(x, w, b, , , c)", **HEADS)], WB),
    "Attention causal": (
        [*X, "a i[n, m]"], [node("z = Attention(x, w, b, a)", unidirectional=1, **HEADS)], WB),
    "Attention past": (
        [*X, "p f[2, n, 2, 3, 4]"],
        [node("z, t = Attention(x, w, b, , p)", unidirectional=1, **HEADS)], WB),
    "Attention widths": (
        X, [node("z = Attention(x, w, b)", qkv_hidden_sizes=[8, 8, 4], **HEADS)],
        {"w": W[:, :20].copy(), "b": B[:20]}),
    "DecoderMaskedMultiHeadAttention": (
        ["q f[n, 1, 8]", "k f[n, 2, m, 4]", "v f[n, 2, m, 4]", "a i[n, m]"],
        [node("z = DecoderMaskedMultiHeadAttention(q, k, v, a)", **HEADS)], {}),
    "MultiHeadAttention": (QKV, [node("z = MultiHeadAttention(q, k, v)", **HEADS)], {}),
    "MultiHeadAttention bias": (
        [*QKV, "a i[n, 5]", "c f[1, 2, m, 5]"],
        [node("z = MultiHeadAttention(q, k, v, b, a, c)", **HEADS)], {"b": B[:22]}),
    "MultiHeadAttention ends": (
        [*QKV, "a i[n]"], [node("z = MultiHeadAttention(q, k, v, , a)", **HEADS)], {}),
    "MultiHeadAttention heads": (
        ["q f[n, m, 8]", "k f[n, 2, 5, 4]", "v f[n, 2, 5, 4]"],
        [node("z = MultiHeadAttention(q, k, v)", **HEADS)], {}),
    "MultiHeadAttention past": (
        ["q f[n, m, 8]", *PAST],
        [node("z, s, t = MultiHeadAttention(q, k, v, , , , p, o)", unidirectional=1, **HEADS)],
        {}),
    "MultiHeadAttention scores": (
        QKV, [node("z, , , s = MultiHeadAttention(q, k, v)", **HEADS)], {}),
    "MultiHeadAttention masked scores": (
        [*QKV, "a i[n, 5]", "c f[1, 2, m, 5]"],
        [node("z, , , s = MultiHeadAttention(q, k, v, , a, c)", **HEADS)], {}),
}  # fmt: skip


def _apart(count: int) -> list:
    """Nodes that take `p` [n, m, 2, count, 4] apart: r0, r1, ... [n, m, 8]."""
    parts = ", ".join(f"p{number}" for number in range(count))
    return [node(f"{parts} = Split(p)", "", axis=3, num_outputs=count)] + [
        node(f"r{number} = Reshape(p{number}, s)", "") for number in range(count)
    ]


# What this onnxruntime has no kernel for, and nodes that mean the same.
EQUAL = {
    "DecoderMaskedMultiHeadAttention past": (
        ["q f[n, 1, 8]", "k f[n, 1, 8]", "v f[n, 1, 8]", *PAST[2:]],
        [node("z, s, t = DecoderMaskedMultiHeadAttention(q, k, v, , , p, o, , , , b)", **HEADS)],
        [node("z, s, t = MultiHeadAttention(q, k, v, b, , , p, o)", **HEADS)], {"b": B}),
    "MultiHeadAttention packed": (
        ["p f[n, m, 2, 3, 4]"], [node("z = MultiHeadAttention(p)", **HEADS)],
        [*_apart(3), node("z = MultiHeadAttention(r0, r1, r2)", **HEADS)],
        {"s": np.int64([0, 0, 8])}),
    "MultiHeadAttention packed keys": (
        ["q f[n, m, 8]", "p f[n, 5, 2, 2, 4]"], [node("z = MultiHeadAttention(q, p)", **HEADS)],
        [*_apart(2), node("z = MultiHeadAttention(q, r0, r1)", **HEADS)],
        {"s": np.int64([0, 0, 8])}),
}  # fmt: skip
