"""What the elements of a tensor receive, as a statement over those elements.

A statement adds `value` to the cotangent of `x(f(i))` at every i of its domain. Where f can be
inverted this becomes a sum for each element of x: for `y(i) +=! x(i + k) * w(k)`

    dx(i) +=! (dy(i - k) else 0) * w(k)

Dimensions are solved in order, each for an index of its own with a constant coefficient; an index
with a step s also requires that s divides. Otherwise the statement scatters: `dx(at(i)) += ...`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.lang.derivatives.algebra import call, every, simplify, times, where
from anydim.lang.derivatives.flow import Contribution, within
from anydim.lang.derivatives.survival import size_of, slope_in
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Index,
    Literal,
    Loop,
    Read,
    SizeTerm,
    TensorType,
)
from anydim.lang.tree.affine import (
    Affine,
    affine,
    normal_form,
    rewrite,
    row_major_strides,
    substitute,
    to_expr,
)
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Size, as_size, product


@dataclass(frozen=True)
class Domain:
    """The indices of a statement, those of its left side first."""

    left: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    ranges: tuple[Expr, ...] = ()  # conditions on indices whose range is data
    loops: tuple[Loop, ...] = ()  # around the statement
    ordered: bool = False  # whether loops or branches are around the statement

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.left, *self.reduced)


@dataclass(frozen=True)
class Update:
    """cotangent(indices) += body at all `axes`, summed over `reduced`, where `sizes` hold.

    `whole`: the indices are the axes, one for each dimension, over all elements. `spills`: an
    index may be one past the end of its dimension, for values that belong to no element.
    """

    indices: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    body: Expr
    sizes: tuple[Expr, ...] = ()
    whole: bool = False
    spills: bool = False


def place_contribution(
    given: Contribution,
    domain: Domain,
    types: Mapping[str, TensorType],
    dtype: DType,
) -> Update:
    """The update of a contribution, in the element type of the cotangent.

    Where data gives an index a range, a scatter visits only that range, and a sum for each element
    all indices: it is used if it sums nothing.
    """
    shape = types[given.read.tensor].shape
    everywhere = replace(given, conditions=(*domain.ranges, *given.conditions))
    update = _solve_placement(everywhere, domain, shape, types)
    if update is None or (domain.ranges and update.reduced):
        update = _scatter(given, domain, shape)
    return _without_idle(update, dtype)


# ---- a sum for each element --------------------------------------------------------------------


@dataclass
class _Solution:
    """The indices of a domain while dimensions are solved: open ones, and values of others."""

    open: dict[str, Axis]
    values: dict[str, Expr] = field(default_factory=dict)
    forms: dict[str, Affine] = field(default_factory=dict)  # of `values`, where affine
    shifted: set[str] = field(default_factory=set)
    conditions: dict[str, list[Expr]] = field(default_factory=dict)


def _solve_placement(
    given: Contribution, domain: Domain, shape: tuple[Size, ...], types: Mapping[str, TensorType]
) -> Update | None:
    found = _Solution({axis.name: axis for axis in domain.axes})
    left = {axis.name for axis in domain.left}
    extents = (product(shape),) if given.read.flat else shape
    indices: list[Expr] = []
    axes: list[Axis] = []
    sizes: list[Expr] = []
    unless_empty: list[Expr] = []
    whole = 0
    for index, extent in zip(given.read.indices, extents):
        form = affine(simplify(index))
        known = None if form is None else _replace_solved(form, found)
        if known is None:
            return None
        if not known.terms:
            if given.read.flat and len(shape) != 1:
                return None
            indices.append(to_expr(known))
            if given.read.default is not None:
                sizes += within(SizeTerm(known.constant), extent)
            else:
                unless_empty += _unproved_bounds(known.constant, extent, domain.loops)
            continue
        name = _index_to_solve(known, extent, found, left)
        if name is None:
            return None
        plain = _is_plain(known, name, found.open[name], extent)
        if domain.ordered and not plain and _is_offset(known, name, given.read):
            indices.append(to_expr(known))
            axes.append(found.open.pop(name))
            continue
        made, position = _new_axes(name, given.read, shape, extent)
        _solve(found, name, known, position, extent)
        axes += made
        indices += [Index(axis.name) for axis in made]
        whole += len(made)
    body = _move_to_axes(given.value, found, types)
    reduced = tuple(found.open.values())
    sizes += unless_empty if reduced else []
    update = Update(
        tuple(indices), tuple(axes), reduced, body, tuple(sizes), whole == len(shape) and not sizes
    )
    return _rename_axes(update)


def _unproved_bounds(index: Size, extent: Size, loops: Sequence[Loop]) -> list[Expr]:
    """The conditions of `0 <= index < extent` that do not follow from the ranges of loops.

    They hold wherever the statement reads anything; a sum of no terms is written without a read.
    """
    low = high = index
    for loop in reversed(loops):
        if loop.variable in index.symbols:
            start, stop = size_of(loop.start), size_of(loop.stop)
            slope = slope_in(index, loop.variable)
            if start is None or stop is None or slope is None:
                return []
            ends = (start, stop - 1) if loop.step > 0 else (stop + 1, start)
            first, last = ends if slope >= 0 else (ends[1], ends[0])
            low, high = (
                low.substitute({loop.variable: first}),
                high.substitute({loop.variable: last}),
            )
    lower, upper = within(SizeTerm(index), extent)
    below, room = low.constant, (extent - 1 - high).constant
    return [
        *([] if below is not None and below >= 0 else [lower]),
        *([] if room is not None and room >= 0 else [upper]),
    ]


def _replace_solved(form: Affine, found: _Solution) -> Affine | None:
    """The form with solved indices replaced; None if one is not affine."""
    total = Affine(form.constant)
    for name, coefficient in form.terms:
        if name in found.open:
            total = total + Affine.of(as_size(0), {name: coefficient})
        elif name in found.forms:
            total = total + found.forms[name].scale(coefficient)
        else:
            return None
    return total


def _index_to_solve(form: Affine, extent: Size, found: _Solution, left: set[str]) -> str | None:
    """The index to solve a dimension for: plain ones first, then indices of the left side."""

    def rank(name: str) -> tuple[bool, bool, bool]:
        unit = form.stride(name).constant in (1, -1)
        return not _is_plain(form, name, found.open[name], extent), not unit, name not in left

    names = [name for name in form.indices if name in found.open and form.stride(name).constant]
    return min(names, key=rank, default=None)


def _is_offset(form: Affine, name: str, read: Read) -> bool:
    """Whether an index runs over a part of its dimension, from an offset that is a size.

    In loops, a write to this part is cheaper than a sum for each element of the dimension.
    """
    return form.indices == (name,) and form.stride(name) == 1 and read.default is None


def _is_plain(form: Affine, name: str, axis: Axis, extent: Size) -> bool:
    """Whether the index of a dimension is this axis alone, over all of the dimension."""
    return form == Affine.of(as_size(0), {name: as_size(1)}) and axis.extent == extent


def _new_axes(
    name: str, read: Read, shape: tuple[Size, ...], extent: Size
) -> tuple[list[Axis], Affine]:
    """The axes of the solved dimension, and its index in them."""
    if not read.flat or len(shape) == 1:
        return [Axis(f"{name}'", extent)], Affine.of(as_size(0), {f"{name}'": as_size(1)})
    made = [Axis(f"{name}'{number}", size) for number, size in enumerate(shape)]
    strides = {axis.name: stride for axis, stride in zip(made, row_major_strides(shape))}
    return made, Affine.of(as_size(0), strides)


def _solve(found: _Solution, name: str, form: Affine, position: Affine, extent: Size) -> None:
    """Express an index by the position in its dimension and the indices that stay."""
    axis = found.open.pop(name)
    step = form.stride(name).constant
    assert step
    rest = position - form.without(name)
    if _is_plain(form, name, axis, extent):
        found.forms[name], found.values[name] = rest, to_expr(rest)
        return
    numerator = rest.scale(as_size(1 if step > 0 else -1))
    conditions = []
    if abs(step) == 1:
        found.forms[name] = numerator
        value = to_expr(numerator)
    else:
        conditions = [_divides(to_expr(numerator), abs(step))]
        value = call("floordiv", to_expr(numerator), Literal(abs(step), int64))
    found.values[name] = value
    found.shifted.add(name)
    found.conditions[name] = [*conditions, *within(value, axis.extent)]


def _divides(value: Expr, step: int) -> Expr:
    remainder = call("mod", value, Literal(step, int64))
    return call("equal", remainder, Literal(0, int64))


def _move_to_axes(value: Expr, found: _Solution, types: Mapping[str, TensorType]) -> Expr:
    """The value in terms of the new axes; reads at positions that may not exist get a default."""

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Read):
            return None
        default = part.default
        if default is None and any(_uses(i, found.shifted) for i in part.indices):
            default = _zero(types[part.tensor].dtype)
        indices = tuple(normal_form(substitute(i, found.values)) for i in part.indices)
        return Read(part.tensor, indices, part.flat, default)

    conditions = [
        condition
        for name, given in found.conditions.items()
        for condition in (given[:-2] if _is_guarded(value, name, found, types) else given)
    ]
    moved = substitute(rewrite(value, change), found.values)
    condition = every([substitute(c, found.values) for c in conditions])
    return moved if condition is None else where(condition, moved)


def _zero(dtype: DType) -> Literal:
    return Literal(False if dtype.kind == "bool" else 0.0 if dtype.kind == "float" else 0)


def _uses(index: Expr, names: set[str]) -> bool:
    if isinstance(index, Index):
        return index.name in names
    parts: tuple[Expr, ...] = getattr(index, "arguments", ())
    if isinstance(index, Cast):
        parts = (index.argument,)
    elif isinstance(index, Read):
        parts = index.indices
    return any(_uses(part, names) for part in parts)


def _is_guarded(value: Expr, name: str, found: _Solution, types: Mapping[str, TensorType]) -> bool:
    """Whether a product of reads has a factor that its default makes 0 outside of the range."""
    factors = _factors(value)
    if factors is None:
        return False
    extent = found.conditions[name][-1].arguments[1]  # type: ignore[union-attr]
    for read in factors:
        if read.default is None and not read.flat:
            for index, size in zip(read.indices, types[read.tensor].shape):
                if index == Index(name) and SizeTerm(size) == extent:
                    return True
    return False


def _factors(value: Expr) -> list[Read] | None:
    """The reads whose product a value is; None if it is another expression."""
    if isinstance(value, Literal):
        return []
    if isinstance(value, Read):
        return [value]
    if isinstance(value, Apply) and value.function in ("mul", "neg"):
        parts = [_factors(argument) for argument in value.arguments]
        return None if None in parts else [r for part in parts for r in part or ()]
    return None


def _rename_axes(update: Update) -> Update:
    """Give the new axes the names of the axes that they replace."""
    kept = {axis.name for axis in update.reduced}
    names: dict[str, Expr] = {}
    for axis in update.axes:
        stem, _, number = axis.name.partition("'")
        name = f"{stem}{number}" if number else stem
        while name in kept:
            name += "_"
        kept.add(name)
        names[axis.name] = Index(name)
    axes = tuple(Axis(names[a.name].name, a.extent) for a in update.axes)  # type: ignore[union-attr]
    return Update(
        tuple(substitute(index, names) for index in update.indices), axes, update.reduced,
        substitute(update.body, names), update.sizes, update.whole,
    )  # fmt: skip


# ---- a scatter ---------------------------------------------------------------------------------


def _scatter(given: Contribution, domain: Domain, shape: tuple[Size, ...]) -> Update:
    read = given.read
    checked = any(map(has_checks, read.indices))
    indices = _unflatten(read.indices[0], shape) if read.flat else read.indices
    spills = bool(read.default is not None or (given.conditions and checked))
    if spills:
        indices = _redirect_outside(given, indices, shape)
    used = {name for index in indices for name in _names(index)}
    axes = tuple(axis for axis in domain.axes if axis.name in used)
    reduced = tuple(axis for axis in domain.axes if axis.name not in used)
    everywhere = replace(given, conditions=(*domain.ranges, *given.conditions))
    return Update(tuple(indices), axes, reduced, everywhere.value, spills=spills)


def _unflatten(offset: Expr, shape: tuple[Size, ...]) -> tuple[Expr, ...]:
    """The indices of a row-major offset."""
    found = []
    for number, (size, stride) in enumerate(zip(shape, row_major_strides(shape))):
        index = offset
        if stride.constant != 1:
            index = call("floordiv", index, SizeTerm(stride))
        if number:
            index = call("mod", index, SizeTerm(size))
        found.append(index)
    return tuple(found)


def _redirect_outside(
    given: Contribution, indices: Sequence[Expr], shape: tuple[Size, ...]
) -> tuple[Expr, ...]:
    """Redirect indices to one past the end where the read is out of bounds or unused."""
    conditions = list(given.conditions)
    if given.read.default is not None:
        for index, size in zip(indices, shape):
            conditions += within(index, size)
    inside = every(conditions)
    assert inside is not None
    return tuple(
        call("select", inside, index, SizeTerm(size)) for index, size in zip(indices, shape)
    )


def _names(expr: Expr) -> set[str]:
    found: set[str] = set()

    def look(part: Expr) -> None:
        if isinstance(part, Index):
            found.add(part.name)

    rewrite(expr, look)
    return found


def _without_idle(update: Update, dtype: DType) -> Update:
    """Sums of equal terms as a factor: reduced indices that nothing depends on."""
    used = _names(update.body)
    idle = [axis for axis in update.reduced if axis.name not in used]
    body = update.body
    for axis in idle:
        body = times(body, Cast(dtype, SizeTerm(axis.extent)))
    reduced = tuple(axis for axis in update.reduced if axis.name in used)
    return Update(
        update.indices, update.axes, reduced, body, update.sizes, update.whole, update.spills
    )
