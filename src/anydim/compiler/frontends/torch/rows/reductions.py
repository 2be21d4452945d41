"""Rows of reductions, cumulative overloads, sorting and the selection of elements by value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from anydim.base.dtypes import boolean, float64, int64, uint8, uint64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.sizes import Size, as_size, maximum, product

Dims: TypeAlias = "int | Sequence[int] | None"


def reduce_over(g: TorchBuilder, name: str, x: Value, dims: Dims, keepdim: bool) -> Value:
    return getattr(g, name)(x, axes=g.axes_of(x, dims), keepdims=keepdim and bool(x.shape))


def reduction(name: str) -> Build:
    """A reduction over dims, in the type of the result."""

    def build(
        g: TorchBuilder, x: Value, dims: Dims = None, keepdim: bool = False, **_: Any
    ) -> Value:
        (own,) = g.to_working(x)
        return reduce_over(g, name, own, dims, keepdim)

    return build


def extreme(name: str) -> Build:
    """The largest or smallest element, of the type of x."""

    def build(g: TorchBuilder, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
        return extreme_of(g, name, x, dims, keepdim)

    return build


def extreme_of(g: TorchBuilder, name: str, x: Value, dims: Dims, keepdim: bool) -> Value:
    require_elements(g, x, dims)
    if x.dtype == boolean:
        made = reduce_over(g, name, g.cast(x, to=uint8), dims, keepdim)
        return g.cast(made, to=boolean)
    return reduce_over(g, name, x, dims, keepdim)


def require_elements(g: TorchBuilder, x: Value, dims: Dims) -> None:
    """A call fails if there is nothing to choose from, as in torch."""
    for axis in g.axes_of(x, dims):
        g.require(1, "<=", x.shape[axis], "an axis without elements has no extreme and no median")


def truth(name: str) -> Build:
    """Whether any element, or every element, is not zero."""

    def build(g: TorchBuilder, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
        marks = g.as_type(x, boolean)
        if dims == []:  # of no axes
            return marks
        counted = g.cast(marks if name == "any" else g.logical_not(marks), to=int64)
        total = reduce_over(g, "reduce_sum", counted, dims, keepdim)
        return g.greater(total, 0) if name == "any" else g.equal(total, 0)

    return build


def arg(name: str) -> Build:
    """The index of the largest or smallest element; without dim, in the flat tensor."""

    def build(g: TorchBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        return arg_of(g, name, x, dim, keepdim)

    return build


def arg_of(g: TorchBuilder, name: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    require_elements(g, x, dim)
    if x.dtype == boolean:
        x = g.cast(x, to=uint8)
    if dim is None or not x.shape:
        found = getattr(g, name)(g.flat(x), axis=0, keepdims=False)
        return g.reshape(found, shape=(1,) * len(x.shape)) if keepdim else found
    return getattr(g, name)(x, axis=dim, keepdims=keepdim)


def vector(g: TorchBuilder, x: Value) -> Value:
    """A tensor with axes: a scalar as a vector of one element."""
    return x if x.shape else g.reshape(x, shape=(1,))


def over_vectors(row: Build) -> Build:
    """A row of tensors with axes for scalars, too: torch takes dim 0 of scalars."""

    def lower(g: TorchBuilder, value: Value) -> Value:
        is_one = [size.constant for size in value.shape] == [1]
        return g.reshape(value, shape=()) if is_one else value

    def build(g: TorchBuilder, x: Value, *arguments: Any, **named: Any) -> Any:
        made = row(g, vector(g, x), *arguments, **named)
        if x.shape:
            return made
        return [lower(g, each) for each in made] if isinstance(made, list) else lower(g, made)

    return build


def with_index(name: str) -> Build:
    """(the largest or smallest element along a dim, its index)."""

    @over_vectors
    def build(g: TorchBuilder, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
        best = extreme_of(g, f"reduce_{name}", x, dim, keepdim)
        return [best, arg_of(g, f"arg_{name}", x, dim, keepdim)]

    return build


def both_extremes(
    g: TorchBuilder, x: Value, dim: int | None = None, keepdim: bool = False
) -> list[Value]:
    return [extreme_of(g, f"reduce_{name}", x, dim, keepdim) for name in ("min", "max")]


# ---- statistics --------------------------------------------------------------------------------


def moments(
    g: TorchBuilder, x: Value, dims: Dims = None, *, correction: float | None = None,
    keepdim: bool = False,
) -> list[Value]:  # fmt: skip
    """(variance, mean) over dims."""
    (x,) = g.to_working(x)
    axes = g.axes_of(x, dims)
    kept = keepdim and bool(x.shape)
    count = product(x.shape[axis] for axis in axes)
    mean = g.reduce_mean(x, axes=axes, keepdims=bool(x.shape))
    away = g.sub(x, mean)
    total = g.reduce_sum(g.mul(away, away), axes=axes, keepdims=kept)
    divisor = g.maximum(
        g.sub(
            g.scalar(as_size(count), x.dtype),
            g.operand(1 if correction is None else correction, x.dtype),
        ),
        g.scalar(0, x.dtype),
    )
    flat = mean if kept or not x.shape else g.squeeze(mean, axes=axes)
    return [g.div(total, divisor), flat]


def deviation(g: TorchBuilder, x: Value, dims: Dims = None, **named: Any) -> Value:
    return g.sqrt(moments(g, x, dims, **named)[0])


def vector_norm(
    g: TorchBuilder, x: Value, order: float = 2, dims: Dims = None, keepdim: bool = False, **_: Any
) -> Value:
    """The norm of the elements as a vector, of any order."""
    (x,) = g.to_working(x)
    size = g.abs(x)
    if order in _NORMS:
        return reduce_over(g, _NORMS[order], x if order in (1, 2) else size, dims, keepdim)
    if order == 0:
        marks = g.cast(g.not_equal(x, 0), to=x.dtype)
        return reduce_over(g, "reduce_sum", marks, dims, keepdim)
    total = reduce_over(g, "reduce_sum", g.pow(size, float(order)), dims, keepdim)
    return g.pow(total, 1 / float(order))


_NORMS = {math.inf: "reduce_max", -math.inf: "reduce_min", 1: "reduce_l1", 2: "reduce_l2"}


# ---- along one axis ----------------------------------------------------------------------------


def along(name: str) -> Build:
    """A function of the library along an axis, in the type of the result."""

    @over_vectors
    def build(g: TorchBuilder, x: Value, dim: int, *_: Any, **__: Any) -> Value:
        return getattr(g, name)(*g.to_working(x), axis=dim)

    return build


@over_vectors
def log_cumulative(g: TorchBuilder, x: Value, dim: int) -> Value:
    """By a loop over the axis: the running logarithm of a sum of exponentials."""
    return along_axis(g, "log_cum_sum_exp", g.to_working(x)[0], dim)[0]


def running(name: str) -> Build:
    """(running largest or smallest, its index), the last among equals, NaN first."""

    @over_vectors
    def build(g: TorchBuilder, x: Value, dim: int) -> list[Value]:
        own = g.cast(x, to=uint8) if x.dtype == boolean else x
        values, places = along_axis(g, name, own, dim)
        return [g.as_type(values, x.dtype), places]

    return build


def along_axis(g: TorchBuilder, name: str, x: Value, dim: int) -> list[Value]:
    """A definition of matrices [rows, n], applied along one axis."""
    rank = len(x.shape)
    axis = dim % rank
    perm = (*(a for a in range(rank) if a != axis), axis)
    turned = g.transpose(x, perm=perm) if axis != rank - 1 else x
    shape = turned.shape
    made = g.call_definition(name, g.reshape(turned, shape=(product(shape[:-1]), shape[-1])))
    made = made if isinstance(made, tuple) else (made,)
    back = tuple(perm.index(a) for a in range(rank))
    whole = [g.reshape(each, shape=shape) for each in made]
    return [g.transpose(each, perm=back) if axis != rank - 1 else each for each in whole]


@over_vectors
def sort(
    g: TorchBuilder, x: Value, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> list[Value]:
    """(elements in order, their places); always stable."""
    own = g.cast(x, to=uint8) if x.dtype == boolean else x
    return list(g.sort(own, axis=dim, descending=descending))


def argsort(g: TorchBuilder, x: Value, *arguments: Any, **named: Any) -> Value:
    places: Value = sort(g, x, *arguments, **named)[1]
    return places


@over_vectors
def top_k(
    g: TorchBuilder, x: Value, k: int | Size, dim: int = -1, largest: bool = True,
    sorted: bool = True,
) -> list[Value]:  # fmt: skip
    return list(g.top_k(x, k=k, axis=dim, largest=largest, sorted=True))


@over_vectors
def kth(
    g: TorchBuilder, x: Value, k: int | Size, dim: int = -1, keepdim: bool = False
) -> list[Value]:
    """(the k-th smallest element along a dim, its place)."""
    g.require(1, "<=", k, "kthvalue: the first element has k = 1")
    g.require(k, "<=", x.shape[dim], "kthvalue: the axis has no k elements")
    found = [g.slice(each, starts=(k - 1,), ends=(k,), axes=(dim,)) for each in g.sort(x, axis=dim)]
    return found if keepdim else [g.squeeze(each, axes=(dim,)) for each in found]


def median(ignore_nan: bool) -> Build:
    """(the lower median, its index) along a dim; without dim, of all elements."""

    @over_vectors
    def build(g: TorchBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        own = _one_at_least(g, g.flat(x)) if dim is None else x
        if dim is not None:
            require_elements(g, x, dim)
        axis = 0 if dim is None else dim % len(own.shape)
        values, places = g.sort(own, axis=axis)
        extent = own.shape[axis]
        if not own.dtype.is_float:
            last = g.scalar((extent - 1) // 2, int64)
            where = g.expand(last, shape=_ones(own.shape, axis))
        else:
            missing = g.reduce_sum(g.cast(g.is_nan(own), to=int64), axes=(axis,), keepdims=True)
            count = g.sub(g.scalar(extent, int64), missing)
            middle = g.div(g.sub(g.maximum(count, 1), 1), g.scalar(2, int64))
            if ignore_nan:
                where = middle
            else:
                usual = g.scalar((extent - 1) // 2, int64)
                where = g.where(g.greater(missing, 0), count, usual)
        found = [g.gather_elements(each, where, axis=axis) for each in (values, places)]
        if dim is None:
            return g.reshape(found[0], shape=())
        return found if keepdim else [g.squeeze(each, axes=(axis,)) for each in found]

    return build


def _one_at_least(g: TorchBuilder, flat: Value) -> Value:
    """The elements, or what torch takes for the median of none: NaN, or the least integer."""
    count = flat.shape[0]
    none = -(1 << 63) if flat.dtype == int64 else 0
    missing = g.scalar(float("nan") if flat.dtype.is_float else none, flat.dtype)
    more = g.expand(missing, shape=(maximum(1 - count, 0),))
    return flat if g.proved(1, "<=", count) else g.concat(flat, more, axis=0)


def _ones(shape: Sequence[Size], axis: int) -> tuple[Any, ...]:
    return tuple(1 if number == axis else size for number, size in enumerate(shape))


@over_vectors
def mode(g: TorchBuilder, x: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """(the most frequent element, the smallest among equals; the last place of it)."""
    own = g.cast(x, to=uint8) if x.dtype == boolean else x
    axis = dim % len(own.shape)
    require_elements(g, own, axis)
    values, places = g.sort(own, axis=axis)
    runs = along_axis(g, "run_lengths", values, axis)[0]
    last = g.arg_max(runs, axis=axis, keepdims=True)
    found = [g.gather_elements(each, last, axis=axis) for each in (values, places)]
    return found if keepdim else [g.squeeze(each, axes=(axis,)) for each in found]


def count_of(g: TorchBuilder, x: Value, dims: Dims = None) -> Value:
    marks = g.cast(g.as_type(x, boolean), to=int64)
    return reduce_over(g, "reduce_sum", marks, dims, False)


def log_sum_exp(g: TorchBuilder, x: Value, dims: Dims, keepdim: bool = False) -> Value:
    (own,) = g.to_working(x)
    return reduce_over(g, "reduce_log_sum_exp", own, dims, keepdim)


def product_of(
    g: TorchBuilder, x: Value, dim: int | None = None, keepdim: bool = False, **_: Any
) -> Value:
    (own,) = g.to_working(x)
    return reduce_over(g, "reduce_prod", own, dim, keepdim)


def segments(
    g: TorchBuilder, x: Value, reduce: str, *, lengths: Value | None = None,
    indices: Value | None = None, offsets: Value | None = None, axis: int = 0,
    unsafe: bool = False, initial: float | None = None,
) -> Value:  # fmt: skip
    """Reductions of segments along an axis, which begin and end at offsets of their own in rows."""
    at = offsets
    if lengths is not None:
        before = (*(0 for _ in lengths.shape[:-1]), 1)
        at = g.pad(g.cum_sum(lengths, axis=-1), before=before, after=(0,) * len(before))
    if at is None:
        raise Refused("segments by indices")
    axis %= len(x.shape)
    rows, count = product(x.shape[:axis]), at.shape[-1] - 1
    at = g.reshape(g.as_type(at, int64), shape=(rows, count + 1))
    parts = g.reshape(x, shape=(rows, x.shape[axis], product(x.shape[axis + 1 :])))
    made = g.call_definition(f"segment_{'sum' if reduce == 'mean' else reduce}", parts, at)
    if initial is not None:
        made = getattr(g, _COMBINED[reduce])(made, g.scalar(initial, x.dtype))
    if reduce == "mean":
        ends, starts = (g.slice(at, starts=(n,), ends=(count + n,), axes=(1,)) for n in (1, 0))
        sizes = g.unsqueeze(g.sub(ends, starts), axes=(2,))
        empty = g.scalar(math.nan if initial is None else initial, x.dtype)
        made = g.where(g.equal(sizes, 0), empty, g.div(made, g.cast(sizes, to=x.dtype)))
    return g.reshape(made, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]))


_COMBINED = {"sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


def hash_bits(
    g: TorchBuilder, x: Value, dims: Dims = None, *, keepdim: bool = False, mode: int = 0
) -> Value:
    """The exclusive or of elements: of integers, or of the bits of floats as float64."""
    own = vector(g, x)
    axes = g.axes_of(own, dims if x.shape else None)
    kept = tuple(axis for axis in range(len(own.shape)) if axis not in axes)
    own = g.transpose(own, perm=(*kept, *axes))
    if own.dtype.is_float:
        own = g.bit_cast(g.cast(own, to=float64), to=int64)
    own = g.bit_cast(own, to=int64) if own.dtype == uint64 else g.cast(own, to=int64)
    lead = tuple(x.shape[axis] for axis in kept)
    rows = g.reshape(own, shape=(product(lead), product(own.shape[len(kept) :])))
    if keepdim:
        lead = tuple(size if axis in kept else as_size(1) for axis, size in enumerate(x.shape))
    return g.reshape(g.bit_cast(g.call_definition("exclusive_or", rows), to=uint64), shape=lead)


ROWS: dict[str, Build] = {
    "segment_reduce.default": segments, "hash_tensor.default": hash_bits,
    "sum.default": reduction("reduce_sum"), "sum.dim_IntList": reduction("reduce_sum"),
    "mean.default": reduction("reduce_mean"), "mean.dim": reduction("reduce_mean"),
    "prod.default": product_of, "prod.dim_int": product_of,
    "amax.default": extreme("reduce_max"), "amin.default": extreme("reduce_min"),
    "max.default": extreme("reduce_max"), "min.default": extreme("reduce_min"),
    "max.dim": with_index("max"), "min.dim": with_index("min"),
    "aminmax.default": lambda g, x, *, dim=None, keepdim=False: both_extremes(g, x, dim, keepdim),
    "argmax.default": arg("arg_max"), "argmin.default": arg("arg_min"),
    "any.default": truth("any"), "any.dim": truth("any"), "any.dims": truth("any"),
    "all.default": truth("all"), "all.dim": truth("all"), "all.dims": truth("all"),
    "var.correction": moments, "std.correction": deviation, "var_mean.correction": moments,
    "logsumexp.default": log_sum_exp,
    "linalg_vector_norm.default": vector_norm,
    "count_nonzero.dim_IntList": count_of, "count_nonzero.default": count_of,
    "_softmax.default": along("softmax"), "softmax.int": along("softmax"),
    "_log_softmax.default": along("log_softmax"), "log_softmax.int": along("log_softmax"),
    "cumsum.default": along("cum_sum"), "cumprod.default": along("cum_prod"),
    "logcumsumexp.default": log_cumulative,
    "cummax.default": running("running_max"), "cummin.default": running("running_min"),
    "sort.default": sort, "sort.stable": sort,
    "argsort.default": argsort, "argsort.stable": argsort,
    "mode.default": mode, "topk.default": top_k, "kthvalue.default": kth,
    "median.default": median(False), "median.dim": median(False),
    "nanmedian.default": median(True), "nanmedian.dim": median(True),
}  # fmt: skip
