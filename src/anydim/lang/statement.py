"""One assignment -> one statement: ranges, masks, reads in bounds, element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anydim.base.dtypes import DType, boolean
from anydim.base.errors import LanguageError
from anydim.lang import ranges
from anydim.lang.affine import affine, reads, rewrite, to_expr
from anydim.lang.binding import Binding
from anydim.lang.expand import Expander
from anydim.lang.inside import inside
from anydim.lang.ranges import Constraint, RangeProblem
from anydim.lang.scope import Scope, Turn, hoisted, trips
from anydim.lang.syntax import Assignment, Call, Exists, Name, Range, Spread
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    TensorType,
)  # fmt: skip
from anydim.lang.typing import TypeProblem, identity, typed
from anydim.sizes import Box, Size, product, simplify

Uneven = tuple[Range, Expr, Expr]  # a range whose ends depend on other indices


@dataclass
class Work:
    """A statement on its way: `left` names its axes, `masks` bound uneven ranges.

    `places` are the index expressions on the left, where they are more than the axes in order.
    """

    assignment: Assignment
    binding: Binding
    tensors: Mapping[str, TensorType]
    expander: Expander
    left: list[str]
    body: Expr
    extents: dict[str, Size] = field(default_factory=dict)
    exists: list[Read] = field(default_factory=list)
    masks: list[Expr] = field(default_factory=list)
    places: list[Expr] = field(default_factory=list)
    scope: Scope | None = None  # the loops and branches around it, where there are any

    @property
    def right(self) -> list[str]:
        """The indices that stand on the right alone."""
        return [name for name in self.expander.indices if name not in self.left]

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.binding.error(position, problem, hint)


def expand_statement(
    assignment: Assignment, binding: Binding, tensors: Mapping[str, TensorType]
) -> tuple[Statement, DType]:
    """The statement and the element type of its target; LanguageError where it makes no sense.

    Guards that its reads need are added to the binding.
    """
    expander = Expander(binding, tensors)
    left = _left(assignment, expander)
    work = Work(assignment, binding, tensors, expander, left, expander.expand(assignment.value))
    trusted = infer(work, where_ranges(work))
    check_reads(work, trusted)
    return _finish(work)


def _left(assignment: Assignment, expander: Expander) -> list[str]:
    left: list[str] = []
    for term in assignment.indices:
        if isinstance(term, Spread):
            left += [axis.name for axis in expander.axes_of(term)]
        elif isinstance(term, Name):
            expander.indices.setdefault(term.name, term.position)
            left.append(term.name)
    return left


def where_ranges(work: Work) -> list[Uneven]:
    """Take the sizes of ellipses and the `where` clauses in; uneven ranges are returned."""
    indices = work.expander.indices
    for axes in work.binding.ellipses.values():
        work.extents.update((a.name, a.extent) for a in axes if a.name in indices)
    uneven = []
    for clause in work.assignment.where:
        if isinstance(clause, Exists):
            call = Call(clause.tensor, clause.indices, position=clause.position)
            read = work.expander.expand(call)
            assert isinstance(read, Read)
            work.exists.append(read)
            continue
        work.expander.indices.setdefault(clause.index, clause.position)
        if clause.index in work.extents:
            raise work.error(clause.position, f"'{clause.index}' has two ranges")
        low = work.expander.index(clause.low)
        high = work.expander.index(clause.high)
        if isinstance(low, SizeTerm) and isinstance(high, SizeTerm):
            _even_range(work, clause, low.size, high.size)
        else:
            uneven.append((clause, low, high))
    return uneven


def _even_range(work: Work, clause: Range, low: Size, high: Size) -> None:
    box = work.binding.box
    work.extents[clause.index] = ranges.not_negative(simplify(high - low, box), box)
    if low.constant != 0:
        _shift(work, clause.index, low)


def _shift(work: Work, name: str, low: Size) -> None:
    """Let an index run from 0 by adding `low` wherever it is used."""
    shifted = Apply("add", (Index(name), SizeTerm(low)))

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Index) and expr.name == name:
            return shifted
        return _normal_indices(expr)

    _replace_body(work, rewrite(work.body, change))
    work.places = [normal_form(rewrite(place, change)) for place in work.places]


def normal_form(index: Expr) -> Expr:
    """An index expression, written as a sum where it is affine."""
    form = affine(index)
    return index if form is None else to_expr(form)


def _normal_indices(expr: Expr) -> Expr | None:
    if not isinstance(expr, Read):
        return None
    return replace(expr, indices=tuple(map(normal_form, expr.indices)))


def infer(work: Work, uneven: list[Uneven]) -> set[Constraint]:
    """Give every index an extent; returns the constraints that hold by construction."""
    constraints = constraints_of(work)
    limited = {clause.index for clause, _, _ in uneven}
    wanted = [name for name in work.expander.indices if name not in limited]
    box = work.binding.box
    if not uneven and all(name in work.extents for name in wanted):
        return set()
    try:
        satisfied: set[Constraint] = set()
        for clause, low, high in uneven:
            needed = [n for n in wanted if ranges.uses(low, n) or ranges.uses(high, n)]
            usable = [c for c in constraints if not limited & set(c.form.indices)]
            work.extents, held = ranges.infer(usable, work.extents, needed, box)
            satisfied |= held
            uneven_range(work, clause, low, high)
        work.extents, held = ranges.infer(constraints, work.extents, wanted, box)
        return satisfied | held
    except RangeProblem as problem:
        raise range_error(work, problem) from None


def range_error(work: Work, problem: RangeProblem) -> LanguageError:
    """The error of an index that has no range, where it is first used."""
    name = next((n for n in work.expander.indices if f"'{n}'" in problem.text), "")
    position = work.expander.indices.get(name, work.assignment.position)
    return work.error(position, problem.text, problem.hint)


def uneven_range(work: Work, clause: Range, low: Expr, high: Expr) -> None:
    """A range whose ends depend on other indices: run over all of it and mask the rest."""
    box = work.binding.box
    spans = [ranges.expression_range(end, work.extents, box) for end in (low, high)]
    if spans[0] is None or spans[1] is None:
        raise work.error(clause.position, "the ends of a range depend on indices and sizes only")
    lowest, highest = spans[0][0], spans[1][1]
    if not ranges.proved(lowest, ">=", 0, ranges.running(work.extents.values(), box)):
        raise work.error(clause.position, f"the range of '{clause.index}' may start below 0")
    work.extents[clause.index] = ranges.not_negative(simplify(highest, box), box)
    index = Index(clause.index)
    if not isinstance(low, SizeTerm) or low.size.constant != 0:
        work.masks.append(Apply("greater_equal", (index, low)))
    if not isinstance(high, SizeTerm):
        work.masks.append(Apply("less", (index, high)))


def constraints_of(work: Work) -> list[Constraint]:
    found: dict[Constraint, None] = {}
    inner = (read for place in work.places for read in reads(place))
    for read in (*reads(work.body), *inner, *work.exists):
        if read.default is not None:
            continue
        for position, size, axis in _places(read, work.tensors):
            if (read.tensor, axis, position) in work.expander.trusted:
                continue
            item = ranges.constraint(position, size, read.tensor, axis, work.binding.box)
            if item is not None:
                found[item] = None
    return list(found)


def _places(read: Read, tensors: Mapping[str, TensorType]) -> list[tuple[Expr, Size, int]]:
    """The index expressions of a read, each with the size it must stay below."""
    shape = tensors[read.tensor].shape
    if read.flat:
        return [(read.indices[0], product(shape), 0)]
    return [(i, size, axis) for axis, (i, size) in enumerate(zip(read.indices, shape))]


# ---- reads in bounds ---------------------------------------------------------------------------


def check_reads(work: Work, satisfied: set[Constraint]) -> None:
    """Every read proven inside its tensor, guarded, or checked while running."""
    if any(extent.constant == 0 for extent in work.extents.values()):
        return

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.default is not None:
            return None
        return _checked_read(work, expr, satisfied)

    _replace_body(work, rewrite(work.body, change))
    work.places = [rewrite(place, change) for place in work.places]


def _checked_read(work: Work, read: Read, satisfied: set[Constraint]) -> Read | None:
    box = work.binding.box
    indices = list(read.indices)
    for position, size, axis in _places(read, work.tensors):
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


def _replace_body(work: Work, body: Expr) -> None:
    """Another body of the same form; errors point at the same places."""
    for old, new in zip(reads(work.body), reads(body)):
        position = work.expander.positions.get(old, work.assignment.position)
        work.expander.positions.setdefault(new, position)
    work.body = body


@dataclass(frozen=True)
class Position:
    """An index expression at one dimension of a tensor that is 'read' or 'written' there."""

    tensor: str
    axis: int
    index: Expr
    size: Size
    where: int  # in the text
    verb: str


def settle(work: Work, at: Position, status: str, span: tuple[Size, Size] | None) -> Expr:
    """The index of a position that is not proven inside: refused, guarded, or checked."""
    box = work.binding.box
    if span is None or status == ranges.BY_DATA:
        return inside(at.index, at.size)
    turns: tuple[Turn, ...] = ()
    scope = work.scope
    if scope is not None and (scope.turns or scope.conditional):
        if status == ranges.OUTSIDE:
            raise _leaves(work, at, span)
        low = hoisted(span[0], scope.turns, box, False)
        high = hoisted(span[1], scope.turns, box, True)
        runs = [*work.extents.values(), *map(trips, scope.turns)]
        known = all(s is not None and s.symbols <= set(scope.outer.names) for s in runs)
        if scope.conditional or not known or low is None or high is None:
            return inside(at.index, at.size)
        turns, box, span = scope.turns, scope.outer, (low, high)
        extents = {**work.extents, **_trip_extents(turns, box)}
        status, _ = ranges.span_status(low, high, at.size, extents, box)
    if status == ranges.OUTSIDE:
        raise _leaves(work, at, span)
    if status == ranges.UNDECIDED:
        _guard(work, at, span, {**work.extents, **_trip_extents(turns, box)}, box)
    return at.index


def _trip_extents(turns: Sequence[Turn], box: Box) -> dict[str, Size]:
    found = ((turn.variable, trips(turn)) for turn in turns)
    known = ((name, simplify(size, box)) for name, size in found if size is not None)
    return {name: ranges.not_negative(size, box) for name, size in known}


def _guard(
    work: Work, at: Position, span: tuple[Size, Size], extents: Mapping[str, Size], box: Box
) -> None:
    line = work.binding.definition.text.count("\n", 0, at.where) + 1
    where = f"'{at.tensor}' is {at.verb} at {span[0]} to {span[1]} of dimension {at.axis}"
    message = f"{work.binding.definition.name}, line {line}: {where}, inside its size {at.size}"
    for guard in ranges.read_guards(*span, at.size, extents, box, message):
        if guard not in work.binding.guards:
            work.binding.guards.append(guard)


def _leaves(work: Work, at: Position, span: tuple[Size, Size]) -> LanguageError:
    where = f"'{at.tensor}' is {at.verb} at {span[0]} to {span[1]} of dimension {at.axis}"
    return work.error(
        at.where,
        f"{where}, whose size is {at.size}",
        "give the read a default: x(...) else 0, or the index a range: where i in lo:hi"
        if at.verb == "read"
        else "give the index a range: where i in lo:hi, or write less",
    )


# ---- the finished statement --------------------------------------------------------------------


def _finish(work: Work) -> tuple[Statement, DType]:
    assignment = work.assignment
    try:
        body, dtype = typed(work.body, work.tensors)
        if work.masks:
            body = masked(work, body, identity(assignment.combine or "add", dtype))
    except TypeProblem as problem:
        raise type_error(work, problem) from None
    right = work.right
    combine = assignment.combine if right else ""
    check_reduction(work, combine, dtype)
    statement = Statement(
        assignment.target, axes_of(work, work.left), body, combine, axes_of(work, right)
    )
    return statement, dtype


def type_error(work: Work, problem: TypeProblem) -> LanguageError:
    """The error of an expression that has no type, at its place."""
    position = work.assignment.position
    if problem.expr is not None:
        position = work.expander.positions.get(problem.expr, position)
    return work.error(position, problem.text, problem.hint)


def check_reduction(work: Work, combine: str, dtype: DType) -> None:
    """Raise LanguageError for an element type that an operator does not combine."""
    assignment = work.assignment
    if combine and dtype.stored:
        problem = f"a reduction takes no {dtype}, which is only stored"
        raise work.error(assignment.position, problem, "convert it: float(...)")
    if combine in ("add", "mul") and dtype == boolean:
        raise work.error(
            assignment.position, "a sum or product takes numbers, not bool", "write int32(...)"
        )


def axes_of(work: Work, names: list[str]) -> tuple[Axis, ...]:
    """Indices with their ranges."""
    return tuple(Axis(name, work.extents[name]) for name in names)


def masked(work: Work, body: Expr, outside: Expr) -> Expr:
    """The body where all uneven ranges run, and another value where one does not."""
    condition: Expr | None = None
    for mask in work.masks:
        mask, _ = typed(mask, work.tensors)
        condition = mask if condition is None else Apply("and", (condition, mask))
    return body if condition is None else Apply("select", (condition, body, outside))
