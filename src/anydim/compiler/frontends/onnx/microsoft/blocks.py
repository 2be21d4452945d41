"""Block-quantised weights with a scale per block: MatMulNBits, GatherBlockQuantized.

Values of fewer than eight bits are packed in bytes, low bits first. A value q of a block means (q -
zero) * scale.
"""

from __future__ import annotations

from math import prod

import numpy

from anydim.base.dtypes import convert_array, float32, int4, int8, int64, uint8
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size, as_size, product

BITS = (2, 4, 8)


def matmul(call: OnnxNode) -> Result:
    """Inputs A [..., K], B [N, blocks, bytes], scales, zero points, groups of k, bias."""
    to = call.type(0).dtype
    k, n = call.attribute("K"), call.attribute("N")
    weights = _constant_weights(call, k, n) or _weights(call, k, n)
    a = call.as_type(call.input(0), float32)
    made = call.emit("matmul", a, call.emit("transpose", weights, perm=(1, 0)))
    if call.given(5):
        made = call.emit("add", made, call.as_type(call.input(5), float32))
    return call.as_type(made, to)


def _constant_weights(call: OnnxNode, k: int, n: int) -> str:
    """The weights as float32 [N, K] of small constant integers without zero points.

    '' if they do not fit: more bits are needed, zero points are floats, or k has groups.
    """
    bits, block = _check_blocks(call, k, n)
    blocks = -(-k // block)
    packed = _contents(call, 1, n * blocks * block * bits // 8)
    if packed is None or call.given(4):
        return ""
    whole = _fields(packed.reshape(n, -1), bits).astype(numpy.int16)
    if not call.given(3):
        whole -= 1 << (bits - 1)
    else:
        points = _contents(call, 3, n * -(-blocks * bits // 8))
        if points is None:
            return ""
        points = _fields(points.reshape(n, -1), bits)[:, :blocks]
        whole -= numpy.repeat(points, block, axis=1).astype(numpy.int16)
    whole = whole[:, :k]
    low, high = int(whole.min()), int(whole.max())
    fitting = (d for d in (int4, int8) if d.range[0] <= low and high <= d.range[1])
    dtype = next(fitting, None)
    if dtype is None:
        return ""
    weights = call.numbers(convert_array(whole, dtype.numpy), dtype)
    scale = call.as_type(_reshape_input(call, 2, (n, blocks)), float32)
    return call.emit("dequantize", weights, scale, axis=1, block=block)


def _contents(call: OnnxNode, position: int, count: int) -> numpy.ndarray | None:
    """The `count` constant bytes of an input; None for any other input."""
    name, emitter = call.input(position), call.emitter
    held = emitter.known.get(name) or emitter.constants.get(name)
    if held is None or (held.type.dtype, prod(held.shape)) != (uint8, count):
        return None
    return held.array


def _fields(packed: numpy.ndarray, bits: int) -> numpy.ndarray:
    """Unpack values of `bits` bits from bytes, low bits first, along the last axis."""
    if bits == 8:
        return packed
    shifts = numpy.arange(0, 8, bits, dtype=numpy.uint8)
    fields = packed[..., None] >> shifts & numpy.uint8((1 << bits) - 1)
    return fields.reshape(*packed.shape[:-1], -1)


def _check_blocks(call: OnnxNode, k: int, n: int) -> tuple[int, int]:
    """Bits of a weight, and weights of a block."""
    bits, block = call.attribute("bits"), call.attribute("block_size")
    if bits not in BITS or block < 1 or block * bits % 8 or k < 1 or n < 1:
        raise Unsupported(f"{n} x {k} weights of {bits} bits in blocks of {block}")
    if call.attribute("weight_prepacked"):
        raise Unsupported("weights that are packed for another machine")
    return bits, block


def _weights(call: OnnxNode, k: int, n: int) -> str:
    """The weights as float32 [N, K]."""
    bits, block = _check_blocks(call, k, n)
    blocks = -(-k // block)
    fields = _reshape_input(call, 1, (n, blocks, block * bits // 8))
    fields = _unpack(call, fields, bits)
    scale = _reshape_input(call, 2, (n, blocks))
    zero = _zeros(call, n, blocks, bits)
    if call.given(4):  # the block of each k
        group = call.emit("counted", call.emit("cast", call.input(4), to=int64), count=blocks)
        fields = _first(call, call.emit("reshape", fields, shape=(n, blocks * block)), k)
        scale, zero = (
            value if call.kind(value).rank == 0
            else call.emit("gather", value, _first(call, group, k), axis=1)
            for value in (scale, zero)
        )  # fmt: skip
        return _scale(call, fields, scale, zero)
    scale, zero = (
        value if call.kind(value).rank == 0 else call.emit("unsqueeze", value, axes=(2,))
        for value in (scale, zero)
    )
    made = _scale(call, fields, scale, zero)
    return _first(call, call.emit("reshape", made, shape=(n, blocks * block)), k)


def _scale(call: OnnxNode, fields: str, scale: str, zero: str) -> str:
    """(fields - zero) * scale in float32."""
    parts = (call.as_type(value, float32) for value in (fields, zero))
    return call.emit("mul", call.emit("sub", *parts), call.as_type(scale, float32))


def _zeros(call: OnnxNode, n: int, blocks: int, bits: int) -> str:
    """A zero point per block: floats, or packed like the weights; by default the middle value."""
    if not call.given(3):
        return call.number(float(1 << (bits - 1)), float32)
    if call.type(3).dtype != uint8:
        return _reshape_input(call, 3, (n, blocks))
    packed = _reshape_input(call, 3, (n, -(-blocks * bits // 8)))
    return _first(call, _unpack(call, packed, bits), blocks)


def _reshape_input(call: OnnxNode, position: int, shape: tuple[int, ...]) -> str:
    """An input of this shape, reshaped if it has the same element count."""
    own, wanted = call.shape(position), tuple(map(as_size, shape))
    if own != wanted and product(own) != product(wanted):
        raise Unsupported(f"input {position} is {call.type(position)}, expected {shape}")
    value = call.input(position)
    return value if own == wanted else call.emit("reshape", value, shape=wanted)


def _unpack(call: OnnxNode, value: str, bits: int) -> str:
    return value if bits == 8 else call.emit("unpack_bits", value, bits=bits)


def _first(call: OnnxNode, value: str, count: Size | int) -> str:
    """The first elements of the last axis."""
    have = call.kind(value).shape[-1]
    if have == as_size(count):
        return value
    return call.emit("slice", value, starts=(0,), ends=(count,), axes=(-1,))


def gather(call: OnnxNode) -> Result:
    """Gather rows of a table, their scales and zero points, and dequantise them.

    Indices out of range give zeros.
    """
    data, rank = call.type(0), call.type(0).rank
    at, along = call.attribute("gather_axis"), call.attribute("quantize_axis")
    block, bits = call.attribute("block_size"), call.attribute("bits")
    if not (-rank <= at < rank and -rank <= along < rank) or (at - along) % rank == 0:
        raise Unsupported(f"gather_axis {at} and quantize_axis {along} of {data}")
    if block < 1 or bits not in BITS or data.dtype.is_float:
        raise Unsupported(f"{data} in blocks of {block}, {bits} bits")
    at, along = at % rank, along % rank
    packed = data.dtype == uint8 and bits < 8
    if packed and at == rank - 1:
        raise Unsupported(f"gather_axis {at}, along which bytes are packed")
    inside, index = _inside(call, data.shape[at])
    taken = call.emit("gather", call.input(0), index, axis=at)
    scale = call.emit("gather", call.input(2), index, axis=at)
    taken = _unpack(call, taken, bits) if packed else taken
    axis = along + call.type(1).rank - 1 if along > at else along
    zero = _taken_zeros(call, index, at, packed, call.kind(scale).shape[-1])
    wide = call.emit("dequantize", taken, scale, *zero, axis=axis, block=block)
    shape = (1,) * at + call.shape(1) + (1,) * (rank - 1 - at)
    inside = call.emit("reshape", inside, shape=shape)
    return call.emit("where", inside, wide, call.number(0, call.type(2).dtype))


def _inside(call: OnnxNode, extent: Size) -> tuple[str, str]:
    """Whether indices are in range, and the indices with invalid ones replaced by 0."""
    index = call.as_type(call.input(1), int64)
    count = call.size_tensor(extent)
    low = call.emit("greater_equal", index, call.emit("neg", count))
    inside = call.emit("logical_and", low, call.emit("less", index, count))
    return inside, call.emit("where", inside, index, call.number(0, int64))


def _taken_zeros(call: OnnxNode, index: str, at: int, packed: bool, last: Size) -> tuple[str, ...]:
    """The zero points of the gathered rows; by default the middle value for bytes."""
    if call.given(3):
        zero = call.emit("gather", call.input(3), index, axis=at)
        if packed:
            zero = _first(call, _unpack(call, zero, call.attribute("bits")), last)
        return (zero,)
    if call.type(0).dtype != uint8:
        return ()
    return (call.number(1 << (call.attribute("bits") - 1), uint8),)


ROWS: dict[str, Row] = {
    "GatherBlockQuantized": row(
        gather, "data indices scales zero_points? -> output",
        types=("int4", "uint4", "uint8"), limits="data of integers",
        bits=4, block_size=128, gather_axis=0, quantize_axis=1),
    "MatMulNBits": row(
        matmul, "A B scales zero_points? g_idx? bias? -> Y",
        types=("float", "float16", "bfloat16"), limits="2, 4 and 8 bits",
        K=Required(int), N=Required(int), bits=4, block_size=Required(int), accuracy_level=0,
        weight_prepacked=0),
}  # fmt: skip
