"""Search for the order in which values are stacked: scored at sample sizes, valid at all sizes.

Each value is stacked on all earlier values of the order whose lifetimes overlap its own. So no two
live values overlap, whatever their sizes; only the waste depends on the order.

An initial order sorts values by size and lifetime, largest first, or by the offsets that best fit
finds at one sample. Then local search moves single values. The top at a sample rests on a chain of
values down to offset 0, and only an order that breaks this chain is better: so one value of the
chain is moved, and the new order is kept when its score is no worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import numpy

from anydim.base.records import dataclass

Order = tuple[int, ...]
_SMALL = 1 << 14  # bytes: waste of this magnitude does not matter
_GOOD = 1.004  # of the lower bound: the search stops
_STARTS = 2  # initial orders that are improved
_MARKS = 8  # positions of an order from which stacking can restart
_SHORT = 64  # launches: lifetime of most values
_MAX_CACHED = 1 << 22  # cached neighbour indices
_MAX_FITTED = 1 << 22  # pairs of overlapping lifetimes up to which best fit is tried
_USUAL = 0.1  # weight of the mean over samples against the worst sample


@dataclass(frozen=True)
class Problem:
    """Values by number. `bytes` [values, samples]; lifetimes are `first` to `last` [values].

    `near` are the values whose lifetimes overlap, for each value; `lower_bound` [samples] is the
    maximum of the bytes live at one time; `max_live`: the maximum count of live values.
    """

    bytes: numpy.ndarray
    first: numpy.ndarray
    last: numpy.ndarray
    near: Near
    lower_bound: numpy.ndarray
    max_live: int

    @staticmethod
    def of(bytes: numpy.ndarray, first: Sequence[int], last: Sequence[int]) -> Problem:
        starts, ends = numpy.array(first), numpy.array(last)
        steps = numpy.zeros((ends.max(initial=0) + 2, bytes.shape[1]))
        numpy.add.at(steps, starts, bytes)
        numpy.subtract.at(steps, ends + 1, bytes)
        begun = numpy.bincount(starts, minlength=len(steps))
        ended = numpy.bincount(ends + 1, minlength=len(steps))
        max_live = int((begun - ended).cumsum().max(initial=0))
        lower_bound = steps.cumsum(0).max(0)
        return Problem(bytes, starts, ends, Near(starts, ends), lower_bound, max_live)


class Near:
    """For each value, the others whose lifetimes overlap its own; computed on demand.

    No table of all pairs: it would be quadratic in the number of values.
    """

    def __init__(self, first: numpy.ndarray, last: numpy.ndarray) -> None:
        self._first, self._last = first, last
        short = last - first < _SHORT
        by_start = numpy.argsort(first, kind="stable")
        self._long, self._short = numpy.flatnonzero(~short), by_start[short[by_start]]
        self._starts = first[self._short]
        self._known: dict[int, numpy.ndarray] = {}
        self._room = _MAX_CACHED

    def __getitem__(self, value: int) -> numpy.ndarray:
        """Indices in ascending order."""
        found = self._known.get(value)
        if found is None:
            found = self._neighbours(value)
            self._room -= len(found)
            if self._room > 0:
                self._known[value] = found
        return found

    def _neighbours(self, value: int) -> numpy.ndarray:
        begin, end = self._first[value], self._last[value]
        window = slice(*numpy.searchsorted(self._starts, (begin - _SHORT, end + 1)))
        others = numpy.concatenate((self._short[window], self._long))
        meet = (self._first[others] <= end) & (self._last[others] >= begin) & (others != value)
        return numpy.sort(others[meet])


@dataclass(frozen=True, eq=False)
class Stacked:
    """Values stacked in an order: offsets [values, samples], and the waste.

    `ratios` [samples] are relative to the lower bound. `marks` are heights [steps, samples] before
    every `stride` values of the order, from which stacking can restart.
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
        """Lower is better."""
        return self.worst + _USUAL * float(self.ratios.mean())


class Stacker:
    """Stacks values in a given order and counts the stacked values, the unit of work."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.stacked = 0
        self._spans = list(zip(problem.first.tolist(), (problem.last + 1).tolist()))
        self._steps = int(problem.last.max(initial=-1)) + 1
        self._stride = max(1, -(-len(problem.bytes) // _MARKS))

    def stack(self, order: list[int], like: Stacked | None = None, same: int = 0) -> Stacked:
        """Stack an order whose first `same` values equal the first of `like`."""
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
        self.stacked += len(order) - start * stride
        ratios = (heights.max(0, initial=0) + _SMALL) / (problem.lower_bound + _SMALL)
        return Stacked(order, offsets, ratios, marks)

    def move(self, stack: Stacked, value: int, position: int) -> Stacked:
        """The order with one value moved to `position`, counted without the value itself."""
        before = stack.order.index(value)
        order = stack.order[:before] + stack.order[before + 1 :]
        order.insert(position, value)
        return self.stack(order, stack, min(before, position))


def heights(problem: Problem, order: Sequence[int]) -> numpy.ndarray:
    """Offsets [values, samples] of values stacked in `order`."""
    return Stacker(problem).stack(list(order)).offsets


def best_order(problem: Problem, work: int) -> Order:
    """The order with the lowest waste, weighted toward the worst sample.

    The search ends after `work` stacked values. It counts work instead of time, so that equal
    programs get equal layouts.
    """
    stacker = Stacker(problem)
    starts: list[Stacked] = []
    for order in _starts(problem):
        starts.append(stacker.stack(order))
        if starts[-1].worst <= _GOOD:
            return tuple(order)
    best = sorted(starts, key=lambda stack: stack.score)[:_STARTS]
    budget = work - stacker.stacked
    for number, stack in enumerate(best):
        limit = stacker.stacked + budget // len(best)
        best[number] = _improve_order(stacker, stack, limit)
        if best[number].worst <= _GOOD:
            break
    return tuple(min(best, key=lambda stack: stack.score).order)


def _improve_order(stacker: Stacker, stack: Stacked, limit: int) -> Stacked:
    """Improve an order by moving values until `limit` values have been stacked."""
    chance = Random(0)
    while stacker.stacked < limit and stack.worst > _GOOD:
        sample = int(stack.ratios.argmax())
        if chance.random() < 0.3:  # other samples can improve, too
            sample = chance.randrange(len(stack.ratios))
        chain = _chain(stacker.problem, stack, sample)
        value = chance.choice(chain)
        position = chance.choices(_MOVES, _WEIGHTS)[0](stacker.problem, stack, chain, value, chance)
        other = stacker.move(stack, value, position)
        if other.score <= stack.score:
            stack = other
    return stack


def _chain(problem: Problem, stack: Stacked, sample: int) -> list[int]:
    """The chain of values below the highest end at a sample, from the top down."""
    at, size = stack.offsets[:, sample], problem.bytes[:, sample]
    ends = at + size
    positions = numpy.empty_like(problem.first)
    positions[stack.order] = range(len(positions))
    chain = [int(ends.argmax())]
    while at[chain[-1]] > 0:
        value, near = chain[-1], problem.near[chain[-1]]
        below = (ends[near] == at[value]) & (positions[near] < positions[value])
        chain.append(int(near[below.argmax()]))
    return chain


# Moves: new positions of a value among the others; positions after its own are one less.


def _anywhere(
    problem: Problem, stack: Stacked, chain: list[int], value: int, chance: Random
) -> int:  # fmt: skip
    return chance.randrange(len(stack.order))


def _below(problem: Problem, stack: Stacked, chain: list[int], value: int, chance: Random) -> int:
    return _before(stack, chance.choice(chain), value)


def _near(problem: Problem, stack: Stacked, chain: list[int], value: int, chance: Random) -> int:
    near = problem.near[value]
    if not len(near):
        return 0
    return _before(stack, int(near[chance.randrange(len(near))]), value) + chance.randrange(2)


def _lowest(problem: Problem, stack: Stacked, chain: list[int], value: int, chance: Random) -> int:
    return 0


def _highest(problem: Problem, stack: Stacked, chain: list[int], value: int, chance: Random) -> int:
    return len(stack.order) - 1


def _before(stack: Stacked, other: int, value: int) -> int:
    """The position right before another value."""
    position = stack.order.index(other)
    return position - (stack.order.index(value) < position)


_MOVES = (_anywhere, _below, _near, _lowest, _highest)
_WEIGHTS = (3, 3, 2, 1, 1)


# ---- initial orders ------------------------------------------------------------------------------

_Key = Callable[[numpy.ndarray, numpy.ndarray, numpy.ndarray], tuple[numpy.ndarray, ...]]
_KEYS: tuple[_Key, ...] = (  # sort keys of bytes, first launch and length of life
    lambda size, first, life: (-size * life, first),
    lambda size, first, life: (-life, -size),
    lambda size, first, life: (-size, first),
)


def _starts(problem: Problem) -> Iterator[list[int]]:
    """Orders by mean share of the largest value; then orders by best fit at one sample."""
    share = (problem.bytes / numpy.maximum(problem.bytes.max(0), 1)).mean(1)
    for key in _KEYS:
        yield _sort_values(problem, key, share)
    for key in _KEYS if len(share) * problem.max_live <= _MAX_FITTED else ():
        yield _best_fit(problem, 0, _sort_values(problem, key, problem.bytes[:, 0]))


def _sort_values(problem: Problem, key: _Key, size: numpy.ndarray) -> list[int]:
    life = problem.last - problem.first + 1
    order: list[int] = numpy.lexsort(key(size, problem.first, life)[::-1]).tolist()
    return order


def _best_fit(problem: Problem, sample: int, sequence: Sequence[int]) -> list[int]:
    """Best fit: each value in the smallest gap that holds it, else on top; sorted by offset."""
    size: list[float] = problem.bytes[:, sample].tolist()
    at: dict[int, float] = {}
    for value in sequence:
        need, top = size[value], 0.0
        hole, offset = float("inf"), -1.0
        near = sorted((at[j], size[j]) for j in problem.near[value].tolist() if j in at)
        for low, taken in near:
            if need <= low - top < hole:
                hole, offset = low - top, top
            top = max(top, low + taken)
        at[value] = offset if offset >= 0 else top
    return sorted(at, key=lambda value: (at[value], at[value] + size[value], value))
