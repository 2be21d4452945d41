"""Models of normalisations: inputs, nodes, constants."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

X, XS = ["x f[n, m, 8]"], ["x f[n, m, 8]", "s f[n, m, 8]"]
G, B, C = (np.float32(np.linspace(low, high, 8)) for low, high in ((0.5, 1.5), (-1, 1), (2, 3)))
HALF = {"g": G.astype(np.float16)}
WORDS = np.float32(np.random.default_rng(0).standard_normal((6, 8)))
TABLES = {"w": WORDS, "p": WORDS[::-1].copy(), "t": WORDS * 0.5, "g": G, "b": B}
IDS = ["i i[n, m]", "s i[n, m]"]

CASES = {
    "LayerNormalization 11": (X, [node("z = LayerNormalization(x, g, b)", "")], {"g": G, "b": B}),
    "SimplifiedLayerNormalization": (
        X, [node("z = SimplifiedLayerNormalization(x, g)", "", epsilon=1e-3)], {"g": G}),
    "SimplifiedLayerNormalization axis": (
        X, [node("z = SimplifiedLayerNormalization(x, g)", "", axis=1)], {"g": G}),
    "SimplifiedLayerNormalization half": (
        ["x h[n, m, 8]"], [node("z = SimplifiedLayerNormalization(x, g)", "")], HALF),
    "SkipLayerNormalization": (
        XS, [node("z = SkipLayerNormalization(x, s, g, b)")], {"g": G, "b": B}),
    "SkipLayerNormalization all": (
        XS, [node("z, , , t = SkipLayerNormalization(x, s, g, b, c)", epsilon=1e-3)],
        {"g": G, "b": B, "c": C}),
    "SkipLayerNormalization bare": (XS, [node("z = SkipLayerNormalization(x, s, g)")], {"g": G}),
    "SkipLayerNormalization rows": (
        ["x f[n, m, 8]", "s f[m, 8]"], [node("z = SkipLayerNormalization(x, s, g)")], {"g": G}),
    "SkipSimplifiedLayerNormalization": (
        XS, [node("z = SkipSimplifiedLayerNormalization(x, s, g)", epsilon=1e-5)], {"g": G}),
    "SkipSimplifiedLayerNormalization all": (
        XS, [node("z, , , t = SkipSimplifiedLayerNormalization(x, s, g, c)")], {"g": G, "c": C}),
    "EmbedLayerNormalization": (
        IDS, [node("z, k = EmbedLayerNormalization(i, s, w, p, t, g, b)")], TABLES),
    "EmbedLayerNormalization words": (
        ["i i[n, m]"], [node("z, k = EmbedLayerNormalization(i, , w, p, , g, b)")], TABLES),
    "EmbedLayerNormalization all": (
        [*IDS, "a i[n, m]", "q i[n, m]"],
        [node("z, k, e = EmbedLayerNormalization(i, s, w, p, t, g, b, a, q)", epsilon=1e-5)],
        TABLES),
}  # fmt: skip
