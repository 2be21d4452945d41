"""Arena offsets as size expressions: values that live at the same time never share a byte.

Each value has an interval of launches in which it lives and a number of bytes, a size expression.
`Stacked` puts values into an order; each lies upon all those before it that it lives together
with. That is right at every size by construction; sample sizes only say which order wastes least
(`arena_order.py`). So nothing has to be proven, and the total is a formula (docs/decisions/010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy

from anydim.base.records import dataclass
from anydim.passes.arena_layout import Stack
from anydim.passes.arena_order import Problem, best_order
from anydim.sizes import Box, Covering, Guard, Sampled, Size, as_size, samples


@dataclass(frozen=True)
class Lifetime:
    """A value in the arena: its bytes, and the first and last launch that touch it."""

    name: str
    bytes: Size
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaPlan:
    """Where each value lies, and the bytes of the whole, as formulas."""

    offsets: Mapping[str, Size]
    bytes: Size


@runtime_checkable
class Planner(Protocol):
    """Gives each value an offset in one arena, for every size in a box where the guards hold.

    With `in_place`, what lies in the bytes of another value comes as one value with that.
    """

    in_place: ClassVar[bool]

    def run(
        self, lifetimes: Sequence[Lifetime], box: Box, guards: Sequence[Guard] = ()
    ) -> ArenaPlan:
        """The plan; offsets are multiples of what all bytes of values are multiples of."""


@dataclass(frozen=True)
class Apart:
    """No two values share a byte: where a result changes by it, the sharing was wrong."""

    in_place: ClassVar[bool] = False

    def run(
        self, lifetimes: Sequence[Lifetime], box: Box, guards: Sequence[Guard] = ()
    ) -> ArenaPlan:
        offsets, total = {}, as_size(0)
        for value in lifetimes:
            offsets[value.name] = total
            total = total + value.bytes
        return ArenaPlan(offsets, total)


@dataclass(frozen=True)
class Stacked:
    """Each value upon those before it that it lives together with, in an order that wastes little.

    The order is searched for at `points` sample sizes until `placements` values were placed.
    Formulas stay short: a value that has room above it may lie higher than it has to, and the whole
    may be `slack` (a share) larger, as long as that is so at the samples.
    """

    in_place: ClassVar[bool] = True
    points: int = 24
    placements: int = 16_000
    slack: float = 0.02

    def run(
        self, lifetimes: Sequence[Lifetime], box: Box, guards: Sequence[Guard] = ()
    ) -> ArenaPlan:
        if not lifetimes:
            return ArenaPlan({}, as_size(0))
        sampled = Sampled(samples(box, self.points, guards) or [{}])
        sizes = [value.bytes for value in lifetimes]
        values = {size: numpy.maximum(sampled.at(size), 0) for size in dict.fromkeys(sizes)}
        problem = Problem.of(
            numpy.array([values[size] for size in sizes]),
            [value.first for value in lifetimes],
            [value.last for value in lifetimes],
        )
        order = best_order(problem, self.placements)
        offsets, total = Stack(sizes, problem, order, Covering(box), sampled).formulas(self.slack)
        return ArenaPlan({v.name: at for v, at in zip(lifetimes, offsets)}, total)


STACKED = Stacked()
PLANNERS: Mapping[str, Planner] = {"stacked": STACKED, "apart": Apart()}
