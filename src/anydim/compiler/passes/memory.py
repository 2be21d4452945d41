"""Arena layout as size expressions: values that are live at the same time never overlap.

Each value has a lifetime in launches and a size in bytes, a size expression. `Stacked` orders the
values; each is stacked on all earlier values whose lifetimes overlap its own. That is correct at
every size by construction; sample sizes only determine which order wastes least (`arena_order.py`).
So no proof is needed, and the total is a formula (docs/decisions/010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy

from anydim.base.records import dataclass
from anydim.compiler.passes.arena_layout import Stack
from anydim.compiler.passes.arena_order import Problem, best_order
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
    """The offset of each value, and the total bytes, as formulas."""

    offsets: Mapping[str, Size]
    bytes: Size


@runtime_checkable
class Planner(Protocol):
    """Assigns each value an offset in one arena, for every size in a box under the guards.

    With `in_place`, values that share a buffer are passed as one value.
    """

    in_place: ClassVar[bool]

    def run(
        self, lifetimes: Sequence[Lifetime], box: Box, guards: Sequence[Guard] = ()
    ) -> ArenaPlan:
        """Return the plan; offsets are multiples of the common alignment of all value sizes."""


@dataclass(frozen=True)
class Apart:
    """Gives every value its own bytes; for debugging: results must not change."""

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
    """Stacks each value on earlier ones with overlapping lifetimes, in an order with little waste.

    The order is searched at `points` sample sizes until `placements` values have been stacked. To
    keep formulas short, a value with slack above it may get a higher offset, and the total may be
    larger by the share `slack`, at the samples.
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
