"""Shapes and element types of the tensors that a definition with order writes.

A tensor that one statement defines wholly has the shape of that statement. Any other has in each
dimension the union of what its statements cover: `h(t, b)` in a loop over t in 0:T has the size T.
Sizes that are not known yet are symbols of their own; rounds over the text find one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.lang.resolve import placing, ranges
from anydim.lang.resolve.binding import Binding
from anydim.lang.resolve.calls import Calls
from anydim.lang.resolve.extents import Work
from anydim.lang.resolve.ranges import UNKNOWN, is_known
from anydim.lang.resolve.roles import Role, accumulates, names_in, tensors_named
from anydim.lang.resolve.scope import Scope, hoisted, with_facts
from anydim.lang.resolve.walker import Walker
from anydim.lang.surface.syntax import Assignment, Invoke, Item, Spread
from anydim.lang.tree import Expr, OrderedStep, SizeTerm, TensorType
from anydim.lang.tree.affine import reads
from anydim.lang.tree.typing import TypeProblem, common_type
from anydim.sizes import Box, Size, maximum, simplify

OPEN, BY_DATA = "open", "by data"
Cover = Size | str  # one beyond the last place that is written, OPEN or BY_DATA


def shapes_of(
    block: tuple[Item, ...], scope: Scope, roles: dict[str, Role], calls: Calls
) -> dict[str, TensorType]:
    """The types of all tensors, with a symbol for each size that does not follow."""
    types = dict(scope.binding.tensors)
    for name, role in roles.items():
        rank = _rank(role, scope.binding)
        if rank is not None and name not in types:
            shape = tuple(Size.symbol(f"{UNKNOWN}{name}.{axis}") for axis in range(rank))
            types[name] = TensorType(float32, shape)
    typed = set(scope.binding.tensors)
    while True:
        surveyor = Surveyor(roles, dict(types), calls, set(typed))
        surveyor.block(block, scope.copied())
        found = surveyor.concluded(scope)
        if found == types and surveyor.typed == typed:
            return types
        types, typed = found, surveyor.typed


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

    walks_all: ClassVar[bool] = True

    calls: Calls
    typed: set[str] = field(default_factory=set)  # tensors whose element type is known
    covers: dict[str, list[list[Cover]]] = field(default_factory=dict)
    bodies: dict[str, list[Expr]] = field(default_factory=dict)
    results: dict[str, TensorType] = field(default_factory=dict)
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
        if not (named & self.roles.keys()) - self.typed:
            self.bodies.setdefault(item.target, []).append(work.body)
        return []

    def _cover(self, work: Work, place: Expr, scope: Scope) -> Cover:
        for read in work.exists:
            shape = self.tensors[read.tensor].shape
            for index, size in zip(read.indices, shape):
                if index == place and read.tensor != work.assignment.target:
                    return size if is_known(size) else OPEN
        names = work.expander.indices
        if any(ranges.uses(place, name) for name in names if name not in work.extents):
            return OPEN
        span = ranges.expression_range(place, work.extents, scope.box)
        high = None if span is None else hoisted(span[1], scope.loops, scope.box, True)
        if high is None:
            return BY_DATA
        return high + 1 if is_known(high) else OPEN

    def invoke(self, item: Invoke, scope: Scope) -> list[OrderedStep]:
        named = {name for term in item.call.arguments for name in names_in(term)}
        if (named & self.roles.keys()) - self.typed:
            return []
        shapes = [self.tensors[name].shape for name in named & self.tensors.keys()]
        if not all(is_known(size) for shape in shapes for size in shape):
            return []
        found = self.calls.result_types(item, scope, self)
        for target, kind in zip(item.targets, found):
            self.results[target] = kind
        return []

    # ---- what a round says ---------------------------------------------------------------------

    def concluded(self, scope: Scope) -> dict[str, TensorType]:
        """The types with what this round adds; `typed` grows with them."""
        types = dict(self.tensors)
        box = with_facts(scope.box, dict.fromkeys(self.facts))
        for name, kind in self.results.items():
            if not self.roles[name].parameter:
                types.setdefault(name, kind)
                types[name] = TensorType(types[name].dtype, _filled(types[name].shape, kind.shape))
        self._shapes(types, box)
        self._dtypes(types)
        return types

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
                if sizes and OPEN not in column:
                    shape[axis], settled = _union(sizes, box), True
                elif sizes:
                    open_ends.append((name, axis, sizes))
            types[name] = TensorType(types[name].dtype, tuple(shape))
        if open_ends and not settled:
            name, axis, sizes = open_ends[0]
            shape = list(types[name].shape)
            shape[axis] = _union(sizes, box)
            types[name] = TensorType(types[name].dtype, tuple(shape))

    def _dtypes(self, types: dict[str, TensorType]) -> None:
        self.typed = set(self.typed)
        for name, role in self.roles.items():
            if role.parameter or name not in types:
                continue
            given = self.results.get(name)
            bodies = self.bodies.get(name, [])
            try:
                found = common_type(bodies, self.tensors, given.dtype if given else None)
            except TypeProblem:
                continue
            if found is not None:
                types[name] = TensorType(found, types[name].shape)
                self.typed.add(name)


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
