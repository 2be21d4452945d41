"""Models of products and convolutions: inputs, nodes, constants."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

f32 = np.float32
W = f32(np.arange(36).reshape(2, 3, 3, 2) % 5)
IMAGE, SQUARE = ["x f[n, 3, m, 5]"], ["x f[n, 3]", "w f[3, m]", "c f[m]"]
CLIPPED = {"activation": "Clip", "activation_params": [-1.0, 2.5]}

CASES = {
    "FusedMatMul": (["x f[n, 3, m]", "y f[m, 4]"], [node("z = FusedMatMul(x, y)", alpha=0.5)], {}),
    "FusedMatMul transposed": (
        ["x f[n, m, 3]", "y f[n, 4, m]"],
        [node("z = FusedMatMul(x, y)", alpha=2.0, transA=1, transB=1)], {}),
    "FusedMatMul batches": (
        ["x f[4, n, m]", "y f[5, n, m]"],
        [node("z = FusedMatMul(x, y)", transBatchA=1, transBatchB=1, transB=1)], {}),
    "FusedMatMul both": (
        ["x f[m, n, 2, 3]", "y f[n, 2, m, 4]"],
        [node("z = FusedMatMul(x, y)", transBatchA=1, transA=1)], {}),
    "FusedMatMul vector": (["x f[m]", "y f[m, 4]"], [node("z = FusedMatMul(x, y)")], {}),
    "TransposeMatMul": (
        ["x f[n, m, 3]", "y f[n, m, 4]"], [node("z = TransposeMatMul(x, y)", transA=1)], {}),
    "FusedGemm": (SQUARE, [node("z = FusedGemm(x, w, c)", activation="Relu")], {}),
    "FusedGemm scaled": (
        ["x f[3, n]", "w f[m, 3]"],
        [node("z = FusedGemm(x, w)", transA=1, transB=1, alpha=0.5, activation="LeakyRelu",
              activation_alpha=0.3)], {}),
    "FusedGemm sigmoid": (
        SQUARE, [node("z = FusedGemm(x, w, c)", beta=0.5, activation="HardSigmoid",
                      activation_alpha=0.3, activation_beta=0.4)], {}),
    "FusedConv": (
        IMAGE, [node("z = FusedConv(x, w, b)", activation="Relu", pads=[1, 2, 1, 0],
                     strides=[2, 1], dilations=[1, 2])], {"w": W, "b": f32([1, 2])}),
    "FusedConv clip": (IMAGE, [node("z = FusedConv(x, w)", pads=[1, 0, 1, 1], **CLIPPED)],
                       {"w": W}),
    "FusedConv leaky": (
        ["x f[n, 4, m, 5]"],
        [node("z = FusedConv(x, w)", group=2, activation="LeakyRelu", activation_params=[0.1],
              kernel_shape=[1, 3])], {"w": f32(np.arange(24).reshape(4, 2, 1, 3) % 7 - 3)}),
    "FusedConv sum": (
        ["x f[n, 3, m, 5]", "y f[n, 2, m, 4]"],
        [node("z = FusedConv(x, w, b, y)", pads=[1, 0, 1, 0], activation="Relu")],
        {"w": W, "b": f32([1, 2])}),
}  # fmt: skip

# What this onnxruntime has no kernel for, and nodes of the standard that mean the same.
EQUAL = {
    "FusedMatMulActivation": (
        ["x f[n, m]", "y f[4, m]"],
        [node("z = FusedMatMulActivation(x, y)", activation="Elu", alpha=0.5, transB=1,
              activation_alpha=0.7)],
        [node("t = Transpose(y)", ""), node("p = MatMul(x, t)", ""), node("h = Mul(p, k)", ""),
         node("z = Elu(h)", "", alpha=0.7)], {"k": f32(0.5)}),
    "FusedMatMulActivation softmax": (
        ["x f[n, m]", "y f[m, 4]"],
        [node("z = FusedMatMulActivation(x, y)", activation="Softmax", activation_axis=0)],
        [node("p = MatMul(x, y)", ""), node("z = Softmax(p)", "", axis=0)], {}),
}  # fmt: skip
