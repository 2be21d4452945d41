"""Rows of ONNX models over quantised numbers; see `test_onnx_operators.py`."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.unit.compiler.frontends.models import node

X = ["x f[n, 3, m]"]
f32, u8, i8 = np.float32, np.uint8, np.int8
SCALES, ZEROS = f32([0.5, 0.25, 1]), u8([1, 0, 3])
W = (np.arange(24) % 11 - 5).astype(i8)

ROWS = {
    "Cast bfloat16": (24, X, [node("y = Cast(x)", to=16), node("z = Cast(y)", to=1)], {}),
    "Cast float8": (24, X, [node("y = Cast(x)", to=17), node("z = Cast(y)", to=1)], {}),
    "Cast wrapped": (24, X, [node("y = Cast(x)", to=22), node("z = Cast(y)", to=6)], {}),
    "Cast exponent": (25, X, [
        node("y = Cast(x)", to=24, round_mode="nearest", saturate=1), node("z = Cast(y)", to=1)],
        {}),
    "BitCast": (26, X, [node("z = BitCast(x)", to=6)], {}),
    "QuantizeLinear": (13, X, [node("z = QuantizeLinear(x, s, q)")], {"s": SCALES, "q": ZEROS}),
    "QuantizeLinear 10": (10, X, [node("z = QuantizeLinear(x, s)")], {"s": f32(0.25)}),
    "QuantizeLinear one": (13, X, [node("z = QuantizeLinear(x, s, q)")],
                           {"s": f32([0.1]), "q": i8([-3])}),
    "QuantizeLinear type": (21, X, [
        node("y = QuantizeLinear(x, s)", output_dtype=5), node("z = Cast(y)", to=6)],
        {"s": f32(0.01)}),
    "QuantizeLinear float8": (21, X, [
        node("y = QuantizeLinear(x, s, q)"), node("z = Cast(y)", to=1)],
        {"s": f32(0.01), "q": np.zeros((), ml_dtypes.float8_e4m3fn)}),
    "QuantizeLinear block": (21, ["x f[n, 5]", "s f[n, 3]", "q u[n, 3]"], [
        node("z = QuantizeLinear(x, s, q)", axis=1, block_size=2)], {}),
    "DequantizeLinear": (19, ["x u[n, 3, m]"], [node("z = DequantizeLinear(x, s, q)")],
                         {"s": SCALES, "q": ZEROS}),
    "DequantizeLinear int32": (19, ["x i[n, 3]"], [node("z = DequantizeLinear(x, s)")],
                            {"s": f32(0.5)}),
    "DynamicQuantizeLinear": (19, X, [node("y, a, b = DynamicQuantizeLinear(x)"),
                                      node("z = DequantizeLinear(y, a, b)")], {}),
    "MatMulInteger": (10, ["x u[n, m]", "y s[m, 4]"], [node("z = MatMulInteger(x, y, a, b)")],
                      {"a": u8(2), "b": i8([1, 0, -1, 3])}),
    "MatMulInteger rows": (10, ["x u[3, m]", "y s[n, m, 4]"], [
        node("z = MatMulInteger(x, y, a)")], {"a": u8([[2], [1], [0]])}),
    "QLinearMatMul": (21, ["x u[n, 3, m]", "y s[m, 4]"], [
        node("z = QLinearMatMul(x, s, a, y, t, b, u, c)")],
        {"s": f32(0.5), "a": u8(1), "t": f32([0.5, 1, 2, 3]), "b": i8([0, 1, 2, 0]),
         "u": f32(1.7), "c": u8(10)}),
    "ConvInteger": (10, ["x u[n, 2, m, 5]"], [
        node("z = ConvInteger(x, w, a)", pads=[1, 1, 1, 0], strides=[2, 1])],
        {"w": W.reshape(3, 2, 2, 2), "a": u8(2)}),
    "QLinearConv": (10, ["x u[n, 2, m, 5]"], [
        node("z = QLinearConv(x, s, a, w, t, b, u, c, d)", pads=[1, 1, 1, 1])],
        {"s": f32(0.5), "a": u8(1), "w": W.reshape(3, 2, 2, 2), "t": f32([1, 0.5, 2]),
         "b": i8([0, 0, 0]), "u": f32(1.7), "c": u8(10), "d": np.int32([5, -5, 0])}),
}  # fmt: skip
