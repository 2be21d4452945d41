"""Rows of the operators on sequences and optional values.

A sequence with individually known elements stays a list, and its operators add no nodes to the
graph. Other sequences are packed.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy

from anydim.base.dtypes import boolean, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.values.bindings import (
    Binding,
    Items,
    Known,
    Maybe,
    Packed,
    Result,
)
from anydim.compiler.frontends.onnx.values.forms import add_known, concatenate, packed_of
from anydim.compiler.frontends.onnx.values.packed import (
    Blocks,
    Sequence,
    append_axes,
    multiply,
    numbers,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Size, as_size, ceil_div, product, simplify

_MOST_PARTS = 64


def empty(call: OnnxNode) -> Result:
    return Items((), element_type(call.attribute("dtype", 1)))


def construct(call: OnnxNode) -> Result:
    values = tuple(call.input(position) for position in range(len(call.inputs)))
    dtype = call.type(0).dtype
    if any(call.type(position).dtype != dtype for position in range(len(values))):
        raise Unsupported("tensors of different element types")
    return Items(values, dtype)


def length(call: OnnxNode) -> Result:
    held = _sequence(call)
    count = len(held.values) if isinstance(held, Items) else _pack(call).count
    return Known.size(count)


def at(call: OnnxNode) -> Result:
    held, position = _sequence(call), _constant_position(call, 1)
    if isinstance(held, Items) and position is not None:
        return held.values[_inside(position, len(held.values), 1)]
    return _pack(call).at(call.input(1))


def insert(call: OnnxNode) -> Result:
    """Insert before a position, or at the end."""
    held, value = _sequence(call), call.input(1)
    position = _constant_position(call, 2) if call.given(2) else None
    if isinstance(held, Items) and (position is not None or not call.given(2)):
        if held.dtype != call.type(1).dtype:
            raise Unsupported(f"{call.type(1)} in a sequence of {held.dtype}")
        count = len(held.values)
        own = count if position is None else _inside(position, count, 0)
        return Items((*held.values[:own], value, *held.values[own:]), held.dtype)
    sequence = _pack(call, call.type(1).rank)
    return sequence.insert(value, call.input(2)) if call.given(2) else sequence.append(value)


def erase(call: OnnxNode) -> Result:
    """Remove the tensor at a position, or the last one."""
    held = _sequence(call)
    position = _constant_position(call, 1) if call.given(1) else -1
    if isinstance(held, Items) and position is not None:
        own = _inside(position, len(held.values), 1)
        return Items((*held.values[:own], *held.values[own + 1 :]), held.dtype)
    return _pack(call).erase(call.input(1) if call.given(1) else call.number(-1, int64))


def concat_from(call: OnnxNode) -> Result:
    held, new = _sequence(call), bool(call.attribute("new_axis", 0))
    if isinstance(held, Items) and held.values:
        rank = call.emitter.types[held.values[0]].rank
        axis = call.axis(call.attribute("axis"), rank + new)
        values: Several[str] = held.values
        if new:
            values = [call.emit("unsqueeze", value, axes=(axis,)) for value in values]
        return concatenate(call, values, axis) if len(values) > 1 else values[0]
    sequence = _pack(call)
    axis = call.axis(call.attribute("axis"), sequence.rank + new)
    return sequence.stack(axis) if new else sequence.concatenate(axis)


def sequence_map(call: OnnxNode) -> Several[Result] | None:
    """Inline the body for each element; None if the element count is open: a loop serves it."""
    proto = call.attribute("body")
    held = [call.held(position) for position in range(len(call.inputs))]
    if not isinstance(held[0], Items):
        return None
    count = len(held[0].values)
    for other in held:
        if isinstance(other, Packed) or (isinstance(other, Items) and len(other.values) != count):
            return None
    made: list[list[str]] = [[] for _ in proto.output]
    for number in range(count):
        values = [h.values[number] if isinstance(h, Items) else h for h in held]
        names = {value.name: one for value, one in zip(proto.input, values)}
        for kept, result in zip(made, call.scope.inline(proto, names)):
            if not isinstance(result, str):
                raise Unsupported("a body that returns a value that is no tensor")
            kept.append(result)
    if not count:
        return None
    return [Items(tuple(kept), call.emitter.types[kept[0]].dtype) for kept in made]


# ---- splitting a tensor ------------------------------------------------------------------------


def split_to(call: OnnxNode) -> Result:
    """Parts along an axis: of these lengths, of one length (the last may be shorter), or slices."""
    kind = call.type(0)
    axis = call.axis(call.attribute("axis", 0), kind.rank)
    extent = kind.shape[axis]
    if not call.given(1):
        keep = bool(call.attribute("keepdims", 1))
        return _slices(call, kind, axis, keep)
    if call.type(1).rank == 0:
        (size,) = call.sizes(1)
        count = simplify(ceil_div(extent, size), call.emitter.box)
        if count.constant is not None and count.constant <= _MOST_PARTS:
            last = extent - size * (count - 1)
            return _items(call, axis, [size] * (count.constant - 1) + [last] * bool(count != 0))
        starts = multiply(call, numbers(call, count), size)
        rest = call.emit("sub", add_known(call, Known.size(extent)), starts)
        return _parts(
            call, kind, axis, call.emit("minimum", rest, add_known(call, Known.size(size)))
        )
    if call.shape(1)[0].constant is not None:
        return _items(call, axis, list(call.sizes(1)))
    return _parts(call, kind, axis, call.as_type(call.input(1), int64))


def _items(call: OnnxNode, axis: int, sizes: Several[Size]) -> Items:
    values = call.emit_many("split", len(sizes), call.input(0), axis=axis, sizes=tuple(sizes))
    return Items(tuple(values), call.type(0).dtype)


def _slices(call: OnnxNode, kind: TensorType, axis: int, keep: bool) -> Result:
    extent = kind.shape[axis]
    if extent.constant is not None and 0 < extent.constant <= _MOST_PARTS:
        made = _items(call, axis, [as_size(1)] * extent.constant)
        if keep:
            return made
        values = tuple(call.emit("squeeze", value, axes=(axis,)) for value in made.values)
        return Items(values, kind.dtype)
    order = (axis, *(a for a in range(kind.rank) if a != axis))
    transposed = call.emit("transpose", call.input(0), perm=order)
    elements = call.emit("reshape", transposed, shape=(product(kind.shape),))
    sizes = [as_size(1) if a == axis else s for a, s in enumerate(kind.shape) if keep or a != axis]
    row = add_known(call, Known(Known.sizes(sizes).array.reshape(1, len(sizes)), int64))
    shapes = call.emit("expand", row, shape=(extent, len(sizes)))
    return Packed(elements, shapes, len(sizes))


def _parts(call: OnnxNode, kind: TensorType, axis: int, lengths: str) -> Packed:
    """A packed sequence of parts with data-dependent lengths."""
    count, extent = call.emitter.types[lengths].shape[0], kind.shape[axis]
    before, after = product(kind.shape[:axis]), product(kind.shape[axis + 1 :])
    total = product(kind.shape)
    elements = call.emit("reshape", call.input(0), shape=(total,))
    if axis:
        elements = call.emit(
            "gather", elements, _order(call, lengths, count, extent, before, after, total), axis=0
        )
    columns = [append_axes(call, lengths, 1)]
    for sizes, at_front in ((kind.shape[:axis], True), (kind.shape[axis + 1 :], False)):
        if sizes:
            row = add_known(call, Known(Known.sizes(sizes).array.reshape(1, len(sizes)), int64))
            whole = call.emit("expand", row, shape=(count, len(sizes)))
            columns.insert(0 if at_front else len(columns), whole)
    return Packed(elements, concatenate(call, columns, 1), kind.rank)


def _order(
    call: OnnxNode, lengths: str, count: Size, extent: Size, before: Size, after: Size, total: Size
) -> str:
    """The source offset of each element of the concatenated parts."""
    index, row = numbers(call, total), before * after
    blocks = Blocks(call, lengths, count, extent)

    def quotient(value: str, by: str) -> tuple[str, str]:
        return call.emit("floor_div", value, by), call.emit("mod", value, by)

    one = add_known(call, Known.size(1))
    owner = blocks.owner(quotient(index, call.emit("maximum", _size(call, row), one))[0])
    start, own = blocks.start(owner), call.emit("gather", lengths, owner, axis=0)
    inner = call.emit("sub", index, multiply(call, start, row))
    pre, rest = quotient(inner, call.emit("maximum", multiply(call, own, after), one))
    along, post = quotient(rest, call.emit("maximum", _size(call, after), one))
    at_axis = call.emit("add", multiply(call, pre, extent), call.emit("add", start, along))
    return call.emit("add", multiply(call, at_axis, after), post)


def _size(call: OnnxNode, size: Size) -> str:
    return add_known(call, Known.size(size))


# ---- optional values ---------------------------------------------------------------------------


def optional(call: OnnxNode) -> Result:
    return Maybe(call.held(0) if call.given(0) else None)


def has_element(call: OnnxNode) -> Result:
    held: Binding | None = call.held(0) if call.given(0) else Maybe(None)
    if isinstance(held, Maybe) and held.single and isinstance(held.value, Packed):
        count = call.emitter.types[held.value.shapes].shape[0]
        return call.emit("cast", add_known(call, Known.size(count)), to=boolean)
    present = not isinstance(held, Maybe) or held.value is not None
    return Known.of(numpy.array(present))


def get_element(call: OnnxNode) -> Result:
    held = call.held(0)
    if not isinstance(held, Maybe):
        return held
    if held.value is None:
        raise Unsupported("an optional that is empty")
    if held.single and isinstance(held.value, Packed):
        return Sequence(call, held.value).at(call.number(0, int64))
    return held.value


# ---- inputs ------------------------------------------------------------------------------------


def _sequence(call: OnnxNode) -> Items | Packed:
    held = call.held(0)
    if isinstance(held, Maybe) and not held.single and held.value is not None:
        held = held.value
    if not isinstance(held, (Items, Packed)):
        raise Unsupported("its input is no sequence")
    return held


def _pack(call: OnnxNode, rank: int = 0) -> Sequence:
    """The sequence as two tensors; a `rank` above 0 is required of its elements."""
    return Sequence(call, packed_of(call, _sequence(call), rank))


def _constant_position(call: OnnxNode, position: int) -> int | None:
    """A constant position; None if it is data."""
    item = call.element(position)
    return item.constant if isinstance(item, Size) else None


def _inside(position: int, count: int, last: int) -> int:
    if not -count <= position <= count - last:
        raise Unsupported(f"position {position} of a sequence of {count}")
    return position + count if position < 0 else position
