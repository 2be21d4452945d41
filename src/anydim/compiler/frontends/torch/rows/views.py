"""Rows of views, and of overloads that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import DType, boolean, int64, uint8
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Number, Sizes, TorchBuilder
from anydim.compiler.frontends.torch.memory_order import memory_order
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.lang.functions import unsigned_type
from anydim.sizes import Size, as_size, at_most, maximum, minimum, product


def view(g: TorchBuilder, x: Value, shape: Sizes, **_: Any) -> Value:
    return g.reshape(x, shape=tuple(shape))


def expand(g: TorchBuilder, x: Value, shape: Sizes, **_: Any) -> Value:
    """A size of -1 keeps the axis."""
    missing = len(shape) - len(x.shape)
    sizes = [
        x.shape[axis - missing] if as_size(size).constant == -1 else size
        for axis, size in enumerate(shape)
    ]
    return g.expand(x, shape=tuple(sizes))


def permute(g: TorchBuilder, x: Value, dims: Sequence[int]) -> Value:
    return g.transpose(x, perm=tuple(dim % len(x.shape) for dim in dims))


def transpose(g: TorchBuilder, x: Value, first: int, second: int) -> Value:
    rank = len(x.shape)
    if not rank:
        return x
    perm = list(range(rank))
    perm[first], perm[second] = perm[second], perm[first]
    return g.transpose(x, perm=tuple(perm))


def bits(g: TorchBuilder, x: Value, dtype: DType) -> Value:
    """The bits of elements as those of another type, along the last axis if its width differs."""
    if boolean in (x.dtype, dtype):  # a byte that is 0 or 1
        x = g.as_type(x, uint8) if x.dtype == boolean else x
        return g.as_type(bits(g, x, uint8), boolean) if dtype == boolean else bits(g, x, dtype)
    if x.dtype.bits == dtype.bits:
        return g.bit_cast(x, to=dtype)
    if not x.shape or 8 * x.dtype.bytes != x.dtype.bits or 8 * dtype.bytes != dtype.bits:
        raise Refused(f"{x.dtype} as {dtype}")
    before, after = unsigned_type(x.dtype), unsigned_type(dtype)
    wide, narrow = sorted((before, after), key=lambda kind: -kind.bits)
    whole, count = g.bit_cast(x, to=before), wide.bits // narrow.bits
    steps = g.cast(g.positions(count) * narrow.bits, to=wide)
    *rest, last = x.shape
    if before == wide:
        parts = g.shift_right(g.unsqueeze(whole, axes=(len(rest) + 1,)), steps)
        parts = g.bit_and(parts, g.scalar((1 << narrow.bits) - 1, wide))
        made = g.reshape(g.cast(parts, to=narrow), shape=(*rest, last * count))
    else:
        parts = g.cast(g.reshape(whole, shape=(*rest, last // count, count)), to=wide)
        made = g.reduce_sum(g.shift_left(parts, steps), axes=(-1,), keepdims=False)
    return g.bit_cast(made, to=dtype)


def transpose_matrix(g: TorchBuilder, x: Value) -> Value:
    return g.transpose(x, perm=(1, 0)) if len(x.shape) == 2 else x


def unsqueeze(g: TorchBuilder, x: Value, dim: int) -> Value:
    return g.unsqueeze(x, axes=(dim % (len(x.shape) + 1),))


def squeeze(g: TorchBuilder, x: Value, dims: int | Sequence[int] | None = None) -> Value:
    """Axes of size 1 go. An axis that may have another size stays, and may not have size 1."""
    if not x.shape:
        return x
    given = range(len(x.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    axes = [dim % len(x.shape) for dim in given]
    if len(x.shape) - g.rank == len(set(axes)):  # torch knows that all of them are 1
        return g.squeeze(x, axes=tuple(axes)) if axes else x
    for axis in axes:
        size = x.shape[axis]
        if size.constant is None:
            reason = f"axis {axis} of size {size} is not 1: squeezed, the result has fewer axes"
            g.require(size, "!=", 1, reason)
    ones = tuple(axis for axis in axes if x.shape[axis].constant == 1)
    return g.squeeze(x, axes=ones) if ones else x


def slice_of(
    g: TorchBuilder, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    first = 0 if start is None else start
    last = x.shape[dim] if end is None else end
    if isinstance(last, int) and last >= 1 << 62:
        last = x.shape[dim]
    if as_size(step).constant is None:
        return _take_steps(g, x, dim % len(x.shape), first, last, as_size(step))
    return g.slice(x, starts=(first,), ends=(last,), axes=(dim,), steps=(step,))


def _take_steps(g: TorchBuilder, x: Value, axis: int, start: Any, end: Any, step: Size) -> Value:
    """Slices with a step that is a size expression."""
    g.require(step, ">=", 1, "the step of a slice is positive")
    first, last = _first(x, axis, start), _first(x, axis, end)
    count = maximum(last - first + step - 1, 0) // maximum(step, 1)
    places = g.add(g.mul(g.positions(count), g.scalar(step, int64)), g.scalar(first, int64))
    return g.gather(x, places, axis=axis)


def select(g: TorchBuilder, x: Value, dim: int, index: int | Size | Value) -> Value:
    if isinstance(index, Value):
        return g.gather(x, index, axis=dim % len(x.shape))
    key = [slice(None)] * (dim % len(x.shape))
    return x[(*key, index)]


def narrow(g: TorchBuilder, x: Value, dim: int, start: Any, length: Any) -> Value:
    if isinstance(start, Value):
        start = g.find_size(g.reshape(start, shape=()), "start")
    size = as_size(start)
    first = start if size.constant is None or size.constant >= 0 else x.shape[dim] + start
    return g.slice(x, starts=(first,), ends=(first + length,), axes=(dim,))


def split(g: TorchBuilder, x: Value, size: int | Size, dim: int = 0) -> list[Value]:
    """Parts of one size; the number of parts is fixed by the export."""
    parts = g.parts
    extent = x.shape[dim]
    starts = [as_size(size) * number for number in range(parts)]
    ends = [*starts[1:], extent]
    return [
        g.slice(x, starts=(start,), ends=(end,), axes=(dim,)) for start, end in zip(starts, ends)
    ]


def split_sizes(g: TorchBuilder, x: Value, sizes: Sizes, dim: int = 0) -> list[Value]:
    made = g.split(x, axis=dim, sizes=tuple(sizes))
    return [made] if isinstance(made, Value) else list(made)


def unbind(g: TorchBuilder, x: Value, dim: int = 0) -> list[Value]:
    """A tensor for each element of the axis; torch has traced their number."""
    g.require(x.shape[dim], "==", g.parts, "the axis has the size of torch's trace")
    return [select(g, x, dim, number) for number in range(g.parts)]


def concat(g: TorchBuilder, values: Sequence[Value], dim: int = 0) -> Value:
    """Empty vectors among tensors of more axes are skipped, as torch does."""
    ranks = max(len(value.shape) for value in values)
    own = [
        g.as_type(value, g.result) for value in values
        if len(value.shape) == ranks
    ]  # fmt: skip
    while len(own) > 1:
        groups = [own[at : at + 16] for at in range(0, len(own), 16)]
        own = [g.concat(*each, axis=dim) if len(each) > 1 else each[0] for each in groups]
    return own[0]


def stack(g: TorchBuilder, values: Sequence[Value], dim: int = 0) -> Value:
    return concat(g, [unsqueeze(g, value, dim) for value in values], dim)


def flip(g: TorchBuilder, x: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        if x.shape:
            x = g.slice(x, starts=(-1,), ends=(-(1 << 62) - 1,), axes=(dim,), steps=(-1,))
    return x


def roll(g: TorchBuilder, x: Value, shifts: Sizes, dims: Sequence[int] = ()) -> Value:
    """Without dims, the flat tensor is rolled."""
    if not dims:
        return g.reshape(roll(g, g.flat(x), shifts, (0,)), shape=x.shape)
    for shift, dim in zip(shifts, dims):
        extent = x.shape[dim]
        cut = extent - as_size(shift) % maximum(extent, 1)
        back = g.slice(x, starts=(cut,), ends=(extent,), axes=(dim,))
        front = g.slice(x, starts=(0,), ends=(cut,), axes=(dim,))
        x = g.concat(back, front, axis=dim)
    return x


def repeat(g: TorchBuilder, x: Value, repeats: Sizes) -> Value:
    missing = len(repeats) - len(x.shape)
    if missing:
        x = g.reshape(x, shape=(*(1,) * missing, *x.shape))
    if not repeats:
        return x
    return g.tile(x, repeats=tuple(repeats))


def pad(mode: str) -> Build:
    """Counts are pairs from the last axis on; modes other than 'constant' as in torch."""

    def build(g: TorchBuilder, x: Value, counts: Sizes, value: Number | None = 0) -> Value:
        rank = len(x.shape)
        before, after = [as_size(0)] * rank, [as_size(0)] * rank
        for position in range(len(counts) // 2):
            before[rank - 1 - position] = as_size(counts[2 * position])
            after[rank - 1 - position] = as_size(counts[2 * position + 1])
        if mode == "constant":
            number = g.operand(0 if value is None else value, x.dtype)
            return g.pad(x, number, before=tuple(before), after=tuple(after))
        return g.pad(x, before=tuple(before), after=tuple(after), mode=mode)

    return build


def as_strided(
    g: TorchBuilder, x: Value, sizes: Sizes, strides: Sizes, offset: Any = None
) -> Value:
    """Elements of the tensor in memory at an offset plus strides times indices."""
    return g.gather(g.flat(_in_memory(g, x)), _strided_places(g, sizes, strides, offset), axis=0)


def _strided_places(g: TorchBuilder, sizes: Sizes, strides: Sizes, offset: Any) -> Value:
    """Flat positions: offset + sum of stride * index."""
    rank = len(sizes)
    place = g.scalar(as_size(0 if offset is None else offset), int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides)):
        steps = g.mul(g.positions(as_size(size)), g.scalar(as_size(stride), int64))
        place = g.add(place, g.reshape(steps, shape=_along(size, axis, rank)))
    return place


def _in_memory(g: TorchBuilder, x: Value) -> Value:
    """x with its axes in the order in which torch has them in memory."""
    order = memory_order(g.source)
    return x if order == tuple(range(len(order))) else g.transpose(x, perm=order)


def _along(size: Any, axis: int, rank: int) -> tuple[Any, ...]:
    return tuple(size if number == axis else 1 for number in range(rank))


def diagonal(g: TorchBuilder, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    """The diagonal becomes the last axis."""
    rank = len(x.shape)
    a, b = first % rank, second % rank
    perm = [axis for axis in range(rank) if axis not in (a, b)] + [a, b]
    x = g.transpose(x, perm=tuple(perm))
    rows, columns = x.shape[-2:]
    down, right = maximum(-as_size(offset), 0), maximum(as_size(offset), 0)
    count = maximum(minimum(rows - down, columns - right), 0)
    flat = g.reshape(x, shape=(*x.shape[:-2], rows * columns))
    steps = g.mul(g.positions(count), g.scalar(columns + 1, int64))
    return g.gather(flat, g.add(steps, g.scalar(down * columns + right, int64)), axis=rank - 2)


def unfold(g: TorchBuilder, x: Value, dim: int, size: int | Size, step: int) -> Value:
    """Windows along an axis, whose elements become a last axis."""
    if not x.shape:
        x = g.reshape(x, shape=(1,))
        return g.slice(x, starts=(0,), ends=(size,), axes=(0,))
    axis = dim % len(x.shape)
    count = (x.shape[axis] - size) // step + 1
    starts = g.mul(g.positions(count), step)
    places = g.add(g.unsqueeze(starts, axes=(1,)), g.positions(as_size(size)))
    made = g.gather(x, places, axis=axis)
    rank = len(made.shape)
    order = [*range(axis + 1), *range(axis + 2, rank), axis + 1]
    return g.transpose(made, perm=tuple(order))


def shuffle_pixels(name: str) -> Build:
    def build(g: TorchBuilder, x: Value, factor: int) -> Value:
        *lead, channels, height, width = x.shape
        parts = g.reshape(x, shape=(product(lead), channels, height, width))
        made = getattr(g, name)(parts, block=factor, inner=True)
        return g.reshape(made, shape=(*lead, *made.shape[1:]))

    return build


def copy(g: TorchBuilder, x: Value, source: Value, *_: Any) -> Value:
    """Expands and converts the source to x."""
    return g.expand(g.as_type(source, x.dtype), shape=x.shape)


def same(g: TorchBuilder, x: Value, *_: Any, **__: Any) -> Value:
    return x


def slice_scatter(
    g: TorchBuilder, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Value:  # fmt: skip
    """x with a slice replaced."""
    if not x.shape:
        return source
    axis = dim % len(x.shape)
    marks = slice_of(g, g.positions(x.shape[axis]), 0, start, end, step)
    source = g.expand(g.as_type(source, x.dtype), shape=_with(x.shape, axis, marks.shape[0]))
    if step == 1:
        first = _first(x, axis, start)
        front = g.slice(x, starts=(0,), ends=(first,), axes=(axis,))
        back = g.slice(x, starts=(first + marks.shape[0],), ends=(x.shape[axis],), axes=(axis,))
        return g.concat(front, source, back, axis=axis)
    return put_along(g, x, marks, source, axis)


def _first(x: Value, axis: int, start: Any) -> Size:
    extent = x.shape[axis]
    size = as_size(0 if start is None else start)
    from_back = maximum(extent + size, 0)
    return at_most(size, -1).where(from_back, minimum(size, extent))


def _with(shape: Sequence[Size], axis: int, size: Size) -> tuple[Size, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def put_along(g: TorchBuilder, x: Value, places: Value, source: Value, axis: int) -> Value:
    """x with the slices at `places` of an axis replaced by those of `source`."""
    places = g.reshape(places, shape=_along(places.shape[0], axis, len(x.shape)))
    return g.scatter_elements(x, g.expand(places, shape=source.shape), source, axis=axis)


def select_scatter(g: TorchBuilder, x: Value, source: Value, dim: int, index: Any) -> Value:
    axis = dim % len(x.shape)
    places = g.reshape(g.operand(index, int64), shape=(1,))
    source = g.unsqueeze(g.as_type(source, x.dtype), axes=(axis,))
    return put_along(g, x, places, source, axis)


def diagonal_scatter(
    g: TorchBuilder, x: Value, source: Value, offset: int = 0, first: int = 0, second: int = 1
) -> Value:
    numbers = g.reshape(g.positions(g.elements(x)), shape=x.shape)
    places = diagonal(g, numbers, offset, first, second)
    return put_flat(g, x, places, source)


def put_flat(g: TorchBuilder, x: Value, places: Value, source: Value) -> Value:
    source = g.flat(g.as_type(source, x.dtype))
    made = g.scatter_elements(g.flat(x), g.flat(places), source, axis=0)
    return g.reshape(made, shape=x.shape)


def as_strided_scatter(
    g: TorchBuilder, x: Value, source: Value, sizes: Sizes, strides: Sizes, offset: Any = None
) -> Value:
    order = memory_order(g.source)
    made = put_flat(g, _in_memory(g, x), _strided_places(g, sizes, strides, offset), source)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return made if order == tuple(range(len(order))) else g.transpose(made, perm=back)


ROWS: dict[str, Build] = {
    **{f"{name}.default": view for name in
       ("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy")},
    "view.dtype": bits, "expand.default": expand, "expand_copy.default": expand,
    "permute.default": permute, "permute_copy.default": permute,
    "transpose.int": transpose, "t.default": transpose_matrix,
    "unsqueeze.default": unsqueeze, "unsqueeze_copy.default": unsqueeze,
    "squeeze.default": squeeze, "squeeze.dim": squeeze, "squeeze.dims": squeeze,
    "squeeze_copy.dims": squeeze,
    "slice.Tensor": slice_of, "slice_copy.Tensor": slice_of,
    "select.int": select, "select_copy.int": select,
    "narrow.default": narrow, "narrow.Tensor": narrow,
    "split.Tensor": split, "split_with_sizes.default": split_sizes,
    "split_with_sizes_copy.default": split_sizes, "split_copy.Tensor": split,
    "unbind.int": unbind, "unbind_copy.int": unbind,
    "cat.default": concat, "stack.default": stack,
    "flip.default": flip, "roll.default": roll, "repeat.default": repeat,
    "constant_pad_nd.default": pad("constant"),
    **{f"reflection_pad{n}d.default": pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": pad("edge") for n in (1, 2, 3)},
    "_pad_circular.default": pad("wrap"),
    "as_strided.default": as_strided, "as_strided_copy.default": as_strided,
    "diagonal.default": diagonal, "diagonal_copy.default": diagonal,
    "unfold.default": unfold, "unfold_copy.default": unfold,
    "pixel_shuffle.default": shuffle_pixels("depth_to_space"),
    "pixel_unshuffle.default": shuffle_pixels("space_to_depth"),
    "slice_scatter.default": slice_scatter, "select_scatter.default": select_scatter,
    "diagonal_scatter.default": diagonal_scatter,
    "as_strided_scatter.default": as_strided_scatter,
    "copy.default": copy, "lift_fresh.default": same, "lift.default": same,
}  # fmt: skip
