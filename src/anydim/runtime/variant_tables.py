"""Dispatch tables: the variants of a site, looked up by the sizes of a launch.

The entry of a site (`Executable.entries`) is the address of its code, or, tagged by `TAG`, the
address of a table. A table has the address of the generic kernel, and a row for each variant of
specific sizes, found by a hash of them. Sizes without a row are a miss: the generic kernel runs,
and the sizes are counted, or a callback is notified.

    table   generic code, operands and sizes of a launch, mask and address of the index, callback of
            a miss (0: none) and its argument, mask and address of the counters of missed sizes, the
            row found last, number and addresses of the rows of spans, the span found last, misses
    index   addresses of rows by hash, 0: empty; without an index the mask is -1
    row     code, parallel range, grain, scratch, hits, extent, sizes
    span    a row with the smallest sizes, followed by the largest
    seen    count, sizes; by hash; frequent sizes replace rare ones

A variant may cover a span of sizes: sizes without a row of their own are looked up among the spans,
the one found last first. It uses the scratch of the launch. Its parallel range is that of the
launch, or what `extent` returns, a function of the address of the sizes, which returns a negative
number if the variant does not support them. A row without code selects the generic kernel without a
callback.

The sizes of a launch are those that its kernel takes, then its parallel range, for which a launch
reserves a slot behind its arguments.

A published table is immutable, except for its last row: a new table is published by one store. Rows
are shared between tables and keep their counts. Counts are approximate if several threads count at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy

from anydim.base.records import dataclass

TAG = 1
MORE = 1  # slots behind the arguments of a launch
GENERIC, OPERANDS, SIZES, MASK, INDEX, MISSED, NUMBER, SEEN_MASK, SEEN, LAST = range(10)
SPANS, FIRST_SPAN, LAST_SPAN, MISSES = range(10, 14)
CODE, PARALLEL, GRAIN, SCRATCH, HITS, EXTENT, FIRST = range(7)  # slots of a row
AS_LAUNCHED = -1  # parallel range of a variant for a span
COUNT, FIRST_SEEN = range(2)
SEEN_ROWS = 32
FACTOR, BITS = 31, (1 << 31) - 1  # parameters of the hash

Sizes = tuple[int, ...]
Missed = Callable[[int, int], int]  # number of the site, address of its sizes -> a row, or 0


@dataclass(frozen=True)
class Span:
    """Sizes from the smallest to the largest, inclusive."""

    low: Sizes
    high: Sizes

    def __contains__(self, sizes: Sizes) -> bool:
        return all(low <= size <= high for low, size, high in zip(self.low, sizes, self.high))

    def __iter__(self) -> Iterator[int]:
        """Yield the sizes as a row has them."""
        return iter((*self.low, *self.high))

    def __len__(self) -> int:
        return len(self.low)


Key = Sizes | Span  # the sizes of a variant


def key_of(low: Sizes, high: Sizes) -> Key:
    """Return the key of single sizes, or of a span."""
    return low if low == high else Span(low, high)


def hash_of(sizes: Iterable[int]) -> int:
    """Return the hash of sizes that native code computes."""
    found = 0
    for size in sizes:
        found = (found * FACTOR + (size & BITS)) & BITS
    return found ^ (found >> 15)


@dataclass(frozen=True)
class VariantEntry:
    """A variant: code for launches of certain sizes or of a span, and its launch parameters.

    `scratch` is in bytes; `extent` is the address of a function, 0 if a span needs none. `keep`
    keeps the code alive.
    """

    sizes: Key
    code: int
    parallel: int
    grain: int
    scratch: int
    keep: object = None
    extent: int = 0


@dataclass(frozen=True)
class Callee:
    """The callback of misses: the address of a `Missed`, and the number of the site."""

    address: int = 0
    number: int = 0


@dataclass(frozen=True)
class Site:
    """A site: its generic kernel, and the numbers of operands and sizes of its launches."""

    generic: int
    operands: int
    sizes: int


class Choice:
    """The variants of a site; `entry` is the tagged address of the current table."""

    def __init__(self, site: Site, callee: Callee | None = None, watching: bool = False) -> None:
        self.site = site
        self._callee = callee or Callee()
        self._seen = self._counters(SEEN_ROWS if watching else 0)
        self._rows: dict[Key, numpy.ndarray] = {}
        self._places: dict[Sizes, tuple[int, int]] = {}  # hash and address of rows of single sizes
        self._bodies: dict[Key, VariantEntry] = {}
        self._table: tuple[Any, ...] = (numpy.zeros(MISSES + 1, numpy.int64),)
        self._table = self._build_table()

    @property
    def bodies(self) -> tuple[VariantEntry, ...]:
        """The current variants."""
        return tuple(self._bodies.values())

    @property
    def entry(self) -> int:
        """The current value for the table of code."""
        return int(self._table[0].ctypes.data) + TAG

    def change(self, more: Iterable[VariantEntry] = (), less: Iterable[Key] = ()) -> object:
        """Add and remove variants and publish a new table; return what calls in progress may still
        use."""
        for sizes in less:
            self._bodies.pop(sizes, None)
            self._rows.pop(sizes, None)
            if not isinstance(sizes, Span):
                self._places.pop(sizes, None)
        for body in more:
            words, key = (body.code, body.parallel, body.grain, body.scratch, 0), body.sizes
            self._bodies[key] = body
            self._rows[key] = numpy.array((*words, body.extent, *key), numpy.int64)
            if not isinstance(key, Span):
                self._places[key] = hash_of(key), self.row(key)
        before, self._table = self._table, self._build_table()
        return before

    def watch(self) -> object:
        """Count the sizes of misses from now on, without callback; returns what `change`
        returns."""
        self._callee = Callee()
        if not len(self._seen):
            self._seen = self._counters(SEEN_ROWS)
        before, self._table = self._table, self._build_table()
        return before

    def row(self, sizes: Key) -> int:
        """Return the address of a variant's row, 0 if there is none."""
        row = self._rows.get(sizes)
        return 0 if row is None else int(row.ctypes.data)

    def hits(self, sizes: Key) -> int:
        """Return the number of launches of a variant."""
        row = self._rows.get(sizes)
        return 0 if row is None else int(row[HITS])

    @property
    def misses(self) -> int:
        """The number of launches without a row."""
        return int(self._table[0][MISSES])

    def frequent_sizes(self, after: int = 1) -> dict[Sizes, int]:
        """Return sizes without a variant that occurred at least `after` times, with approximate
        counts."""
        rows = self._seen[self._seen[:, COUNT] >= after].tolist()
        found = {tuple(row[FIRST_SEEN:]): row[COUNT] for row in rows}
        return {sizes: count for sizes, count in found.items() if sizes not in self._rows}

    def forget(self, sizes: Sizes) -> None:
        """Reset the count of sizes."""
        for row in self._seen[hash_of(sizes) % SEEN_ROWS :][:1]:
            if tuple(row[FIRST_SEEN:]) == sizes:
                row[COUNT] = 0

    def _counters(self, rows: int) -> numpy.ndarray:
        """Return the counters of missed sizes."""
        return numpy.zeros((rows, FIRST_SEEN + self.site.sizes), numpy.int64)

    def _build_table(self) -> tuple[Any, ...]:
        """Return the words of a table, and everything that they refer to."""
        length = 2 if self._places else 0
        while length < 2 * len(self._places):
            length *= 2
        slots = [0] * length
        for number, address in self._places.values():
            at = number % length
            while slots[at]:
                at = (at + 1) % length
            slots[at] = address
        index = numpy.array(slots, numpy.int64)
        site, callee, seen = self.site, self._callee, self._seen
        rows = [self.row(sizes) for sizes in self._rows if isinstance(sizes, Span)]
        spans = numpy.array(rows, numpy.int64)
        watched = (SEEN_ROWS - 1, seen.ctypes.data) if len(seen) else (0, 0)
        words = (site.generic, site.operands, site.sizes, length - 1, index.ctypes.data,
                 callee.address, callee.number, *watched, 0,
                 len(spans), spans.ctypes.data, 0, self.misses)  # fmt: skip
        table = numpy.array(words, numpy.int64)
        return table, index, spans, dict(self._rows), dict(self._bodies), seen
