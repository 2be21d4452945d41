"""Quantised bytes: a byte q means (q - zero) * scale.

In these rows, scales and zero points are single numbers, inputs after the bytes: x, its scale, its
zero point.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, float32, int32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.operators.quantised import per_axis


def single_number(call: OnnxNode, position: int) -> str:
    """A scale or zero point that must be one number; a vector of one element is accepted."""
    kind = call.type(position)
    if kind.rank > 1 or (kind.rank == 1 and kind.shape[0].constant != 1):
        raise Unsupported(f"input {position} is {kind}, expected a single number")
    return per_axis(call, position, None)


def zero_point(call: OnnxNode, position: int, dtype: DType) -> str:
    """A zero point; 0 if none is given."""
    return single_number(call, position) if call.given(position) else call.number(0, dtype)


def dequantized(call: OnnxNode, x: int, over: str | None = None) -> str:
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


def quantized(call: OnnxNode, value: str, scale: int, dtype: DType) -> str:
    """Quantise to a type; the zero point is the input after the scale."""
    zero = zero_point(call, scale + 1, dtype)
    return call.emit("quantize", value, single_number(call, scale), zero, to=dtype)


def rounded(call: OnnxNode, value: str, factor: str, zero: int, dtype: DType) -> str:
    """Requantise multiples of a scale after multiplication by a factor."""
    return call.emit("requantize", value, factor, zero_point(call, zero, dtype), to=dtype)
