"""Grouping of items by dynamic programming over an order of items.

In the order, neighbours have similar sizes; a group is a run of neighbours. The minimum seconds of
the first j items are those of the first i plus the group from i to j, for the best i; groups above
the limit are excluded. Group sizes up to `_ALL` are all tried, larger ones in steps of `_GROWTH`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy

_ALL = 16
_GROWTH = 1.12
_POINTS = 1 << 15  # groups that are evaluated at once
Seconds = Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray]


def cut(
    sizes: numpy.ndarray, rows: numpy.ndarray, seconds: Seconds, least_rows: int = 0
) -> tuple[float, list[numpy.ndarray]]:
    """Return (seconds, groups of item numbers) with minimum seconds; infinite if there is none.

    `sizes` [items, dims] are the sizes of padded dims, `rows` [items] the rows of each item in the
    batch. `seconds(sizes, rows)` are those of groups [groups], infinite above a limit or below
    `least_rows`.
    """
    best: tuple[float, list[numpy.ndarray]] = (numpy.inf, [])
    for order in _orders(sizes, rows):
        found = _in_order(*_table(sizes[order], rows[order], seconds, least_rows))
        if found[0] < best[0] or not best[1]:
            best = (found[0], [order[start:stop] for start, stop in found[1]])
    return best


def cut_few(
    sizes: Sequence[int], rows: Sequence[int],
    seconds: Callable[[list[tuple[int, int]]], Sequence[float]],
) -> list[tuple[list[int], float]]:  # fmt: skip
    """Return (item numbers, seconds) of the groups of few items with one padded dim.

    `seconds` returns those of calls by (size, rows). It is `cut` without arrays, which take longer
    than a call of few small items.
    """
    order, count = sorted(range(len(rows)), key=lambda n: (sizes[n], rows[n])), len(rows)
    spans, keys = list[tuple[int, int]](), list[tuple[int, int]]()
    for stop in range(1, count + 1):
        most, added = sizes[order[stop - 1]], 0
        for start in range(stop - 1, -1, -1):
            added += rows[order[start]]
            spans.append((start, stop))
            keys.append((most, added))
    best, taken = [0.0] + [float("inf")] * count, [0] * (count + 1)
    for (start, stop), one in zip(spans, seconds(keys)):
        if best[start] + one < best[stop]:
            best[stop], taken[stop] = best[start] + one, start
    groups, stop = list[tuple[list[int], float]](), count
    while stop and best[count] < float("inf"):
        start = taken[stop]
        groups.append((order[start:stop], best[stop] - best[start]))
        stop = start
    return groups


def _orders(sizes: numpy.ndarray, rows: numpy.ndarray) -> list[numpy.ndarray]:
    """Return orders by each dim first, then by the others; with several, also by their product."""
    dims = sizes.shape[1]
    keys = [numpy.roll(numpy.arange(dims), -first) for first in range(dims)]
    orders = [numpy.lexsort((rows, *sizes[:, key[::-1]].T)) for key in keys]
    if dims > 1:
        orders.append(numpy.lexsort((rows, sizes[:, 0], sizes.prod(axis=1))))
    return orders or [numpy.lexsort((rows,))]


def _in_order(counts: numpy.ndarray, table: numpy.ndarray) -> tuple[float, list[tuple[int, int]]]:
    """Return (seconds, start and stop of each group) for the result of `_table`."""
    items = table.shape[1]
    best = numpy.full(items + 1, numpy.inf)
    best[0], taken = 0.0, numpy.zeros(items + 1, numpy.int64)
    for stop in range(1, items + 1):
        usable = counts[: numpy.searchsorted(counts, stop, "right")]
        seconds = best[stop - usable] + table[: len(usable), stop - 1]
        place = int(seconds.argmin())
        best[stop], taken[stop] = seconds[place], usable[place]
    groups: list[tuple[int, int]] = []
    stop = items
    while stop and numpy.isfinite(best[items]):
        groups.append((stop - int(taken[stop]), stop))
        stop -= int(taken[stop])
    return float(best[items]), groups[::-1]


def _table(
    sizes: numpy.ndarray, rows: numpy.ndarray, seconds: Seconds, least_rows: int
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return group sizes, and seconds [group sizes, items] of the groups that end with each
    item."""
    items, total = len(rows), numpy.concatenate([[0], numpy.cumsum(rows)])
    found, counts = [], []
    windows = _windows(sizes)
    while part := list(islice(windows, max(1, _POINTS // items))):
        most = numpy.concatenate([each for _, each in part])
        added = numpy.concatenate([total[count:] - total[:-count] for count, _ in part])
        changed = numpy.ones(len(added), bool)  # equal neighbours are evaluated once
        changed[1:] = (most[1:] != most[:-1]).any(axis=1) | (added[1:] != added[:-1])
        each = seconds(most[changed], added[changed])[numpy.cumsum(changed) - 1]
        begin = 0
        for count, _ in part:
            line = numpy.full(items, numpy.inf)
            line[count - 1 :] = each[begin : begin + items - count + 1]
            begin += items - count + 1
            found.append(line)
            counts.append(count)
        last = items - counts[-1] + 1
        if numpy.isinf(found[-1]).all() and added[-last:].min() >= least_rows:
            break
    return numpy.array(counts), numpy.array(found)


def _windows(sizes: numpy.ndarray) -> Iterator[tuple[int, numpy.ndarray]]:
    """Yield group sizes, and for each the maximum sizes [groups, dims]."""
    doubled, width, count = sizes, 1, 1
    while count <= len(sizes):
        while 2 * width <= count:
            doubled, width = numpy.maximum(doubled[:-width], doubled[width:]), 2 * width
        shift = count - width
        yield count, numpy.maximum(doubled[: len(doubled) - shift], doubled[shift:])
        count = count + 1 if count < _ALL else max(count + 1, int(count * _GROWTH))
