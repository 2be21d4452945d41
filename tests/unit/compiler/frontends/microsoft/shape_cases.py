"""Models of shapes and places: inputs, nodes, constants."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

f32, i32, i64 = np.float32, np.int32, np.int64
X, ROWS = ["x f[n, 3, m]"], ["x f[n, 3]", "y f[m, 3]"]
COUNTS = i64([1, 0, 0, 2, 0, 1])
SHIFT = np.eye(4, dtype=f32) * 5

CASES = {
    "CDist": (ROWS, [node("z = CDist(x, y)")], {}),
    "CDist euclidean": (ROWS, [node("z = CDist(x, y)", metric="euclidean")], {}),
    "ConvTransposeWithDynamicPads": (
        ["x f[1, 2, m, 4]"], [node("z = ConvTransposeWithDynamicPads(x, w, p)", strides=[2, 1])],
        {"w": f32(np.arange(36).reshape(2, 2, 3, 3) % 7), "p": i64([1, 0, 0, 1])}),
    "ExpandDims": (X, [node("z = ExpandDims(x, a)")], {"a": i32(-1)}),
    "ExpandDims front": (X, [node("z = ExpandDims(x, a)")], {"a": i32([1])}),
    "GatherND": (["x f[4, 5, n]"], [node("z = GatherND(x, i)")], {"i": i64([[0, 1], [3, 2]])}),
    "GridSample": (["x f[n, 2, 5, 4]", "g f[n, m, 3, 2]"],
                   [node("z = GridSample(x, g)", align_corners=1, padding_mode="border")], {}),
    "Inverse": (["x f[n, 4, 4]"], [node("y = Add(x, c)", ""), node("z = Inverse(y)")],
                {"c": SHIFT}),
    "Pad": (X, [node("z = Pad(x, p, v)")], {"p": COUNTS, "v": f32([7])}),
    "Pad matrix": (X, [node("z = Pad(x, p)")], {"p": COUNTS.reshape(1, 6)}),
    "Range": (X, [node("s = Shape(x)", ""), node("t = ReduceProd(s)", "", keepdims=0),
                  node("z = Range(a, t)")], {"a": i64(1)}),
    "Range step": (X, [node("y = Range(a, b, c)"), node("z = Add(x, q)", "")],
                   {"a": f32(1), "b": f32(7), "c": f32(2), "q": f32(1)}),
    "Trilu": (X, [node("z = Trilu(x, k)", upper=0)], {"k": i64(1)}),
    "UnfoldTensor": (["x f[n, 8]"], [node("z = UnfoldTensor(x)", size=3, step=2)], {}),
    "UnfoldTensor axis": (["x f[n, 8, m]"], [node("z = UnfoldTensor(x)", dim=1, size=2)], {}),
    "Unique": (["x f[n]"], [node("r = Round(x)", ""), node("z, i, c = Unique(r)")], {}),
}  # fmt: skip

TABLE = f32(np.random.default_rng(0).standard_normal((8, 2)))

# What this onnxruntime has no kernel for, and nodes of the standard that mean the same.
EQUAL = {
    "Rfft": (["x f[n, m, 6]"], [node("z = Rfft(x)", signal_ndim=1)],
             [node("u = Unsqueeze(x, l)", ""), node("z = DFT(u)", "", axis=2, onesided=1)],
             {"l": i64([3])}),
    "TorchEmbedding": (["i l[n, m]"], [node("z = TorchEmbedding(w, i)")],
                       [node("z = Gather(w, i)", "")], {"w": TABLE}),
}  # fmt: skip

# What has an independent meaning in numpy: inputs, nodes, constants, and z of the inputs.
NUMPY = {
    "Irfft": (["x f[n, m, 5, 2]"], [node("z = Irfft(x)", signal_ndim=1)], {},
              lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1], n=8)),
}  # fmt: skip
