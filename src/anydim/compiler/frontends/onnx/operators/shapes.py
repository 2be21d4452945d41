"""Rows of ONNX operators on shapes; `computed.py` serves data-dependent sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy, int64
from anydim.compiler.frontends.onnx.file.tensors import MOST_AXES, Unsupported
from anydim.compiler.frontends.onnx.operators import computed
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.relations import Unlike, decide
from anydim.compiler.frontends.onnx.values.emitter import MOST_KNOWN, Known
from anydim.compiler.frontends.onnx.values.forms import concatenate
from anydim.sizes import Guard, Size, as_size, bounds, ceil_div, maximum, minimum, product, simplify


def shape(call: OnnxNode) -> Result:
    rank = call.type(0).rank
    start, end = call.attribute("start", 0), call.attribute("end", rank)
    return Known.sizes(call.shape(0)[slice(start, end)])


def size(call: OnnxNode) -> Result:
    return Known.size(product(call.shape(0)))


def constant_of_shape(call: OnnxNode) -> Result:
    given = call.attribute("value")
    array = numpy.zeros(1, numpy.float32)
    if given is not None:
        array = call.array(given).reshape(-1)
    if array.size != 1:
        raise Unsupported(f"a value of {array.size} elements, expected 1")
    shape = call.sizes(0)
    _check_rank(len(shape))
    fixed = [size.constant for size in shape]
    if all(size is not None and size >= 0 for size in fixed):
        count = numpy.prod([int(size or 0) for size in fixed], dtype=object)
        if count <= MOST_KNOWN:
            return Known.of(numpy.full(tuple(int(s or 0) for s in fixed), array[0]))
    return call.emit("fill", shape=shape, value=array[0].item(), dtype=from_numpy(array.dtype))


def range_(call: OnnxNode) -> Result:
    known = all(call.is_static(position) for position in range(3))
    arrays = [call.known(position) for position in range(3)] if known else []
    for array in arrays:
        if array.size != 1:
            raise Unsupported(f"a range whose ends or step are {array.size} numbers")
    if known and all(array.dtype != object for array in arrays):
        start, limit, delta = (array.reshape(()).item() for array in arrays)
        if not delta:
            raise Unsupported("a range with step 0")
        count = -((start - limit) // delta)
        if 0 <= count <= MOST_KNOWN:
            return Known.of(numpy.arange(start, limit, delta, dtype=arrays[0].dtype))
    if not known and call.type(0).dtype.is_integer:
        return computed.range_(call)
    whole: list[Size] = []
    for position in (2, 0, 1):  # the limit last: it may add a guard
        size = computed.whole(call, position)
        if size is None:
            return computed.range_(call)
        whole.append(size)
    step, start, limit = whole
    if step.constant == 0:
        raise Unsupported("a range with step 0")
    if call.proved(step, "<", 0):
        pace, distance = simplify(0 - step, call.emitter.box), start - limit
    elif call.proved(step, ">=", 0):
        pace, distance = step, limit - start
    else:  # the direction is known only at run time
        return computed.range_(call)
    if not call.proved(pace, ">=", 1):
        message = f"{call.source}: a range has to have a step of 1 or more, its step is {step}"
        call.emitter.guards.append(Guard(as_size(1), "<=", pace, message))
        pace = maximum(pace, 1)
    count = simplify(maximum(ceil_div(distance, pace), 0), call.emitter.box)
    return call.emit("range", start=start, step=step, count=count, dtype=call.type(0).dtype)


# ---- views -------------------------------------------------------------------------------------


def reshape(call: OnnxNode) -> Result:
    copies = not call.attribute("allowzero")
    if not call.is_static(1):
        _check_rank(len(call.elements(1)))
        return call.emit("reshape", call.input(0), shape=tuple(computed.reshape(call, copies)))
    wanted = call.sizes(1)
    _check_rank(len(wanted))
    shape = _unwrap(call, copies) or _copy_zeros(call, wanted, copies)
    return call.emit("reshape", call.input(0), shape=shape)


def _copy_zeros(call: OnnxNode, wanted: Sequence[Size], copies: bool) -> list[Size]:
    """The sizes of a reshape; `copies`: 0 copies the size of its axis."""
    own = call.shape(0)
    zeros = [axis for axis, size in enumerate(wanted) if copies and size.constant == 0]
    if zeros and zeros[-1] >= len(own):
        raise Unsupported(f"size 0 at axis {zeros[-1]} copies an axis that does not exist")
    return [own[axis] if axis in zeros else size for axis, size in enumerate(wanted)]


def _unwrap(call: OnnxNode, copies: bool) -> list[Size] | None:
    """The sizes of a reshape computed in 32 bits, unwrapped if that keeps the element count.

    A reshape with wrapped sizes would fail anyway, so a guard may reject the call.
    """
    assumed = call.emitter.assumed.get(call.input(1))
    if assumed is None or assumed.likely:
        return None
    wanted = _copy_zeros(call, [as_size(size) for size in assumed.array.tolist()], copies)
    total, known = product(call.shape(0)), product(s for s in wanted if s.constant != -1)
    whole = total.divide_exactly(known)
    if whole is None or (whole != 1 and len([s for s in wanted if s.constant == -1]) != 1):
        return None
    call.emitter.guard(*assumed.guards)
    return wanted


def flatten(call: OnnxNode) -> Result:
    return call.emit("flatten", call.input(0), axis=call.attribute("axis", 1))


def expand(call: OnnxNode) -> Result:
    if not call.is_static(1):
        _check_rank(len(call.elements(1)))
        return computed.expand(call)
    wanted = call.sizes(1)
    _check_rank(len(wanted))
    return call.emit("expand", call.input(0), shape=wanted)


def squeeze(call: OnnxNode) -> Result:
    axes = call.attribute("axes")
    if call.opset >= 13:
        axes = call.integers(1) if call.given(1) else None
    if axes is None:
        axes = _axes_of_one(call)
    return call.emit("squeeze", call.input(0), axes=axes)


def _axes_of_one(call: OnnxNode) -> list[int]:
    """The axes whose size is 1; Unlike if one depends on the call."""
    axes = []
    for axis, size in enumerate(call.shape(0)):
        relation = (size, "==", as_size(1))
        taken = decide(call.emitter, relation)
        if taken is None:
            raise Unlike(f"it names no axes, and axis {axis} is removed if {size} == 1", relation)
        if taken:
            axes.append(axis)
    return axes


def unsqueeze(call: OnnxNode) -> Result:
    axes = call.attribute("axes") if call.opset < 13 else call.integers(1)
    _check_rank(call.type(0).rank + len(axes or ()))
    return call.emit("unsqueeze", call.input(0), axes=axes)


def slice_(call: OnnxNode) -> Result:
    if call.opset < 10:
        starts, ends = call.attribute("starts"), call.attribute("ends")
        return call.emit(
            "slice", call.input(0), starts=starts, ends=ends, axes=call.attribute("axes")
        )
    if call.given(3) and not call.is_static(3):
        return computed.slice_data_axes(call)
    axes = call.integers(3) if call.given(3) else None
    if not all(call.is_static(position) for position in range(1, len(call.inputs))):
        strides = call.input(4) if call.given(4) else None
        return computed.slice_by_data(
            call, call.input(1), call.input(2), _axes(call, axes), strides
        )
    if call.given(4) and any(size.constant is None for size in call.sizes(4)):
        along = _axes(call, axes)
        return computed.slice_by_data(call, call.input(1), call.input(2), along, call.input(4))
    starts, ends = (tuple(map(computed.clamped_bound, call.sizes(position))) for position in (1, 2))
    steps = call.integers(4) if call.given(4) else None
    if steps is not None and len(steps) == len(starts):
        extents = [call.shape(0)[axis] for axis in _axes(call, axes)]
        starts = tuple(map(computed.clamped_start, starts, extents, steps))
    return call.emit("slice", call.input(0), starts=starts, ends=ends, axes=axes, steps=steps)


def _axes(call: OnnxNode, axes: Sequence[int] | None) -> list[int]:
    """The axes of the bounds, counted from the front.

    If the bounds themselves were sliced, assumes the maximum count, or the call is rejected.
    """
    rank = call.type(0).rank
    limit = len(axes) if axes is not None else bounds(call.shape(1)[0], call.emitter.box).hi
    own = [
        call.contents(call.input(position), limit if limit != 0 else None) for position in (1, 2)
    ]
    count = len(own[0])
    given = list(range(count)) if axes is None else list(axes)
    counts = {count, len(own[1]), len(given)}
    if len(counts) > 1 or not all(-rank <= axis < rank for axis in given):
        raise Unsupported(f"bounds for the axes {given} of {rank}")
    return [axis % rank for axis in given]


def split(call: OnnxNode) -> Sequence[Result]:
    axis = call.attribute("axis", 0)
    extent = call.shape(0)[call.axis(axis)]
    count = len(call.outputs)
    sizes: Sequence[Any] | None = call.attribute("split")
    if call.opset >= 13 and call.given(1):
        sizes = call.sizes(1, count)
    if sizes is None:
        sizes = _even_parts(call, extent, count)
    if len(sizes) != count:
        raise Unsupported(f"{len(sizes)} parts for {count} results")
    return call.emit_many("split", count, call.input(0), axis=axis, sizes=sizes)


def _even_parts(call: OnnxNode, extent: Size, count: int) -> list[Size]:
    """Equal parts; since opset 18 the last ones may be smaller."""
    exact = extent.divide_exactly(count)
    if exact is not None:
        return [exact] * count
    if call.opset < 18:  # the operator's guard rejects other sizes
        return [extent // count] * count
    part = ceil_div(extent, count)
    parts = (maximum(minimum(extent - part * number, part), 0) for number in range(count))
    return [simplify(size, call.emitter.box) for size in parts]


def concat(call: OnnxNode) -> Result:
    if len(call.inputs) == 1:
        return call.emit("identity", call.input(0))
    values = [call.input(position) for position in range(len(call.inputs))]
    return concatenate(call, values, call.attribute("axis"))


# ---- repeats and masks -------------------------------------------------------------------------


def tile(call: OnnxNode) -> Result:
    return call.emit("tile", call.input(0), repeats=call.sizes(1, call.type(0).rank))


def pad(call: OnnxNode) -> Result:
    rank = call.type(0).rank
    counts: Sequence[Any] = call.attribute("pads", ())
    axes: Sequence[int] = range(rank)
    if call.given(3):
        axes = call.integers(3)
    if call.opset >= 11:
        counts = computed.signed_sizes(call, call.input(1), 2 * len(axes))
    if len(counts) != 2 * len(axes) or not all(-rank <= axis < rank for axis in axes):
        raise Unsupported(f"{len(counts)} pads for {len(axes)} of {rank} axes")
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for number, axis in enumerate(axes):
        before[axis], after[axis] = counts[number], counts[len(axes) + number]
    mode = call.attribute("mode", "constant")
    inputs = [call.input(0)]
    if mode == "constant":
        if call.given(2):
            inputs.append(call.scalar(2))
        elif call.opset < 11 and call.attribute("value"):
            inputs.append(call.number(call.attribute("value"), call.type(0).dtype))
    return call.emit("pad", *inputs, before=before, after=after, mode=mode)


def one_hot(call: OnnxNode) -> Result:
    depth = _depth(call)
    indices = call.input(0)
    if call.type(0).dtype.is_float:
        indices = call.emit("cast", indices, to=int64)
    axis = call.attribute("axis", -1)
    return call.emit("one_hot", indices, call.input(2), depth=depth, axis=axis)


def _depth(call: OnnxNode) -> Size:
    """The depth, a number of any type."""
    if call.type(1).dtype.is_integer:
        element = call.element(1)
        return element if isinstance(element, Size) else computed.count_of(call, call.input(1))
    if call.input(1) in call.emitter.known:
        known = call.known(1).reshape(-1)
        if known.size != 1 or not numpy.isfinite(known[0]):
            raise Unsupported(f"a depth of {known.tolist()}")
        return as_size(int(known[0]))
    return computed.count_of(call, call.emit("cast", call.input(1), to=int64))


def trilu(call: OnnxNode) -> Result:
    found = computed.signed_sizes(call, call.input(1), 1) if call.given(1) else [as_size(0)]
    if len(found) != 1:
        raise Unsupported(f"{len(found)} numbers as its input 1, expected one")
    return call.emit("trilu", call.input(0), upper=bool(call.attribute("upper", 1)), k=found[0])


def _check_rank(rank: int) -> None:
    if rank > MOST_AXES:
        raise Unsupported(f"{rank} axes, at most {MOST_AXES} are possible")
