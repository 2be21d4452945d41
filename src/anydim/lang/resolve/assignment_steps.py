"""Lowers one assignment of an ordered definition to steps.

A target may be written in part, in iterations of a loop, or at data-dependent indices. A target
that its statement alone defines, as a whole, stays a Statement; everything else is a Write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from anydim.base.dtypes import DType
from anydim.lang.resolve import ranges
from anydim.lang.resolve.expand import Expander
from anydim.lang.resolve.extents import (
    Work,
    axes_of,
    mask_uneven_ranges,
    range_error,
    solve,
    where_ranges,
)
from anydim.lang.resolve.inbounds import Position, check_reads, settle
from anydim.lang.resolve.ranges import Constraint, RangeProblem
from anydim.lang.resolve.scope import Scope
from anydim.lang.resolve.statement import check_reduction
from anydim.lang.resolve.written_parts import bare
from anydim.lang.surface.syntax import Assignment, Spread
from anydim.lang.tree import (
    Axis,
    Expr,
    Index,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import affine, reads, rewrite
from anydim.lang.tree.typing import TypeProblem, as_index, convert_expression, identity, infer_types
from anydim.sizes import Size


def begin(
    assignment: Assignment, scope: Scope, tensors: Mapping[str, TensorType], based: bool
) -> Work:
    """Resolve the names of an assignment.

    `based`: this statement alone defines the target, so its ranges start at 0.
    """
    expander = Expander(scope.binding, tensors)
    indices: list[Expr] = []
    for term in assignment.indices:
        if isinstance(term, Spread):
            indices += [Index(axis.name) for axis in expander.axes_of(term)]
        else:
            indices.append(expander.index(term))
            expander.positions.setdefault(indices[-1], term.position)
    left = list(expander.indices)
    body = expander.expand(assignment.value)
    work = Work(assignment, scope.binding, tensors, expander, left, body, scope=scope)
    work.target_indices = [] if based else indices
    where_ranges(work)
    work.target_indices = indices if based else work.target_indices
    return work


def survey(
    work: Work, constrained: bool, ignored: Collection[str] | None = None
) -> tuple[set[Constraint], RangeProblem | None]:
    """Infer the extent of every index, leaving out what `ignored` sizes imply (`extents.solve`).

    Returns the constraints that hold by construction, and the reason why an index has no extent.
    The target's shape limits ranges as a read would if `constrained`, otherwise only where nothing
    else does.
    """
    target = work.assignment.target
    kind = work.tensors.get(target)
    if kind is not None and len(kind.shape) == len(work.target_indices):
        if not constrained:
            before = dict(work.extents), list(work.masks)
            satisfied, problem = solve(work, ignored)
            if problem is None:
                return satisfied, None
            work.extents, work.masks = before
        work.exists.append(Read(target, tuple(work.target_indices)))
    return solve(work, ignored)


def finish(work: Work, constrained: bool) -> None:
    """Resolve ranges, reads and written indices, once the shapes of all tensors are known."""
    satisfied, problem = survey(work, constrained)
    if problem is not None:
        raise range_error(work, problem)
    check_reads(work, satisfied)
    target = work.assignment.target
    for axis, (index, size) in enumerate(zip(work.target_indices, work.tensors[target].shape)):
        item = ranges.constraint(index, size, target, axis, work.binding.box)
        if item not in satisfied:
            work.target_indices[axis] = _inside_target(work, axis, index, size)


def _inside_target(work: Work, axis: int, index: Expr, size: Size) -> Expr:
    target = work.assignment.target
    status, span = ranges.read_status(index, size, work.extents, work.binding.box)
    if status == ranges.INSIDE:
        return index
    where = work.expander.positions.get(index, work.assignment.position)
    if span is not None and work.masks:
        raise work.error(
            where, f"'{target}' may be written out of bounds, its size is {size}",
            "an uneven range does not bound the index: use an even one",
        )  # fmt: skip
    return settle(work, Position(target, axis, index, size, where, "written"), status, span)


# ---- steps -------------------------------------------------------------------------------------


def steps_of(
    work: Work, dtype: DType, fresh_name: Callable[[str], str], first: bool
) -> list[OrderedStep]:
    """The steps of a finished assignment whose target has elements of `dtype`.

    `fresh_name` names temporaries that hold the target's old values. `first`: no other statement
    writes the target before.
    """
    assignment, target = work.assignment, work.assignment.target
    combine = assignment.combine
    try:
        _check_kind(work, dtype)
        body = convert_expression(work.body, work.tensors, dtype)
        indices = tuple(as_index(index, work.tensors) for index in work.target_indices)
        outside = _outside(work, indices, dtype, first)
        body = mask_uneven_ranges(work, body, outside)
    except TypeProblem as problem:
        raise work.type_error(problem) from None
    check_reduction(work, combine if work.right or not assignment.initial else "", dtype)
    body, before = _preserve_target(work, body, indices, fresh_name)
    axes, reduced = axes_of(work, work.left), axes_of(work, work.right)
    if assignment.initial and not one_to_one(indices, work.left):
        fill = _fill(work, indices, identity(combine, dtype))
        return [*before, fill, Write(target, indices, axes, body, combine, reduced)]
    if assignment.initial and not reduced:
        combine = ""
    own = any(read.tensor == target for read in reads(body))
    if not own and (assignment.initial or not combine) and is_whole(work, indices):
        return [*before, Statement(target, axes, body, combine, reduced)]
    fresh = assignment.initial and bool(combine)
    return [*before, Write(target, indices, axes, body, combine, reduced, fresh)]


def _check_kind(work: Work, dtype: DType) -> None:
    """Raise TypeProblem for numbers that a written parameter cannot hold."""
    _, natural = infer_types(work.body, work.tensors)
    if natural.is_float and not dtype.is_float:
        target = work.assignment.target
        problem = f"'{target}' holds {dtype}, but this value is {natural}"
        raise TypeProblem(problem, f"convert it: {dtype}(...)")


def _outside(work: Work, indices: tuple[Expr, ...], dtype: DType, first: bool) -> Expr:
    """The value outside an uneven range: the neutral element of a sum, 0 where nothing was, else
    the target's value."""
    assignment = work.assignment
    if assignment.combine or (first and is_whole(work, indices)):
        return identity(assignment.combine or "add", dtype)
    return Read(assignment.target, indices)


def is_whole(work: Work, indices: tuple[Expr, ...]) -> bool:
    """Whether the indices cover all of the target, each dimension by an index of its own."""
    names = [index.name for index in indices if isinstance(index, Index)]
    if len(names) < len(indices) or len(set(names)) < len(names) or set(names) < set(work.left):
        return False
    shape = work.tensors[work.assignment.target].shape
    box = work.binding.box
    return all(ranges.is_proved(work.extents[n], "==", size, box) for n, size in zip(names, shape))


def one_to_one(indices: tuple[Expr, ...], names: list[str]) -> bool:
    """Whether different values of these indices give different elements."""
    found: set[str] = set()
    for index in indices:
        form = affine(index)
        if form is not None and len(form.terms) == 1 and form.terms[0][1].constant is not None:
            found.add(form.terms[0][0])
    return found >= set(names)


def _fill(work: Work, indices: tuple[Expr, ...], value: Expr) -> OrderedStep:
    """Fill all elements that a write at data-dependent indices may reach with a value."""
    target = work.assignment.target
    shape = work.tensors[target].shape
    fixed = [isinstance(index, SizeTerm) for index in indices]
    names = [f"{target}.{axis}" for axis in range(len(shape))]
    axes = tuple(Axis(n, s) for n, s, stays in zip(names, shape, fixed) if not stays)
    if not any(fixed):
        return Statement(target, axes, value)
    where = tuple(p if stays else Index(n) for p, n, stays in zip(indices, names, fixed))
    return Write(target, where, axes, value)


# ---- reads of the target -----------------------------------------------------------------------


def _preserve_target(
    work: Work, body: Expr, indices: tuple[Expr, ...], fresh_name: Callable[[str], str]
) -> tuple[Expr, list[OrderedStep]]:
    """Make a statement read the values that its target held before the statement.

    Where an element could be written before it is read, reads are redirected to a copy.
    """
    target = work.assignment.target
    clashing = [
        read for read in reads(body)
        if read.tensor == target and not _harmless(work, read, indices)
    ]  # fmt: skip
    self_reads = [read for index in indices for read in reads(index) if read.tensor == target]
    if self_reads:
        raise work.error(
            work.assignment.position, f"'{target}' is written at an index that is read from it",
            "copy it to another tensor first",
        )  # fmt: skip
    if not clashing:
        return body, []
    copy = fresh_name(target)
    shape = work.tensors[target].shape
    axes = tuple(Axis(f"{target}.{axis}", size) for axis, size in enumerate(shape))
    step = Statement(copy, axes, Read(target, tuple(Index(axis.name) for axis in axes)))

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.tensor != target:
            return None
        return replace(expr, tensor=copy)

    return rewrite(body, change), [step]


def _harmless(work: Work, read: Read, indices: tuple[Expr, ...]) -> bool:
    """Whether a read of the target is of the element being written, or of none that is written.

    Checks make no difference: where one fails, nothing is read or written.
    """
    if read.flat:
        return False
    reading, writing = tuple(map(bare, read.indices)), tuple(map(bare, indices))
    if reading == writing:
        return not (work.right and work.assignment.combine) and one_to_one(writing, work.left)
    return any(_disjoint(work, *pair) for pair in zip(reading, writing))


def _disjoint(work: Work, index: Expr, written_index: Expr) -> bool:
    """Whether the ranges of a read and a written index along an axis are disjoint."""
    box = ranges.running(work.extents.values(), work.binding.box)
    read = ranges.expression_range(index, work.extents, box)
    written = ranges.expression_range(written_index, work.extents, box)
    if read is None or written is None:
        return False
    (low, high, _), (first, last, _) = read, written
    return ranges.is_proved(high, "<", first, box) or ranges.is_proved(low, ">", last, box)
