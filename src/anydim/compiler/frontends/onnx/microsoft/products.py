"""Quantised bytes, and matrix products of them with results of floats or bytes.

A byte q means (q - zero) * scale. In these rows, scales and zero points are single numbers, inputs
after the bytes: x, its scale, its zero point.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, float32, int32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.record import INTEGERS, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.quantised import dynamic_bytes, per_axis


def single_number(call: OnnxNode, position: int) -> str:
    """A scale or zero point that must be one number; a vector of one element is accepted."""
    kind = call.type(position)
    if kind.rank > 1 or (kind.rank == 1 and kind.shape[0].constant != 1):
        raise Unsupported(f"input {position} is {kind}, expected a single number")
    return per_axis(call, position, None)


def zero_point(call: OnnxNode, position: int, dtype: DType) -> str:
    """A zero point; 0 if none is given."""
    return single_number(call, position) if call.given(position) else call.number(0, dtype)


def dequantize_input(call: OnnxNode, x: int, over: str | None = None) -> str:
    """Dequantise input x, whose scale and zero point are the next two inputs.

    With `over`, a scale, the result is in multiples of it.
    """
    scale = single_number(call, x + 1)
    if over is not None:
        scale = call.emit("div", scale, over)
    zero = zero_point(call, x + 2, call.type(x).dtype)
    return call.emit("dequantize", call.input(x), scale, zero, to=float32)


def integers(call: OnnxNode, x: int) -> str:
    """The bytes of input x minus their zero point (two inputs later), as int32."""
    zero = zero_point(call, x + 2, call.type(x).dtype)
    wide = (call.emit("cast", value, to=int32) for value in (call.input(x), zero))
    return call.emit("sub", *wide)


def quantize_to(call: OnnxNode, value: str, scale: int, dtype: DType) -> str:
    """Quantise to a type; the zero point is the input after the scale."""
    zero = zero_point(call, scale + 1, dtype)
    return call.emit("quantize", value, single_number(call, scale), zero, to=dtype)


def requantize(call: OnnxNode, value: str, factor: str, zero: int, dtype: DType) -> str:
    """Requantise multiples of a scale after multiplication by a factor."""
    return call.emit("requantize", value, factor, zero_point(call, zero, dtype), to=dtype)


def scaled_product(
    call: OnnxNode, a: str, b: int, zeros: tuple[str, int], scales: tuple[str, int],
    bias: int, to: DType = float32,
) -> str:  # fmt: skip
    """The product of bytes `a` and input `b` as floats: minus zero points, scaled, plus a bias.

    The scale and zero point of a are single numbers; those of b are inputs, single or per column.
    """
    columns = call.shape(b)[-1] if call.type(b).rank > 1 else None
    b_zero = (
        per_axis(call, zeros[1], columns) if call.given(zeros[1])
        else call.number(0, call.type(b).dtype)
    )  # fmt: skip
    total = call.emit("matmul_integer", a, call.input(b), zeros[0], b_zero)
    scale = call.emit("mul", scales[0], per_axis(call, scales[1], columns))
    scale = call.as_type(scale, float32)
    made = call.emit("mul", call.emit("cast", total, to=float32), scale)
    if call.given(bias):
        made = call.emit("add", made, call.as_type(call.input(bias), float32))
    return call.as_type(made, to)


def dynamic_product(call: OnnxNode) -> Result:
    """Inputs A, B, b_scale, b_zero_point, bias."""
    a, scale, zero = dynamic_bytes(call, call.input(0))
    return scaled_product(call, a, 1, (zero, 3), (scale, 2), 4)


def product_to_float(call: OnnxNode) -> Result:
    """Inputs A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias."""
    zero = zero_point(call, 4, call.type(0).dtype)
    scale = single_number(call, 2)
    return scaled_product(call, call.input(0), 1, (zero, 5), (scale, 3), 6, call.type(2).dtype)


def gemm(call: OnnxNode) -> Result:
    """Inputs A, B with scales and zero points, C as sums; then scale and zero point of the result.

    Without the last two the result is float32.
    """
    if call.type(0).rank != 2 or call.type(3).rank != 2:
        raise Unsupported(f"{call.type(0)} and {call.type(3)}, expected matrices")
    a, b = call.input(0), call.input(3)
    a = call.emit("transpose", a, perm=(1, 0)) if call.attribute("transA") else a
    b = call.emit("transpose", b, perm=(1, 0)) if call.attribute("transB") else b
    columns = call.kind(b).shape[1]
    zeros = (zero_point(call, 2, call.type(0).dtype), per_axis(call, 5, columns))
    total = call.emit("matmul_integer", a, b, *zeros)
    if call.given(6):
        total = call.emit("add", total, call.input(6))
    scale = call.emit("mul", single_number(call, 1), per_axis(call, 4, columns))
    if call.attribute("alpha") != 1:
        scale = call.emit("mul", scale, call.number(call.attribute("alpha"), float32))
    if not call.given(7):
        return call.emit("mul", call.emit("cast", total, to=float32), scale)
    scale = call.emit("div", scale, single_number(call, 7))
    to = call.type(8).dtype if call.given(8) else call.type(0).dtype
    return call.emit("requantize", total, scale, zero_point(call, 8, to), to=to)


ROWS: dict[str, Row] = {
    "DynamicQuantizeMatMul": row(
        dynamic_product, "A B b_scale b_zero_point? bias? -> Y", types=("float",)),
    "MatMulIntegerToFloat": row(
        product_to_float, "A B a_scale b_scale a_zero_point? b_zero_point? bias? -> Y",
        types=INTEGERS),
    "QGemm": row(
        gemm, "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point? -> Y",
        types=INTEGERS, transA=0, transB=0, alpha=1.0),
}  # fmt: skip
