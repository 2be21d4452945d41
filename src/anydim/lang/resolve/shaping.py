"""Inference of shapes and element types of the tensors that an ordered definition writes.

A tensor that one statement defines wholly has the shape of that statement. Any other has in each
dimension the union of the ranges its statements write: `h(t, b)` in a loop over t in 0:T has the
size T. An unknown size is a symbol of its own, and what depends on it is unknown until it is
inferred: rounds over the text infer one after another, independent of the order of statements.
Sizes that depend on each other, as in recurrences, are a fixed point (`_fixed_point`). Each round
infers the element types from all visited statements (`element_types.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import ClassVar

from anydim.base.components import components
from anydim.base.dtypes import DType
from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.lang.resolve import assignment_steps, ranges
from anydim.lang.resolve.binding import Binding
from anydim.lang.resolve.calls import Calls
from anydim.lang.resolve.element_types import Source, Types, element_types
from anydim.lang.resolve.extents import Work
from anydim.lang.resolve.ranges import UNKNOWN, is_known, unknown_in
from anydim.lang.resolve.roles import Role, accumulates, names_in, tensors_named
from anydim.lang.resolve.scope import Scope, hoist_size, with_facts
from anydim.lang.resolve.walker import Walker
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Spread,
    Term,
    WhileBlock,
    parts,
)
from anydim.lang.tree import Expr, OrderedStep, SizeTerm, TensorType
from anydim.lang.tree.affine import reads
from anydim.lang.tree.typing import OPEN, Inferred, TypeProblem, element_type
from anydim.sizes import Box, Size, maximum, simplify

BY_DATA = "by data"
Open = frozenset[str]  # the unknown sizes it depends on; empty if the text does not determine it
Cover = Size | str | Open  # end of the written range, BY_DATA or open
ROUNDS_EACH = 3  # for each size of a cycle


def shapes_of(
    block: tuple[Item, ...], scope: Scope, roles: dict[str, Role], calls: Calls
) -> dict[str, TensorType]:
    """The types of all tensors, with a symbol for each size that cannot be inferred."""
    types = dict(scope.binding.tensors)
    for name, role in roles.items():
        rank = _rank(role, scope.binding)
        if rank is not None and name not in types:
            types[name] = _open_shape(name, rank)

    def surveyed(types: Mapping[str, TensorType], ignored: Collection[str] = ()) -> Surveyor:
        surveyor = Surveyor(roles, dict(types), calls, frozenset(ignored))
        surveyor.block(block, scope.copy())
        return surveyor

    while True:
        surveyor = surveyed(types)
        found = surveyor.conclude(scope)
        if found == types:
            later = (_fixed_point(names, types, surveyed, scope) for names in surveyor.cycles())
            found = next((new for new in later if new != types), types)
        if found == types:
            surveyor.check()
            return types
        types = found


def _fixed_point(
    names: Collection[str],
    types: dict[str, TensorType],
    surveyed: Callable[[Mapping[str, TensorType], Collection[str]], Surveyor],
    scope: Scope,
) -> dict[str, TensorType]:
    """Types with sizes that depend on each other and on no other unknown.

    They start as the largest that all known constraints allow, and shrink until all reads of these
    tensors are in bounds. Without a fixed point they stay the largest, and the reads are errors.
    """
    largest = types = surveyed(types, names).conclude(scope, names)
    for _ in range(ROUNDS_EACH * len(names)):
        found = surveyed(types, ()).conclude(scope, names)
        if found == types:
            return types
        types = found
    return largest


def _open_shape(name: str, rank: int) -> TensorType:
    return TensorType(OPEN, tuple(Size.symbol(_symbol(name, axis)) for axis in range(rank)))


def _symbol(name: str, axis: int) -> str:
    return f"{UNKNOWN}{name}.{axis}"


def _rank(role: Role, binding: Binding) -> int | None:
    """The rank of a tensor; None while only calls determine it."""
    for item in role.writers:
        if isinstance(item, Assignment):
            spreads = [term.name for term in item.indices if isinstance(term, Spread)]
            plain = len(item.indices) - len(spreads)
            return plain + sum(len(binding.ellipses[name]) for name in spreads)
    return None


@dataclass
class Surveyor(Walker):
    """One round: what each statement covers and computes, as far as it is known.

    Constraints from `ignored` unknown sizes are left out.
    """

    surveys: ClassVar[bool] = True

    calls: Calls
    ignored: frozenset[str] = frozenset()
    covers: dict[str, list[list[Cover]]] = field(default_factory=dict)
    works: dict[str, list[Work]] = field(default_factory=dict)  # by assigned tensor
    invoked: list[tuple[Invoke, Scope]] = field(default_factory=list)
    postponed: dict[str, set[str]] = field(default_factory=dict)  # by written tensor
    failed: dict[int, LanguageError] = field(default_factory=dict)  # by position of the call
    facts: list[Size] = field(default_factory=list)  # not negative, or the call is rejected

    def item(self, item: Item, scope: Scope) -> list[OrderedStep]:
        """Visit an item, once the ranks of all tensors that it reads are known; adds no steps."""
        unranked = _read_by(item) & (self.roles.keys() - self.tensors.keys())
        if unranked:
            self.postpone(item, frozenset(f"{UNKNOWN}{name}" for name in unranked))
            return []
        return super().item(item, scope)

    def postpone(self, item: Item, sizes: frozenset[str]) -> None:
        """Record the sizes that an item's covered range depends on."""
        if isinstance(item, (Assignment, Invoke)):
            for target in _targets(item):
                if self._shapes_target(item, target):
                    self.postponed.setdefault(target, set()).update(sizes)
            return
        for block in parts(item):
            for inner in block:
                self.postpone(inner, sizes)

    def _shapes_target(self, item: Assignment | Invoke, target: str) -> bool:
        """Whether an item counts for the shape of what it writes."""
        role = self.roles[target]
        return item is role.definer or not (role.definer or accumulates(item))

    def assignment(self, item: Assignment, scope: Scope) -> list[OrderedStep]:
        role = self.roles[item.target]
        work = assignment_steps.begin(item, scope, self.tensors, item is role.definer)
        assignment_steps.survey(work, role.constrains(item), self.ignored)
        if self._shapes_target(item, item.target):
            covers = [self._cover(work, index, scope) for index in work.target_indices]
            self.covers.setdefault(item.target, []).append(covers)
        if not (scope.loops or scope.conditional):
            self.facts += _facts(work)
        self.works.setdefault(item.target, []).append(work)
        return []

    def _cover(self, work: Work, written: Expr, scope: Scope) -> Cover:
        for read in work.exists:
            shape = self.tensors[read.tensor].shape
            for index, size in zip(read.indices, shape):
                if index == written and read.tensor != work.assignment.target:
                    return self._known_cover(size)
        used = [name for name in work.expander.indices if ranges.uses(written, name)]
        if any(name not in work.extents for name in used):
            return Open()
        span = ranges.expression_range(written, work.extents, scope.box)
        extents = (work.extents[name] for name in used)
        unknown = unknown_in(*extents, *(() if span is None else span[:2]))
        if unknown:
            return unknown - self.ignored
        high = None if span is None else hoist_size(span[1], scope.loops, scope.box, True)
        return BY_DATA if high is None else high + 1

    def _known_cover(self, size: Size) -> Cover:
        unknown = unknown_in(size)
        return unknown - self.ignored if unknown else size

    def invoke(self, item: Invoke, scope: Scope) -> list[OrderedStep]:
        self.invoked.append((item, scope))
        return []

    # ---- what a round says ---------------------------------------------------------------------

    def conclude(self, scope: Scope, only: Collection[str] = ()) -> dict[str, TensorType]:
        """The types updated by this round; of sizes that are known, `only` these change."""
        sources = self._sources()
        known = dict(self.tensors)
        for name in known.keys() & self.roles.keys() - sources.keys():
            if known[name].dtype == OPEN:  # no writer was visited yet
                known[name] = Inferred(OPEN, known[name].shape, literals=True)
        found = element_types(sources, known)
        types = {name: TensorType(found[name].dtype, found[name].shape) for name in self.tensors}
        for item, around in self.invoked:
            self._cover_results(item, around, found, types)
        self._shapes(types, with_facts(scope.box, dict.fromkeys(self.facts)), only)
        return types

    def _cover_results(
        self, item: Invoke, scope: Scope, found: Types, types: dict[str, TensorType]
    ) -> None:
        """Add the results of a call to the covers, and the ranks that it determines to `types`."""
        results = self._results(item, scope, found)
        for number, target in enumerate(item.targets):
            if self.roles[target].parameter or not self._shapes_target(item, target):
                continue
            if results is None:
                self.postponed.setdefault(target, set()).update(self._unknown_in(item))
                continue
            shape = results[number].shape
            if target not in types:
                types[target] = replace(_open_shape(target, len(shape)), dtype=found[target].dtype)
            if len(types[target].shape) == len(shape):
                tops = [hoist_size(size, scope.loops, scope.box, True) for size in shape]
                covers: list[Cover] = [BY_DATA if top is None else top for top in tops]
                self.covers.setdefault(target, []).append(covers)

    def _sources(self) -> dict[str, list[Source]]:
        """Sources of each tensor's element type."""
        sources: dict[str, list[Source]] = {
            name: [Source(frozenset(r.tensor for r in reads(w.body)), partial(element_type, w.body))
                   for w in works]
            for name, works in self.works.items()
        }  # fmt: skip
        for item, scope in self.invoked:
            for number, target in enumerate(item.targets):
                of = partial(self._result, item, scope, number)
                sources.setdefault(target, []).append(Source(frozenset(_read_by(item)), of))
        fixed = {name for name, role in self.roles.items() if role.parameter}
        return {name: of for name, of in sources.items() if name not in fixed}

    def _result(self, item: Invoke, scope: Scope, number: int, types: Types) -> DType:
        results = self._results(item, scope, types)
        return OPEN if results is None else results[number].dtype

    def _results(self, item: Invoke, scope: Scope, types: Types) -> tuple[TensorType, ...] | None:
        """The result types of a call; None while its argument types are unknown."""
        if self._unknown_in(item):
            return None
        walker = replace(self, tensors=dict(types))
        self.failed.pop(item.position, None)
        try:
            if not self.calls.are_decided(item, scope, walker):
                return None
            return self.calls.result_types(item, scope, walker)
        except LanguageError as error:
            self.failed[item.position] = error  # reported if it remains
            return None

    def _unknown_in(self, item: Invoke) -> frozenset[str]:
        """The unknown sizes that a call depends on: those of whole tensors, and in settings."""
        whole = {term.name for term in item.call.arguments if isinstance(term, Name)}
        settings = (names_in(setting.value) for setting in item.call.settings)
        own = whole.union(*settings) & self.roles.keys()
        return unknown_in(*(size for name in own for size in self.tensors[name].shape))

    def check(self) -> None:
        """Raise LanguageError for a failed call or an element type that cannot be inferred."""
        for error in self.failed.values():
            raise error
        for name, works in self.works.items():
            if self.tensors[name].dtype == OPEN:
                raise _open_type(works, self.tensors)
        for item, scope in self.invoked:
            for target in item.targets:
                if target not in self.tensors or self.tensors[target].dtype == OPEN:
                    raise _open_result(item, target, scope.binding)

    def _shapes(self, types: dict[str, TensorType], box: Box, only: Collection[str]) -> None:
        for name, covers in self.covers.items():
            if self.roles[name].parameter:
                continue
            shape = list(types[name].shape)
            for axis, size in enumerate(shape):
                symbol = _symbol(name, axis)
                if (symbol not in only) if only else is_known(size):
                    continue
                sizes = [cover for row in covers if isinstance(cover := row[axis], Size)]
                if sizes and (only or not self._open(name, axis)):
                    shape[axis] = _union(sizes, box)
            types[name] = TensorType(types[name].dtype, tuple(shape))

    def _open(self, name: str, axis: int) -> bool:
        """Whether part of what covers a dimension is unknown."""
        rows = self.covers.get(name, ())
        return name in self.postponed or any(isinstance(row[axis], frozenset) for row in rows)

    def cycles(self) -> Iterator[list[str]]:
        """Groups of unknown sizes that depend on each other, dependences first."""
        uses: dict[str, set[str]] = {}
        for name, kind in self.tensors.items():
            later = self.postponed.get(name, set()) - self.ignored
            for axis, size in enumerate(kind.shape):
                if not is_known(size):
                    rows = (row[axis] for row in self.covers.get(name, ()))
                    uses[_symbol(name, axis)] = later.union(
                        *(cover for cover in rows if isinstance(cover, frozenset))
                    )
        return components({name: used & uses.keys() for name, used in uses.items()})


def _targets(item: Assignment | Invoke) -> tuple[str, ...]:
    return (item.target,) if isinstance(item, Assignment) else item.targets


def _read_by(item: Item) -> set[str]:
    """Names in an item that may refer to tensors, without the blocks of a loop or branch."""
    if isinstance(item, Assignment):
        return tensors_named(item)
    terms: tuple[Term, ...]
    if isinstance(item, LoopBlock):
        terms = (item.start, item.stop, item.step)
    elif isinstance(item, (BranchBlock, WhileBlock)):
        terms = (item.condition,)
    elif isinstance(item, Invoke):
        terms = (*item.call.arguments, *(setting.value for setting in item.call.settings))
    else:
        terms = item.structures
    return {name for term in terms for name in names_in(term)}


def _open_type(works: list[Work], types: Types) -> LanguageError:
    """Error for a tensor whose element type cannot be inferred."""
    for work in works:
        try:
            element_type(work.body, types)
        except TypeProblem as problem:
            return work.type_error(problem)
    (work, *_), target = works, works[0].assignment.target
    return work.error(
        work.assignment.position,
        f"the element type of '{target}' cannot be inferred: it depends only on itself",
        f"give the read a default, as in {target}(...) else 0, or convert it: float(...)",
    )


def _open_result(item: Invoke, target: str, binding: Binding) -> LanguageError:
    """Error for a result of a call whose type cannot be inferred."""
    return binding.error(
        item.position,
        f"the type of '{target}' cannot be inferred: the call of '{item.call.name}' depends on"
        " its own results",
        "assign the tensors that it reads before the loop, or give the read of an element a"
        " default: ... else 0",
    )


def _facts(work: Work) -> Iterator[Size]:
    """Facts required by reads without an index: `x(0)` requires a size of at least 1."""
    for read in reads(work.body):
        if read.default is None and not read.flat:
            for index, size in zip(read.indices, work.tensors[read.tensor].shape):
                if isinstance(index, SizeTerm) and is_known(size) and is_known(index.size):
                    yield size - 1 - index.size
                    yield index.size


def _union(sizes: list[Size], box: Box) -> Size:
    return ranges.not_negative(simplify(maximum(*sizes), box), box)
