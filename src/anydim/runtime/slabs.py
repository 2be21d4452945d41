"""The caches of rows in one array per cache: each row has a slab of it, with room to grow.

A slab is `[..., capacity, ...]`, contiguous; all caches have the same starts and capacities,
counted in elements along their axis. Arrays are addresses (`pages.py`): memory exists for the pages
of what rows hold, and for nothing between. Slabs begin with a page in each array, are taken
first-fit, and move to longer arrays when none fits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd, prod

import numpy

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import MemoryLimitError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.runtime.pages import PAGE, Space, round_up
from anydim.sizes import Size

_CHUNK, _PROMPT = 64, 512 if PAGE > 1 else 0  # elements of a chunk of a prompt, and of a prompt


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

    @property
    def bytes(self) -> int:
        """Bytes per element along the axis of the cache."""
        return self.count * self.dtype.itemsize

    def slab(self, array: numpy.ndarray, slab: Slab, length: int) -> numpy.ndarray:
        """A view of the first `length` elements of a slab."""
        first, last = slab.start * self.count, (slab.start + slab.capacity) * self.count
        whole = array[first:last].reshape(*self.before, slab.capacity, *self.after)
        return whole[(slice(None),) * len(self.before) + (slice(length),)]

    def parts(self, length: int, capacity: int) -> list[tuple[int, int]]:
        """Where the first `length` elements of a slab lie: the bytes of each contiguous part."""
        element = prod(self.after) * self.dtype.itemsize
        firsts = (number * capacity * element for number in range(prod(self.before)))
        return [(first, first + length * element) for first in firsts]


class Slab:
    """The place of a row: `length` elements in use of `capacity`, from `start` on; memory exists
    for `most` of them."""

    __slots__ = ("capacity", "length", "most", "start")

    def __init__(self, start: int = 0, capacity: int = 0, length: int = 0, most: int = 0) -> None:
        self.start, self.capacity, self.length, self.most = start, capacity, length, most


class Slabs:
    """The slabs of rows, by number; `limit` is the most bytes of all rows."""

    def __init__(
        self, model: str, kinds: Iterable[SlabKind], room: int, limit: int | None = None
    ) -> None:
        self.model, self.kinds, self.room = model, tuple(kinds), room
        self.bytes_per_element = sum(kind.bytes for kind in self.kinds)
        self.arrays = {kind.name: numpy.empty(0, kind.dtype) for kind in self.kinds}
        self.rows: dict[int, Slab] = {}
        self.used = 0  # bytes of all rows
        self.total = 0  # elements that the arrays have addresses for
        self.limit = limit
        self._alike = Counter(replace(each, name="") for each in self.kinds)
        self._known: dict[int, int] = {}  # bytes by length
        self._spaces: dict[str, Space] = {}  # of the arrays, if they are of any
        self._free: list[tuple[int, int]] = []  # sorted, no two adjacent
        self._grain = max((PAGE // gcd(PAGE, kind.bytes) for kind in self.kinds), default=1)

    def set_limit(self, limit: int) -> None:
        """Set the most bytes of all rows; raises MemoryLimitError if they take more, and then
        changes nothing."""
        if self.used > limit:
            self._refuse(self.used, limit)
        self.limit = limit

    def most_within(self, memory: int) -> int:
        """Bytes of rows that, with a copy of the largest cache while it moves, take `memory`."""
        each = self.bytes_per_element
        largest = max((kind.bytes for kind in self.kinds), default=0)
        return memory * each // max(each + largest, 1)

    def capacity(self, length: int) -> int:
        """The elements of a slab for a row of this length: `room`, or a power of two. A chunk of a
        prompt has the slab of several, so that the next ones do not move it."""
        if length <= self.room:
            return self.room
        return max(1 << (length - 1).bit_length(), _PROMPT if length > _CHUNK else 0)

    def bytes(self, length: int) -> int:
        """The bytes of a row of this length: the pages that have one of its elements."""
        if length not in self._known:
            self._known[length] = self._bytes(length) if length else 0
        return self._known[length]

    def _bytes(self, length: int) -> int:
        taken = 0
        for kind, count in self._alike.items():
            end = 0
            for first, last in kind.parts(length, self.capacity(length)):
                first, last = max(end, first // PAGE * PAGE), round_up(last)
                taken += count * max(0, last - first)
                end = max(end, last)
        return taken

    def reserve(self, lengths: Mapping[int, int]) -> None:
        """Make room for rows of these lengths; raises MemoryLimitError, and then moves nothing."""
        rows = self.rows
        grown = {row: n for row, n in lengths.items() if n > rows[row].most}
        if not grown:
            return
        used = self.used + sum(self.bytes(n) - self.bytes(rows[row].most)
                               for row, n in grown.items())  # fmt: skip
        if self.limit is not None and used > self.limit:
            self._refuse(used, self.limit)
        wanted = {row: self.capacity(n) for row, n in grown.items() if rows[row].capacity < n}
        for row, capacity in wanted.items():
            start = self._take(self._span(capacity))
            if start is None:
                self._lengthen(wanted)
                break
            self._move(row, start, capacity)
        for row, n in grown.items():
            self._populate(self.rows[row], n)
            self.rows[row].most = n
        self.used = used

    def _populate(self, slab: Slab, most: int) -> None:
        """Let the memory of a slab exist up to `most` elements, if these are several pages."""
        if (most - slab.most) * self.bytes_per_element < len(self.kinds) * PAGE:
            return
        for kind in self.kinds:
            space, start = self._spaces.get(kind.name), slab.start * kind.bytes
            if space is not None:
                old, new = (kind.parts(n, slab.capacity) for n in (slab.most, most))
                for (_, first), (_, last) in zip(old, new):
                    space.populate(start + first, start + last)

    def shorten(self, row: int, length: int, most: int) -> None:
        """Truncate a row; memory stays for `most` elements, if it exists, and the rest is given
        back."""
        slab = self.rows[row]
        slab.length, most = length, min(max(most, length), slab.most)
        if most == slab.most:
            return
        self.used += self.bytes(most) - self.bytes(slab.most)
        capacity = self.capacity(most)
        span = self._span(capacity)
        if capacity < slab.capacity:
            smaller = Slab(slab.start, capacity, length)
            for kind in self.kinds:  # numpy copies what overlaps
                kind.slab(self.arrays[kind.name], smaller, length)[...] = self._view(kind, slab)
            self._give(slab.start + span, self._span(slab.capacity) - span)
            slab = self.rows[row] = smaller
        slab.most = most
        for kind in self.kinds:
            start, parts = slab.start * kind.bytes, kind.parts(most, capacity)
            ends = [*(first for first, _ in parts[1:]), span * kind.bytes]
            for (_, last), end in zip(parts, ends):
                self._give_back(kind, start + last, start + end)

    def remove(self, row: int) -> None:
        """Give back the slab of a row."""
        slab = self.rows.pop(row)
        self.used -= self.bytes(slab.most)
        self._give(slab.start, self._span(slab.capacity))

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
        return {kind.name: self._view(kind, self.rows[row]) for kind in self.kinds}

    def _view(self, kind: SlabKind, slab: Slab) -> numpy.ndarray:
        """What a slab holds of a cache."""
        return kind.slab(self.arrays[kind.name], slab, slab.length)

    def replace(self, arrays: Mapping[str, numpy.ndarray]) -> None:
        """Take arrays that a step made, with the same contents and new elements."""
        self.arrays, self._spaces = dict(arrays), {}

    def _refuse(self, used: int, limit: int) -> None:
        taken, most = exact_bytes_text(used), exact_bytes_text(limit)
        raise MemoryLimitError(
            f"{self.model}: the caches of {count_of(len(self.rows), 'row')} would take {taken}, "
            f"above their limit of {most}",
            "let rows leave, or raise the limit",
        )

    def _span(self, capacity: int) -> int:
        """The elements from the start of a slab to where the next one may begin."""
        return -(-capacity // self._grain) * self._grain

    def _move(self, row: int, start: int, capacity: int) -> None:
        """Move a row to an interval that was taken for it."""
        slab = self.rows[row]
        moved = Slab(start, capacity, slab.length, slab.most)
        for kind in self.kinds:
            self._copy(kind, slab, self.arrays[kind.name], moved)
        self.rows[row] = moved
        self._give(slab.start, self._span(slab.capacity))

    def _copy(self, kind: SlabKind, slab: Slab, array: numpy.ndarray, moved: Slab) -> None:
        """Copy a slab of a cache into another array, and give its memory back."""
        kind.slab(array, moved, slab.length)[...] = self._view(kind, slab)
        self._give_back(kind, slab.start * kind.bytes, (slab.start + slab.capacity) * kind.bytes)

    def _give_back(self, kind: SlabKind, first: int, last: int) -> None:
        """Give the pages between two bytes of an array back."""
        space = self._spaces.get(kind.name)
        if space is not None:
            space.give_back(first, last)

    def _lengthen(self, wanted: Mapping[int, int]) -> None:
        """Copy all slabs to new arrays, back to back, in the wanted capacities."""
        placed, end = dict[int, Slab](), 0
        for row, slab in self.rows.items():
            capacity = max(slab.capacity, wanted.get(row, 0))
            placed[row] = Slab(end, capacity, slab.length, slab.most)
            end += self._span(capacity)
        total = 2 * end
        spaces = {kind.name: Space(total * kind.bytes) for kind in self.kinds}
        for kind in self.kinds:
            array = spaces[kind.name].bytes.view(kind.dtype)
            for row, moved in placed.items():
                self._copy(kind, self.rows[row], array, moved)
            self.arrays[kind.name] = array
        self.rows, self.total, self._spaces = placed, total, spaces
        self._free = [(end, total)]

    def _take(self, count: int) -> int | None:
        """The start of a free interval of `count`; None if no one is as large."""
        for number, (start, stop) in enumerate(self._free):
            if stop - start >= count:
                rest = [(start + count, stop)] if stop - start > count else []
                self._free[number : number + 1] = rest
                return start
        return None

    def _give(self, start: int, count: int) -> None:
        """Free an interval, and give its memory back."""
        if not count:
            return
        for kind in self.kinds:
            self._give_back(kind, start * kind.bytes, (start + count) * kind.bytes)
        free, stop = self._free, start + count
        low = high = bisect_left(free, (start, 0))
        if low and free[low - 1][1] == start:
            low, start = low - 1, free[low - 1][0]
        if high < len(free) and free[high][0] == stop:
            high, stop = high + 1, free[high][1]
        free[low:high] = [(start, stop)]
