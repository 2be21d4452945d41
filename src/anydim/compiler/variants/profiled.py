"""Buckets from recorded sizes: the cuts that minimise padding waste.

A call of size n in a bucket up to m runs code for m: (m - n)/m of it is waste. Cuts minimise the
sum of this over all calls: exactly for one dim (dynamic programming over the recorded sizes);
greedily for several, one more cut for the dim that gains most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from anydim.compiler.variants.strategies import Strategy
from anydim.runtime.program.recording import Recorded

_MAX_CUTS = 128  # candidate cuts of a dim
Rows = Callable[[str], Sequence[Recorded]]


def with_cuts(strategy: Strategy, recorded: Rows) -> Strategy:
    """The strategy with buckets computed from the recordings that it names."""

    def cuts(profile: str, given: Collection[str], count: int) -> dict[str, Any]:
        counts = {name: Counter[int]() for row in recorded(profile) for name in row.dims}
        for row in recorded(profile):
            for name, size in row.dims.items():
                counts[name][size] += row.count
        left = {name: sizes for name, sizes in counts.items() if name not in given}
        return cuts_for(left, count)

    return strategy.fill_buckets(cuts)


def cuts_for(counts: Mapping[str, Mapping[int, int]], count: int) -> dict[str, Any]:
    """The upper ends of buckets of each dim, with at most `count` combinations.

    A dim with a single recorded size gets that size only.
    """
    known = {name: _best(sizes, count) for name, sizes in counts.items() if any(sizes)}
    number = dict.fromkeys(known, 1)

    def gain(name: str) -> float:
        rows, now = known[name], number[name]
        if now == len(rows) or prod(number.values()) // now * (now + 1) > count:
            return 0.0
        return rows[now - 1][0] - rows[now][0]

    while known and gain(best := max(known, key=gain)) > 0:
        number[best] += 1
    cuts = {name: rows[number[name] - 1][1] for name, rows in known.items()}
    alone = {name: next(filter(None, counts[name])) for name in cuts if len(counts[name]) == 1}
    return {**cuts, **alone}


def _best(counts: Mapping[int, int], most: int) -> list[tuple[float, list[int]]]:
    """For 1, 2, ... cuts the minimum waste and its cuts."""
    sizes = sorted(size for size in counts if size > 0)
    calls = [0, *accumulate(counts[size] for size in sizes)]
    total = [0, *accumulate(counts[size] * size for size in sizes)]
    ends = sorted({-(-n * len(sizes) // _MAX_CUTS) for n in range(1, _MAX_CUTS + 1)})

    def waste(first: int, end: int) -> float:
        """The waste of calls of the sizes first to end in one bucket."""
        return calls[end] - calls[first] - (total[end] - total[first]) / sizes[end - 1]

    found: list[tuple[float, list[int]]] = []
    last: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}  # by count of sizes covered
    for _ in range(min(most, len(ends))):
        last = {
            end: min(
                (before + waste(first, end), [*cuts, sizes[end - 1]])
                for first, (before, cuts) in last.items()
                if first < end
            )
            for end in ends
            if any(first < end for first in last)
        } | {0: (0.0, [])}
        found.append(last[len(sizes)])
    return found
