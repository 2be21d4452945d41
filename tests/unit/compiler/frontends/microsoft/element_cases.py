"""Models of element work: inputs, nodes, constants."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

X, XB = ["x f[n, 3, m]"], ["x f[n, m]", "b f[m]"]
PAIRS = ["x f[n, m, 2]", "y f[n, m, 2]"]

CASES = {
    "Gelu": (X, [node("z = Gelu(x)")], {}),
    "BiasGelu": (XB, [node("z = BiasGelu(x, b)")], {}),
    "FastGelu": (X, [node("z = FastGelu(x)")], {}),
    "FastGelu bias": (XB, [node("z = FastGelu(x, b)")], {}),
    "QuickGelu": (X, [node("z = QuickGelu(x)")], {}),
    "QuickGelu alpha": (X, [node("z = QuickGelu(x)", alpha=0.5)], {}),
    "SampleOp": (X, [node("z = SampleOp(x)")], {}),
}


def _complex(first: str, second: str) -> list:
    """Nodes for a * c (first) b * d, a * d (second) b * c of pairs (a, b) and (c, d)."""
    return [
        node("a, b = Split(x)", "", axis=-1, num_outputs=2),
        node("c, d = Split(y)", "", axis=-1, num_outputs=2),
        node("ac = Mul(a, c)", ""), node("bd = Mul(b, d)", ""), node("ad = Mul(a, d)", ""),
        node("bc = Mul(b, c)", ""), node(f"r = {first}(ac, bd)", ""),
        node(f"i = {second}(bc, ad)", ""), node("z = Concat(r, i)", "", axis=-1),
    ]  # fmt: skip


# What this onnxruntime has no kernel for, and nodes of the standard that mean the same.
EQUAL = {
    "BiasAdd": (
        ["x f[n, m, 4]", "b f[4]", "s f[n, m, 4]"], [node("z = BiasAdd(x, b, s)")],
        [node("t = Add(x, b)", ""), node("z = Add(t, s)", "")], {}),
    "BiasDropout": (
        ["x f[n, m, 4]", "b f[4]", "s f[n, m, 4]"], [node("z, k = BiasDropout(x, b, s)")],
        [node("t = Add(x, b)", ""), node("z = Add(t, s)", ""), node("k = Equal(z, z)", "")], {}),
    "BiasSoftmax": (
        ["x f[n, 3, m, 4]", "b f[n, 1, 1, 4]"],
        [node("z = BiasSoftmax(x, b)", axis=3, is_inner_broadcast=1)],
        [node("t = Add(x, b)", ""), node("z = Softmax(t)", "", axis=-1)], {}),
    "BiasSplitGelu": (
        ["x f[n, m, 8]", "b f[8]"], [node("z = BiasSplitGelu(x, b)")],
        [node("t = Add(x, b)", ""), node("p, q = Split(t)", "", axis=-1, num_outputs=2),
         node("g = Gelu(q)"), node("z = Mul(p, g)", "")], {}),
    "BitmaskDropout": (X, [node("z = BitmaskDropout(x, r, t)")], [node("z = Identity(x)", "")],
                       {"r": np.float32(0.5), "t": np.array(False)}),
    "ComplexMul": (PAIRS, [node("z = ComplexMul(x, y)")], _complex("Sub", "Add"), {}),
    "ComplexMulConj": (PAIRS, [node("z = ComplexMulConj(x, y)")], _complex("Add", "Sub"), {}),
    "GemmFastGelu": (
        ["x f[n, m]", "w f[m, 4]", "b f[4]"], [node("z = GemmFastGelu(x, w, b)")],
        [node("t = MatMul(x, w)", ""), node("z = FastGelu(t, b)")], {}),
}  # fmt: skip
