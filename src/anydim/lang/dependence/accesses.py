"""Accesses of each statement of a nest: tensors, indices, and the surrounding loops and branches.

for t in 0:T {                      loop 0
  if t > 0 {                        a condition: reads only
    h(t, i) = h(t - 1, i) + x(t, i) write 0 inside loop 0, under t > 0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.base.records import dataclass
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Expr,
    Group,
    Index,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import Affine, affine, reads, rewrite
from anydim.lang.tree.bounds_checks import is_inside
from anydim.lang.tree.stepping import writes
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class LoopAt:
    """A loop of a nest, numbered in textual order; loops of equal text are distinct."""

    number: int
    loop: Loop

    @property
    def variable(self) -> str:
        return self.loop.variable


@dataclass(frozen=True)
class Instance:
    """A write with its surroundings; without `write`, a condition or the bounds of a loop."""

    number: int
    write: Write | None
    loops: tuple[LoopAt, ...]
    conditions: tuple[tuple[Expr, bool], ...]
    reads: tuple[Read, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, reduced ones last."""
        return () if self.write is None else (*self.write.axes, *self.write.reduced)


@dataclass(frozen=True)
class Access:
    """A read or write of an element of a tensor; `indices` None: any element."""

    instance: Instance
    tensor: str
    indices: tuple[Expr, ...] | None
    writes: bool

    def form(self, dimension: int) -> LinearForm | None:
        """The index along a dimension as a linear form; None if it is not affine, or unknown."""
        if self.indices is None:
            return None
        return form_of(self.indices[dimension], self.instance)


@dataclass(frozen=True)
class LinearForm:
    """rest + sum of factor * loop variable + sum of factor * axis.

    Loops are identified by number, axes by name; `rest` and the factors depend on neither.
    """

    rest: Size
    loops: tuple[tuple[int, Size], ...] = ()
    axes: tuple[tuple[str, Size], ...] = ()

    def factor(self, loop: int) -> Size:
        return dict(self.loops).get(loop, as_size(0))

    @property
    def alone(self) -> tuple[str, int] | None:
        """('axis', its name) or ('loop', its number) if the form is that variable plus a rest."""
        if len(self.loops) + len(self.axes) != 1:
            return None
        kind, (variable, factor) = ("loop", self.loops[0]) if self.loops else ("axis", self.axes[0])
        return (kind, variable) if factor == 1 else None  # type: ignore[return-value]


def as_write(step: Statement | Write) -> Write:
    """Convert a statement to the write of a whole tensor."""
    if isinstance(step, Write):
        return step
    indices = tuple(Index(axis.name) for axis in step.axes)
    combine = step.combine if step.reduced else ""
    return Write(step.target, indices, step.axes, step.body, combine, step.reduced, True)


def all_writes(steps: Iterable[OrderedStep]) -> Iterator[Write]:
    """Yield the writes of these steps at any depth, statements as writes."""
    return map(as_write, writes(steps))


def steps_of(group: Group) -> tuple[OrderedStep, ...]:
    """The steps of a group, in order."""
    return group.steps or group.statements


class _Walk:
    def __init__(self) -> None:
        self.found: list[Instance] = []
        self.loops = 0
        self.writes = 0

    def run(
        self, steps: Iterable[OrderedStep], loops: tuple[LoopAt, ...],
        conditions: tuple[tuple[Expr, bool], ...],
    ) -> None:  # fmt: skip
        for step in steps:
            if isinstance(step, Loop):
                inside = (*reads(step.start), *reads(step.stop))
                self._note(None, loops, conditions, inside)
                at = LoopAt(self.loops, step)
                self.loops += 1
                self.run(step.body, (*loops, at), conditions)
            elif isinstance(step, Branch):
                self._note(None, loops, conditions, reads(step.condition))
                self.run(step.then, loops, (*conditions, (step.condition, True)))
                self.run(step.otherwise, loops, (*conditions, (step.condition, False)))
            else:
                write = as_write(step)
                index_reads = tuple(read for index in write.indices for read in reads(index))
                self._note(write, loops, conditions, (*index_reads, *reads(write.body)))

    def _note(
        self, write: Write | None, loops: tuple[LoopAt, ...],
        conditions: tuple[tuple[Expr, bool], ...], inside: tuple[Read, ...],
    ) -> None:  # fmt: skip
        if write is None and not inside:
            return
        number = self.writes if write is not None else -1
        self.writes += write is not None
        self.found.append(Instance(number, write, loops, conditions, inside))


def instances(steps: Iterable[OrderedStep]) -> tuple[Instance, ...]:
    """Every write, and every condition and bound that reads a tensor, in textual order."""
    walk = _Walk()
    walk.run(steps, (), ())
    return tuple(walk.found)


def accesses(instance: Instance, types: dict[str, TensorType]) -> tuple[Access, ...]:
    """The accesses of an instance, its write last. A write that accumulates also reads."""
    found = [Access(instance, read.tensor, _indices(read, types), False) for read in instance.reads]
    write = instance.write
    if write is not None:
        if write.combine and not write.fresh:
            found.append(Access(instance, write.target, write.indices, False))
        found.append(Access(instance, write.target, write.indices, True))
    return tuple(found)


def _indices(read: Read, types: dict[str, TensorType]) -> tuple[Expr, ...] | None:
    if read.flat and types[read.tensor].rank != 1:
        return None
    return read.indices


def form_of(index: Expr, instance: Instance) -> LinearForm | None:
    """An index as a linear form over the loops and axes around it; None if it is not one.

    The bounds check of an index is ignored: where it fails, nothing is accessed.
    """
    found = affine(rewrite(index, without_check))
    return None if found is None else lift_loop_variables(found, instance.loops)


def without_check(expr: Expr) -> Expr | None:
    """The argument of a bounds check."""
    return expr.arguments[0] if isinstance(expr, Apply) and is_inside(expr) else None


def lift_loop_variables(found: Affine, loops: tuple[LoopAt, ...]) -> LinearForm | None:
    """Move the loop variables of an affine form's sizes into the terms of a linear form."""
    numbers = {at.variable: at.number for at in loops}  # the innermost of equal names
    split = found.constant.linear_in(sorted(numbers))
    if split is None or any(c.symbols & numbers.keys() for _, c in found.terms):
        return None
    factors, rest = split
    if any(c.symbols & numbers.keys() for c in factors.values()):
        return None
    terms = sorted((numbers[name], factor) for name, factor in factors.items())
    return LinearForm(rest, tuple(terms), found.terms)


def bound_form(bound: Expr, loops: tuple[LoopAt, ...]) -> LinearForm | None:
    """A bound of a loop inside `loops` as a linear form; None when it depends on data."""
    return lift_loop_variables(Affine(bound.size), loops) if isinstance(bound, SizeTerm) else None
