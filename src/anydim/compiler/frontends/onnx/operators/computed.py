"""Data-dependent shapes, bounds and counts as arguments of library operators.

Each function evaluates the rules of the standard for its tensor (0 copies a size, -1 is the rest,
bounds count from the end and are clipped) with dense arithmetic and binds the results to dims.
Known elements keep their sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import float32, float64, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.values.bindings import Known
from anydim.compiler.frontends.onnx.values.data_sizes import gather_elements
from anydim.compiler.frontends.onnx.values.forms import add_known, vector
from anydim.sizes import LARGEST, Guard, Size, as_size, bounds, maximum, product

_NO_SIZE = -2  # of a missing axis
_INT32 = (1 << 31) - 1


def reshape(call: OnnxNode, copies: bool) -> list[Size]:
    """The sizes of a reshape to input 1; `copies`: 0 copies the size of its axis."""
    items, own = call.elements(1), list(call.shape(0))
    count = len(items)
    requested = gather_elements(call, call.input(1), range(count), count)
    missing = max(count - len(own), 0)
    own_sizes = vector(call, (*own[:count], *[_NO_SIZE] * missing))
    factors = vector(call, (*own[:count], *[1] * missing))
    one = _number(call, 1)
    if copies:
        requested = call.emit(
            "where", call.emit("equal", requested, _number(call, 0)), own_sizes, requested
        )
    rest = call.emit("equal", requested, _number(call, -1))
    kept = call.emit("equal", requested, own_sizes)  # excluded from both products, so it may be 0
    total = call.emit("mul", _volume(call, kept, factors), _number(call, product(own[count:])))
    others = _volume(call, call.emit("logical_or", rest, kept), requested)
    rest_size = call.emit("floor_div", total, call.emit("maximum", others, one))
    rest_size = _minus_one_if_zero(call, others, rest_size)
    wanted = call.emit("where", rest, rest_size, requested)
    fixed: list[Size | None] = []
    for axis, item in enumerate(items):
        if isinstance(item, Size) and item.constant == 0 and copies:
            fixed.append(own[axis] if axis < len(own) else None)
        else:
            known_size = isinstance(item, Size) and item.constant != -1
            fixed.append(item if known_size and isinstance(item, Size) else None)
    return _bind_missing(call, wanted, fixed)


def _volume(call: OnnxNode, left_out: str, sizes: str) -> str:
    """The product of a vector of sizes, without those where `left_out` is true."""
    counted = call.emit("where", left_out, _number(call, 1), sizes)
    return call.emit("reduce_prod", counted, axes=(0,), keepdims=False)


def expand(call: OnnxNode) -> str:
    """Broadcast input 0 to input 1."""
    items, own = call.elements(1), call.shape(0)
    rank = max(len(own), len(items))
    own_sizes = [*[as_size(1)] * (rank - len(own)), *own]
    requested = gather_elements(call, call.input(1), range(len(items)), len(items))
    if len(items) < rank:
        ones = vector(call, [1] * (rank - len(items)))
        requested = call.emit("concat", ones, requested, axis=0)
    padded = [*[as_size(1)] * (rank - len(items)), *items]
    one = _number(call, 1)
    sizes = vector(call, own_sizes)
    wanted = call.emit("where", call.emit("equal", requested, one), sizes, requested)
    met: list[Size | None] = []
    for size, item in zip(own_sizes, padded):
        if isinstance(item, Size) and item.constant == 1:
            met.append(size)
        elif isinstance(item, Size) and (size.constant == 1 or size == item):
            met.append(item)
        else:
            met.append(size if call.proved(size, ">", 1) else None)
    target = _bind_missing(call, wanted, met)
    made = call.emit("expand", call.input(0), shape=tuple(target))
    if call.emitter.types[made].shape == tuple(target):
        return made
    return call.emit("reshape", made, shape=tuple(target))


def slice_by_data(
    call: OnnxNode, starts: str, ends: str, axes: Sequence[int], steps: str | None
) -> str:
    """x[start:end:step] along some axes with data-dependent bounds or steps."""
    value = call.input(0)
    bounds_of = [call.contents(name, len(axes)) for name in (starts, ends)]
    strides = call.contents(steps) if steps is not None else [as_size(1)] * len(axes)
    for number, axis in enumerate(axes):
        start, end, step = bounds_of[0][number], bounds_of[1][number], strides[number]
        extent = call.emitter.types[value].shape[axis]
        fixed = isinstance(step, Size) and step.constant
        if isinstance(start, Size) and isinstance(end, Size) and fixed:
            start, end = clamped_start(clamped_bound(start), extent, fixed), clamped_bound(end)
            value = call.emit(
                "slice", value, starts=(start,), ends=(end,), axes=(axis,), steps=(fixed,)
            )
            continue
        one = [gather_elements(call, name, (number,), len(axes)) for name in (starts, ends)]
        if fixed == 1:
            limit = _distance(call, starts, ends) if len(axes) == 1 else None
            value = _window(call, value, axis, extent, one[0], one[1], start, limit)
        else:
            assert steps is not None
            stride = gather_elements(call, steps, (number,), len(axes))
            value = _slice_with_stride(call, value, axis, extent, one[0], one[1], stride)
    return value


def clamped_bound(bound: Any) -> Size:
    """The bound of a slice; int32 limits mean the end, as the standard recommends.

    Such a bound is not compared with sizes.
    """
    number = as_size(bound).constant
    if number is None or -_INT32 - 1 < number < _INT32:
        return as_size(bound)
    return as_size(LARGEST if number > 0 else -LARGEST)


def clamped_start(start: Size, extent: Size, step: int) -> Size:
    """The start of a slice by the standard's rule: with a negative step it is clipped to 0."""
    number = start.constant
    if step > 0 or number is None or number >= -1:
        return start
    return -extent if -number > LARGEST // 2 else maximum(start, -extent)


def slice_data_axes(call: OnnxNode) -> str:
    """A slice whose axes are data: every axis gets a start, an end and a step."""
    rank = call.type(0).rank
    one, zero, extents = _number(call, 1), _number(call, 0), vector(call, call.shape(0))
    named = gather_elements(call, call.input(3), (), 0)
    named = call.emit("where", call.emit("less", named, zero),
                      call.emit("add", named, _number(call, rank)), named)  # fmt: skip
    axes = call.emit("unsqueeze", vector(call, range(rank)), axes=(1,))
    matches = call.emit("cast", call.emit("equal", axes, named), to=int64)
    absent = call.emit("equal", call.emit("reduce_sum", matches, axes=(1,), keepdims=False), zero)

    def spread(position: int, usual: str) -> str:
        """The elements of an input for all axes; `usual` for axes that are not named."""
        given = gather_elements(call, call.input(position), (), 0) if call.given(position) else one
        own = call.emit("reduce_sum", call.emit("mul", matches, given), axes=(1,), keepdims=False)
        return call.emit("where", absent, usual, own)

    starts, ends, steps = spread(1, zero), spread(2, extents), spread(4, one)
    return slice_by_data(call, starts, ends, range(rank), steps)


def _window(
    call: OnnxNode, value: str, axis: int, extent: Size, start: str, end: str, known_start: object,
    at_most: int | None,
) -> str:  # fmt: skip
    """value[start:end] along an axis, as a view of up to `at_most` elements."""
    low, high = vector(call, [0]), vector(call, [extent])
    first = _clip_bound(call, start, extent, low, high)
    last = _clip_bound(call, end, extent, low, high)
    length = call.emit("maximum", call.emit("sub", last, first), low)
    limit = bounds(extent, call.emitter.box).hi
    if at_most is not None:
        limit = at_most if limit is None else min(limit, at_most)
    if isinstance(known_start, Size) and call.proved(known_start, "==", 0):
        count = call.dim("length", 0, limit)
        call.constrain(extent - count)
        call.find(length, (count,))
        return call.emit("slice", value, starts=(as_size(0),), ends=(count,), axes=(axis,))
    highest = bounds(extent, call.emitter.box).hi
    begin, count = call.dim("start", 0, highest), call.dim("length", 0, limit)
    call.constrain(extent - begin - count)
    call.find(call.emit("concat", first, length, axis=0), (begin, count))
    return call.emit("slice", value, starts=(begin,), ends=(begin + count,), axes=(axis,))


def _distance(call: OnnxNode, start: str, end: str) -> int | None:
    """The distance of two bounds that are sums of one value and constants."""
    (base, first), (other, last) = _sum(call, start), _sum(call, end)
    return max(last - first, 0) if base == other else None


def _sum(call: OnnxNode, name: str) -> tuple[str, int]:
    """Split a value into a base value and a constant addend."""
    emitter, number = call.emitter, 0
    while (node := emitter.makers.get(name)) is not None and node.operator in ("add", "identity"):
        terms = [each for each in node.given if each not in emitter.known]
        added = [emitter.known[each].array for each in node.given if each in emitter.known]
        if len(terms) != 1 or any(a.size != 1 or a.dtype.kind != "i" for a in added):
            break
        if emitter.types[terms[0]] != emitter.types[name]:
            break
        name, number = terms[0], number + sum(int(each.reshape(-1)[0]) for each in added)
    return name, number


def _slice_with_stride(
    call: OnnxNode, value: str, axis: int, extent: Size, start: str, end: str, step: str
) -> str:
    """value[start:end:step] along an axis, for steps of either sign."""
    zero, size = vector(call, [0]), vector(call, [extent])
    back = call.emit("less", step, zero)
    low = call.emit("where", back, vector(call, [-1]), zero)
    high = call.emit("where", back, vector(call, [extent - 1]), size)
    # the standard clips a start to 0 for any step; Python does not
    nearest = call.emit("minimum", zero, high)
    first = _clip_bound(call, start, extent, nearest, high)
    last = _clip_bound(call, end, extent, low, high)
    count = call.dim("length", 0, bounds(extent, call.emitter.box).hi)
    call.constrain(extent - count)
    call.find(_iterations(call, first, last, step), (count,))
    indices = call.emit("add", call.emit("mul", call.iota(count), step), first)
    return call.emit("gather", value, indices, axis=axis)


def _clip_bound(call: OnnxNode, bound: str, extent: Size, low: str, high: str) -> str:
    """A bound with negative values counted from the end, clipped to the range."""
    size = vector(call, [extent])
    negative = call.emit("less", bound, vector(call, [0]))
    bound = call.emit("where", negative, call.emit("add", bound, size), bound)
    return call.emit("minimum", call.emit("maximum", bound, low), high)


def _iterations(call: OnnxNode, first: str, last: str, step: str) -> str:
    """How many of first, first + step, ... are before last, of integers; -1 if the step is 0."""
    distance = call.emit("floor_div", call.emit("sub", first, last), step)
    zero = add_known(call, Known.size(0))
    return _minus_one_if_zero(call, step, call.emit("maximum", call.emit("neg", distance), zero))


def _overflow_checked(call: OnnxNode, range_: Sequence[str], count: str) -> str:
    """A count; if the bounds differ by more than 63 bits, 0 or -1 by the direction of the step."""
    first, last, step = range_
    zero = call.number(0, int64)
    up = call.emit("less", first, last)
    wrong = call.emit("not_equal", up, call.emit("less", call.emit("sub", first, last), zero))
    away = call.emit("equal", up, call.emit("less", step, zero))
    none, beyond = add_known(call, Known.size(0)), add_known(call, Known.size(-1))
    return call.emit("where", wrong, call.emit("where", away, none, beyond), count)


def _minus_one_if_zero(call: OnnxNode, step: str, count: str) -> str:
    """A count; -1, which no dim accepts, if a step or divisor is 0."""
    none = call.number(0, call.kind(step).dtype)
    standing = call.emit("equal", step, none)
    return call.emit("where", standing, add_known(call, Known.size(-1)), count)


def range_(call: OnnxNode) -> str:
    """start, start + delta, ... before limit."""
    dtype = call.type(0).dtype
    for position in range(3):
        if call.type(position).rank > 1:
            kind = call.type(position)
            raise Unsupported(f"its input {position} is {kind}, expected a number")
    start, limit, delta = (call.scalar(position) for position in range(3))
    if dtype.is_float:
        wide = [call.emit("cast", v, to=float64) for v in (start, limit, delta)]
        distance = call.emit("sub", wide[1], wide[0])
        iterations = call.emit("ceil", call.emit("div", distance, wide[2]))
        number = call.emit("cast", iterations, to=int64)
        number = call.emit("maximum", number, add_known(call, Known.size(0)))
        number = _minus_one_if_zero(call, wide[2], number)
    else:
        values = (start, limit, delta)
        parts = [call.as_type(value, int64) for value in values]
        number = _overflow_checked(call, parts, _iterations(call, parts[0], parts[1], parts[2]))
    count = call.dim("count")
    call.find(number, (count,))
    indices = call.emit("range", start=0, step=1, count=count, dtype=dtype)
    return call.emit("add", call.emit("mul", indices, delta), start)


def whole(call: OnnxNode, position: int) -> Size | None:
    """The single element of an input if it is an integer, of an integer or float type.

    A size that was converted to float must be exact; a guard ensures it if needed.
    """
    if call.type(position).dtype.is_integer:
        return call.sizes(position)[0]
    name = call.input(position)
    if call.is_static(position):
        number = call.known(position).reshape(-1)[0].item()
        return as_size(int(number)) if number.is_integer() and abs(number) <= _MOST else None
    node, most = call.emitter.makers.get(name), _WHOLE.get(call.type(position).dtype)
    if node is None or node.operator != "cast" or most is None:
        return None
    source = call.kind(node.given[0])
    if not source.dtype.is_integer or any(size.constant != 1 for size in source.shape):
        return None
    (item,) = call.contents(node.given[0])
    if not isinstance(item, Size):
        return None
    if not call.proved(item, "<=", most):
        message = f"{call.source}: counts up to {item} in {call.type(position).dtype}"
        call.emitter.guards.append(Guard(item, "<=", as_size(most), message))
    return item


_MOST = 1 << 53
_WHOLE = {float32: 1 << 24, float64: _MOST}  # up to here floats represent all integers


def signed_sizes(call: OnnxNode, name: str, count: int) -> list[Size]:
    """The elements of a vector as sizes that may be negative: differences of two dims."""
    items = call.contents(name, count)
    indices = [index for index, item in enumerate(items) if not isinstance(item, Size)]
    if not indices:
        return [item for item in items if isinstance(item, Size)]
    value = gather_elements(call, name, indices, len(items))
    zero = _number(call, 0)
    value = call.emit("maximum", value, _number(call, -(2**62)))  # -2**63 has no negation
    above = call.emit("maximum", value, zero)
    below = call.emit("maximum", call.emit("neg", value), zero)
    dims = [call.dim(stem) for stem in ("above", "below") for _ in indices]
    call.find(call.emit("concat", above, below, axis=0), dims)
    found = dict(zip(indices, (a - b for a, b in zip(dims, dims[len(indices) :]))))
    return [item if isinstance(item, Size) else found[p] for p, item in enumerate(items)]


def count_of(call: OnnxNode, name: str) -> Size:
    """The single element of an integer tensor as a dim."""
    count = call.dim("count")
    call.find(gather_elements(call, name, (0,), 1), (count,))
    return count


def _bind_missing(call: OnnxNode, value: str, sizes: Sequence[Size | None]) -> list[Size]:
    """Sizes, with a new dim for each None: the element of the vector at that position."""
    indices = [index for index, size in enumerate(sizes) if size is None]
    dims = {index: call.dim("size") for index in indices}
    if indices:
        call.find(gather_elements(call, value, indices, len(sizes)), list(dims.values()))
    return [dims[index] if size is None else size for index, size in enumerate(sizes)]


def _number(call: OnnxNode, size: Size | int) -> str:
    return add_known(call, Known.size(size))
