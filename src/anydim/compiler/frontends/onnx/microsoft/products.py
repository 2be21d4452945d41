"""Matrix products of bytes with results of floats or bytes."""

from __future__ import annotations

from anydim.base.dtypes import DType, float32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.bytes import single_number, zero_point
from anydim.compiler.frontends.onnx.microsoft.record import INTEGERS, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.quantised import dynamic_bytes, per_axis


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
    if call.kind(scale).dtype != float32:
        scale = call.emit("cast", scale, to=float32)
    made = call.emit("mul", call.emit("cast", total, to=float32), scale)
    if call.given(bias):
        own = call.input(bias)
        own = own if call.kind(own).dtype == float32 else call.emit("cast", own, to=float32)
        made = call.emit("add", made, own)
    return made if to == float32 else call.emit("cast", made, to=to)


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
