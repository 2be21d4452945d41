"""Rows of overloads whose results have sizes that data decide, and of numbers read from data."""

from __future__ import annotations

from typing import Any

from anydim.base.dtypes import boolean, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.sizes import Size, as_size


def nonzero(g: TorchBuilder, x: Value) -> Value:
    """The coordinates [count, axes] of elements that are not zero."""
    return g.transpose(g.nonzero(g.as_type(x, boolean)), perm=(1, 0))


def masked_select(g: TorchBuilder, x: Value, mask: Value) -> Value:
    whole = g.broadcast(x, mask)
    return g.compress(g.flat(g.expand(x, shape=whole)), g.flat(g.expand(mask, shape=whole)))


def masked_scatter(g: TorchBuilder, x: Value, mask: Value, source: Value) -> Value:
    """Marked elements take those of the source, in order."""
    whole = g.broadcast(x, mask)
    x, mask = g.expand(x, shape=whole), g.expand(mask, shape=whole)
    marks = g.flat(mask)
    order = g.sub(g.cum_sum(g.cast(marks, to=int64), axis=0), 1)
    place = g.reshape(g.maximum(order, 0), shape=whole)
    source = g.flat(source)
    padded = g.pad(source, before=(0,), after=(1,))
    place = g.where(mask, place, g.scalar(source.shape[0], int64))
    return g.where(mask, g.gather(padded, place, axis=0), x)


def item(g: TorchBuilder, x: Value) -> Any:
    """The only element: a dim for integers, else a scalar."""
    one = g.reshape(x, shape=())
    return g.find_any_size(one, "item") if x.dtype.is_integer else one


def repeat_interleave(
    g: TorchBuilder, repeats: Value, *, output_size: int | Size | None = None
) -> Value:
    """Each index as often as `repeats` says."""
    g.expect(g.greater_equal(repeats, 0), "repeat_interleave: repeats are below 0")
    ends = g.cum_sum(g.as_type(repeats, int64), axis=0)
    if output_size is None:
        total = g.reduce_sum(g.as_type(repeats, int64), axes=(0,))
        output_size = g.find_size(total, "count")
    size = as_size(output_size)
    zeros = g.fill_shape((size + 1,), 0, int64)
    marks = g.scatter_elements(
        zeros, ends, g.fill_shape(ends.shape, 1, int64), axis=0, reduction="add"
    )
    places = g.slice(marks, starts=(0,), ends=(size,), axes=(0,))
    return g.cum_sum(places, axis=0)


def unique(
    g: TorchBuilder, x: Value, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> list[Value]:
    own = g.cast(x, to=int64) if x.dtype == boolean else x
    values, _, places, numbers = g.unique(g.flat(own), sorted=True)
    return [values, g.reshape(places, shape=x.shape), numbers]


def unique_along(
    g: TorchBuilder, x: Value, dim: int, sorted: bool = True, inverse: bool = False,
    counts: bool = False,
) -> list[Value]:  # fmt: skip
    own = g.cast(x, to=int64) if x.dtype == boolean else x
    values, _, places, numbers = g.unique(own, axis=dim, sorted=True)
    return [values, places, numbers]


def unique_consecutive(
    g: TorchBuilder, x: Value, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> list[Value]:
    """Runs of equal elements, or of equal slices along a dim."""
    own = g.flat(x) if dim is None else x
    axis = 0 if dim is None else dim % len(x.shape)
    extent = own.shape[axis]
    last = g.slice(own, starts=(1,), ends=(extent,), axes=(axis,))
    before = g.slice(own, starts=(0,), ends=(-1,), axes=(axis,))
    changed = g.cast(g.not_equal(last, before), to=int64)
    others = tuple(each for each in range(len(own.shape)) if each != axis)
    changes = g.greater(g.reduce_sum(changed, axes=others), 0) if others else g.greater(changed, 0)
    first = g.slice(g.equal(g.positions(extent), 0), starts=(0,), ends=(1,), axes=(0,))
    starts = g.concat(first, changes, axis=0)
    values = g.compress(own, starts, axis=axis)
    places = g.sub(g.cum_sum(g.cast(starts, to=int64), axis=0), 1)
    count = values.shape[axis]
    numbers = g.scatter_elements(
        g.fill_shape((count,), 0, int64), places, g.fill_shape((extent,), 1, int64), axis=0,
        reduction="add",
    )  # fmt: skip
    return [values, g.reshape(places, shape=x.shape) if dim is None else places, numbers]


def bincount(
    g: TorchBuilder, x: Value, weights: Value | None = None, minimum: int | Size = 0
) -> Value:
    """Counts of 0, 1, ..., up to the largest number."""
    own = g.as_type(x, int64)
    padded = g.pad(own, g.scalar(-1, int64), before=(0,), after=(1,))
    most = g.add(g.reduce_max(padded, axes=(0,)), 1)
    size = g.find_size(g.maximum(most, g.scalar(as_size(minimum), int64)), "count")
    updates = g.fill_shape(x.shape, 1, int64) if weights is None else g.as_type(weights, g.result)
    zeros = g.fill_shape((size,), 0, updates.dtype)
    return g.scatter_elements(zeros, own, updates, axis=0, reduction="add", from_end=False)


def nonzero_static(g: TorchBuilder, x: Value, *, size: int | Size, fill_value: int = -1) -> Value:
    """The first coordinates, filled up to a number of rows."""
    found = nonzero(g, x)
    padded = g.pad(found, g.scalar(fill_value, int64), before=(0, 0), after=(size, 0))
    return g.slice(padded, starts=(0,), ends=(size,), axes=(0,))


def histogram(g: TorchBuilder, x: Value, bins: int = 100, low: float = 0, high: float = 0) -> Value:
    """Counts of equal bins; without bounds, between the smallest and the largest element."""
    (own,) = g.to_working(g.flat(x))
    first, last = g.scalar(low, own.dtype), g.scalar(high, own.dtype)
    if low == high:
        first, last = g.reduce_min(own, axes=(0,)), g.reduce_max(own, axes=(0,))
        alone = g.equal(first, last)
        first = g.where(alone, g.sub(first, 1), first)
        last = g.where(alone, g.add(last, 1), last)
    inside = g.logical_and(g.greater_equal(own, first), g.less_equal(own, last))
    place = g.floor(g.div(g.mul(g.sub(own, first), float(bins)), g.sub(last, first)))
    place = g.minimum(g.where(inside, place, g.scalar(0, own.dtype)), float(bins - 1))
    zeros = g.fill_shape((bins,), 0, g.result)
    return g.scatter_elements(zeros, g.cast(place, to=int64), g.cast(inside, to=g.result), axis=0,
                              reduction="add")  # fmt: skip


ROWS: dict[str, Build] = {
    "nonzero.default": nonzero, "masked_select.default": masked_select,
    "masked_scatter.default": masked_scatter,
    "_local_scalar_dense.default": item, "item.default": item,
    "repeat_interleave.Tensor": repeat_interleave,
    "_unique2.default": unique, "unique_dim.default": unique_along,
    "nonzero_static.default": nonzero_static, "histc.default": histogram,
    "unique_consecutive.default": unique_consecutive, "bincount.default": bincount,
}  # fmt: skip
