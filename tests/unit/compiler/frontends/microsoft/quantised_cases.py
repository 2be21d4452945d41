"""Models of quantised numbers: inputs, nodes, constants."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.frontends.microsoft.beside import node

f32, f16, u8, i8, i32, i64 = np.float32, np.float16, np.uint8, np.int8, np.int32, np.int64
chance = np.random.default_rng(4)

UNSIGNED = {"s": f32(0.05), "z": u8(120), "t": f32(0.07), "v": u8(131), "o": f32(0.11), "p": u8(99)}
SIGNED = {"s": f32(0.05), "z": i8(-5), "t": f32(0.07), "v": i8(3), "o": f32(0.11), "p": i8(0)}
U, S = ["x u[n, 3, m]"], ["x s[n, 3, m]"]
BOTH = ["x u[n, 3, m]", "y u[3, 1]"]
IMAGE, LAST = ["x u[n, 2, 7, 5]"], ["x u[n, 7, 5, 2]"]
W = chance.integers(-127, 128, (5, 4), dtype=i8)
WU = chance.integers(0, 256, (5, 4), dtype=u8)
K = chance.integers(-127, 128, (4, 2, 3, 3), dtype=i8)
WINDOW = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 0, 1]}


def lstm(directions: int, each: bool) -> dict[str, object]:
    """Weights of an LSTM of 5 inputs and 3 states; scales per direction or per column."""
    shape = (directions, 12) if each else (directions,)
    return {
        "w": chance.integers(-99, 100, (directions, 5, 12), dtype=i8),
        "r": chance.integers(-99, 100, (directions, 3, 12), dtype=i8),
        "ws": chance.uniform(0.002, 0.004, shape).astype(f32), "wz": np.zeros(shape, i8),
        "rs": chance.uniform(0.002, 0.004, shape).astype(f32), "rz": np.zeros(shape, i8),
        "b": chance.standard_normal((directions, 24)).astype(f32),
    }  # fmt: skip


CASES = {
    "QuantizeLinear": (["x f[n, 3, m]"], [node("q = QuantizeLinear(x, s, z)")], UNSIGNED),
    "QuantizeLinear 16": (["x f[n, 3, m]"], [node("q = QuantizeLinear(x, s, z)")],
                          {"s": f32(1e-4), "z": np.uint16(32000)}),
    "QuantizeLinear axis": (["x f[n, 3, m]"], [node("q = QuantizeLinear(x, s, z)", axis=1)],
                            {"s": f32([0.1, 0.2, 0.3]), "z": np.int16([0, 5, -5])}),
    "DequantizeLinear": (U, [node("q = DequantizeLinear(x, s, z)")], UNSIGNED),
    "DequantizeLinear axis": (S, [node("q = DequantizeLinear(x, s, z)", axis=-2)],
                              {"s": f32([0.1, 0.2, 0.3]), "z": i8([0, 5, -5])}),
    "DequantizeLinear 16": ([], [node("q = DequantizeLinear(x, s, z)")],
                            {"x": np.uint16([0, 7, 65535]), "s": f32(0.5), "z": np.uint16(9)}),
    "QLinearAdd": (BOTH, [node("q = QLinearAdd(x, s, z, y, t, v, o, p)")], UNSIGNED),
    "QLinearAdd signed": (["x s[n, 3, m]", "y s[n, 3, m]"],
                          [node("q = QLinearAdd(x, s, z, y, t, v, o, p)")], SIGNED),
    "QLinearMul": (BOTH, [node("q = QLinearMul(x, s, z, y, t, v, o, p)")], UNSIGNED),
    "QLinearMul signed": (["x s[n, 3, m]", "y s[m]"],
                          [node("q = QLinearMul(x, s, z, y, t, v, o, p)")], SIGNED),
    "QLinearLeakyRelu": (U, [node("q = QLinearLeakyRelu(x, s, z, t, v)", alpha=0.1)], UNSIGNED),
    "QLinearLeakyRelu signed": (S, [node("q = QLinearLeakyRelu(x, s, z, t, v)")], SIGNED),
    "QLinearSigmoid": (U, [node("q = QLinearSigmoid(x, s, z, t, v)")],
                       {**UNSIGNED, "t": f32(1 / 256), "v": u8(0)}),
    "QLinearSoftmax": (U, [node("q = QLinearSoftmax(x, s, z, t, v)", opset=13, axis=1)],
                       {**UNSIGNED, "t": f32(1 / 256), "v": u8(0)}),
    "QLinearSoftmax of 254 steps": (
        U, [node("q = QLinearSoftmax(x, s, z, t, v)", opset=13, axis=1)],
        {**UNSIGNED, "t": f32(0.0039369), "v": u8(0)}),
    "QLinearSoftmax flat": (S, [node("q = QLinearSoftmax(x, s, z, t, v)", opset=11, axis=1)],
                            {**SIGNED, "t": f32(1 / 256), "v": i8(-128)}),
    "QLinearConcat": (["x u[n, 3]", "y u[n, 2]"],
                      [node("q = QLinearConcat(o, p, x, s, z, y, t, v, x, o, p)", axis=1)],
                      UNSIGNED),
    "QLinearConcat signed": (["x s[n, 3]", "y s[m, 3]"],
                             [node("q = QLinearConcat(o, p, x, s, z, y, t, v)", axis=0)], SIGNED),
    "QLinearWhere": (["c b[n, 1]", "x u[n, m]", "y u[m]"],
                     [node("q = QLinearWhere(c, x, s, z, y, t, v, o, p)")], UNSIGNED),
    "QLinearAveragePool": (IMAGE, [node("q = QLinearAveragePool(x, s, z, t, v)", **WINDOW)],
                           UNSIGNED),
    "QLinearAveragePool last": (
        LAST, [node("q = QLinearAveragePool(x, s, z, t, v)", channels_last=1, **WINDOW)],
        UNSIGNED),
    "QLinearAveragePool padded": (
        ["x s[n, 2, 7, 5]"],
        [node("q = QLinearAveragePool(x, s, z, t, v)", count_include_pad=1, **WINDOW)], SIGNED),
    "QLinearGlobalAveragePool": (
        ["x u[n, 2, m, 5]"], [node("q = QLinearGlobalAveragePool(x, s, z, t, v)")], UNSIGNED),
    "QLinearGlobalAveragePool last": (
        ["x s[n, m, 5, 4]"],
        [node("q = QLinearGlobalAveragePool(x, s, z, t, v)", channels_last=1)], SIGNED),
    "QLinearReduceMean": (U, [node("q = QLinearReduceMean(x, s, z, t, v)", axes=[1], keepdims=1)],
                          UNSIGNED),
    "NhwcMaxPool": (LAST, [node("q = NhwcMaxPool(x)", **WINDOW)], {}),
    "QLinearConv": (
        LAST, [node("q = QLinearConv(x, s, z, w, c, a, o, p, b)", channels_last=1,
                    pads=[1, 1, 1, 0], strides=[2, 1])],
        {**UNSIGNED, "w": K, "c": f32([0.01, 0.02, 0.01, 0.03]), "a": np.zeros(4, i8),
         "b": i32([500, -200, 0, 9])}),
    "QLinearConv first": (
        IMAGE, [node("q = QLinearConv(x, s, z, w, c, a, o, p)")],
        {**UNSIGNED, "w": K, "c": f32(0.01), "a": i8(0)}),
    "QLinearConv depthwise": (
        LAST, [node("q = QLinearConv(x, s, z, w, c, a, o, p)", channels_last=1, group=2)],
        {**UNSIGNED, "w": K[:2, :1], "c": f32(0.01), "a": i8(0)}),
    "DynamicQuantizeMatMul": (
        ["x f[n, m, 5]"], [node("q = DynamicQuantizeMatMul(x, w, s, z, b)")],
        {"w": W, "s": f32([0.1, 0.2, 0.1, 0.3]), "z": i8([0, 1, 0, -1]), "b": f32([1, 2, 3, 4])}),
    "DynamicQuantizeMatMul one": (
        ["x f[n, 5]"], [node("q = DynamicQuantizeMatMul(x, w, s)")], {"w": WU, "s": f32([0.1])}),
    "MatMulIntegerToFloat": (
        ["x u[n, 3, 5]"], [node("q = MatMulIntegerToFloat(x, w, s, c, z, a, b)")],
        {**UNSIGNED, "w": W, "c": f32([0.1, 0.2, 0.1, 0.3]), "a": i8([0, 1, 0, -1]),
         "b": f32([1, 2, 3, 4])}),
    "MatMulIntegerToFloat bare": (
        ["x s[n, 5]", "w s[5, m]"], [node("q = MatMulIntegerToFloat(x, w, s, t)")], SIGNED),
    "QGemm": (["x u[n, 5]"], [node("q = QGemm(x, s, z, w, c, a, b, o, p)", alpha=0.5)],
              {**UNSIGNED, "w": W, "c": f32([0.1, 0.2, 0.1, 0.3]), "a": i8([0, 0, 0, 0]),
               "b": i32([5, -900, 70, 8])}),
    "QGemm float": (["x u[n, 5]"], [node("q = QGemm(x, s, z, w, c, a)", transB=1)],
                    {**UNSIGNED, "w": W.T.copy(), "c": f32(0.1), "a": i8(2)}),
    "QGemm transposed": (["x s[5, n]"], [node("q = QGemm(x, s, z, w, c, a, , o, p)", transA=1)],
                         {**SIGNED, "w": W, "c": f32(0.1), "a": i8(0)}),
    "MatMulNBits": (["x f[n, m, 40]"],
                    [node("q = MatMulNBits(x, w, s)", K=40, N=3, bits=4, block_size=16)],
                    {"w": chance.integers(0, 256, (3, 3, 8), dtype=u8),
                     "s": chance.uniform(0.1, 0.2, (3, 3)).astype(f32)}),
    "MatMulNBits zeros": (
        ["x f[n, 64]"],
        [node("q = MatMulNBits(x, w, s, z, , b)", K=64, N=3, bits=4, block_size=16)],
        {"w": chance.integers(0, 256, (3, 4, 8), dtype=u8),
         "s": chance.uniform(0.1, 0.2, (3, 4)).astype(f32),
         "z": chance.integers(0, 256, (3, 2), dtype=u8), "b": f32([1, -2, 3])}),
    "MatMulNBits odd blocks": (
        ["x f[n, 70]"], [node("q = MatMulNBits(x, w, s, z)", K=70, N=2, bits=4, block_size=16)],
        {"w": chance.integers(0, 256, (2, 5, 8), dtype=u8),
         "s": chance.uniform(0.1, 0.2, 10).astype(f32),
         "z": chance.integers(0, 256, 6, dtype=u8)}),
    "MatMulNBits float zeros": (
        ["x f[n, 32]"], [node("q = MatMulNBits(x, w, s, z)", K=32, N=2, bits=4, block_size=16)],
        {"w": chance.integers(0, 256, (2, 2, 8), dtype=u8),
         "s": chance.uniform(0.1, 0.2, (2, 2)).astype(f32), "z": f32([[7.5, 8], [3.25, 9]])}),
    "MatMulNBits 8": (["x f[n, 40]"],
                      [node("q = MatMulNBits(x, w, s, z)", K=40, N=3, bits=8, block_size=32)],
                      {"w": chance.integers(0, 256, (3, 2, 32), dtype=u8),
                       "s": chance.uniform(0.01, 0.02, (3, 2)).astype(f32),
                       "z": chance.integers(100, 150, (3, 2), dtype=u8)}),
    "MatMulNBits half": (["x h[n, 32]"],
                         [node("q = MatMulNBits(x, w, s)", K=32, N=3, bits=4, block_size=16)],
                         {"w": chance.integers(0, 256, (3, 2, 8), dtype=u8),
                          "s": chance.uniform(0.01, 0.02, (3, 2)).astype(f16)}),
    "GatherBlockQuantized": (
        [], [node("q = GatherBlockQuantized(w, i, s, z)", block_size=16, bits=4)],
        {"w": chance.integers(0, 256, (6, 16), dtype=u8), "i": i64([[0, 5], [-6, 2]]),
         "s": chance.uniform(0.1, 0.2, (6, 2)).astype(f32),
         "z": chance.integers(0, 256, (6, 1), dtype=u8)}),
    "GatherBlockQuantized 8": (
        [], [node("q = GatherBlockQuantized(w, i, s)", block_size=16, bits=8)],
        {"w": chance.integers(0, 256, (6, 33), dtype=u8), "i": i32([4, 9, -7, -1]),
         "s": chance.uniform(0.1, 0.2, (6, 3)).astype(f32)}),
    "QAttention": (
        ["x u[n, m, 8]"], [node("q = QAttention(x, w, b, s, t, , z, a)", num_heads=2)],
        {"w": chance.integers(-127, 128, (8, 24), dtype=i8), "s": f32(0.01), "z": u8(120),
         "t": f32(0.005), "a": i8(0), "b": chance.standard_normal(24).astype(f32)}),
    "QAttention columns": (
        ["x u[n, m, 8]", "k i[n]"],
        [node("q, p = QAttention(x, w, b, s, t, k, z, a)", num_heads=4, unidirectional=1)],
        {"w": chance.integers(-127, 128, (8, 24), dtype=i8), "s": f32(0.01), "z": u8(130),
         "t": chance.uniform(0.002, 0.01, 24).astype(f32), "a": np.zeros(24, i8),
         "b": chance.standard_normal(24).astype(f32)}),
    "QEmbedLayerNormalization": (
        ["x i[n, m]", "k i[n, m]"],
        [node("q, p = QEmbedLayerNormalization(x, x, w, v, e, g, b, k, "
              "s, s, s, t, t, z, z, z, z, z)")],
        {"w": chance.integers(0, 256, (9, 8), dtype=u8),
         "v": chance.integers(0, 256, (9, 8), dtype=u8),
         "e": chance.integers(0, 256, (9, 8), dtype=u8),
         "g": chance.integers(0, 256, 8, dtype=u8), "b": chance.integers(0, 256, 8, dtype=u8),
         "s": f32(0.01), "t": f32(0.02), "z": u8(120)}),
    "DynamicQuantizeLSTM": (
        ["x f[m, n, 5]"],
        [node("y, h, c = DynamicQuantizeLSTM(x, w, r, b, , , , , ws, wz, rs, rz)", hidden_size=3,
              direction="bidirectional")], lstm(2, False)),
    "DynamicQuantizeLSTM columns": (
        ["x f[m, n, 5]"],
        [node("y, h, c = DynamicQuantizeLSTM(x, w, r, , , , , , ws, wz, rs, rz)", hidden_size=3)],
        lstm(1, True)),
}  # fmt: skip

ALONE = {"QLinearReduceMean"}  # onnxruntime has no kernel for it
