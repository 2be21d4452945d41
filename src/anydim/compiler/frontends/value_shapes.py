"""numpy's functions that move elements of values: shapes, axes, parts and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy

from anydim.base.dtypes import boolean
from anydim.base.errors import GraphError
from anydim.base.user_values import integer_of, short_repr
from anydim.compiler.frontends.elementwise import elementwise
from anydim.compiler.frontends.promotion import (
    as_value,
    builder_of,
    common_arrays,
    common_values,
    is_value,
)
from anydim.sizes import (
    Guard,
    Size,
    Truth,
    as_size,
    broadcast_size,
    maximum,
    minimum,
    product,
    prove,
)

# ---- axes --------------------------------------------------------------------------------------


def axis_of(x: Any, axis: Any, rank: int | None = None) -> int:
    """An axis counted from the front; raises GraphError if the value has no such axis."""
    rank = len(x.shape) if rank is None else rank
    try:
        own = integer_of(axis)
    except TypeError:
        raise GraphError(
            f"{short_repr(axis)} is no axis of '{x.name}'", "give an integer"
        ) from None
    if not -rank <= own < rank:
        raise GraphError(f"'{x.name}' has {len(x.shape)} axes, and no axis {own}")
    return own % rank


def axes_of(x: Any, axes: Any, rank: int | None = None) -> tuple[int, ...]:
    """Axes counted from the front; None: all of them."""
    if axes is None:
        return tuple(range(len(x.shape)))
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    own = tuple(axis_of(x, axis, rank) for axis in given)
    if len({*own}) != len(own):
        raise GraphError(f"axes of '{x.name}' are given twice: {short_repr(axes)}")
    return own


def require(g: Any, left: Size | int, relation: str, right: Size | int, message: str) -> None:
    """Add a guard that every call checks; raises GraphError if it never holds."""
    found = prove(left, relation, right, g._box)
    if found is Truth.REFUTED:
        raise GraphError(message)
    if found is Truth.UNKNOWN:
        g._need(Guard(as_size(left), relation, as_size(right), message))


def count_of(x: Any) -> Size:
    """The number of elements."""
    return as_size(product(x.shape))


# ---- shapes ------------------------------------------------------------------------------------


def _in_order(order: Any) -> None:
    if order not in ("C", "A", "K"):
        raise GraphError(
            f"order is {short_repr(order)}", "elements are in row-major order: order='C'"
        )


def reshape(x: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """The elements in row-major order under another shape; one size may be -1."""
    _in_order(order)
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    return x.builder.reshape(x, shape=tuple(given))


def reshape_to(x: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """The elements in row-major order under another shape: x.reshape(2, -1)."""
    single = len(shape) == 1 and isinstance(shape[0], (tuple, list))
    return reshape(x, shape[0] if single else shape, order)


def flat(x: Any, order: str = "C") -> Any:
    """All elements along one axis, in row-major order."""
    _in_order(order)
    return x.builder.reshape(x, shape=(count_of(x),))


def permute(x: Any, axes: Any = None) -> Any:
    """The axes in another order; without one, reversed."""
    rank = len(x.shape)
    perm = tuple(reversed(range(rank))) if axes is None else axes_of(x, axes)
    if len(perm) != rank:
        raise GraphError(f"'{x.name}' has {rank} axes, and {short_repr(axes)} are {len(perm)}")
    return x.builder.transpose(x, perm=perm)


def permute_axes(x: Any, *axes: Any) -> Any:
    """The axes in another order: x.transpose(1, 0); without one, reversed."""
    single = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
    return permute(x, axes[0] if single else axes or None)


def swap_axes(x: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    perm = list(range(len(x.shape)))
    one, two = axis_of(x, axis1), axis_of(x, axis2)
    perm[one], perm[two] = two, one
    return permute(x, perm)


def transpose_matrices(x: Any) -> Any:
    """The last two axes exchanged."""
    if len(x.shape) < 2:
        raise GraphError(f"'{x.name}' has {len(x.shape)} axes, and a matrix has 2")
    return swap_axes(x, -1, -2)


def move_axes(x: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other positions; the others keep their order."""
    sources, targets = axes_of(x, source), axes_of(x, destination)
    if len(sources) != len(targets):
        raise GraphError(f"{short_repr(source)} and {short_repr(destination)} are not as many axes")
    perm = [axis for axis in range(len(x.shape)) if axis not in sources]
    for target, axis in sorted(zip(targets, sources)):
        perm.insert(target, axis)
    return permute(x, perm)


def add_axes(x: Any, axis: Any) -> Any:
    """New axes of size 1, counted in the result."""
    rank = len(x.shape) + (len(axis) if isinstance(axis, (tuple, list)) else 1)
    return x.builder.unsqueeze(x, axes=axes_of(x, axis, rank))


def drop_axes(x: Any, axis: Any = None) -> Any:
    """Without axes of size 1; by default all whose size is the constant 1."""
    if axis is None:
        axes = tuple(n for n, size in enumerate(x.shape) if size.constant == 1)
    else:
        axes = axes_of(x, axis)
    return x.builder.squeeze(x, axes=axes) if axes else x


def broadcast_to(x: Any, shape: Any) -> Any:
    """Repeated along axes of size 1 to a shape."""
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    made = x.builder.expand(x, shape=given)
    for own, wanted in zip(made.shape, map(as_size, given)):
        require(x.builder, own, "==", wanted, f"'{x.name}' is broadcast to {short_repr(shape)}")
    return made


def broadcast_all(*values: Any) -> list[Any]:
    """Operands repeated to their common shape."""
    g = builder_of(values)
    own = [as_value(g, value) for value in values]
    rank = max(len(value.shape) for value in own)
    ones = [(as_size(1),) * (rank - len(value.shape)) + value.shape for value in own]
    shape = tuple(broadcast_size(sizes, g._box) for sizes in zip(*ones))
    return [g.expand(value, shape=shape) for value in own]


# ---- parts -------------------------------------------------------------------------------------


def _cut(x: Any, axis: int, *bounds: Any) -> Any:
    return x[(*[slice(None)] * axis, slice(*bounds))]


def concatenate(values: Sequence[Any], axis: int | None = 0, *, dtype: Any = None) -> Any:
    """Values and arrays joined along an axis, in their common type; without one, flattened."""
    own = common_values(builder_of(values), list(values))
    own = own if dtype is None else [value.astype(dtype) for value in own]
    if axis is None:
        own, axis = [flat(value) for value in own], 0
    return own[0].builder.concat(*own, axis=axis_of(own[0], axis))


def _all_values(values: Sequence[Any], dtype: Any = None) -> list[Any]:
    own = common_arrays(builder_of(values), list(values))
    return own if dtype is None else [value.astype(dtype) for value in own]


def stack(values: Sequence[Any], axis: int = 0, *, dtype: Any = None) -> Any:
    """Values of one shape joined along a new axis."""
    own = [add_axes(value, axis) for value in _all_values(values, dtype)]
    return own[0].builder.concat(*own, axis=axis_of(own[0], axis))


def _at_least(value: Any, rank: int) -> Any:
    return value[(None,) * (rank - len(value.shape))] if len(value.shape) < rank else value


def stack_rows(values: Sequence[Any], *, dtype: Any = None) -> Any:
    """Joined along the first axis; vectors are rows."""
    return concatenate([_at_least(value, 2) for value in _all_values(values, dtype)])


def stack_columns(values: Sequence[Any], *, dtype: Any = None) -> Any:
    """Joined along the second axis; vectors along their only one."""
    own = [_at_least(value, 1) for value in _all_values(values, dtype)]
    return concatenate(own, 0 if len(own[0].shape) == 1 else 1)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts along an axis: equal ones, or between these indices."""
    along = axis_of(x, axis)
    extent = x.shape[along]
    if isinstance(indices_or_sections, (tuple, list)):
        bounds = [0, *indices_or_sections, extent]
    else:
        parts = integer_of(indices_or_sections)
        message = f"axis {along} of '{x.name}' is split into {parts} equal parts"
        require(x.builder, extent % parts, "==", 0, message)
        bounds = [extent // parts * part for part in range(parts)] + [extent]
    return [_cut(x, along, *pair) for pair in pairwise(bounds)]


def unstack(x: Any, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis of constant size."""
    along = axis_of(x, axis)
    count = x.shape[along].constant
    if count is None:
        raise GraphError(
            f"'{x.name}' has {x.shape[along]} slices along axis {along}, which calls determine",
            "use functions of the whole value, or g.loop(...)",
        )
    return tuple(x[(*[slice(None)] * along, n)] for n in range(count))


def flip(x: Any, axis: Any = None) -> Any:
    """The elements along axes in reverse order."""
    axes = axes_of(x, axis)
    return x[tuple(slice(None, None, -1 if n in axes else 1) for n in range(len(x.shape)))]


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """The elements moved along axes, around the end."""
    if axis is None:
        return x.builder.reshape(roll(flat(x), shift, 0), shape=x.shape)
    shifts, axes = _along_each(x, _as_list(x, shift), _as_list(x, axis))
    total: dict[int, Size] = {}
    for along, by in zip(axes, shifts):
        own = axis_of(x, along)
        total[own] = _shift(x, by) + total.get(own, 0)
    for along, by in total.items():
        first = -by % maximum(x.shape[along], 1)
        x = concatenate([_cut(x, along, first, None), _cut(x, along, 0, first)], along)
    return x


def _as_list(x: Any, given: Any) -> list[Any]:
    own = given.tolist() if isinstance(given, (numpy.ndarray, numpy.generic)) else given
    items = list(own) if isinstance(own, (tuple, list)) else [own]
    if any(isinstance(item, (tuple, list)) for item in items):
        raise GraphError(f"'{x.name}' is rolled by {short_repr(given)}", "give numbers in one list")
    return items


def _along_each(x: Any, shifts: list[Any], axes: list[Any]) -> tuple[list[Any], list[Any]]:
    """Shifts and axes, of which one applies to all of the others."""
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        problem = f"'{x.name}' is rolled by {len(shifts)} shifts along {len(axes)} axes"
        raise GraphError(problem, "give a shift for each axis, or one for all")
    if len(shifts) == 1:
        return shifts * len(axes), axes
    return shifts, axes * len(shifts) if len(axes) == 1 else axes


def _shift(x: Any, by: Any) -> Size:
    try:
        return by if isinstance(by, Size) else as_size(integer_of(by))
    except TypeError:
        problem = f"'{x.name}' is rolled by {short_repr(by)}"
        raise GraphError(problem, "give integers or sizes") from None


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element as often, next to itself; along an axis, or flat."""
    x = flat(x) if axis is None else x
    along = axis_of(x, 0 if axis is None else axis)
    try:
        count = as_size(repeats)
    except Exception:  # an arbitrary object may raise anything
        raise GraphError(f"repeats is {short_repr(repeats)}", "give one number or size") from None
    wide = add_axes(x, along + 1)
    shape = list(wide.shape)
    shape[along + 1] = count
    made = x.builder.expand(wide, shape=tuple(shape)) if count != 1 else wide
    if count == 0:
        made = _cut(wide, along + 1, 0, 0)
    shape[along : along + 2] = [shape[along] * count]
    return x.builder.reshape(made, shape=tuple(shape))


def tile(x: Any, repeats: Any) -> Any:
    """The whole value as often along each axis."""
    counts = tuple(repeats) if isinstance(repeats, (tuple, list)) else (repeats,)
    own = _at_least(x, len(counts))
    return x.builder.tile(own, repeats=(1,) * (len(own.shape) - len(counts)) + counts)


def difference(x: Any, n: int = 1, axis: int = -1) -> Any:
    """The differences of neighbours along an axis, `n` times."""
    along = axis_of(x, axis)
    for _ in range(n):
        name = "not_equal" if x.dtype == boolean else "subtract"
        x = elementwise(name, _cut(x, along, 1, None), _cut(x, along, 0, -1))
    return x


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements of matrices at the places (i, i + offset)."""
    x = move_axes(x, (axis1, axis2), (-2, -1))
    rows = x[..., -offset:, :] if offset < 0 else x
    columns = rows[..., offset:] if offset > 0 else rows
    count = minimum(columns.shape[-2], columns.shape[-1])
    square = columns[..., :count, :count]
    return square.builder.einsum(square, equation="...ii->...i")


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """The sum of the diagonal."""
    return diagonal(x, offset, axis1, axis2).sum(-1, dtype)


def triangle(upper: bool) -> Any:
    """The function that keeps the elements above or below a diagonal."""

    def keep(x: Any, k: int = 0) -> Any:
        if len(x.shape) == 1:  # a matrix of rows that are the vector
            x = x.builder.expand(x, shape=(x.shape[0], x.shape[0]))
        return x.builder.trilu(x, upper=upper, k=k)

    return keep


def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Slices at these indices along an axis; negative ones count from the end."""
    x = flat(x) if axis is None else x
    along = axis_of(x, 0 if axis is None else axis)
    return x.builder.gather(x, as_value(x.builder, indices), axis=along)


def take_along(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """One element for each index, along an axis."""
    if axis is None:
        x, indices, axis = flat(x), flat(as_value(x.builder, indices)), 0
    own, along = as_value(x.builder, indices), axis_of(x, axis)
    shape = tuple(own.shape[n] if n == along else size for n, size in enumerate(x.shape))
    own = own if own.shape == shape else x.builder.expand(own, shape=shape)
    return x.builder.gather_elements(x, own, axis=along)


def has_arrays(keys: tuple[Any, ...]) -> bool:
    """Whether a subscript has values, arrays or lists."""
    return any(_is_array(key) for key in keys)


def _is_array(key: Any) -> bool:
    return is_value(key) or isinstance(key, (numpy.ndarray, list))


def pick(x: Any, keys: tuple[Any, ...]) -> Any:
    """x[keys] with one array among slices: the slices at its indices, or where it is true."""
    at = next(n for n, key in enumerate(keys) if _is_array(key))
    if sum(not (key is None or key is Ellipsis or isinstance(key, slice)) for key in keys) > 1:
        raise GraphError(
            f"'{x.name}' has several indices beside an array in its subscript",
            "give one array and slices, as x[0][i] for x[0, i]; or g.gather_nd(x, indices)",
        )
    index = _index(x, keys[at])
    axes = len(index.shape) if index.dtype == boolean else 1
    before, after = keys[:at], keys[at + 1 :]
    cut = x[(*before, *[slice(None)] * axes, *after)]
    if any(key is Ellipsis for key in before):  # the keys behind take the last axes
        along = len(cut.shape) - len(after) - axes
    else:
        along = len(before)
    if index.dtype == boolean:
        return _where_true(cut, index, along)
    return x.builder.gather(cut, index, axis=along)


def _index(x: Any, key: Any) -> Any:
    if isinstance(key, list):
        key = numpy.asarray(key)
        key = key if key.size else key.astype("int64")
    index = as_value(x.builder, key)
    if index.dtype.is_float:
        raise GraphError(f"'{x.name}' has no elements at {index.dtype}", "indices are integers")
    return index


def _where_true(x: Any, mask: Any, along: int) -> Any:
    """The elements, or slices, where a mask of some axes holds."""
    rank = len(mask.shape)
    if not rank or along + rank > len(x.shape):
        raise GraphError(f"a mask of {rank} axes does not fit '{x.name}'")
    for own, wanted in zip(mask.shape, x.shape[along : along + rank]):
        require(x.builder, own, "==", wanted, f"a mask has the size of '{x.name}'")
    shape = (*x.shape[:along], count_of(mask), *x.shape[along + rank :])
    return x.builder.compress(x.builder.reshape(x, shape=shape), flat(mask), axis=along)
