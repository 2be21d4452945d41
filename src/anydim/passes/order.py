"""The search for an order in which values are stacked: tried at sample sizes, right at all.

In an order each value lies upon all the values before it that it lives together with. So no two
of them overlap, whatever their sizes; how much is wasted is the order's doing alone. Orders come
from placing values by best fit at one sample: the offsets there, sorted, are an order for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy

Order = tuple[int, ...]
_SMALL = 1 << 18  # bytes: a waste below some of these is nobody's concern
_GOOD = 1.004  # of the lower bound: no better order is looked for


@dataclass(frozen=True)
class Problem:
    """Values by number. `bytes` [values, samples]; `first`, `last` [values] are their lives.

    `near` are the others that a value lives together with, for each; `least` [samples] is the
    lower bound: the most bytes that live at one time.
    """

    bytes: numpy.ndarray
    first: numpy.ndarray
    last: numpy.ndarray
    near: tuple[numpy.ndarray, ...]
    least: numpy.ndarray

    @staticmethod
    def of(bytes: numpy.ndarray, first: Sequence[int], last: Sequence[int]) -> Problem:
        starts, ends = numpy.array(first), numpy.array(last)
        steps = numpy.zeros((ends.max(initial=0) + 2, bytes.shape[1]))
        numpy.add.at(steps, starts, bytes)
        numpy.subtract.at(steps, ends + 1, bytes)
        meets = (starts[:, None] <= ends[None]) & (starts[None] <= ends[:, None])
        numpy.fill_diagonal(meets, False)
        near = tuple(numpy.flatnonzero(row) for row in meets)
        return Problem(bytes, starts, ends, near, steps.cumsum(0).max(0))


def heights(problem: Problem, order: Order) -> numpy.ndarray:
    """Offsets [values, samples] of values stacked in an order."""
    offsets = numpy.zeros_like(problem.bytes)
    tops = numpy.full_like(problem.bytes, -1)  # of those that are not placed yet
    for value in order:
        below = tops[problem.near[value]]
        if len(below):
            numpy.maximum(below.max(0), 0, out=offsets[value])
        numpy.add(offsets[value], problem.bytes[value], out=tops[value])
    return offsets


def best_order(problem: Problem, most: int) -> Order:
    """The order that wastes least at the sample where it wastes most, of at most `most` tries."""
    best: tuple[float, float] | None = None
    found: Order = tuple(range(len(problem.bytes)))
    untried = list(range(problem.bytes.shape[1]))
    ratios = problem.least
    tries = 0
    while untried and tries < most:
        sample = untried.pop(int(numpy.argmax(ratios[untried])))
        for sequence in _sequences(problem, sample):
            order = _fitted(problem, sample, sequence)
            top = (heights(problem, order) + problem.bytes).max(0, initial=0)
            now = (top + _SMALL) / (problem.least + _SMALL)
            score = (float(now.max()), float(now.mean()))
            if best is None or score < best:
                best, found, ratios = score, order, now
            if best[0] <= _GOOD:
                return found
            tries += 1
    return found


_Key = Callable[[numpy.ndarray, numpy.ndarray, numpy.ndarray], tuple[numpy.ndarray, ...]]
_KEYS: tuple[_Key, ...] = (  # of bytes, first and length of life: what is placed before what
    lambda size, first, life: (-size, first),
    lambda size, first, life: (-size * life, first),
    lambda size, first, life: (-life, -size),
    lambda size, first, life: (first, -size),
)


def _sequences(problem: Problem, sample: int) -> Iterator[list[int]]:
    size, life = problem.bytes[:, sample], problem.last - problem.first + 1
    for key in _KEYS:
        yield numpy.lexsort(key(size, problem.first, life)[::-1]).tolist()


def _fitted(problem: Problem, sample: int, sequence: Sequence[int]) -> Order:
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
    return tuple(sorted(at, key=lambda value: (at[value], at[value] + size[value], value)))
