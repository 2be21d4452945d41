"""Verdicts of dependence analysis: which loops and axes may run in any order, and why not others.

    found = analyse(group, box)
    found.loops        a verdict for each loop: 'parallel', 'sum' (iterations add up) or 'in order'
    found.axes         a verdict for each axis of each write
    found.rings        temporaries of which a few slices are enough, and how many
    found.chunks       ranges along which the whole nest can be split
    found.carried_distances(0)   tensors with dependences carried by loop 0, with the distance
    found.steady(0)    writes in loop 0 that do not depend on values its iterations write
    print(found)       all of it as text

Loops and writes are numbered in textual order. An undecided case counts as a dependence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from anydim.base.records import dataclass
from anydim.lang.dependence import isl
from anydim.lang.dependence.accesses import (
    Access,
    Instance,
    LoopAt,
    accesses,
    instances,
    steps_of,
    without_check,
)
from anydim.lang.dependence.chunks import Chunks, split_ranges
from anydim.lang.dependence.distances import common_loops, distance
from anydim.lang.dependence.rings import rings
from anydim.lang.dependence.starts import private
from anydim.lang.surface.printer import name_text, print_expression
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Box, Size, Truth, prove

PARALLEL, SUM, IN_ORDER = "parallel", "sum", "in order"
_PLAIN = {ord(brace): "" for brace in "{}"}


@dataclass(frozen=True)
class Dependence:
    """Access `second` may touch the element of `first`, `iterations` iterations of a loop later.

    `iterations` None: an unknown number of iterations; then either may be the earlier one.
    """

    first: Access
    second: Access
    iterations: Size | None

    at: LoopAt

    @property
    def tensor(self) -> str:
        return self.first.tensor

    @property
    def _steady(self) -> bool:
        """Whether the element is the same in every iteration."""
        forms = [self.second.form(n) for n in range(len(self.second.indices or ()))]
        return all(form is not None and form.factor(self.at.number) == 0 for form in forms)

    @property
    def adds(self) -> bool:
        """Whether both accumulate into the element with the same function, in any order."""
        combines = {_accumulates(a.instance, self.tensor) for a in (self.first, self.second)}
        return len(combines) == 1 and "" not in combines

    def __str__(self) -> str:
        early, late = _access_text(self.first), _access_text(self.second)
        does = {(True, False): "is read", (False, True): "is written anew"}.get(
            (self.first.writes, self.second.writes), "is written again"
        )
        after = "after it is written" if self.first.writes else "after it is read"
        if self.iterations is None and early == late and self._steady:
            return f"{late} {does} in every iteration, {after} in others"
        if self.iterations is None:
            return f"{late} {does} in one iteration and may be {early} of another"
        count = "1 iteration" if self.iterations == 1 else f"{self.iterations} iterations"
        return f"{late} {does} {count} {after} as {early}"


@dataclass(frozen=True)
class LoopVerdict:
    """Whether the iterations of a loop may run in any order, and the dependences that forbid it."""

    at: LoopAt
    order: str
    dependences: tuple[Dependence, ...]

    def __str__(self) -> str:
        name = self.at.variable
        if self.order == PARALLEL:
            return f"{name} is parallel: no iteration touches what another one writes"
        if self.order == SUM:
            sums = _sums(self.dependences)
            return f"{name} may run in any order, one iteration at a time: {sums}"
        return f"{name} runs in order: {next(d for d in self.dependences if not d.adds)}"


@dataclass(frozen=True)
class AxisVerdict:
    """Whether the values of an axis of a write may be taken in any order, or in parallel."""

    write: int
    axis: str
    order: str
    reason: str

    def __str__(self) -> str:
        return f"{self.axis} of write {self.write} is {self.order}: {self.reason}"


@dataclass(frozen=True)
class Analysis:
    """Results of the dependence analysis of a group."""

    instances: tuple[Instance, ...]
    loops: tuple[LoopVerdict, ...]
    axes: tuple[AxisVerdict, ...]
    rings: Mapping[str, tuple[int, int]]  # tensor -> dimension, slices
    chunks: tuple[Chunks, ...]

    def carried_distances(self, loop: int) -> dict[str, Size | None]:
        """Tensors that an iteration reads as earlier iterations wrote them, with the maximum
        distance.

        None: the distance is unknown.
        """
        found: dict[str, Size | None] = {}
        for dependence in self.loops[loop].dependences:
            first, second = dependence.first, dependence.second
            flows = first.writes and not second.writes
            if not flows and (dependence.iterations is not None or first.writes == second.writes):
                continue
            known = found.get(dependence.tensor, dependence.iterations)
            found[dependence.tensor] = _furthest(known, dependence.iterations)
        return found

    def steady(self, loop: int) -> tuple[int, ...]:
        """Writes in a loop that do not depend, even indirectly, on values that it carries."""
        inside = [i for i in self.instances if loop in {at.number for at in i.loops}]
        writes = [i for i in inside if i.write is not None]
        moving = set(self.carried_distances(loop))
        moving |= {i.write.target for i in inside if i.write is not None and i.conditions}
        before = -1
        while before != len(moving):
            before = len(moving)
            for instance in writes:
                assert instance.write is not None
                if {read.tensor for read in instance.reads} & moving:
                    moving.add(instance.write.target)
        return tuple(
            i.number for i in writes if i.write is not None and i.write.target not in moving
        )

    def __str__(self) -> str:
        lines = [str(verdict) for verdict in self.loops]
        lines += [str(verdict) for verdict in self.axes if verdict.order != PARALLEL]
        for tensor, (dimension, depth) in self.rings.items():
            slices = "1 slice" if depth == 1 else f"{depth} slices"
            lines.append(f"{slices} of {tensor} along dimension {dimension} are enough")
        for chunks in self.chunks:
            lines.append(f"parts along {chunks.axis} share nothing that is written")
        return "\n".join(lines)


def analyse(group: Group, box: Box) -> Analysis:
    """Analyse the order of a group: what its loops and axes allow at every size of the box."""
    return _analyse(group, box)


@lru_cache(maxsize=256)
def _analyse(group: Group, box: Box) -> Analysis:
    found = instances(steps_of(group))
    tensors = (*group.inputs, *group.outputs, *group.temporaries)
    types = {tensor.name: tensor.type for tensor in tensors}
    hidden = {tensor.name for tensor in group.temporaries}
    return Analysis(
        found,
        loop_verdicts(found, types, hidden, box),
        tuple(axis_verdicts(found)),
        rings(found, types, hidden, box),
        tuple(split_ranges(found, types, hidden, box)),
    )


# ---- loops -------------------------------------------------------------------------------------


def loop_verdicts(
    found: Sequence[Instance], types: Mapping[str, TensorType], hidden: Iterable[str], box: Box
) -> tuple[LoopVerdict, ...]:
    """A verdict for every loop, by number; `hidden` tensors may be private to an iteration."""
    all = [a for instance in found for a in accesses(instance, dict(types))]
    loops = {at.number: at for instance in found for at in instance.loops}
    verdicts = []
    for _, at in sorted(loops.items()):
        inside = [a for a in all if at.number in {o.number for o in a.instance.loops}]
        own = {name for name in hidden if private(name, at, found, types, box)}
        verdicts.append(_verdict(at, [a for a in inside if a.tensor not in own], box))
    return tuple(verdicts)


def _verdict(at: LoopAt, inside: Sequence[Access], box: Box) -> LoopVerdict:
    written = {a.tensor for a in inside if a.writes}
    found: list[Dependence] = []
    for number, first in enumerate(inside):
        for second in inside[number:]:
            if first.tensor == second.tensor in written and (first.writes or second.writes):
                found += _between(first, second, at, box)
    if not found:
        return LoopVerdict(at, PARALLEL, ())
    order = SUM if all_add(found) else IN_ORDER
    return LoopVerdict(at, order, tuple(found))


def all_add(found: Sequence[Dependence]) -> bool:
    """Whether all dependences between iterations are accumulations into the same elements."""
    return all(dependence.adds for dependence in found)


def _between(first: Access, second: Access, at: LoopAt, box: Box) -> list[Dependence]:
    iterations = distance(first, second, at, box)
    if isinstance(iterations, bool):
        return []
    if iterations is None:
        if isl.available():
            common = common_loops(first.instance, second.instance)
            outer = common[: [c.number for c in common].index(at.number)]
            if not isl.may_alias(first, second, outer, at, box):
                return []
        return [Dependence(first, second, None, at)]
    sign = prove(iterations, "<", 0, box)
    if sign is Truth.PROVED:
        return [Dependence(second, first, -iterations, at)]
    known = iterations if prove(iterations, ">", 0, box) is Truth.PROVED else None
    return [Dependence(first, second, known, at)]


def _accumulates(instance: Instance, tensor: str) -> str:
    """The function with which a write accumulates into a tensor; '' when it does not."""
    write = instance.write
    if write is None or write.fresh or write.target != tensor:
        return ""
    own = [read for read in instance.reads if read.tensor == tensor]
    return "" if own else write.combine


def _furthest(left: Size | None, right: Size | None) -> Size | None:
    if left is None or right is None or left.constant is None or right.constant is None:
        return left if left == right else None
    return left if left.constant >= right.constant else right


# ---- axes --------------------------------------------------------------------------------------


def axis_verdicts(found: Sequence[Instance]) -> list[AxisVerdict]:
    """A verdict for every axis of every write."""
    verdicts = []
    for instance in found:
        write = instance.write
        if write is None:
            continue
        indexed = set()
        access = Access(instance, write.target, write.indices, True)
        for dimension in range(len(write.indices)):
            form = access.form(dimension)
            if form is not None and len(form.axes) == 1:
                indexed.add(form.axes[0][0])
        for axis in write.axes:
            order, reason = PARALLEL, "each value has its own element"
            if axis.name not in indexed:
                order = SUM if write.combine else IN_ORDER
                reason = f"values of {axis.name} may meet at one element of {write.target}"
                reason += "" if write.combine else "; the last one stays"
            verdicts.append(AxisVerdict(instance.number, axis.name, order, reason))
        for axis in write.reduced:
            reason = "its values are combined in any order"
            verdicts.append(AxisVerdict(instance.number, axis.name, SUM, reason))
    return verdicts


# ---- texts -------------------------------------------------------------------------------------


def _access_text(access: Access) -> str:
    name = name_text(access.tensor)
    if access.indices is None:
        return f"{name}[...]"
    axes = {axis.name for axis in access.instance.axes}
    plain = [rewrite(index, without_check) for index in access.indices]
    text = ", ".join(print_expression(index, axes) for index in plain)
    return f"{name}({text})".translate(_PLAIN)


def _sums(found: Sequence[Dependence]) -> str:
    return f"iterations add to the same elements of {found[0].tensor}"
