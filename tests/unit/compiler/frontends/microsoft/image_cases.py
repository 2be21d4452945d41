"""Models of images whose channels come last: inputs, nodes, and nodes that mean the same."""

from __future__ import annotations

import math

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

f32 = np.float32
W = f32(np.arange(36).reshape(2, 3, 3, 2) % 5 - 2)
LAST, FIRST = ["x f[n, m, 5, 3]"], {"perm": [0, 3, 1, 2]}
WINDOW = {"pads": [1, 2, 1, 0], "strides": [2, 1]}
G, B = f32(np.linspace(0.5, 1.5, 8)), f32(np.linspace(-1, 1, 8))


EQUAL = {
    "NhwcConv": (
        LAST, [node("z = NhwcConv(x, v, b)", **WINDOW)],
        [node("t = Transpose(x)", "", **FIRST), node("w = Transpose(v)", "", **FIRST),
         node("y = Conv(t, w, b)", "", **WINDOW), node("z = Transpose(y)", "", perm=[0, 2, 3, 1])],
        {"v": W.transpose(0, 2, 3, 1).copy(), "b": f32([1, 2])}),
    "NhwcFusedConv": (
        [*LAST, "y f[n, m, 4, 2]"],
        [node("z = NhwcFusedConv(x, w, b, y)", pads=[1, 0, 1, 0], activation="Relu")],
        [node("t = Transpose(x)", "", **FIRST), node("u = Conv(t, w, b)", "", pads=[1, 0, 1, 0]),
         node("v = Transpose(u)", "", perm=[0, 2, 3, 1]), node("s = Add(v, y)", ""),
         node("z = Relu(s)", "")], {"w": W, "b": f32([1, 2])}),
}  # fmt: skip


def normalised(x, silu: bool = False):
    """Two groups of four channels, which come last."""
    parts = np.float64(x).reshape(len(x), math.prod(x.shape[1:-1]), 2, 4)
    apart = parts - parts.mean((1, 3), keepdims=True)
    parts = apart / np.sqrt((apart**2).mean((1, 3), keepdims=True) + 1e-5)
    y = parts.reshape(x.shape) * G + B
    return y / (1 + np.exp(-y)) if silu else y


# What has an independent meaning in numpy: inputs, nodes, constants, and z of the inputs.
GROUPS = {"groups": 2, "activation": 0}
NUMPY = {
    "GroupNorm": (["x f[n, m, 5, 8]"], [node("z = GroupNorm(x, g, k)", **GROUPS)],
                  {"g": G, "k": B}, normalised),
    "GroupNorm half": (
        ["x h[n, m, 5, 8]"], [node("z = GroupNorm(x, g, k)", **GROUPS)], {"g": G, "k": B},
        normalised),
    "GroupNorm first": (
        ["x f[n, 8, m]"],
        [node("z = GroupNorm(x, g, k)", channels_last=0, **GROUPS)], {"g": G, "k": B},
        lambda x: np.moveaxis(normalised(np.moveaxis(x, 1, 2)), 2, 1)),
    "SkipGroupNorm": (
        ["x f[n, m, 5, 8]", "r f[n, 8]"],
        [node("z, t = SkipGroupNorm(x, g, k, r, w)", groups=2, activation=1)],
        {"g": G, "k": B, "w": B}, lambda x, r: normalised(x + r[:, None, None] + B, True)),
}  # fmt: skip
