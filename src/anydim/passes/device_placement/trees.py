"""Which of a few placements serves which sizes: guards that ask one after the other.

A tree is the number of a placement, or a guard between two trees. It is found from the seconds that
placements take at some sizes: of all thresholds of all features (dims, formulas over dims) that one
is taken which leaves the least loss on both of its sides, and so on within these. A threshold lies
where the two sides take the same time, as a straight line between the sizes beside it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

import numpy

from anydim.base.records import dataclass
from anydim.sizes import Guard, Sampled, Size, as_size, holds

Point = Mapping[str, int]
WORTH = 1.02  # how much slower than the best is as good
MOST = 4  # leaves of a tree that is found
_NOTHING = 1e-15  # seconds
_DEPTH = 2
_WHY = "the faster one of two placements"
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Split:
    """`then` where the guard holds, else `otherwise`."""

    guard: Guard
    then: Tree
    otherwise: Tree


Tree: TypeAlias = "int | Split"


@dataclass(frozen=True)
class Feature:
    """What a guard compares with a number: a formula, or how much more one is than another."""

    left: Size
    right: Size = as_size(0)

    def at(self, points: Sequence[Point]) -> numpy.ndarray:
        """Its values."""
        sampled = Sampled(points)
        return sampled.at(self.left) - sampled.at(self.right)

    def upto(self, most: int) -> Guard:
        """That it is at most a number."""
        return Guard(self.left, "<=", self.right + most, _WHY)


@dataclass(frozen=True)
class Table:
    """The seconds [placements, points] of some placements at some sizes."""

    points: Sequence[Point]
    seconds: numpy.ndarray

    @cached_property
    def losses(self) -> numpy.ndarray:
        """How many times the least seconds each placement takes."""
        return (self.seconds + _NOTHING) / (self.seconds.min(axis=0) + _NOTHING)

    def of(self, numbers: Sequence[int]) -> Table:
        """Some placements alone."""
        return replace(self, seconds=self.seconds[list(numbers)])

    def lost(self, tree: Tree) -> numpy.ndarray:
        """How many times the least seconds a tree takes [points]."""
        chosen = [followed(tree, point) for point in self.points]
        return numpy.array(self.losses[chosen, range(len(chosen))])


def followed(tree: Tree, point: Point) -> int:
    """The placement that serves a size."""
    while isinstance(tree, Split):
        tree = tree.then if holds(tree.guard, point) else tree.otherwise
    return tree


def leaves(tree: Tree) -> tuple[int, ...]:
    """The placements that serve any size, each once."""
    if isinstance(tree, int):
        return (tree,)
    return tuple(dict.fromkeys((*leaves(tree.then), *leaves(tree.otherwise))))


def renamed(tree: Tree, numbers: Sequence[int]) -> Tree:
    """With other numbers for the placements."""
    if isinstance(tree, int):
        return numbers[tree]
    return replace(
        tree, then=renamed(tree.then, numbers), otherwise=renamed(tree.otherwise, numbers)
    )


def compared(times: Mapping[int, Size]) -> Tree:
    """The least of some times, as formulas: what is slower is no longer asked about."""
    (first, left), *others = times.items()
    if not others:
        return first
    (second, right), *rest = others
    guard = Guard(left, "<=", right, _WHY)
    return Split(
        guard, compared({first: left, **dict(rest)}), compared({second: right, **dict(rest)})
    )


def best_few(seconds: numpy.ndarray) -> list[int]:
    """Which of several placements [placements, points] are together good at every point.

    As few as are nowhere more than `WORTH` of the best, `MOST` at the most: each one added is
    that which leaves the smallest loss.
    """
    losses = Table((), seconds).losses
    chosen: list[int] = []
    kept = numpy.full(losses.shape[1], numpy.inf)
    while len(chosen) < MOST and (not chosen or kept.max() > WORTH):
        rest = [number for number in range(len(losses)) if number not in chosen]
        if not rest:
            break
        with_each = {number: numpy.minimum(kept, losses[number]) for number in rest}
        least = min(rest, key=lambda n: (with_each[n].max(), with_each[n].mean()))
        chosen.append(least)
        kept = with_each[least]
    return chosen


def found(table: Table, features: Sequence[Feature]) -> Tree:
    """The tree that loses least at the sizes of a table."""
    few = best_few(table.seconds)
    values = [(each, each.at(table.points)) for each in features]
    return renamed(_grown(table.of(few), values, numpy.arange(len(table.points)), _DEPTH), few)


Valued: TypeAlias = Sequence[tuple[Feature, numpy.ndarray]]


def _grown(table: Table, features: Valued, within: numpy.ndarray, depth: int) -> Tree:
    """The tree for some of the points."""
    lost = _too_much(table.losses[:, within])
    alone = int(lost.sum(axis=1).argmin())
    if not depth or not lost[alone].any():
        return alone
    cuts = [cut for each in features for cut in _cuts(lost, *each, within)]
    best = min(cuts, key=lambda cut: cut[0], default=None)
    if best is None or best[0] >= lost[alone].sum():
        return alone
    _, feature, low, high, at = best
    sides = [_grown(table, features, side, depth - 1) for side in (low, high)]
    if sides[0] == sides[1]:
        return sides[0]
    return Split(feature.upto(_between(table, feature, at, sides)), *sides)


def _too_much(losses: numpy.ndarray) -> numpy.ndarray:
    """What counts as lost: the logarithm, where it is more than what is as good."""
    return numpy.where(losses > WORTH, numpy.log(numpy.maximum(losses, 1.0)), 0.0)


Cut: TypeAlias = tuple[float, Feature, numpy.ndarray, numpy.ndarray, tuple[int, int]]


def _cuts(
    lost: numpy.ndarray, feature: Feature, values: numpy.ndarray, within: numpy.ndarray
) -> Iterator[Cut]:
    """Each threshold of a feature: what is lost, the points on both sides, and those beside it."""
    order = numpy.argsort(values[within], kind="stable")
    points = within[order]
    ahead = lost[:, order].cumsum(axis=1)
    after = ahead[:, -1:] - ahead
    for place in range(len(points) - 1):
        if values[points[place]] < values[points[place + 1]]:
            least = float(ahead[:, place].min() + after[:, place].min())
            beside = int(points[place]), int(points[place + 1])
            yield least, feature, points[: place + 1], points[place + 1 :], beside


def _between(table: Table, feature: Feature, beside: tuple[int, int], sides: Sequence[Tree]) -> int:
    """The threshold between two points: where both sides take the same time."""
    points = [table.points[number] for number in beside]
    low, high = feature.at(points)
    chosen = [followed(tree, point) for tree, point in zip(sides, points)]
    gains = [_gain(table, number, chosen) for number in beside]
    part = gains[0] / sum(gains) if sum(gains) else 0.5
    most = int(low + (high - low) * part)
    return max(-_LARGEST, min(_LARGEST, max(int(low), min(int(high) - 1, most))))


def _gain(table: Table, point: int, chosen: Sequence[int]) -> float:
    first, second = (table.seconds[number, point] for number in chosen)
    return abs(float(first - second))
