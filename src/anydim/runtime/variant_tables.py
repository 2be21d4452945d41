"""Several bodies for one site: a table of words that a launch looks its sizes up in.

The entry of a site (`Executable.entries`) is where its code begins; with a tag, `TAG` more than the
address of a table. A table says where the generic body begins, and has a row for each body that is
there for certain sizes, found by a hash of them. What a launch asks for and no row has is a miss:
the generic body serves it, and its sizes are counted, or whoever waits for it is told.

    table   generic code, operands and sizes of a launch, mask and address of the index,
            what a miss calls (0: nothing) and with which number, mask and address of what was
            seen, the row that was found last, number and addresses of the rows of spans, the one
            of those that was found last, how often none was found
    index   addresses of rows, 0 where there is none, by hash; none at all: the mask is -1
    row     code, parallel range, grain, scratch, hits, extent, sizes
    span    a row, whose sizes are the least ones and, behind them, the largest
    seen    count, sizes; by hash; what comes more often drives out what comes less

A body may be for a span of sizes: what no row has for just its sizes is looked up in those of
spans, the one that was found last first. It takes the scratch of the launch. Its parallel range is
that of the launch too, or what `extent` says, a function of the address of the sizes, which says
less than 0 where the body does not hold at them after all. A row without code has the generic body
serve, and nobody is told.

The sizes of a launch are those that its kernel takes, then its parallel range, for which a launch
leaves a word free behind its arguments.

A table that is published is not changed, but for its last row: another one is, by one store of a
word. Rows go on living from table to table, so that they keep their counts. Counts are not exact
where several threads count at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy

from anydim.base.records import dataclass

TAG = 1
MORE = 1  # words behind the arguments of a launch
GENERIC, OPERANDS, SIZES, MASK, INDEX, MISSED, NUMBER, SEEN_MASK, SEEN, LAST = range(10)
SPANS, FIRST_SPAN, LAST_SPAN, MISSES = range(10, 14)
CODE, PARALLEL, GRAIN, SCRATCH, HITS, EXTENT, FIRST = range(7)  # words of a row
AS_LAUNCHED = -1  # the parallel range of a body for a span
COUNT, FIRST_SEEN = range(2)
SEEN_ROWS = 32
FACTOR, BITS = 31, (1 << 31) - 1  # of the hash

Sizes = tuple[int, ...]
Missed = Callable[[int, int], int]  # number of the site, address of its sizes -> a row, or 0


@dataclass(frozen=True)
class Span:
    """Sizes from the least ones to the largest, both included."""

    low: Sizes
    high: Sizes

    def __contains__(self, sizes: Sizes) -> bool:
        return all(low <= size <= high for low, size, high in zip(self.low, sizes, self.high))

    def __iter__(self) -> Iterator[int]:
        """As a row has it."""
        return iter((*self.low, *self.high))

    def __len__(self) -> int:
        return len(self.low)


Key = Sizes | Span  # what a body is for


def key_of(low: Sizes, high: Sizes) -> Key:
    """Just these sizes, or those between."""
    return low if low == high else Span(low, high)


def hash_of(sizes: Iterable[int]) -> int:
    """What native code makes of sizes, too."""
    found = 0
    for size in sizes:
        found = (found * FACTOR + (size & BITS)) & BITS
    return found ^ (found >> 15)


@dataclass(frozen=True)
class Body:
    """Code for launches of just these sizes, or of a span, and how it is launched.

    `scratch` is in bytes, `extent` the address of a function, 0 where a span needs none. `keep`
    holds the code alive.
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
    """What misses call: the address of a `Missed`, and the number of the site."""

    address: int = 0
    number: int = 0


@dataclass(frozen=True)
class Site:
    """A site as tables know it: its generic body, how many operands and sizes its launches have."""

    generic: int
    operands: int
    sizes: int


class Choice:
    """The bodies of one site; `entry` is what launches look them up by."""

    def __init__(self, site: Site, callee: Callee | None = None, watching: bool = False) -> None:
        self.site = site
        self._callee = callee or Callee()
        self._seen = self._counters(SEEN_ROWS if watching else 0)
        self._rows: dict[Key, numpy.ndarray] = {}
        self._places: dict[Sizes, tuple[int, int]] = {}  # hash and address of rows of no spans
        self._bodies: dict[Key, Body] = {}
        self._table: tuple[Any, ...] = (numpy.zeros(MISSES + 1, numpy.int64),)
        self._table = self._made()

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Those that are there."""
        return tuple(self._bodies.values())

    @property
    def entry(self) -> int:
        """The word for the table of code, as things are."""
        return int(self._table[0].ctypes.data) + TAG

    def change(self, more: Iterable[Body] = (), less: Iterable[Key] = ()) -> object:
        """Bodies come and go, and the entry is another. Returns what calls in progress may need."""
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
        before, self._table = self._table, self._made()
        return before

    def watch(self) -> object:
        """Count the sizes of misses from now on, and call nobody. Returns what `change` does."""
        self._callee = Callee()
        if not len(self._seen):
            self._seen = self._counters(SEEN_ROWS)
        before, self._table = self._table, self._made()
        return before

    def row(self, sizes: Key) -> int:
        """The address of a body's row, 0 where there is none."""
        row = self._rows.get(sizes)
        return 0 if row is None else int(row.ctypes.data)

    def hits(self, sizes: Key) -> int:
        """How many launches a body has served."""
        row = self._rows.get(sizes)
        return 0 if row is None else int(row[HITS])

    @property
    def misses(self) -> int:
        """Launches that no row was found for."""
        return int(self._table[0][MISSES])

    def seen(self, after: int = 1) -> dict[Sizes, int]:
        """Sizes that came so often at least and have no body, and about how often."""
        rows = self._seen[self._seen[:, COUNT] >= after].tolist()
        found = {tuple(row[FIRST_SEEN:]): row[COUNT] for row in rows}
        return {sizes: count for sizes, count in found.items() if sizes not in self._rows}

    def forget(self, sizes: Sizes) -> None:
        """Count sizes from 0 again."""
        for row in self._seen[hash_of(sizes) % SEEN_ROWS :][:1]:
            if tuple(row[FIRST_SEEN:]) == sizes:
                row[COUNT] = 0

    def _counters(self, rows: int) -> numpy.ndarray:
        """What native code counts sizes in."""
        return numpy.zeros((rows, FIRST_SEEN + self.site.sizes), numpy.int64)

    def _made(self) -> tuple[Any, ...]:
        """The words of a table, and all that they speak of."""
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
