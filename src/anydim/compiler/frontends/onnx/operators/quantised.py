"""Rows of ONNX operators that convert element types, and of quantised operators."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anydim.base.dtypes import DType, float8_e8m0fnu, float32, uint8
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.windows import window_attributes
from anydim.compiler.graph.nodes import Node
from anydim.sizes import Size, Truth, prove


def cast(call: OnnxNode) -> Result:
    return cast_to(call, element_type(call.attribute("to")))


def cast_like(call: OnnxNode) -> Result:
    return cast_to(call, call.type(1).dtype)


def cast_to(call: OnnxNode, to: DType) -> Result:
    """Cast; float8 results saturate unless `saturate` is 0."""
    if call.type(0).dtype == to:
        return call.input(0)
    saturate = bool(call.attribute("saturate", 1))
    if to == float8_e8m0fnu:
        rounding = call.attribute("round_mode", "up")
        return call.emit("cast_exponent", call.input(0), rounding=rounding, saturate=saturate)
    if _saturates(to) and saturate:
        return call.emit("cast_saturated", call.input(0), to=to)
    return call.emit("cast", call.input(0), to=to)


def _saturates(dtype: DType) -> bool:
    """Whether `saturate` applies to a type: the float8 types."""
    return dtype.stored and dtype.is_float and dtype.bits == 8


def bit_cast(call: OnnxNode) -> Result:
    return call.emit("bit_cast", call.input(0), to=element_type(call.attribute("to")))


# ---- scales and zero points --------------------------------------------------------------------


def quantize(call: OnnxNode) -> Result:
    wanted = call.attribute("output_dtype", 0)
    given = call.given(2)
    to = call.type(2).dtype if given else element_type(wanted) if wanted else uint8
    if wanted and element_type(wanted) != to:
        raise Unsupported(f"output_dtype {element_type(wanted)} with a zero point of type {to}")
    precision = call.attribute("precision", 0)
    work = element_type(precision) if precision else _working(call)
    zero = _granular(call, 2) if given and not _saturates(to) else None
    again = _without_requantization(call, call.input(0), to) or _quantized_parts(call, to)
    if again is not None:
        return again
    inputs = [call.input(0), _granular(call, 1)] + ([zero] if zero else [])
    return call.emit(
        "quantize", *inputs, to=to, work=work, saturate=bool(call.attribute("saturate", 1)),
        axis=call.attribute("axis", 1), block=call.attribute("block_size", 0),
    )  # fmt: skip


_MODERATE = 2.0**100  # bound of scales: no overflow, no underflow

# Operators that commute with quantisation: they move elements, or select the largest.
_ORDERLY = frozenset((
    "expand", "flatten", "max_pool", "reduce_max", "reduce_min", "reshape", "slice", "squeeze",
    "transpose", "unsqueeze",
))  # fmt: skip


def _quantized_parts(call: OnnxNode, to: DType) -> str | None:
    """Quantise a concatenation part by part, if all parts are dequantised bytes."""
    joined = call.emitter.makers.get(call.input(0))
    own = (call.input(1), *((call.input(2),) if call.given(2) else ()))
    if joined is None or joined.operator != "concat" or any(call.kind(n).rank for n in own):
        return None
    makers = [call.emitter.makers.get(name) for name in joined.given]
    if not to.is_integer or any(m is None or m.operator != "dequantize" for m in makers):
        return None
    parts = [
        _without_requantization(call, name, to)
        or call.emit("quantize", name, *own, to=to, work=_working(call))
        for name in joined.given
    ]
    return call.emit("concat", *parts, **joined.attributes)


def _without_requantization(call: OnnxNode, value: str, to: DType) -> str | None:
    """Remove a dequantise-quantise pair around operators that move data, if both use one scale.

    Files that quantise around every operator also do so around these.
    """
    path: list[Node] = []
    maker = call.emitter.makers.get(value)
    while maker is not None and maker.operator in _ORDERLY and len(maker.outputs) == 1:
        path.append(maker)
        maker = call.emitter.makers.get(maker.given[0])
    if maker is None or maker.operator != "dequantize" or not to.is_integer:
        return None
    if not _round_trips(call, call.input(1)):
        return None
    own = (call.input(1), *((call.input(2),) if call.given(2) else ()))
    given = maker.given[1:]
    if call.kind(maker.given[0]).dtype != to or len(own) != len(given) or not all(
        call.kind(name).rank == 0 and _same_number(call, name, other)
        for name, other in zip(own, given)
    ):  # fmt: skip
        return None
    found = maker.given[0]
    for node in reversed(path):
        found = call.emit(node.operator, found, *node.given[1:], **node.attributes)
    return found


def _round_trips(call: OnnxNode, scale: str) -> bool:
    """Whether x * scale / scale is known to be exact for numbers of 16 bits."""
    known = call.emitter.known.get(scale)
    if known is None or known.dtype != float32 or prod(known.shape) != 1:
        return False
    return 1 / _MODERATE < float(known.array.ravel()[0]) < _MODERATE


def _same_number(call: OnnxNode, left: str, right: str) -> bool:
    """Whether two numbers are one value, or known to be equal."""
    known = call.emitter.known
    if left == right:
        return True
    if left not in known or right not in known:
        return False
    if known[left].shape != known[right].shape:
        return False
    return bool((known[left].array == known[right].array).all())


def _working(call: OnnxNode) -> DType:
    """The type of the division: the scale's, or float32 for storage types."""
    scale = call.type(1).dtype
    return float32 if scale.stored or not scale.is_float else scale


def dequantize(call: OnnxNode) -> Result:
    wanted = call.attribute("output_dtype", 0)
    to = element_type(wanted) if wanted else call.type(1).dtype
    zero = _granular(call, 2) if call.given(2) and not call.type(0).dtype.is_float else None
    inputs = [call.input(0), _granular(call, 1)] + ([zero] if zero else [])
    return call.emit(
        "dequantize", *inputs, to=float32 if to.stored else to,
        axis=call.attribute("axis", 1), block=call.attribute("block_size", 0),
    )  # fmt: skip


def dynamic_quantize(call: OnnxNode) -> Sequence[Result]:
    return dynamic_bytes(call, call.input(0))


def dynamic_bytes(call: OnnxNode, x: str) -> tuple[str, str, str]:
    """x as uint8 with one scale and zero point for the whole tensor, its scale and its zero point.

    The range includes 0; if it is empty the scale is 1.
    """
    zero = call.number(0.0, float32)
    low = call.emit("minimum", call.emit("reduce_min", x, axes=None), zero)
    high = call.emit("maximum", call.emit("reduce_max", x, axes=None), zero)
    reach = call.emit("sub", high, low)
    scale = call.emit("div", reach, call.number(255.0, float32))
    scale = call.emit("where", call.emit("greater", reach, zero), scale, call.number(1.0, float32))
    start = call.emit("quantize", call.emit("neg", low), scale, to=uint8)
    return call.emit("quantize", x, scale, start, to=uint8), scale, start


def _granular(call: OnnxNode, position: int) -> str:
    """A scale or zero point: a scalar, one per index of the axis, or one per block."""
    kind, rank = call.type(position), call.type(0).rank
    if call.attribute("block_size", 0) or kind.rank != 1:
        return call.input(position)
    axis = call.attribute("axis", 1)
    if rank == 1:
        axis = 0
    if not -rank <= axis < rank:
        return per_axis(call, position, None)
    return per_axis(call, position, call.shape(0)[axis])


def per_axis(call: OnnxNode, position: int, extent: Size | None) -> str:
    """A vector with `extent` numbers, or a scalar for a single number."""
    name, kind = call.input(position), call.type(position)
    if kind.rank != 1:
        return name
    (size,) = kind.shape
    if size.constant == 1 or extent is None:
        return call.emit("reshape", name, shape=())
    if prove(size, "==", extent, call.emitter.box) is Truth.PROVED:
        return name
    return call.emit("expand", name, shape=(extent,))


# ---- sums of products --------------------------------------------------------------------------


def matmul_integer(call: OnnxNode) -> Result:
    return integer_product(call, 0, 1, 2, 3)


def integer_product(call: OnnxNode, a: int, b: int, a_zero: int, b_zero: int) -> str:
    """The integer product of two inputs minus their zero points."""
    rows = call.shape(a)[-2] if call.type(a).rank > 1 else None
    columns = call.shape(b)[-1] if call.type(b).rank > 1 else None
    zeros = (zero_of(call, a, a_zero, rows), zero_of(call, b, b_zero, columns))
    return call.emit("matmul_integer", call.input(a), call.input(b), *zeros)


def zero_of(call: OnnxNode, tensor: int, position: int, extent: Size | None) -> str:
    if not call.given(position):
        return call.number(0, call.type(tensor).dtype)
    return per_axis(call, position, extent)


def qlinear_matmul(call: OnnxNode) -> Result:
    total = integer_product(call, 0, 3, 2, 5)
    rows = call.shape(0)[-2] if call.type(0).rank > 1 else None
    columns = call.shape(3)[-1] if call.type(3).rank > 1 else None
    left, right = per_axis(call, 1, rows), per_axis(call, 4, columns)
    if call.emitter.types[left].rank == 1 and columns is not None:
        left = call.emit("unsqueeze", left, axes=(1,))
    scale = product_scale(call, left, right, per_axis(call, 6, None))
    zero = per_axis(call, 7, None)
    return call.emit("requantize", total, scale, zero, to=call.type(7).dtype)


def product_scale(call: OnnxNode, left: str, right: str, result: str) -> str:
    """left * right / result in float32: the factor from sums to numbers of the result."""
    parts = [call.as_type(name, float32) for name in (left, right, result)]
    return call.emit("div", call.emit("mul", *parts[:2]), parts[2])


def conv_integer(call: OnnxNode) -> Result:
    return integer_convolution(call, call.input(0), 1, 2, 3)


def integer_convolution(call: OnnxNode, value: str, w: int, x_zero: int, w_zero: int) -> str:
    """The convolution of a value (input 0, channels first) minus the zero points."""
    attributes = window_attributes(call, weights=w)
    zeros = (zero_of(call, 0, x_zero, None), zero_of(call, w, w_zero, call.shape(w)[0]))
    groups = call.attribute("group", 1)
    inputs = (value, call.input(w), *zeros)
    return call.emit("conv_integer", *inputs, groups=groups, **attributes)


def qlinear_conv(call: OnnxNode) -> Result:
    return requantize_sums(call, integer_convolution(call, call.input(0), 3, 2, 5))


def requantize_sums(call: OnnxNode, total: str) -> str:
    """The sums of a QLinearConv, with its bias, requantised."""
    spatial = tuple(range(1, call.type(0).rank - 1))
    if call.given(8):
        bias = call.emit("unsqueeze", call.input(8), axes=spatial)
        total = call.emit("add", total, bias)
    right = per_axis(call, 4, call.shape(3)[0])
    scale = product_scale(call, per_axis(call, 1, None), right, per_axis(call, 6, None))
    if call.emitter.types[scale].rank:
        scale = call.emit("unsqueeze", scale, axes=spatial)
    zero = per_axis(call, 7, None)
    return call.emit("requantize", total, scale, zero, to=call.type(7).dtype)
