"""Shapes and element types of the tensors that a definition with order writes.

A tensor that one statement defines wholly has the shape of that statement. Any other has in each
dimension the union of what its statements cover: `h(t, b)` in a loop over t in 0:T has the size T.
Sizes that are not known yet are symbols of their own; rounds over the text find one after another.
Each round infers the element types from all that it sees (`element_types.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import partial
from typing import ClassVar

from anydim.base.dtypes import DType
from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.lang.resolve import placing, ranges
from anydim.lang.resolve.binding import Binding
from anydim.lang.resolve.calls import Calls
from anydim.lang.resolve.element_types import Source, Types, element_types
from anydim.lang.resolve.extents import Work
from anydim.lang.resolve.ranges import UNKNOWN, is_known
from anydim.lang.resolve.roles import Role, accumulates, names_in, tensors_named
from anydim.lang.resolve.scope import Scope, hoisted, with_facts
from anydim.lang.resolve.walker import Walker
from anydim.lang.surface.syntax import Assignment, Invoke, Item, Spread
from anydim.lang.tree import Expr, OrderedStep, SizeTerm, TensorType
from anydim.lang.tree.affine import reads
from anydim.lang.tree.typing import OPEN, TypeProblem, element_type, settled
from anydim.sizes import Box, Size, maximum, simplify

OPEN_END, BY_DATA = "open", "by data"
Cover = Size | str  # one beyond the last place that is written, OPEN_END or BY_DATA


def shapes_of(
    block: tuple[Item, ...], scope: Scope, roles: dict[str, Role], calls: Calls
) -> dict[str, TensorType]:
    """The types of all tensors, with a symbol for each size that does not follow."""
    types = dict(scope.binding.tensors)
    for name, role in roles.items():
        rank = _rank(role, scope.binding)
        if rank is not None and name not in types:
            shape = tuple(Size.symbol(f"{UNKNOWN}{name}.{axis}") for axis in range(rank))
            types[name] = TensorType(OPEN, shape)
    while True:
        surveyor = Surveyor(roles, types, calls)
        surveyor.block(block, scope.copied())
        found = surveyor.concluded(scope)
        if found == types:
            surveyor.check()
            return types
        types = found


def _rank(role: Role, binding: Binding) -> int | None:
    """The dimensions of a tensor; None while only calls say."""
    for item in role.writers:
        if isinstance(item, Assignment):
            spreads = [term.name for term in item.indices if isinstance(term, Spread)]
            plain = len(item.indices) - len(spreads)
            return plain + sum(len(binding.ellipses[name]) for name in spreads)
    return None


@dataclass
class Surveyor(Walker):
    """One round: what each statement covers and computes, as far as it is known."""

    surveys: ClassVar[bool] = True

    calls: Calls
    covers: dict[str, list[list[Cover]]] = field(default_factory=dict)
    works: dict[str, list[Work]] = field(default_factory=dict)  # of each tensor that is assigned
    invoked: list[tuple[Invoke, Scope]] = field(default_factory=list)
    failed: dict[int, LanguageError] = field(default_factory=dict)  # by place of the call
    facts: list[Size] = field(default_factory=list)  # not negative, or the call is refused

    def assignment(self, item: Assignment, scope: Scope) -> list[OrderedStep]:
        role = self.roles[item.target]
        named = tensors_named(item)
        if any(name in named for name in self.roles.keys() - self.tensors.keys()):
            return []
        based = item is role.definer
        work = placing.begin(item, scope, self.tensors, based)
        placing.survey(work, role.constrains(item))
        if based or not (role.definer or accumulates(item)):
            covers = [self._cover(work, place, scope) for place in work.places]
            self.covers.setdefault(item.target, []).append(covers)
        if not (scope.loops or scope.conditional):
            self.facts += _facts(work)
        self.works.setdefault(item.target, []).append(work)
        return []

    def _cover(self, work: Work, place: Expr, scope: Scope) -> Cover:
        for read in work.exists:
            shape = self.tensors[read.tensor].shape
            for index, size in zip(read.indices, shape):
                if index == place and read.tensor != work.assignment.target:
                    return size if is_known(size) else OPEN_END
        names = work.expander.indices
        if any(ranges.uses(place, name) for name in names if name not in work.extents):
            return OPEN_END
        span = ranges.expression_range(place, work.extents, scope.box)
        high = None if span is None else hoisted(span[1], scope.loops, scope.box, True)
        if high is None:
            return BY_DATA
        return high + 1 if is_known(high) else OPEN_END

    def invoke(self, item: Invoke, scope: Scope) -> list[OrderedStep]:
        self.invoked.append((item, scope))
        return []

    # ---- what a round says ---------------------------------------------------------------------

    def concluded(self, scope: Scope) -> dict[str, TensorType]:
        """The types with what this round adds."""
        found = element_types(self._sources(), self.tensors)
        types = {name: found[name] for name in self.tensors}
        for item, place in self.invoked:
            for target, kind in zip(item.targets, self._results(item, place, found) or ()):
                if not self.roles[target].parameter:
                    shape = _filled(types.get(target, kind).shape, kind.shape)
                    types[target] = TensorType(found[target].dtype, shape)
        self._shapes(types, with_facts(scope.box, dict.fromkeys(self.facts)))
        return types

    def _sources(self) -> dict[str, list[Source]]:
        """What is assigned to each tensor."""
        sources: dict[str, list[Source]] = {
            name: [Source(frozenset(r.tensor for r in reads(w.body)), partial(element_type, w.body))
                   for w in works]
            for name, works in self.works.items()
        }  # fmt: skip
        for item, scope in self.invoked:
            for number, target in enumerate(item.targets):
                of = partial(self._result, item, scope, number)
                sources.setdefault(target, []).append(Source(frozenset(_named(item)), of))
        fixed = {name for name, role in self.roles.items() if role.parameter}
        return {name: of for name, of in sources.items() if name not in fixed}

    def _result(self, item: Invoke, scope: Scope, number: int, types: Types) -> DType:
        results = self._results(item, scope, types)
        return OPEN if results is None else results[number].dtype

    def _results(self, item: Invoke, scope: Scope, types: Types) -> tuple[TensorType, ...] | None:
        """The types of the results of a call; None where those of its arguments are not known."""
        own = _named(item) & self.roles.keys()
        if not own <= self.tensors.keys() or any(types[name].dtype == OPEN for name in own):
            return None
        if not all(is_known(size) for name in own for size in self.tensors[name].shape):
            return None
        known = {n: TensorType(settled(kind.dtype), kind.shape) for n, kind in types.items()}
        self.failed.pop(item.position, None)
        try:
            return self.calls.result_types(item, scope, replace(self, tensors=known))
        except LanguageError as error:
            self.failed[item.position] = error  # one of the program, if it stays
            return None

    def check(self) -> None:
        """Raise LanguageError for a call that fails, and for an element type that does not
        follow."""
        for error in self.failed.values():
            raise error
        for name, works in self.works.items():
            if self.tensors[name].dtype == OPEN:
                raise _open_type(works, self.tensors)

    def _shapes(self, types: dict[str, TensorType], box: Box) -> None:
        open_ends = []
        settled = False
        for name, covers in self.covers.items():
            if self.roles[name].parameter:
                continue
            shape = list(types[name].shape)
            for axis, size in enumerate(shape):
                if is_known(size):
                    continue
                column = [row[axis] for row in covers]
                sizes = [cover for cover in column if isinstance(cover, Size)]
                if sizes and OPEN_END not in column:
                    shape[axis], settled = _union(sizes, box), True
                elif sizes:
                    open_ends.append((name, axis, sizes))
            types[name] = TensorType(types[name].dtype, tuple(shape))
        if open_ends and not settled:
            name, axis, sizes = open_ends[0]
            shape = list(types[name].shape)
            shape[axis] = _union(sizes, box)
            types[name] = TensorType(types[name].dtype, tuple(shape))


def _named(item: Invoke) -> set[str]:
    """Names in the arguments of a call that may be those of tensors."""
    return {name for term in item.call.arguments for name in names_in(term)}


def _open_type(works: list[Work], types: Types) -> LanguageError:
    """The error of a tensor whose element type does not follow."""
    for work in works:
        try:
            element_type(work.body, types)
        except TypeProblem as problem:
            return work.type_error(problem)
    (work, *_), target = works, works[0].assignment.target
    return work.error(
        work.assignment.position,
        f"the element type of '{target}' does not follow: it depends on itself alone",
        f"give the read a default, as in {target}(...) else 0, or convert it: float(...)",
    )


def _filled(shape: tuple[Size, ...], known: tuple[Size, ...]) -> tuple[Size, ...]:
    if len(shape) != len(known):
        return shape
    return tuple(size if is_known(size) else new for size, new in zip(shape, known))


def _facts(work: Work) -> Iterator[Size]:
    """What reads at places without an index ask of sizes: `x(0)` asks that there is one."""
    for read in reads(work.body):
        if read.default is None and not read.flat:
            for index, size in zip(read.indices, work.tensors[read.tensor].shape):
                if isinstance(index, SizeTerm) and is_known(size) and is_known(index.size):
                    yield size - 1 - index.size
                    yield index.size


def _union(sizes: list[Size], box: Box) -> Size:
    return ranges.not_negative(simplify(maximum(*sizes), box), box)
