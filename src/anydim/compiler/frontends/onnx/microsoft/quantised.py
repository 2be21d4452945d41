"""Elementwise operators, means and concatenation of quantised numbers: the QLinear family.

A number is a byte, its scale and its zero point; see `products.py`. As in onnxruntime, the
computation uses dequantised numbers, in float32, or int32 for sums; only the result is rounded to
even and saturated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.dtypes import float32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.images import channels_first, channels_last
from anydim.compiler.frontends.onnx.microsoft.products import (
    dequantize_input,
    integers,
    quantize_to,
    requantize,
    single_number,
)
from anydim.compiler.frontends.onnx.microsoft.record import INTEGERS, Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.quantised import (
    dequantize,
    integer_convolution,
    quantize,
    requantize_sums,
)
from anydim.compiler.frontends.onnx.operators.windows import window_attributes
from anydim.sizes import product


def apply_channels_first(call: OnnxNode, value: str, made: Callable[[str], str]) -> str:
    """Apply `made` with channels first; the result has the node's layout."""
    if not call.attribute("channels_last"):
        return made(value)
    if call.kind(value).rank < 3:
        raise Unsupported(f"channels_last for {call.kind(value)}")
    return channels_last(call, made(channels_first(call, value)))


def add(call: OnnxNode) -> Result:
    """Add in multiples of the result's scale."""
    scale = single_number(call, 6)
    total = call.emit("add", dequantize_input(call, 0, scale), dequantize_input(call, 3, scale))
    return requantize(call, total, call.number(1.0, float32), 7, call.type(0).dtype)


def multiply(call: OnnxNode) -> Result:
    both = call.emit("mul", integers(call, 0), integers(call, 3))
    scale = call.emit("mul", single_number(call, 1), single_number(call, 4))
    factor = call.emit("div", scale, single_number(call, 6))
    return requantize(call, both, factor, 7, call.type(0).dtype)


def of_one(name: str, **renamed: str) -> Callable[[OnnxNode], Result]:
    """A function of one number; `renamed` maps its attributes to those of the node."""

    def build(call: OnnxNode) -> Result:
        attributes = {own: call.attribute(theirs) for own, theirs in renamed.items()}
        made = call.emit(name, dequantize_input(call, 0), **attributes)
        return quantize_to(call, made, 3, call.type(0).dtype)

    return build


def softmax(call: OnnxNode) -> Result:
    """Softmax with the semantics of opset `opset`: before 13, axes from `axis` on are flattened.

    As in onnxruntime, shares are multiples of 1 / floor(1 / scale).
    """
    axis: Any = call.attribute("axis")
    first = call.axis(axis)
    if call.attribute("opset") < 13:
        axis = tuple(range(first, call.type(0).rank))
    shares = call.emit("softmax", dequantize_input(call, 0), axis=axis)
    levels = call.emit("floor", call.emit("reciprocal", single_number(call, 3)))
    return requantize(call, shares, levels, 4, call.type(0).dtype)


def choose(call: OnnxNode) -> Result:
    """Inputs: condition, X, Y; X, Y and the result have a scale and a zero point each."""
    both = (quantize_to(call, dequantize_input(call, x), 7, call.type(x).dtype) for x in (1, 4))
    return call.emit("where", call.input(0), *both)


def concat(call: OnnxNode) -> Result:
    """Concatenate; parts with the scale and zero point of the result are not requantised."""
    if len(call.inputs) < 5 or len(call.inputs) % 3 != 2:
        raise Unsupported(f"{len(call.inputs)} inputs")
    dtype = call.type(1).dtype
    parts = []
    for x in range(2, len(call.inputs), 3):
        same = call.type(x).dtype == dtype and all(
            call.input(x + own) == call.input(own - 1) or _equal(call, x + own, own - 1)
            for own in (1, 2)
        )
        parts.append(
            call.input(x) if same else quantize_to(call, dequantize_input(call, x), 0, dtype)
        )
    return call.emit("concat", *parts, axis=call.attribute("axis"))


def _equal(call: OnnxNode, left: int, right: int) -> bool:
    """Whether two inputs are known to be equal."""
    if not (call.is_static(left) and call.is_static(right)):
        return False
    return bool((call.known(left).ravel() == call.known(right).ravel()).all())


def reduce_mean(call: OnnxNode) -> Result:
    axes, keep = call.attribute("axes"), bool(call.attribute("keepdims"))
    made = call.emit("reduce_mean", dequantize_input(call, 0), axes=axes or None, keepdims=keep)
    return quantize_to(call, made, 3, call.type(0).dtype)


def average_pool(call: OnnxNode) -> Result:
    def pooled(value: str) -> str:
        return call.emit(
            "average_pool", value, kernel=call.attribute("kernel_shape"),
            ceil=bool(call.attribute("ceil_mode")),
            count_padding=bool(call.attribute("count_include_pad")), **window_attributes(call),
        )  # fmt: skip

    return quantize_to(
        call, apply_channels_first(call, dequantize_input(call, 0), pooled), 3, call.type(0).dtype
    )


def global_average_pool(call: OnnxNode) -> Result:
    """The sum of the bytes, scaled by one number."""
    rank = call.type(0).rank
    if rank < 3:
        raise Unsupported(f"x of type {call.type(0)}")
    axes = tuple(range(1, rank - 1)) if call.attribute("channels_last") else tuple(range(2, rank))
    total = call.emit("reduce_sum", integers(call, 0), axes=axes, keepdims=True)
    count = product(call.shape(0)[axis] for axis in axes)
    over = call.emit("mul", single_number(call, 3), call.size_tensor(count, float32))
    factor = call.emit("div", single_number(call, 1), over)
    return requantize(call, total, factor, 4, call.type(0).dtype)


def max_pool(call: OnnxNode) -> Result:
    """The maximum of bytes in windows, channels last."""
    made = call.emit(
        "max_pool", channels_first(call, call.input(0)), kernel=call.attribute("kernel_shape"),
        ceil=bool(call.attribute("ceil_mode")), **window_attributes(call),
    )  # fmt: skip
    return channels_last(call, made)


def convolution(call: OnnxNode) -> Result:
    """The standard's QLinearConv with optional channels-last layout; weights are channels first."""

    def convolved(value: str) -> str:
        total = integer_convolution(call, value, 3, 2, 5)
        return requantize_sums(call, total)

    return apply_channels_first(call, call.input(0), convolved)


_WINDOW: Mapping[str, Any] = {
    "auto_pad": "NOTSET", "pads": (int,), "strides": (int,),
}  # fmt: skip
_POOL: Mapping[str, Any] = {**_WINDOW, "kernel_shape": Required((int,)), "ceil_mode": 0}
_TWO = "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point? -> C"
_ONE = "X X_scale X_zero_point? Y_scale Y_zero_point? -> Y"
WIDE = ("int8", "uint8", "int16", "uint16", "int32")


ROWS: dict[str, Row] = {
    "DequantizeLinear": row(dequantize, "x x_scale x_zero_point? -> y", types=WIDE, axis=int),
    "NhwcMaxPool": row(max_pool, "x -> y", types=INTEGERS, dilations=(int,), **_POOL),
    "QLinearAdd": row(add, _TWO, types=INTEGERS),
    "QLinearAveragePool": row(
        average_pool, _ONE, types=INTEGERS, channels_last=0, count_include_pad=0, **_POOL),
    "QLinearConcat": row(concat, "Y_scale Y_zero_point inputs* -> Y", types=(), axis=Required(int)),
    "QLinearConv": row(
        convolution,
        "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B? -> y",
        types=INTEGERS, channels_last=0, group=1, kernel_shape=(int,), dilations=(int,),
        **_WINDOW),
    "QLinearGlobalAveragePool": row(
        global_average_pool, "X x_scale x_zero_point y_scale y_zero_point -> Y",
        types=INTEGERS, channels_last=0),
    "QLinearLeakyRelu": row(of_one("leaky_relu", alpha="alpha"), _ONE, types=INTEGERS, alpha=0.01),
    "QLinearMul": row(multiply, _TWO, types=INTEGERS),
    "QLinearReduceMean": row(
        reduce_mean, _ONE, types=INTEGERS, axes=Required((int,)), keepdims=Required(int)),
    "QLinearSigmoid": row(of_one("sigmoid"), _ONE, types=INTEGERS),
    "QLinearSoftmax": row(
        softmax, "X X_scale x_zero_point? y_scale y_zero_point -> Y",
        types=INTEGERS, axis=-1, opset=Required(int)),
    "QLinearWhere": row(
        choose,
        "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point -> Z",
        types=("bool",)),
    "QuantizeLinear": row(quantize, "x y_scale y_zero_point? -> y", axis=int),
}  # fmt: skip
