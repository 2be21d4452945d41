"""A statement being resolved: ranges of its indices, from `where` clauses and from reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.lang.resolve import ranges
from anydim.lang.resolve.binding import Binding
from anydim.lang.resolve.expand import Expander
from anydim.lang.resolve.ranges import Constraint, RangeProblem
from anydim.lang.resolve.recurrence import Recurrence, recurrence
from anydim.lang.resolve.scope import Scope
from anydim.lang.surface.syntax import Assignment, CallTerm, Exists, Range
from anydim.lang.tree import Apply, Axis, Expr, Index, Read, SizeTerm, TensorType
from anydim.lang.tree.affine import normal_form, reads, rewrite
from anydim.lang.tree.bounds_checks import inside
from anydim.lang.tree.typing import TypeProblem, infer_types
from anydim.sizes import Size, product, simplify

Clause = tuple[Range, Expr, Expr]  # a range and its ends


@dataclass
class Work:
    """A statement; `left` names its axes, `indices` are the written index expressions, if any.

    `uneven` ranges have ends that depend on other indices, `ragged` ones data-dependent ends;
    `masks` are the conditions under which such ranges run.
    """

    assignment: Assignment
    binding: Binding
    tensors: Mapping[str, TensorType]
    expander: Expander
    left: list[str]
    body: Expr
    extents: dict[str, Size] = field(default_factory=dict)
    exists: list[Read] = field(default_factory=list)
    uneven: list[Clause] = field(default_factory=list)
    ragged: list[Clause] = field(default_factory=list)
    masks: list[Expr] = field(default_factory=list)
    target_indices: list[Expr] = field(default_factory=list)
    scope: Scope | None = None  # the loops and branches around it, where there are any

    @property
    def right(self) -> list[str]:
        """The indices on the right side only."""
        return [name for name in self.expander.indices if name not in self.left]

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        """Make an error at a position in the text."""
        return self.binding.error(position, problem, hint)

    @property
    def recurrence(self) -> Recurrence | None:
        """The recurrence that the statement probably means if it reads its own target."""
        loops = self.scope.loops if self.scope is not None else ()
        return recurrence(self.assignment, {loop.name for loop in loops})

    def recurrence_error(self, meant: Recurrence) -> LanguageError:
        """Error for a recurrence written as an unordered statement."""
        advice = meant.advice(self.binding.definition)
        return self.error(meant.read.position, meant.problem, advice)

    def type_error(self, problem: TypeProblem) -> LanguageError:
        """Error for an expression without a type, at its position."""
        position = self.assignment.position
        if problem.expr is not None:
            position = self.expander.positions.get(problem.expr, position)
        return self.error(position, problem.text, problem.hint)

    def change(self, change: ranges.Change) -> None:
        """Rewrite the body, the written indices and the ends of ranges."""
        body = rewrite(self.body, change)
        for old, new in zip(reads(self.body), reads(body)):  # keep positions for errors
            position = self.expander.positions.get(old, self.assignment.position)
            self.expander.positions.setdefault(new, position)
        self.body = body
        self.target_indices = [rewrite(index, change) for index in self.target_indices]
        self.masks = [rewrite(mask, change) for mask in self.masks]
        for clauses in (self.uneven, self.ragged):
            clauses[:] = [(c, rewrite(a, change), rewrite(b, change)) for c, a, b in clauses]


# ---- where clauses -----------------------------------------------------------------------------


def where_ranges(work: Work) -> None:
    """Set extents from ellipses and `where` clauses."""
    indices = work.expander.indices
    for axes in work.binding.ellipses.values():
        work.extents.update((a.name, a.extent) for a in axes if a.name in indices)
    shifts: dict[str, Size] = {}
    given: set[str] = set(work.extents)
    for clause in work.assignment.where:
        if isinstance(clause, Exists):
            call = CallTerm(clause.tensor, clause.indices, position=clause.position)
            read = work.expander.expand(call)
            assert isinstance(read, Read)
            work.exists.append(read)
            continue
        indices.setdefault(clause.index, clause.position)
        if clause.index in given:
            raise work.error(clause.position, f"'{clause.index}' has two ranges")
        given.add(clause.index)
        low, high = work.expander.index(clause.low), work.expander.index(clause.high)
        if isinstance(low, SizeTerm) and isinstance(high, SizeTerm):
            box = work.binding.box
            extent = simplify(high.size - low.size, box)
            work.extents[clause.index] = ranges.not_negative(extent, box)
            if low.size.constant != 0:
                shifts[clause.index] = low.size
        else:
            by_data = reads(low) or reads(high)
            (work.ragged if by_data else work.uneven).append((clause, low, high))
    if shifts:
        _shift(work, shifts)


def _shift(work: Work, lows: Mapping[str, Size]) -> None:
    """Make index ranges start at 0 by adding their lower ends wherever they are used."""

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Index) and expr.name in lows:
            return Apply("add", (expr, SizeTerm(lows[expr.name])))
        if isinstance(expr, Read):
            return replace(expr, indices=tuple(map(normal_form, expr.indices)))
        return None

    work.change(change)
    work.target_indices = list(map(normal_form, work.target_indices))
    for clauses in (work.uneven, work.ragged):
        clauses[:] = [(c, normal_form(low), normal_form(high)) for c, low, high in clauses]


# ---- inference ---------------------------------------------------------------------------------


def infer(work: Work) -> set[Constraint]:
    """Infer the extent of every index; returns the constraints that hold by construction.

    Raises LanguageError for an index whose range cannot be inferred.
    """
    held, problem = solve(work)
    if problem is not None:
        raise range_error(work, problem)
    return held


def solve(
    work: Work, ignored: Collection[str] | None = None
) -> tuple[set[Constraint], RangeProblem | None]:
    """As `infer`; also returns why an index has no extent.

    Constraints on sizes that are not inferred yet are left out: on any such size, or only on those
    in `ignored`. An index that depends on an unknown size gets an unknown extent.
    """

    def usable(size: Size) -> bool:
        unknown = ranges.unknown_in(size)
        return not unknown if ignored is None else unknown.isdisjoint(ignored)

    wanted = list(work.expander.indices)
    plain = not (work.uneven or work.ragged)
    work.extents = {name: size for name, size in work.extents.items() if usable(size)}
    if plain and all(name in work.extents for name in wanted):
        return set(), None
    constraints = [c for c in constraints_of(work) if usable(c.size)]
    limited = {clause.index for clause, _, _ in work.uneven}
    satisfied: set[Constraint] = set()
    box = work.binding.box
    try:
        for clause, low, high in work.uneven:
            needed = [n for n in wanted if ranges.uses(low, n) or ranges.uses(high, n)]
            even = [c for c in constraints if not limited & set(c.form.indices)]
            work.extents, held = ranges.infer(even, work.extents, needed, box)
            satisfied |= held
            _uneven_range(work, clause, low, high)
        work.extents, held, missing = ranges.solve(constraints, work.extents, wanted, box)
        if missing:
            raise ranges.open_range(missing[0], constraints, work.extents)
    except RangeProblem as problem:
        return satisfied, problem
    for clause, low, high in work.ragged:
        _ragged_range(work, clause, low, high)
    return satisfied | held, None


def range_error(work: Work, problem: RangeProblem) -> LanguageError:
    """Error for an index without a range, where it is first used.

    A read at a non-integer index implies no range, so it is reported instead; so is a statement
    that reads its own target.
    """
    meant = work.recurrence
    if meant is not None:
        return work.recurrence_error(meant)
    try:
        infer_types(work.body, work.tensors)
    except TypeProblem as wrong:
        return work.type_error(wrong)
    name = next((n for n in work.expander.indices if f"'{n}'" in problem.text), "")
    position = work.expander.indices.get(name, work.assignment.position)
    guarded = [read for read in reads(work.body) if read.default is not None]
    hint = problem.hint
    if any(ranges.uses(read, name) for read in guarded):
        hint = hint.replace(
            f"{name} in 0:...", f"{name} in 0:{_intended_size(work, guarded, name)}"
        )
        hint += " (a read with a default implies no range)"
    return work.error(position, problem.text, hint)


def _intended_size(work: Work, guarded: list[Read], name: str) -> str:
    """The size of the dimension that an index alone addresses in reads with defaults."""
    positions = (position for read in guarded for position in read_positions(read, work.tensors))
    return next((str(size) for index, size, _ in positions if index == Index(name)), "...")


def _uneven_range(work: Work, clause: Range, low: Expr, high: Expr) -> None:
    """A range with ends that depend on other indices: run over its hull and mask the rest."""
    box = work.binding.box
    spans = [ranges.expression_range(end, work.extents, box) for end in (low, high)]
    if spans[0] is None or spans[1] is None:
        raise work.error(clause.position, f"the range of '{clause.index}' is unbounded")
    lowest, highest = spans[0][0], spans[1][1]
    unknown = ranges.unknown_in(lowest, highest)
    if unknown:
        work.extents[clause.index] = ranges.waiting_for(unknown)
        return
    if not ranges.is_proved(lowest, ">=", 0, ranges.running(work.extents.values(), box)):
        raise work.error(clause.position, f"the range of '{clause.index}' may start below 0")
    work.extents[clause.index] = ranges.not_negative(simplify(highest, box), box)
    index = Index(clause.index)
    if not isinstance(low, SizeTerm) or low.size.constant != 0:
        work.masks.append(Apply("greater_equal", (index, low)))
    if not isinstance(high, SizeTerm):
        work.masks.append(Apply("less", (index, high)))


def _ragged_range(work: Work, clause: Range, low: Expr, high: Expr) -> None:
    """A range with data-dependent ends: run over what the reads allow and mask the rest.

    Its end is checked at run time: it must not exceed what the reads allow.
    """
    extent = work.extents[clause.index]
    index = Index(clause.index)
    if not isinstance(low, SizeTerm) or low.size.constant != 0:
        low = low if isinstance(low, SizeTerm) else inside(low, extent + 1)
        work.masks.append(Apply("greater_equal", (index, low)))
    high = high if isinstance(high, SizeTerm) else inside(high, extent + 1)
    work.masks.append(Apply("less", (index, high)))


def constraints_of(work: Work) -> list[Constraint]:
    """The constraints that all reads in a statement put on its indices."""
    found: dict[Constraint, None] = {}
    ends = [end for _, *pair in work.ragged for end in pair]
    inner = (read for expr in (*work.target_indices, *ends) for read in reads(expr))
    for read in (*reads(work.body), *inner, *work.exists):
        if read.default is not None:
            continue
        for position, size, axis in read_positions(read, work.tensors):
            if (read.tensor, axis, position) in work.expander.trusted:
                continue
            item = ranges.constraint(position, size, read.tensor, axis, work.binding.box)
            if item is not None:
                found[item] = None
    return list(found)


def read_positions(read: Read, tensors: Mapping[str, TensorType]) -> list[tuple[Expr, Size, int]]:
    """The index expressions of a read, each with the size it must stay below."""
    shape = tensors[read.tensor].shape
    if read.flat:
        return [(read.indices[0], product(shape), 0)]
    return [(i, size, axis) for axis, (i, size) in enumerate(zip(read.indices, shape))]


def axes_of(work: Work, names: list[str]) -> tuple[Axis, ...]:
    """Axes of indices with their ranges."""
    return tuple(Axis(name, work.extents[name]) for name in names)


def mask_uneven_ranges(work: Work, body: Expr, outside: Expr) -> Expr:
    """The body where all uneven ranges run, and another value elsewhere."""
    condition: Expr | None = None
    for mask in work.masks:
        mask, _ = infer_types(mask, work.tensors)
        condition = mask if condition is None else Apply("and", (condition, mask))
    return body if condition is None else Apply("select", (condition, body, outside))
