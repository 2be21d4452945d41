"""The caches of rows in one array per cache: each row has a slab of it, with room to grow.

A slab is `[..., capacity, ...]`, contiguous; all caches have the same starts and capacities,
counted in elements along their axis. Slabs are taken first-fit; when none fits, the arrays are
packed, and grow if more than three quarters of them are in use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import prod

import numpy

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import MemoryLimitError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.sizes import Size


@dataclass(frozen=True)
class Cache:
    """An input and the result that appends `count` elements to it along an axis."""

    input: str
    result: str
    axis: int
    count: Size


@dataclass(frozen=True)
class SlabKind:
    """A cache: the shape of a row is `before`, its capacity, then `after`."""

    name: str
    dtype: numpy.dtype
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def count(self) -> int:
        """Numbers per element along the axis of the cache."""
        return prod(self.before) * prod(self.after)

    def slab(self, array: numpy.ndarray, slab: Slab, length: int) -> numpy.ndarray:
        """A view of the first `length` elements of a slab."""
        first, last = slab.start * self.count, (slab.start + slab.capacity) * self.count
        whole = array[first:last].reshape(*self.before, slab.capacity, *self.after)
        return whole[(slice(None),) * len(self.before) + (slice(length),)]


class Slab:
    """The place of a row: `length` elements in use of `capacity`, from `start` on."""

    __slots__ = ("capacity", "length", "start")

    def __init__(self) -> None:
        self.start = self.capacity = self.length = 0


class Slabs:
    """The slabs of rows, by number; `limit` is the most bytes of all slabs."""

    def __init__(
        self, model: str, kinds: Iterable[SlabKind], room: int, limit: int | None = None
    ) -> None:
        self.model, self.kinds, self.room = model, tuple(kinds), room
        self.bytes_per_element = sum(kind.count * kind.dtype.itemsize for kind in self.kinds)
        self.limit: int | None = None
        self.arrays = {kind.name: numpy.empty(0, kind.dtype) for kind in self.kinds}
        self.rows: dict[int, Slab] = {}
        self.total = 0  # elements that the arrays have room for
        self._free: list[tuple[int, int]] = []  # sorted, no two adjacent
        if limit is not None:
            self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        """Set the most bytes of all slabs; arrays above it are packed.

        Raises MemoryLimitError if the slabs take more, and then changes nothing.
        """
        most = limit // max(self.bytes_per_element, 1)
        if self.used > most:
            self._refuse(self.used, most)
        self.limit = most
        if self.total > most:
            self._pack({})

    def most_within(self, memory: int) -> int:
        """Bytes of arrays that, with a copy of the largest one while they grow, take `memory`."""
        each = self.bytes_per_element
        largest = max((kind.count * kind.dtype.itemsize for kind in self.kinds), default=0)
        return memory * each // max(each + largest, 1)

    @property
    def used(self) -> int:
        """Elements in slabs."""
        return sum(slab.capacity for slab in self.rows.values())

    def capacity(self, length: int) -> int:
        """The elements of a slab for a row of this length: a power of two, at least `room`."""
        return max(self.room, 1 << max(length - 1, 0).bit_length())

    def reserve(self, lengths: Mapping[int, int]) -> None:
        """Make room for rows of these lengths; raises MemoryLimitError, and then moves nothing."""
        rows = self.rows
        wanted = {row: self.capacity(n) for row, n in lengths.items() if rows[row].capacity < n}
        if not wanted:
            return
        if self.limit is not None:
            used = self.used + sum(n - rows[row].capacity for row, n in wanted.items())
            if used > self.limit:
                self._refuse(used, self.limit)
        for row, capacity in wanted.items():
            start = self._take(capacity)
            if start is None:
                self._pack(wanted)
                return
            self._move(row, start, capacity)

    def remove(self, row: int) -> None:
        """Give back the slab of a row."""
        slab = self.rows.pop(row)
        self._give(slab.start, slab.capacity)

    def copy(self, row: int, other: int, length: int) -> None:
        """Copy the first `length` elements of a row to another one, which is new; raises
        MemoryLimitError, and then moves nothing."""
        self.reserve({other: length})
        self.rows[other].length = length
        for kind in self.kinds:
            array = self.arrays[kind.name]
            own = kind.slab(array, self.rows[other], length)
            own[...] = kind.slab(array, self.rows[row], length)

    def view(self, row: int) -> dict[str, numpy.ndarray]:
        """Views of what a row's caches hold, by name."""
        slab = self.rows[row]
        return {k.name: k.slab(self.arrays[k.name], slab, slab.length) for k in self.kinds}

    def _refuse(self, used: int, limit: int) -> None:
        taken, most = (exact_bytes_text(n * self.bytes_per_element) for n in (used, limit))
        raise MemoryLimitError(
            f"{self.model}: the caches of {count_of(len(self.rows), 'row')} would take {taken}, "
            f"above their limit of {most}",
            "let rows leave, or raise the limit",
        )

    def _move(self, row: int, start: int, capacity: int) -> None:
        """Move a row to an interval that was taken for it."""
        slab, moved = self.rows[row], Slab()
        moved.start, moved.capacity, moved.length = start, capacity, slab.length
        for kind in self.kinds:
            array = self.arrays[kind.name]
            kind.slab(array, moved, slab.length)[...] = kind.slab(array, slab, slab.length)
        self._give(slab.start, slab.capacity)
        self.rows[row] = moved

    def _pack(self, wanted: Mapping[int, int]) -> None:
        """Copy all slabs to new arrays, back to back, in the wanted capacities."""
        placed, end = dict[int, Slab](), 0
        for row, slab in self.rows.items():
            moved = placed[row] = Slab()
            moved.start, moved.length = end, slab.length
            moved.capacity = max(slab.capacity, wanted.get(row, 0))
            end += moved.capacity
        total = self.total if 4 * end <= 3 * self.total else 2 * end
        if self.limit is not None:
            total = max(end, min(total, self.limit))
        for kind in self.kinds:
            array, made = self.arrays[kind.name], numpy.empty(total * kind.count, kind.dtype)
            for row, moved in placed.items():
                old = kind.slab(array, self.rows[row], moved.length)
                kind.slab(made, moved, moved.length)[...] = old
            self.arrays[kind.name] = made
        self.rows, self.total = placed, total
        self._free = [(end, total)] if end < total else []

    def _take(self, count: int) -> int | None:
        """The start of a free interval of `count`; None if no one is as large."""
        for number, (start, stop) in enumerate(self._free):
            if stop - start >= count:
                rest = [(start + count, stop)] if stop - start > count else []
                self._free[number : number + 1] = rest
                return start
        return None

    def _give(self, start: int, count: int) -> None:
        """Free an interval."""
        if not count:
            return
        free, stop = self._free, start + count
        low = high = bisect_left(free, (start, 0))
        if low and free[low - 1][1] == start:
            low, start = low - 1, free[low - 1][0]
        if high < len(free) and free[high][0] == stop:
            high, stop = high + 1, free[high][1]
        free[low:high] = [(start, stop)]
