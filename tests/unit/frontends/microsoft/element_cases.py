"""Models of element work: inputs, nodes, constants."""

from __future__ import annotations

from tests.unit.frontends.microsoft.beside import node

X = ["x f[n, 3, m]"]

CASES = {
    "Gelu": (X, [node("z = Gelu(x)")], {}),
    "BiasGelu": (["x f[n, m]", "b f[m]"], [node("z = BiasGelu(x, b)")], {}),
    "FastGelu": (X, [node("z = FastGelu(x)")], {}),
    "FastGelu bias": (["x f[n, m]", "b f[m]"], [node("z = FastGelu(x, b)")], {}),
    "QuickGelu": (X, [node("z = QuickGelu(x)")], {}),
    "QuickGelu alpha": (X, [node("z = QuickGelu(x)", alpha=0.5)], {}),
}
