"""One assignment -> one statement: ranges, masks, reads in bounds, element types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anydim.base.dtypes import DType, boolean
from anydim.base.errors import LanguageError
from anydim.lang import ranges
from anydim.lang.affine import affine, reads, rewrite, to_expr
from anydim.lang.binding import Binding
from anydim.lang.expand import Expander
from anydim.lang.inside import inside
from anydim.lang.ranges import Constraint, RangeProblem
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
from anydim.sizes import Size, product, simplify


@dataclass
class _Work:
    """A statement on its way: `left` and `right` name its axes, `masks` bound uneven ranges."""

    assignment: Assignment
    binding: Binding
    tensors: Mapping[str, TensorType]
    expander: Expander
    left: list[str]
    body: Expr
    extents: dict[str, Size]
    exists: list[Read]
    masks: list[Expr]

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
    work = _Work(
        assignment, binding, tensors, expander, left,
        expander.expand(assignment.value), {}, [], [],
    )  # fmt: skip
    for axes in binding.ellipses.values():
        work.extents.update((a.name, a.extent) for a in axes if a.name in expander.indices)
    uneven = _ranges(work)
    trusted = _infer(work, uneven)
    _check_reads(work, trusted)
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


def _ranges(work: _Work) -> list[tuple[Range, Expr, Expr]]:
    """Take the `where` clauses in; those that depend on other indices are returned."""
    uneven = []
    for clause in work.assignment.where:
        if isinstance(clause, Exists):
            call = Call(clause.tensor, clause.indices, None, clause.position)
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


def _even_range(work: _Work, clause: Range, low: Size, high: Size) -> None:
    box = work.binding.box
    work.extents[clause.index] = ranges.not_negative(simplify(high - low, box), box)
    if low.constant != 0:
        _shift(work, clause.index, low)


def _shift(work: _Work, name: str, low: Size) -> None:
    """Let an index run from 0 by adding `low` wherever it is used."""
    shifted = Apply("add", (Index(name), SizeTerm(low)))

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Index) and expr.name == name:
            return shifted
        return _normal_indices(expr)

    _replace_body(work, rewrite(work.body, change))


def _normal_indices(expr: Expr) -> Expr | None:
    if not isinstance(expr, Read):
        return None
    forms = [affine(index) for index in expr.indices]
    normal = (i if f is None else to_expr(f) for i, f in zip(expr.indices, forms))
    return replace(expr, indices=tuple(normal))


def _infer(work: _Work, uneven: list[tuple[Range, Expr, Expr]]) -> set[Constraint]:
    """Give every index an extent; returns the constraints that hold by construction."""
    constraints = _constraints(work)
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
            _uneven_range(work, clause, low, high)
        work.extents, held = ranges.infer(constraints, work.extents, wanted, box)
        return satisfied | held
    except RangeProblem as problem:
        name = next((n for n in wanted if f"'{n}'" in problem.text), "")
        position = work.expander.indices.get(name, work.assignment.position)
        raise work.error(position, problem.text, problem.hint) from None


def _uneven_range(work: _Work, clause: Range, low: Expr, high: Expr) -> None:
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


def _constraints(work: _Work) -> list[Constraint]:
    found: dict[Constraint, None] = {}
    for read in (*reads(work.body), *work.exists):
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


def _check_reads(work: _Work, satisfied: set[Constraint]) -> None:
    """Every read proven inside its tensor, guarded, or checked while running."""
    if any(extent.constant == 0 for extent in work.extents.values()):
        return

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.default is not None:
            return None
        return _checked_read(work, expr, satisfied)

    _replace_body(work, rewrite(work.body, change))


def _checked_read(work: _Work, read: Read, satisfied: set[Constraint]) -> Read | None:
    box = work.binding.box
    indices = list(read.indices)
    for position, size, axis in _places(read, work.tensors):
        item = ranges.constraint(position, size, read.tensor, axis, box)
        if item in satisfied or (read.tensor, axis, position) in work.expander.trusted:
            continue
        status, span = ranges.read_status(position, size, work.extents, box)
        if status == ranges.BY_DATA:
            indices[axis] = inside(position, size)
        elif span is not None and work.masks:
            return replace(read, default=Literal(0))  # only a mask keeps it in bounds
        elif span is not None:
            _settle_read(work, read, axis, size, status, span)
    return replace(read, indices=tuple(indices))


def _replace_body(work: _Work, body: Expr) -> None:
    """Another body of the same form; errors point at the same places."""
    for old, new in zip(reads(work.body), reads(body)):
        position = work.expander.positions.get(old, work.assignment.position)
        work.expander.positions.setdefault(new, position)
    work.body = body


def _settle_read(
    work: _Work, read: Read, axis: int, size: Size, status: str, span: tuple[Size, Size]
) -> None:
    low, high = span
    where = f"'{read.tensor}' is read at {low} to {high} of dimension {axis}"
    position = work.expander.positions.get(read, work.assignment.position)
    if status == ranges.OUTSIDE:
        raise work.error(
            position,
            f"{where}, whose size is {size}",
            "give the read a default: x(...) else 0, or the index a range: where i in lo:hi",
        )
    line = work.binding.definition.text.count("\n", 0, position) + 1
    message = f"{work.binding.definition.name}, line {line}: {where}, inside its size {size}"
    for guard in ranges.read_guards(low, high, size, work.extents, work.binding.box, message):
        if guard not in work.binding.guards:
            work.binding.guards.append(guard)


# ---- the finished statement --------------------------------------------------------------------


def _finish(work: _Work) -> tuple[Statement, DType]:
    assignment = work.assignment
    try:
        body, dtype = typed(work.body, work.tensors)
        if work.masks:
            body = _masked(work, body, dtype)
    except TypeProblem as problem:
        position = assignment.position
        if problem.expr is not None:
            position = work.expander.positions.get(problem.expr, position)
        raise work.error(position, problem.text, problem.hint) from None
    right = [name for name in work.expander.indices if name not in work.left]
    combine = assignment.combine if right else ""
    if combine and dtype.stored:
        problem = f"a reduction takes no {dtype}, which is only stored"
        raise work.error(assignment.position, problem, "convert it: float(...)")
    if combine in ("add", "mul") and dtype == boolean:
        raise work.error(
            assignment.position, "a sum or product takes numbers, not bool", "write int32(...)"
        )

    def axes(names: list[str]) -> tuple[Axis, ...]:
        return tuple(Axis(name, work.extents[name]) for name in names)

    statement = Statement(assignment.target, axes(work.left), body, combine, axes(right))
    return statement, dtype


def _masked(work: _Work, body: Expr, dtype: DType) -> Expr:
    condition: Expr | None = None
    for mask in work.masks:
        mask, _ = typed(mask, work.tensors)
        condition = mask if condition is None else Apply("and", (condition, mask))
    assert condition is not None
    outside = identity(work.assignment.combine or "add", dtype)
    return Apply("select", (condition, body, outside))
