"""numpy's reductions, cumulative functions, sorting and searching on values of a graph.

The functions have numpy's names of arguments and types of results; they are methods of values too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from anydim.base.dtypes import DType, boolean, dtype_of, float64, int64, uint64
from anydim.base.errors import GraphError
from anydim.compiler.frontends.elementwise import elementwise
from anydim.compiler.frontends.promotion import builder_of, cast, common_arrays, value_of
from anydim.compiler.frontends.value_shapes import axes_of, axis_of, flat, require
from anydim.compiler.graph.attributes import check_attribute
from anydim.sizes import as_size, product

Axes: TypeAlias = "int | Sequence[int] | None"


def added_type(dtype: DType) -> DType:
    """The type in which numpy adds and multiplies elements: integers in 64 bits."""
    if dtype.is_float:
        return dtype
    return uint64 if dtype.kind == "uint" else int64


def reduce(name: str, x: Any, axis: Axes, keepdims: bool) -> Any:
    """A value reduced by an operator along axes."""
    axes, keep = axes_of(x, axis), check_attribute(name, "keepdims", False, keepdims)
    if not axes:
        return x
    return x.builder._apply(name, (x,), {"axes": axes, "keepdims": keep})


def _in_type(x: Any, dtype: Any, usual: DType) -> Any:
    return cast(x.builder, x, usual if dtype is None else dtype_of(dtype))


def add_up(x: Any, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """The sum along axes; of integers in 64 bits."""
    return reduce("reduce_sum", _in_type(x, dtype, added_type(x.dtype)), axis, keepdims)


def multiply_up(x: Any, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """The product along axes; of integers in 64 bits."""
    return reduce("reduce_prod", _in_type(x, dtype, added_type(x.dtype)), axis, keepdims)


def _real(x: Any, dtype: Any = None) -> Any:
    return _in_type(x, dtype, x.dtype if x.dtype.is_float else float64)


def average(x: Any, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """The mean along axes; of integers in float64."""
    return reduce("reduce_mean", _real(x, dtype), axis, keepdims)


def variance(
    x: Any, axis: Axes = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """The variance along axes, divided by the count less `ddof` (`correction`)."""
    x, axes = _real(x, dtype), axes_of(x, axis)
    g, less = x.builder, ddof if correction is None else correction
    away = x - average(x, axes, keepdims=True)
    total = add_up(away * away, axes, keepdims=keepdims)
    count = as_size(product(x.shape[axis] for axis in axes))
    divisor = elementwise("maximum", value_of(g, count, x.dtype) - less, 0)
    return total / divisor


def deviation(
    x: Any, axis: Axes = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """The standard deviation, the root of `variance` of the same arguments."""
    made = variance(x, axis, dtype, ddof=ddof, keepdims=keepdims, correction=correction)
    return elementwise("sqrt", made)


def _require_elements(x: Any, axes: Sequence[int], name: str) -> None:
    """A call fails if there are no elements to choose from, as in numpy."""
    for axis in axes:
        message = f"the {name} of '{x.name}' along axis {axis}, which has no elements"
        require(x.builder, 1, "<=", x.shape[axis], message)


def largest(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The largest element along axes; NaN if one is NaN."""
    _require_elements(x, axes_of(x, axis), "maximum")
    return reduce("reduce_max", x, axis, keepdims)


def smallest(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The smallest element along axes; NaN if one is NaN."""
    _require_elements(x, axes_of(x, axis), "minimum")
    return reduce("reduce_min", x, axis, keepdims)


def peak_to_peak(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The largest element less the smallest."""
    return largest(x, axis, keepdims=keepdims) - smallest(x, axis, keepdims=keepdims)


def every(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Whether all elements along axes are true, or not 0."""
    return reduce("reduce_min", cast(x.builder, x, boolean), axis, keepdims)


def some(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Whether an element along axes is true, or not 0."""
    return reduce("reduce_max", cast(x.builder, x, boolean), axis, keepdims)


def count_nonzero(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The number of elements that are not 0."""
    return add_up(cast(x.builder, x, boolean), axis, keepdims=keepdims)


def _position(name: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    rank, keepdims = len(x.shape), check_attribute(f"arg_{name}", "keepdims", False, keepdims)
    if axis is None:
        found = _position(name, flat(x), 0, False)
        return found[(None,) * rank] if keepdims else found
    along = axis_of(x, axis)
    _require_elements(x, (along,), name)
    if x.dtype == boolean:
        x = x.astype("uint8")
    return x.builder._apply(f"arg_{name}", (x,), {"axis": along, "keepdims": keepdims})


def find_largest(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """The index of the first largest element; without an axis, in the flat value."""
    return _position("max", x, axis, keepdims)


def find_smallest(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """The index of the first smallest element; without an axis, in the flat value."""
    return _position("min", x, axis, keepdims)


def _cumulative(name: str, x: Any, axis: int | None, dtype: Any) -> Any:
    x = flat(x) if axis is None else x
    along = axis_of(x, 0 if axis is None else axis)
    own = _in_type(x, dtype, added_type(x.dtype))
    return x.builder._apply(name, (own,), {"axis": along})


def add_along(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The cumulative sum along an axis; without one, of the flat value."""
    return _cumulative("cum_sum", x, axis, dtype)


def multiply_along(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The cumulative product along an axis; without one, of the flat value."""
    return _cumulative("cum_prod", x, axis, dtype)


def _of_standard(cumulative: Any) -> Any:
    """The array API's form: the axis may be left out for a vector, `include_initial`."""

    def along(
        x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        if axis is None and len(x.shape) != 1:
            raise GraphError(f"'{x.name}' has {len(x.shape)} axes", "give one: axis=0")
        made = cumulative(x, 0 if axis is None else axis, dtype)
        if not include_initial:
            return made
        at = axis_of(x, 0 if axis is None else axis)
        shape = tuple(1 if n == at else size for n, size in enumerate(made.shape))
        start = 0 if cumulative is add_along else 1
        whole = start if not made.dtype.is_float else float(start)
        first = made.builder.fill(shape=shape, value=whole, dtype=made.dtype)
        return made.builder.concat(first, made, axis=at)

    return along


cumulative_sum = _of_standard(add_along)
cumulative_prod = _of_standard(multiply_along)


def order(
    x: Any, axis: int | None = -1, kind: Any = None, *, stable: bool = True,
    descending: bool = False,
) -> Any:  # fmt: skip
    """The sorted elements along an axis, NaN last; stable whatever `kind` is."""
    return _sort(x, axis, descending)[0]


def positions_in_order(
    x: Any, axis: int | None = -1, kind: Any = None, *, stable: bool = True,
    descending: bool = False,
) -> Any:  # fmt: skip
    """The indices that sort the elements along an axis; stable whatever `kind` is."""
    return _sort(x, axis, descending)[1]


def _sort(x: Any, axis: int | None, descending: bool) -> Any:
    x = flat(x) if axis is None else x
    along = axis_of(x, -1 if axis is None else axis)
    return x.builder.sort(x, axis=along, descending=descending)


def search_sorted(sorted: Any, x: Any, side: str = "left") -> Any:
    """The index at which each element belongs in a sorted vector; compares with all elements."""
    if side not in ("left", "right"):
        raise GraphError(f"side is {side!r}", "give 'left' or 'right'")
    keys, x = common_arrays(builder_of((sorted, x)), (sorted, x))
    given = x[..., None]
    below = keys < given if side == "left" else keys <= given
    if keys.dtype.is_float:  # NaN is larger than all numbers
        last = elementwise("isnan", given)
        below = below | (last & ~elementwise("isnan", keys) if side == "left" else last)
    return add_up(below, -1)
