"""Decision trees over placements: guards on sizes select the placement that serves a call.

A tree is the number of a placement, or a guard between two trees. It is learned from measured
seconds at some sizes: of all thresholds of all features (dims, formulas over dims) the one with the
least total loss on both sides is used, recursively. A threshold is set where both sides take equal
time, by linear interpolation between the adjacent sizes.
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
WORTH = 1.02  # slowdown against the best that is acceptable
MAX_LEAVES = 4  # leaves of a learned tree
_EPSILON = 1e-15  # seconds
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
    """What a guard compares with a number: a formula, or the difference of two."""

    left: Size
    right: Size = as_size(0)

    def at(self, points: Sequence[Point]) -> numpy.ndarray:
        """Evaluate at points."""
        sampled = Sampled(points)
        return sampled.at(self.left) - sampled.at(self.right)

    def upto(self, threshold: int) -> Guard:
        """The guard that it is at most a number."""
        return Guard(self.left, "<=", self.right + threshold, _WHY)


@dataclass(frozen=True)
class Table:
    """Seconds [placements, points] of placements at sizes."""

    points: Sequence[Point]
    seconds: numpy.ndarray

    @cached_property
    def losses(self) -> numpy.ndarray:
        """Slowdown of each placement against the best, per point."""
        return (self.seconds + _EPSILON) / (self.seconds.min(axis=0) + _EPSILON)

    def of(self, numbers: Sequence[int]) -> Table:
        """The table of some placements only."""
        return replace(self, seconds=self.seconds[list(numbers)])

    def slowdowns(self, tree: Tree) -> numpy.ndarray:
        """Slowdown of a tree against the best [points]."""
        chosen = [follow_tree(tree, point) for point in self.points]
        return numpy.array(self.losses[chosen, range(len(chosen))])


def follow_tree(tree: Tree, point: Point) -> int:
    """The placement that a tree selects for a size."""
    while isinstance(tree, Split):
        tree = tree.then if holds(tree.guard, point) else tree.otherwise
    return tree


def leaves(tree: Tree) -> tuple[int, ...]:
    """The placements in a tree, each once."""
    if isinstance(tree, int):
        return (tree,)
    return tuple(dict.fromkeys((*leaves(tree.then), *leaves(tree.otherwise))))


def renumber_tree(tree: Tree, numbers: Sequence[int]) -> Tree:
    """The tree with placements renumbered."""
    if isinstance(tree, int):
        return numbers[tree]
    return replace(
        tree,
        then=renumber_tree(tree.then, numbers),
        otherwise=renumber_tree(tree.otherwise, numbers),
    )


def compare_times(times: Mapping[int, Size]) -> Tree:
    """A tree that selects the least of some times, as formulas, by pairwise comparison."""
    (first, left), *others = times.items()
    if not others:
        return first
    (second, right), *rest = others
    guard = Guard(left, "<=", right, _WHY)
    return Split(
        guard,
        compare_times({first: left, **dict(rest)}),
        compare_times({second: right, **dict(rest)}),
    )


def best_few(seconds: numpy.ndarray) -> list[int]:
    """Select placements [placements, points] that together are good at every point.

    As few as needed for a slowdown of at most `WORTH` everywhere, `MAX_LEAVES` at most; greedily
    adds the one that leaves the smallest loss.
    """
    losses = Table((), seconds).losses
    chosen: list[int] = []
    kept = numpy.full(losses.shape[1], numpy.inf)
    while len(chosen) < MAX_LEAVES and (not chosen or kept.max() > WORTH):
        rest = [number for number in range(len(losses)) if number not in chosen]
        if not rest:
            break
        with_each = {number: numpy.minimum(kept, losses[number]) for number in rest}
        best = min(rest, key=lambda n: (with_each[n].max(), with_each[n].mean()))
        chosen.append(best)
        kept = with_each[best]
    return chosen


def learn_tree(table: Table, features: Sequence[Feature]) -> Tree:
    """Learn a tree with small loss at the sizes of a table."""
    few = best_few(table.seconds)
    values = [(each, each.at(table.points)) for each in features]
    return renumber_tree(
        _grow_tree(table.of(few), values, numpy.arange(len(table.points)), _DEPTH), few
    )


Valued: TypeAlias = Sequence[tuple[Feature, numpy.ndarray]]


def _grow_tree(table: Table, features: Valued, within: numpy.ndarray, depth: int) -> Tree:
    """The tree for the points `within`."""
    lost = _too_much(table.losses[:, within])
    alone = int(lost.sum(axis=1).argmin())
    if not depth or not lost[alone].any():
        return alone
    cuts = [cut for each in features for cut in _cuts(lost, *each, within)]
    best = min(cuts, key=lambda cut: cut[0], default=None)
    if best is None or best[0] >= lost[alone].sum():
        return alone
    _, feature, low, high, at = best
    children = [_grow_tree(table, features, part, depth - 1) for part in (low, high)]
    if children[0] == children[1]:
        return children[0]
    return Split(feature.upto(_between(table, feature, at, children)), *children)


def _too_much(losses: numpy.ndarray) -> numpy.ndarray:
    """Loss: the logarithm of a slowdown above `WORTH`, else 0."""
    return numpy.where(losses > WORTH, numpy.log(numpy.maximum(losses, 1.0)), 0.0)


Cut: TypeAlias = tuple[float, Feature, numpy.ndarray, numpy.ndarray, tuple[int, int]]


def _cuts(
    lost: numpy.ndarray, feature: Feature, values: numpy.ndarray, within: numpy.ndarray
) -> Iterator[Cut]:
    """Each threshold of a feature: its loss, the points on both sides, and the adjacent ones."""
    order = numpy.argsort(values[within], kind="stable")
    points = within[order]
    ahead = lost[:, order].cumsum(axis=1)
    after = ahead[:, -1:] - ahead
    for last in range(len(points) - 1):
        if values[points[last]] < values[points[last + 1]]:
            loss = float(ahead[:, last].min() + after[:, last].min())
            adjacent = int(points[last]), int(points[last + 1])
            yield loss, feature, points[: last + 1], points[last + 1 :], adjacent


def _between(
    table: Table, feature: Feature, adjacent: tuple[int, int], children: Sequence[Tree]
) -> int:
    """The threshold between two points, at equal time of both sides."""
    points = [table.points[number] for number in adjacent]
    low, high = feature.at(points)
    chosen = [follow_tree(tree, point) for tree, point in zip(children, points)]
    gains = [_gain(table, number, chosen) for number in adjacent]
    part = gains[0] / sum(gains) if sum(gains) else 0.5
    threshold = int(low + (high - low) * part)
    return max(-_LARGEST, min(_LARGEST, max(int(low), min(int(high) - 1, threshold))))


def _gain(table: Table, point: int, chosen: Sequence[int]) -> float:
    first, second = (table.seconds[number, point] for number in chosen)
    return abs(float(first - second))
