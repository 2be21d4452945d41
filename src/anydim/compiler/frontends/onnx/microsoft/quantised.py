"""Operators on quantised numbers: the QLinear family, matrix products, a recurrent layer.

A byte q means (q - zero) * scale; scales and zero points are single numbers, inputs after the
bytes: x, its scale, its zero point. As in onnxruntime, the QLinear family computes with dequantised
numbers, in float32, or int32 for sums; only the result is rounded to even and saturated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.dtypes import DType, float32, int32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.attention import MASK, attention
from anydim.compiler.frontends.onnx.microsoft.images import channels_first, channels_last
from anydim.compiler.frontends.onnx.microsoft.norms import embed_layer_norm
from anydim.compiler.frontends.onnx.microsoft.record import INTEGERS, Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.quantised import (
    dequantize,
    dynamic_bytes,
    integer_convolution,
    per_axis,
    quantize,
    requantize_sums,
)
from anydim.compiler.frontends.onnx.operators.recurrent import recurrent
from anydim.compiler.frontends.onnx.operators.windows import window_attributes
from anydim.sizes import product


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


PRODUCT_ROWS: dict[str, Row] = {
    "DynamicQuantizeMatMul": row(
        dynamic_product, "A B b_scale b_zero_point? bias? -> Y", types=("float",)),
    "MatMulIntegerToFloat": row(
        product_to_float, "A B a_scale b_scale a_zero_point? b_zero_point? bias? -> Y",
        types=INTEGERS),
    "QGemm": row(
        gemm, "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point? -> Y",
        types=INTEGERS, transA=0, transB=0, alpha=1.0),
}  # fmt: skip


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


def dynamic_lstm(call: OnnxNode) -> list[Result]:
    """The standard's LSTM with dynamically quantised input and states.

    Weights are [directions, input, 4 * hidden], scales and zero points one per direction or one per
    direction and column.
    """
    x, x_scale, x_zero = dynamic_bytes(call, call.input(0))
    w_scale, w_zero, r_scale, r_zero = (_columns(call, number) for number in range(8, 12))

    def first(call: OnnxNode, direction: int) -> list[str]:
        w, scale, zero = (_at(call, name, direction) for name in (call.input(1), w_scale, w_zero))
        sums = call.emit("cast", call.emit("matmul_integer", x, w, x_zero, zero), to=float32)
        gates = call.emit("mul", sums, call.emit("mul", x_scale, scale))
        return [gates, call.input(2), r_scale, r_zero]

    return recurrent("lstm", first, dynamic=True)(call)


def _columns(call: OnnxNode, number: int) -> str:
    """A scale or zero point for each direction and column."""
    name, weights = call.input(number), call.shape(1)
    if call.type(number).rank == 1:
        name = call.emit("unsqueeze", name, axes=(1,))
    return call.emit("expand", name, shape=(weights[0], weights[2]))


def _at(call: OnnxNode, name: str, direction: int) -> str:
    """The part of a tensor for a direction."""
    kind = call.kind(name)
    part = call.emit("slice", name, starts=(direction,), ends=(direction + 1,), axes=(0,))
    return call.emit("reshape", part, shape=kind.shape[1:])


RECURRENT_ROWS: dict[str, Row] = {
    "DynamicQuantizeLSTM": row(
        dynamic_lstm,
        "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale"
        " R_zero_point -> Y? Y_h? Y_c?",
        types=("float",),
        activations=(str,), activation_alpha=(float,), activation_beta=(float,), clip=float,
        direction="forward", hidden_size=int, input_forget=0),
}  # fmt: skip


def _numbers(call: OnnxNode, tensor: int, scale: int, zero: int) -> str:
    """Dequantise an input; scales are single numbers, or one per column."""
    columns = call.shape(tensor)[-1]
    inputs = [call.input(tensor), per_axis(call, scale, columns)]
    if call.given(zero):
        inputs.append(per_axis(call, zero, columns))
    return call.emit("dequantize", *inputs, to=float32, axis=-1)


def quantised_attention(call: OnnxNode) -> Sequence[Result]:
    """Attention of dequantised numbers; the product runs on bytes (`Integers`)."""
    x, weights = _numbers(call, 0, 3, 6), _numbers(call, 1, 4, 7)
    mask, past = (call.input(n) if call.given(n) else None for n in (5, 8))
    return attention(replace(call, inputs=(x, weights, call.input(2), mask, past)))


def quantised_embedding(call: OnnxNode) -> Sequence[Result]:
    """Ids, five tensors of bytes and a mask; then the five scales and zero points."""
    parts = [
        _numbers(call, position, number + 8, number + 13) if call.given(position) else None
        for number, position in enumerate((2, 3, 4, 5, 6))
    ]
    segments, mask = (call.input(n) if call.given(n) else None for n in (1, 7))
    return embed_layer_norm(replace(call, inputs=(call.input(0), segments, *parts, mask)))


TRANSFORMER_ROWS: dict[str, Row] = {
    "QAttention": row(
        quantised_attention,
        "input weight bias input_scale weight_scale mask_index? input_zero_point?"
        " weight_zero_point? past? -> output present?",
        types=INTEGERS, limits="no shared buffers, no rotation", num_heads=Required(int),
        do_rotary=int, past_present_share_buffer=int, **MASK),
    "QEmbedLayerNormalization": row(
        quantised_embedding,
        "input_ids segment_ids? word_embedding_quant position_embedding_quant segment_embedding?"
        " gamma_quant beta_quant mask? word_embedding_scale position_embedding_scale"
        " segment_embedding_scale? gamma_scale beta_scale word_embedding_zero_point"
        " position_embedding_zero_point segment_embedding_zero_point? gamma_zero_point"
        " beta_zero_point -> layernorm_out mask_index_out",
        types=("int32",), epsilon=1e-12),
}  # fmt: skip
