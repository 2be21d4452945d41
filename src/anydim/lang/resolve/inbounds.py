"""Bounds of reads: each position is proved in bounds, rejected, guarded, or checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.lang.resolve import ranges
from anydim.lang.resolve.extents import Work, read_positions
from anydim.lang.resolve.ranges import Constraint
from anydim.lang.resolve.scope import LoopAround, hoist_size, in_text, trips
from anydim.lang.resolve.witness import escape, format_values
from anydim.lang.tree import Expr, Literal, Read, SizeTerm
from anydim.lang.tree.bounds_checks import inside
from anydim.sizes import Box, Size, simplify


def check_reads(work: Work, satisfied: set[Constraint]) -> None:
    """Prove, guard or insert run-time checks for every read."""
    if any(extent.constant == 0 for extent in work.extents.values()):
        return

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.default is not None:
            return None
        return _checked_read(work, expr, satisfied)

    work.change(change)


def _checked_read(work: Work, read: Read, satisfied: set[Constraint]) -> Read | None:
    box = work.binding.box
    indices = list(read.indices)
    for position, size, axis in read_positions(read, work.tensors):
        item = ranges.constraint(position, size, read.tensor, axis, box)
        if item in satisfied or (read.tensor, axis, position) in work.expander.trusted:
            continue
        status, span = ranges.read_status(position, size, work.extents, box)
        if status == ranges.INSIDE:
            continue
        if span is not None and work.masks:
            return replace(read, default=Literal(0))  # only a mask keeps it in bounds
        where = work.expander.positions.get(read, work.assignment.position)
        at = Position(read.tensor, axis, position, size, where, "read")
        indices[axis] = settle(work, at, status, span)
    return replace(read, indices=tuple(indices))


@dataclass(frozen=True)
class Position:
    """An index expression at one dimension of a tensor that is 'read' or 'written'."""

    tensor: str
    axis: int
    index: Expr
    size: Size
    where: int  # in the text
    access: str


def settle(work: Work, at: Position, status: str, span: tuple[Size, Size] | None) -> Expr:
    """The index at a position that is not proved in bounds: rejected, guarded, or checked."""
    box = work.binding.box
    if span is None or status == ranges.BY_DATA:
        return inside(at.index, at.size)
    loops: tuple[LoopAround, ...] = ()
    scope = work.scope
    if scope is not None and (scope.loops or scope.conditional):
        if status == ranges.OUTSIDE and not work.binding.by_call:
            raise _out_of_bounds(work, at, span)
        low = hoist_size(span[0], scope.loops, box, False)
        high = hoist_size(span[1], scope.loops, box, True)
        runs = [*work.extents.values(), *map(trips, scope.loops)]
        known = all(s is not None and s.symbols <= set(scope.outer.names) for s in runs)
        if scope.conditional or not known or low is None or high is None:
            return inside(at.index, at.size)
        loops, box, span = scope.loops, scope.outer, (low, high)
        trips_too = {**work.extents, **_trip_extents(loops, box)}
        status, _ = ranges.span_status(low, high, at.size, trips_too, box)
    extents = {**work.extents, **_trip_extents(loops, box)}
    if status == ranges.OUTSIDE and not (work.binding.by_call and _may_not_run(extents, box)):
        raise _out_of_bounds(work, at, span)
    if status in (ranges.OUTSIDE, ranges.UNDECIDED):
        _guard(work, at, span, extents, box)
    return at.index


def _may_not_run(extents: Mapping[str, Size], box: Box) -> bool:
    """Whether some of these ranges may be empty."""
    return not all(ranges.is_proved(extent, ">", 0, box) for extent in extents.values())


def _trip_extents(loops: Sequence[LoopAround], box: Box) -> dict[str, Size]:
    found = ((loop.variable, trips(loop)) for loop in loops)
    known = ((name, simplify(size, box)) for name, size in found if size is not None)
    return {name: ranges.not_negative(size, box) for name, size in known}


def _guard(
    work: Work, at: Position, span: tuple[Size, Size], extents: Mapping[str, Size], box: Box
) -> None:
    if not ranges.is_known(at.size):
        return  # guarded once the size has been inferred
    line = work.binding.definition.text.count("\n", 0, at.where) + 1
    where = f"'{at.tensor}' is {at.access} at {span[0]} to {span[1]} of dimension {at.axis}"
    message = f"{work.binding.definition.name}, line {line}: {where}, inside its size {at.size}"
    for guard in ranges.read_guards(*span, at.size, extents, box, message):
        if guard not in work.binding.guards:
            work.binding.guards.append(guard)


def _out_of_bounds(work: Work, at: Position, span: tuple[Size, Size]) -> LanguageError:
    meant = work.recurrence
    if meant is not None:
        return work.recurrence_error(meant)
    where = f"'{at.tensor}' is {at.access} at {span[0]} to {span[1]} of dimension {at.axis}"
    found = escape(at.index, at.size, work.extents, work.binding.box)
    loops = work.scope.loops if work.scope is not None else ()
    values = {} if found is None else in_text(found[0], loops)
    witness = (
        f": with {format_values(values)} at {found[1]}" if found is not None and values else ""
    )
    hint = "give the index a range: where i in lo:hi"
    if isinstance(at.index, SizeTerm) and at.index.size == at.size and at.size.constant is None:
        hint = f"'{at.size}' is that size, not an index: use another name for the index"
    elif at.access == "read":
        hint = f"give the read a default: x(...) else 0, or {hint.removeprefix('give ')}"
    return work.error(at.where, f"{where}, whose size is {at.size}{witness}", hint)
