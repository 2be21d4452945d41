"""Rows of indexing by tensors: reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from anydim.base.dtypes import boolean, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Number, TorchBuilder, is_number
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.compiler.frontends.torch.rows.reductions import over_vectors, vector, vector_norm
from anydim.compiler.frontends.torch.rows.views import put_along
from anydim.sizes import Size

Indices: TypeAlias = "Sequence[Value | None]"


def embedding(g: TorchBuilder, weight: Value, indices: Value, *_: Any) -> Value:
    return g.gather(weight, indices, axis=0, from_end=False)


def embedding_renorm(
    g: TorchBuilder, weight: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """The table with the rows that are read scaled to a norm of at most `max_norm`."""
    place = g.flat(g.as_type(indices, int64))
    rows = g.gather(weight, place, axis=0, from_end=False)
    norms = vector_norm(g, rows, norm_type, -1, True)
    scale = g.div(g.scalar(max_norm, norms.dtype), g.add(norms, 1e-7))
    kept = g.less_equal(norms, g.scalar(max_norm, norms.dtype))
    made = g.where(kept, rows, g.as_type(g.mul(rows, scale), weight.dtype))
    return put_along(g, weight, place, made, 0)


def index_select(g: TorchBuilder, x: Value, dim: int, index: Value) -> Value:
    index = vector(g, index)
    if not x.shape:
        return g.reshape(g.gather(vector(g, x), index, axis=0, from_end=False), shape=())
    return g.gather(x, index, axis=dim, from_end=False)


def gather(g: TorchBuilder, x: Value, dim: int, index: Value, **_: Any) -> Value:
    if not x.shape:
        x = g.reshape(x, shape=(1,))
        made = g.gather(x, g.flat(index), axis=0, from_end=False)
        return g.reshape(made, shape=index.shape)
    if not index.shape:
        index = g.reshape(index, shape=(1,))
        return g.reshape(g.gather_elements(x, index, axis=0, from_end=False), shape=())
    return g.gather_elements(x, index, axis=dim, from_end=False)


def split_indices(g: TorchBuilder, x: Value, indices: Indices) -> tuple[list[int], list[Value]]:
    """The axes that are indexed, and their indices as int64; a mask indexes each of its axes."""
    axes: list[int] = []
    found: list[Value] = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.dtype == boolean or index.dtype.name == "uint8":
            rank = len(index.shape)
            rows = g.nonzero(g.as_type(index, boolean))
            for number in range(rank):
                axes.append(axis + number)
                found.append(rows[number])
            axis += rank
        else:
            axes.append(axis)
            found.append(g.as_type(index, int64))
            axis += 1
    return axes, found


def index(g: TorchBuilder, x: Value, indices: Indices) -> Value:
    """x[i, j, :, k]: axes of the indices come where they stood, or first if they stood apart."""
    axes, found = split_indices(g, x, indices)
    if not axes:
        return x
    if len(axes) == 1:
        return g.gather(x, found[0], axis=axes[0])
    tuples = together(g, found)
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    turned = g.transpose(x, perm=(*axes, *rest))
    made = g.gather_nd(turned, tuples)
    inner = len(tuples.shape) - 1
    return _move_axes_back(g, made, inner, axes)


def _move_axes_back(g: TorchBuilder, made: Value, inner: int, axes: Sequence[int]) -> Value:
    """Move the axes of the indices, which are first, to where the indices stood."""
    first = axes[0]
    if list(axes) != list(range(first, first + len(axes))) or not first:
        return made
    rank = len(made.shape)
    perm = (*range(inner, inner + first), *range(inner), *range(inner + first, rank))
    return g.transpose(made, perm=perm)


def together(g: TorchBuilder, indices: Sequence[Value]) -> Value:
    """Broadcasts indices and stacks them along a last axis."""
    whole = indices[0]
    for other in indices[1:]:
        whole = g.add(whole, g.mul(other, 0))
    shape = whole.shape
    rank = len(shape)
    parts = [g.unsqueeze(g.expand(each, shape=shape), axes=(rank,)) for each in indices]
    return g.concat(*parts, axis=rank) if len(parts) > 1 else parts[0]


def index_put(
    g: TorchBuilder, x: Value, indices: Indices, values: Value, accumulate: bool = False, *_: Any
) -> Value:
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype == boolean and not values.shape and not accumulate:
        return _where_mask(g, x, mask, values)
    axes, found = split_indices(g, x, indices)
    if not axes:
        return g.add(x, values) if accumulate else g.expand(values, shape=x.shape)
    tuples = together(g, found)
    inner = len(tuples.shape) - 1
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    perm = (*axes, *rest)
    turned = g.transpose(x, perm=perm)
    shape = (*tuples.shape[:-1], *(x.shape[axis] for axis in rest))
    values = g.as_type(values, x.dtype)
    if len(axes) and axes[0] and axes == list(range(axes[0], axes[0] + len(axes))):
        values = _first(g, values, inner, axes[0], len(shape))
    updates = g.expand(values, shape=shape)
    made = scatter_combined(
        g, "scatter_nd", turned, tuples, updates, "add" if accumulate else "none"
    )
    return g.transpose(made, perm=tuple(perm.index(axis) for axis in range(len(perm))))


def _first(g: TorchBuilder, values: Value, inner: int, before: int, rank: int) -> Value:
    """Values with the axes of the indices first; they stand after `before` others."""
    missing = rank - len(values.shape)
    if missing:
        values = g.reshape(values, shape=(*(1,) * missing, *values.shape))
    perm = (*range(before, before + inner), *range(before), *range(before + inner, rank))
    return g.transpose(values, perm=perm)


def _where_mask(g: TorchBuilder, x: Value, mask: Value, value: Value) -> Value:
    missing = len(x.shape) - len(mask.shape)
    if missing:
        mask = g.reshape(mask, shape=(*mask.shape, *(1,) * missing))
    return g.where(mask, g.as_type(value, x.dtype), x)


# ---- scatter -----------------------------------------------------------------------------------

_REDUCED = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


def scatter_combined(
    g: TorchBuilder, name: str, x: Value, places: Value, updates: Value, reduction: str, **own: Any
) -> Value:
    """Scatters with a reduction; bool adds as `or`, multiplies as `and`."""
    if x.dtype == boolean and reduction != "none":
        kinds = {"add": "max", "mul": "min"}
        small = [g.cast(each, to=int64) for each in (x, updates)]
        made = getattr(g, name)(small[0], places, small[1],
                                reduction=kinds.get(reduction, reduction), **own)  # fmt: skip
        return g.as_type(made, boolean)
    wide = g.to_working(x, updates) if reduction != "none" else [x, updates]
    return getattr(g, name)(wide[0], places, wide[1], reduction=reduction, **own)


def scatter(reduction: str = "none") -> Build:
    """x with elements of a tensor, or a number, at its own coordinates but for one axis."""

    @over_vectors
    def build(
        g: TorchBuilder, x: Value, dim: int, index: Value, source: Value | Number,
        *, reduce: str | None = None,
    ) -> Value:  # fmt: skip
        how = reduction if reduce is None else _REDUCED[reduce]
        return scatter_along(g, x, dim, index, source, how)

    return build


def scatter_along(
    g: TorchBuilder, x: Value, dim: int, index: Value, source: Value | Number, how: str
) -> Value:
    own, index = g.operand(source, x.dtype), vector(g, index)
    if isinstance(source, Value) and source.shape:
        own = _corner(g, own, index)
    own, places = g.expand(own, shape=index.shape), g.as_type(index, int64)
    attributes = {"axis": dim, "from_end": False}
    return scatter_combined(g, "scatter_elements", x, places, own, how, **attributes)


def _corner(g: TorchBuilder, source: Value, index: Value) -> Value:
    """Slices the source to the shape of the index."""
    if source.shape == index.shape:
        return source
    rank = len(index.shape)
    return g.slice(source, starts=(0,) * rank, ends=index.shape, axes=tuple(range(rank)))


@over_vectors
def scatter_reduce(
    g: TorchBuilder, x: Value, dim: int, index: Value, source: Value, reduce: str,
    *, include_self: bool = True,
) -> Value:  # fmt: skip
    """Reductions with or without the elements of x; `mean` divides by the count."""
    how = "add" if reduce == "mean" else _REDUCED[reduce]
    place, source, start = vector(g, index), vector(g, source), x
    ones, zeros = g.fill_shape(place.shape, 1, int64), g.fill_shape(x.shape, 0, int64)
    counts = g.scatter_elements(zeros, place, ones, axis=dim, reduction="add", from_end=False)
    if not include_self:
        start = g.where(g.greater(counts, 0), g.operand(_neutral(how, x), x.dtype), x)
    made = scatter_along(g, start, dim, place, source, how)
    if reduce == "mean":
        counts = g.add(counts, 1) if include_self else g.maximum(counts, 1)
        made = g.as_type(made, g.result)
        divided = g.operand(counts, made.dtype)
        made = g.div(made, divided) if made.dtype.is_float else g.floor_div(made, divided)
    return made


def _neutral(how: str, x: Value) -> Any:
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    if x.dtype.is_float:
        return float("-inf") if how == "max" else float("inf")
    if x.dtype == boolean:
        return how == "min"
    return x.dtype.range[0 if how == "max" else 1]


# ---- slices along one axis ---------------------------------------------------------------------


def index_along(how: str) -> Build:
    """x with slices replaced by, or combined with, those of a source."""

    @over_vectors
    def build(
        g: TorchBuilder, x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1
    ) -> Value:
        source, index = g.as_type(vector(g, source), x.dtype), vector(g, index)
        if not is_number(alpha, 1):
            scaled = g.logical_and if x.dtype == boolean else g.mul
            source = scaled(source, g.operand(alpha, x.dtype))
        axis = dim % len(x.shape)
        if len(source.shape) < len(x.shape):
            source = g.unsqueeze(source, axes=(axis,))
        if axis == 0 and source.shape[1:] == x.shape[1:]:  # whole rows, with one index for each
            rows = g.unsqueeze(g.as_type(index, int64), axes=(1,))
            return scatter_combined(g, "scatter_nd", x, rows, source, how, from_end=False)
        places = _places_along(g, index, axis, source.shape)
        attributes = {"axis": axis, "from_end": False}
        return scatter_combined(g, "scatter_elements", x, places, source, how, **attributes)

    return build


def _places_along(g: TorchBuilder, index: Value, axis: int, shape: Sequence[Size]) -> Value:
    """Expands indices of an axis to a shape."""
    own = tuple(index.shape[0] if n == axis else 1 for n in range(len(shape)))
    return g.expand(g.as_type(g.reshape(index, shape=own), int64), shape=tuple(shape))


@over_vectors
def index_reduce(
    g: TorchBuilder, x: Value, dim: int, index: Value, source: Value, reduce: str,
    *, include_self: bool = True,
) -> Value:  # fmt: skip
    axis, source = dim % len(x.shape), vector(g, source)
    places = _places_along(g, vector(g, index), axis, source.shape)
    made: Value = scatter_reduce(g, x, axis, places, source, reduce, include_self=include_self)
    return made


@over_vectors
def index_fill(g: TorchBuilder, x: Value, dim: int, index: Value, value: Value | Number) -> Value:
    axis, index = dim % len(x.shape), vector(g, index)
    shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    filled = g.expand(g.operand(value, x.dtype), shape=shape)
    return put_along(g, x, g.as_type(index, int64), filled, axis)


def take(g: TorchBuilder, x: Value, index: Value) -> Value:
    return g.gather(g.flat(x), index, axis=0)


def put(g: TorchBuilder, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    made = scatter_combined(
        g, "scatter_elements", g.flat(x), g.flat(index), g.flat(g.as_type(source, x.dtype)),
        "add" if accumulate else "none", axis=0,
    )  # fmt: skip
    return g.reshape(made, shape=x.shape)


def bucketize(
    g: TorchBuilder, x: Value | Number, boundaries: Value, *, out_int32: bool = False,
    right: bool = False,
) -> Value:  # fmt: skip
    """The number of boundaries below x, or below and equal to x."""
    return sorted_places(g, boundaries, x, right)


def sorted_places(g: TorchBuilder, rows: Value, x: Value | Number, right: bool) -> Value:
    """How many elements of each sorted row are below (or, with `right`, not above) each x."""
    values, rows = g.operands(x, rows)
    lead = len(rows.shape) - 1
    wide = g.unsqueeze(values, axes=(len(values.shape),))
    shape = (*rows.shape[:-1], *(1,) * (len(values.shape) - lead), rows.shape[-1])
    rows = g.reshape(rows, shape=shape)
    if right:
        outside = g.logical_not(g.greater(rows, wide))
    else:
        outside = g.less(rows, wide)
    if rows.dtype.is_float:
        outside = g.logical_or(
            outside,
            g.logical_and(
                g.is_nan(wide),
                g.logical_or(g.logical_not(g.is_nan(rows)), g.scalar(right, boolean)),
            ),
        )
        if right:
            outside = g.logical_and(
                outside, g.logical_or(g.logical_not(g.is_nan(rows)), g.is_nan(wide))
            )
    return g.reduce_sum(g.cast(outside, to=int64), axes=(-1,))


def search_sorted(
    g: TorchBuilder, rows: Value, x: Value | Number, *, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    if sorter is not None:
        rows = g.gather_elements(rows, sorter, axis=-1, from_end=False)
    return sorted_places(g, rows, x, right or side == "right")


def triangle(upper: bool) -> Build:
    def build(g: TorchBuilder, x: Value, diagonal: int = 0) -> Value:
        return g.trilu(x, upper=upper, k=diagonal)

    return build


def one_hot(g: TorchBuilder, x: Value, classes: int = -1) -> Value:
    if classes == -1:
        raise Refused("the number of classes decided by data")
    known = g.counted(g.as_type(x, int64), count=classes)
    return g.cast(g.equal(g.unsqueeze(known, axes=(len(x.shape),)), g.positions(classes)), to=int64)


def embedding_bag(
    g: TorchBuilder, weight: Value, indices: Value, offsets: Value, scale: bool = False,
    mode: int = 0, sparse: bool = False, weights: Value | None = None, last: bool = False,
    padding: int = -1,
) -> list[Value]:  # fmt: skip
    """Sums, means or largest elements of rows of a table, by bags that begin at offsets."""
    if mode == 2 and g.is_used(3):
        raise Refused("the places of largest elements, which gradients use")
    count = offsets.shape[0] - (1 if last else 0)
    indices = g.as_type(indices, int64)
    bag = _bags(g, indices, offsets, count)
    rows = g.gather(weight, indices, axis=0, from_end=False)
    kept = _is_no_padding(g, indices, padding)
    if weights is not None:
        rows = g.mul(rows, g.unsqueeze(weights, axes=(1,)))
    shape = (count, weight.shape[1])
    zeros, marks = g.fill_shape((count,), 0, int64), g.cast(kept, to=int64)
    sizes = g.scatter_elements(zeros, bag, marks, axis=0, reduction="add", from_end=False)
    lowest = g.scalar(float("-inf") if mode == 2 else 0, rows.dtype)
    rows = g.where(g.unsqueeze(kept, axes=(1,)), rows, lowest)
    how = "max" if mode == 2 else "add"
    made = g.scatter_nd(g.expand(lowest, shape=shape), g.unsqueeze(bag, axes=(1,)), rows,
                        reduction=how, from_end=False)  # fmt: skip
    number = g.unsqueeze(g.cast(g.maximum(sizes, 1), to=rows.dtype), axes=(1,))
    if mode == 1:
        made = g.div(made, number)
    if mode == 2:
        made = g.where(g.greater(g.unsqueeze(sizes, axes=(1,)), 0), made, g.scalar(0, rows.dtype))
    if g.is_used(1) and g.traced[1].shape[0] == 0:  # torch needs no bags for plain sums
        bag = g.fill_shape((0,), 0, int64)
    return [made, bag, sizes, sizes]


def _bags(g: TorchBuilder, indices: Value, offsets: Value, count: Size) -> Value:
    """The number of the bag that each index belongs to."""
    counted = g.counted(g.as_type(offsets, int64), count=indices.shape[0] + 1)
    begins = g.slice(counted, starts=(0,), ends=(count,), axes=(0,))
    return g.sub(sorted_places(g, begins, g.positions(indices.shape[0]), True), 1)


def _is_no_padding(g: TorchBuilder, indices: Value, padding: int) -> Value:
    """Whether each index is not the padding index."""
    if padding < 0:
        return g.fill_shape(indices.shape, True, boolean)
    return g.not_equal(indices, padding)


def embedding_bag_backward(
    g: TorchBuilder, gradient: Value, indices: Value, offsets: Value, _: Value, sizes: Value,
    places: Value, rows: int | Size, scale: bool, mode: int, sparse: bool,
    weights: Value | None = None, padding: int = -1,
) -> Value:  # fmt: skip
    """The gradient of a table of which bags have sums or means of rows."""
    if scale or sparse or mode == 2:
        raise Refused("gradients of largest elements, by frequency, or sparse ones")
    indices = g.as_type(indices, int64)
    bag = _bags(g, indices, offsets, gradient.shape[0])
    if mode == 1:
        number = g.cast(g.maximum(g.as_type(sizes, int64), 1), to=gradient.dtype)
        gradient = g.div(gradient, g.unsqueeze(number, axes=(1,)))
    own = g.gather(gradient, bag, axis=0, from_end=False)
    if weights is not None:
        own = g.mul(own, g.unsqueeze(weights, axes=(1,)))
    kept = g.unsqueeze(_is_no_padding(g, indices, padding), axes=(1,))
    own = g.where(kept, own, g.scalar(0, own.dtype))
    zeros = g.fill_shape((rows, gradient.shape[1]), 0, own.dtype)
    return g.scatter_nd(zeros, g.unsqueeze(indices, axes=(1,)), own, reduction="add",
                        from_end=False)  # fmt: skip


ROWS: dict[str, Build] = {
    "embedding.default": embedding, "embedding_renorm.default": embedding_renorm,
    "index_select.default": index_select,
    "gather.default": gather, "index.Tensor": index, "_unsafe_index.Tensor": index,
    "index_put.default": index_put, "_unsafe_index_put.default": index_put,
    "scatter.src": scatter(), "scatter.value": scatter(),
    "scatter.reduce": scatter(), "scatter.value_reduce": scatter(),
    "scatter_add.default": scatter("add"), "scatter_reduce.two": scatter_reduce,
    "index_add.default": index_along("add"), "index_copy.default": index_along("none"),
    "index_reduce.default": index_reduce,
    "index_fill.int_Scalar": index_fill, "index_fill.int_Tensor": index_fill,
    "_embedding_bag_forward_only.default": embedding_bag,
    "_embedding_bag.default": embedding_bag,
    "_embedding_bag_backward.default": embedding_bag_backward,
    "take.default": take, "put.default": put,
    "bucketize.Tensor": bucketize, "bucketize.Scalar": bucketize,
    "searchsorted.Tensor": search_sorted, "searchsorted.Scalar": search_sorted,
    "triu.default": triangle(True), "tril.default": triangle(False),
    "one_hot.default": one_hot,
}  # fmt: skip
