"""Models of grouped attention and rotary angles: inputs, nodes, constants.

Four heads of queries, two of keys and values, of depth 16; `m` rows are new.
"""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

ANGLES = np.random.default_rng(0).random((32, 8)).astype(np.float32)
TABLES = {"c": np.cos(ANGLES), "s": np.sin(ANGLES)}
QKV = ["q f[n, m, 64]", "k f[n, m, 32]", "v f[n, m, 32]"]
HEADS = {"num_heads": 4, "kv_num_heads": 2}
X, PLACES = "x f[n, m, 32]", "i l[n, m]"

CASES = {
    "RotaryEmbedding": (
        [X, PLACES], [node("z = RotaryEmbedding(x, i, c, s)")], TABLES),
    "RotaryEmbedding first": (
        [X], [node("z = RotaryEmbedding(x, i, c, s)")], {"i": np.int64([3]), **TABLES}),
    "RotaryEmbedding neighbours": (
        ["x f[n, 2, m, 16]", PLACES],
        [node("z = RotaryEmbedding(x, i, c, s)", interleaved=1)], TABLES),
    "RotaryEmbedding part": (
        ["x f[n, m, 64]", PLACES],
        [node("z = RotaryEmbedding(x, i, c, s)", num_heads=2, rotary_embedding_dim=16)], TABLES),
}  # fmt: skip

# Cases of GroupQueryAttention: inputs beside the common ones, their names, attributes.
GROUPED = {
    "plain": ([], "q, k, v, p, o, l, t", {}),
    "packed": ([], "x, , , p, o, l, t", {}),
    "turned": ([], "q, k, v, p, o, l, t, c, s", {"do_rotary": 1}),
    "turned at positions": (
        [],
        "q, k, v, p, o, l, t, c, s, i",
        {"do_rotary": 1, "rotary_interleaved": 1},
    ),
    "both ways": ([], "q, k, v, p, o, l, t", {"causal": 0}),
    "window": ([], "q, k, v, p, o, l, t", {"local_window_size": 3, "scale": 0.5}),
    "capped": ([], "q, k, v, p, o, l, t", {"softcap": 2.0}),
    "smooth": ([], "q, k, v, p, o, l, t", {"smooth_softmax": 1}),
    "sink": (["h f[4]"], "q, k, v, p, o, l, t, , , , , h", {}),
    "bias of heads": (["b f[n, 4, m, w]"], "q, k, v, p, o, l, t, , , , b", {}),
    "bias": (["b f[n, 1, m, w]"], "q, k, v, p, o, l, t, , , , b", {}),
}
