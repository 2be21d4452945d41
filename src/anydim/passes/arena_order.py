"""The search for an order in which values are stacked: tried at sample sizes, right at all.

In an order each value lies upon all the values before it that it lives together with. So no two
of them overlap, whatever their sizes; how much is wasted is the order's doing alone.

A first order puts large and long lives at the bottom, or sorts values by where best fit puts them
at one sample. Then single values are moved. What is on top at a sample stands on a chain of values
that reaches the bottom, and only an order that takes that chain apart is better: so one value of
it goes elsewhere, and the new order stays when it is no worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import numpy

from anydim.base.records import dataclass

Order = tuple[int, ...]
_SMALL = 1 << 14  # bytes: a waste below some of these is nobody's concern
_GOOD = 1.004  # of the lower bound: no better order is looked for
_STARTS = 2  # first orders that are improved
_MARKS = 8  # places in an order from which it is stacked anew
_SHORT = 64  # launches that most values live
_MOST_KNOWN = 1 << 22  # numbers of others that are kept
_MOST_FITTED = 1 << 22  # pairs of values that live together, of which best fit is tried
_USUAL = 0.1  # what the mean over samples counts beside the worst one


@dataclass(frozen=True)
class Problem:
    """Values by number. `bytes` [values, samples]; `first`, `last` [values] are their lives.

    `near` are the others that a value lives together with, for each; `least` [samples] is the
    lower bound: the most bytes that live at one time; `crowd` how many values.
    """

    bytes: numpy.ndarray
    first: numpy.ndarray
    last: numpy.ndarray
    near: Near
    least: numpy.ndarray
    crowd: int

    @staticmethod
    def of(bytes: numpy.ndarray, first: Sequence[int], last: Sequence[int]) -> Problem:
        starts, ends = numpy.array(first), numpy.array(last)
        steps = numpy.zeros((ends.max(initial=0) + 2, bytes.shape[1]))
        numpy.add.at(steps, starts, bytes)
        numpy.subtract.at(steps, ends + 1, bytes)
        begun = numpy.bincount(starts, minlength=len(steps))
        ended = numpy.bincount(ends + 1, minlength=len(steps))
        crowd = int((begun - ended).cumsum().max(initial=0))
        least = steps.cumsum(0).max(0)
        return Problem(bytes, starts, ends, Near(starts, ends), least, crowd)


class Near:
    """The others that each value lives together with, found when they are asked for.

    Of many values no table is made: it would be as large as the square of their number.
    """

    def __init__(self, first: numpy.ndarray, last: numpy.ndarray) -> None:
        self._first, self._last = first, last
        short = last - first < _SHORT
        by_start = numpy.argsort(first, kind="stable")
        self._long, self._short = numpy.flatnonzero(~short), by_start[short[by_start]]
        self._starts = first[self._short]
        self._known: dict[int, numpy.ndarray] = {}
        self._room = _MOST_KNOWN

    def __getitem__(self, value: int) -> numpy.ndarray:
        """Their numbers, in order."""
        found = self._known.get(value)
        if found is None:
            found = self._found(value)
            self._room -= len(found)
            if self._room > 0:
                self._known[value] = found
        return found

    def _found(self, value: int) -> numpy.ndarray:
        begin, end = self._first[value], self._last[value]
        places = slice(*numpy.searchsorted(self._starts, (begin - _SHORT, end + 1)))
        others = numpy.concatenate((self._short[places], self._long))
        meet = (self._first[others] <= end) & (self._last[others] >= begin) & (others != value)
        return numpy.sort(others[meet])


@dataclass(frozen=True, eq=False)
class Pile:
    """Values stacked in an order: offsets [values, samples], and how much they waste.

    `ratios` [samples] are to the lower bound. `marks` are heights [steps, samples] before every
    so many values of the order were placed.
    """

    order: list[int]
    offsets: numpy.ndarray
    ratios: numpy.ndarray
    marks: list[numpy.ndarray]

    @property
    def worst(self) -> float:
        return float(self.ratios.max())

    @property
    def score(self) -> float:
        """The less, the better."""
        return self.worst + _USUAL * float(self.ratios.mean())


class Piles:
    """Stacks orders of a problem's values and counts the values that it placed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.placed = 0
        self._spans = list(zip(problem.first.tolist(), (problem.last + 1).tolist()))
        self._steps = int(problem.last.max(initial=-1)) + 1
        self._stride = max(1, -(-len(problem.bytes) // _MARKS))

    def pile(self, order: list[int], like: Pile | None = None, same: int = 0) -> Pile:
        """An order, stacked; the first `same` values are those of `like`."""
        problem, stride = self.problem, self._stride
        start = same // stride
        if like is None:
            offsets, marks = numpy.zeros_like(problem.bytes), []
            heights = numpy.zeros((self._steps, problem.bytes.shape[1]))
        else:
            offsets, marks = like.offsets.copy(), like.marks[:start]
            heights = like.marks[start].copy()
        for begin in range(start * stride, len(order), stride):
            marks.append(heights.copy())
            for value in order[begin : begin + stride]:
                first, end = self._spans[value]
                span = heights[first:end]
                numpy.maximum.reduce(span, 0, out=offsets[value])
                numpy.add(offsets[value], problem.bytes[value], out=span)
        self.placed += len(order) - start * stride
        ratios = (heights.max(0, initial=0) + _SMALL) / (problem.least + _SMALL)
        return Pile(order, offsets, ratios, marks)

    def moved(self, pile: Pile, value: int, place: int) -> Pile:
        """The order with one value at another place of those that the others leave."""
        before = pile.order.index(value)
        order = pile.order[:before] + pile.order[before + 1 :]
        order.insert(place, value)
        return self.pile(order, pile, min(before, place))


def heights(problem: Problem, order: Sequence[int]) -> numpy.ndarray:
    """Offsets [values, samples] of values stacked in an order."""
    return Piles(problem).pile(list(order)).offsets


def best_order(problem: Problem, placements: int) -> Order:
    """The order that wastes least, at the sample where it wastes most above all.

    Of those that are met while some `placements` values are placed: counted work and no clock,
    since equal programs have to have equal plans.
    """
    piles = Piles(problem)
    starts: list[Pile] = []
    for order in _starts(problem):
        starts.append(piles.pile(order))
        if starts[-1].worst <= _GOOD:
            return tuple(order)
    best = sorted(starts, key=lambda pile: pile.score)[:_STARTS]
    left = placements - piles.placed
    for number, pile in enumerate(best):
        limit = piles.placed + left // len(best)
        best[number] = _improved(piles, pile, limit)
        if best[number].worst <= _GOOD:
            break
    return tuple(min(best, key=lambda pile: pile.score).order)


def _improved(piles: Piles, pile: Pile, limit: int) -> Pile:
    """What moving values makes of an order, until `limit` values were placed."""
    chance = Random(0)
    while piles.placed < limit and pile.worst > _GOOD:
        sample = int(pile.ratios.argmax())
        if chance.random() < 0.3:  # the worst sample is not all that can be improved
            sample = chance.randrange(len(pile.ratios))
        chain = _chain(piles.problem, pile, sample)
        value = chance.choice(chain)
        place = chance.choices(_PLACES, _WEIGHTS)[0](piles.problem, pile, chain, value, chance)
        other = piles.moved(pile, value, place)
        if other.score <= pile.score:
            pile = other
    return pile


def _chain(problem: Problem, pile: Pile, sample: int) -> list[int]:
    """The values that the highest end at a sample stands upon, from the top down."""
    at, size = pile.offsets[:, sample], problem.bytes[:, sample]
    ends = at + size
    places = numpy.empty_like(problem.first)
    places[pile.order] = range(len(places))
    chain = [int(ends.argmax())]
    while at[chain[-1]] > 0:
        value, near = chain[-1], problem.near[chain[-1]]
        below = (ends[near] == at[value]) & (places[near] < places[value])
        chain.append(int(near[below.argmax()]))
    return chain


# where a value goes: a place among the others, whose numbers are one less behind its own


def _anywhere(
    problem: Problem, pile: Pile, chain: list[int], value: int, chance: Random
) -> int:  # fmt: skip
    return chance.randrange(len(pile.order))


def _below(problem: Problem, pile: Pile, chain: list[int], value: int, chance: Random) -> int:
    return _beside(pile, chance.choice(chain), value)


def _near(problem: Problem, pile: Pile, chain: list[int], value: int, chance: Random) -> int:
    near = problem.near[value]
    if not len(near):
        return 0
    return _beside(pile, int(near[chance.randrange(len(near))]), value) + chance.randrange(2)


def _lowest(problem: Problem, pile: Pile, chain: list[int], value: int, chance: Random) -> int:
    return 0


def _highest(problem: Problem, pile: Pile, chain: list[int], value: int, chance: Random) -> int:
    return len(pile.order) - 1


def _beside(pile: Pile, other: int, value: int) -> int:
    """The place right before another value."""
    place = pile.order.index(other)
    return place - (pile.order.index(value) < place)


_PLACES = (_anywhere, _below, _near, _lowest, _highest)
_WEIGHTS = (3, 3, 2, 1, 1)


# ---- first orders --------------------------------------------------------------------------------

_Key = Callable[[numpy.ndarray, numpy.ndarray, numpy.ndarray], tuple[numpy.ndarray, ...]]
_KEYS: tuple[_Key, ...] = (  # of bytes, first and length of life: what is placed before what
    lambda size, first, life: (-size * life, first),
    lambda size, first, life: (-life, -size),
    lambda size, first, life: (-size, first),
)


def _starts(problem: Problem) -> Iterator[list[int]]:
    """Orders by the mean share of its largest bytes that a value has; by best fit at one sample."""
    share = (problem.bytes / numpy.maximum(problem.bytes.max(0), 1)).mean(1)
    for key in _KEYS:
        yield _sorted(problem, key, share)
    for key in _KEYS if len(share) * problem.crowd <= _MOST_FITTED else ():
        yield _fitted(problem, 0, _sorted(problem, key, problem.bytes[:, 0]))


def _sorted(problem: Problem, key: _Key, size: numpy.ndarray) -> list[int]:
    life = problem.last - problem.first + 1
    order: list[int] = numpy.lexsort(key(size, problem.first, life)[::-1]).tolist()
    return order


def _fitted(problem: Problem, sample: int, sequence: Sequence[int]) -> list[int]:
    """Each value in the smallest hole that takes it, else on top; from the lowest upwards."""
    size: list[float] = problem.bytes[:, sample].tolist()
    at: dict[int, float] = {}
    for value in sequence:
        need, top = size[value], 0.0
        hole, place = float("inf"), -1.0
        near = sorted((at[j], size[j]) for j in problem.near[value].tolist() if j in at)
        for low, taken in near:
            if need <= low - top < hole:
                hole, place = low - top, top
            top = max(top, low + taken)
        at[value] = place if place >= 0 else top
    return sorted(at, key=lambda value: (at[value], at[value] + size[value], value))
