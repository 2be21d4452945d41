"""Memory for intermediate values: one arena per concurrent call, reused from call to call.

An arena takes exactly the bytes that the program's formula asks for. It grows in place, so that
pages already in use are not touched for the first time again, and shrinks when many calls in a
row needed less than half of it. New pages are taken in one go, large ones where the system has
them: several times faster than one page fault after the other in the first call at a size.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Generic, TypeVar

SHRINK_AFTER = 256  # calls that each need less than half
_PRIVATE = getattr(mmap, "MAP_PRIVATE", None)  # shared memory would reach forked children
_POPULATE_WRITE = 23  # Linux 5.14; Python's mmap does not name it


class Arena:
    """Page-aligned memory of `bytes` bytes at `address`."""

    def __init__(self) -> None:
        self.bytes = 0
        self.address = 0
        self.highest = 0
        self._memory: mmap.mmap | None = None
        self._calls = 0  # in a row that needed less than half
        self._most = 0  # bytes that any of them needed

    def reserve(self, needed: int) -> int:
        """The address of memory for a call. Raises MemoryError, and stays usable."""
        if 2 * needed < self.bytes:
            self._calls += 1
            self._most = max(self._most, needed)
            if self._calls >= SHRINK_AFTER:
                self._resize(self._most)
        else:
            self._calls = self._most = 0
            if needed > self.bytes:
                self._resize(needed)
        return self.address

    def release(self) -> None:
        """Give all memory back; the next call takes it anew."""
        self._resize(0)

    def _resize(self, size: int) -> None:
        self._calls = self._most = 0
        if size == 0 or self._memory is None or not _moved(self._memory, size):
            self._memory, self.bytes, self.address = None, 0, 0
            self._memory = _new(size) if size else None
        if self._memory is not None:
            _populate(self._memory, self.bytes, size)
            self.address = _address(self._memory)
        self.bytes = size
        self.highest = max(self.highest, size)


def _new(size: int) -> mmap.mmap:
    try:
        if _PRIVATE is None:
            return mmap.mmap(-1, size)
        return mmap.mmap(-1, size, flags=_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no {size} bytes of memory: {error}") from None


def _moved(memory: mmap.mmap, size: int) -> bool:
    """Whether the mapping could be made `size` long with its pages kept."""
    try:
        memory.resize(size)
    except (OSError, OverflowError, SystemError, ValueError):
        return False
    return True


def _populate(memory: mmap.mmap, start: int, stop: int) -> None:
    """Have the pages from byte `start` on now, large ones if possible. Only a matter of speed."""
    start -= start % mmap.PAGESIZE
    if sys.platform != "linux" or start >= stop:
        return
    for advice in (mmap.MADV_HUGEPAGE, _POPULATE_WRITE):
        try:
            memory.madvise(advice, start, stop - start)
        except (OSError, ValueError):  # an older system, or one set up without large pages
            continue


def _address(memory: mmap.mmap) -> int:
    view = ctypes.c_char.from_buffer(memory)
    return ctypes.addressof(view)  # the view ends here, so the mapping can be resized


Item = TypeVar("Item")


class Shelf(Generic[Item]):
    """Things that concurrent calls take and give back; made when none is free.

    The last one given back is taken first. What lay unused during `SHRINK_AFTER` calls is
    dropped, so that a burst of concurrent calls is not remembered for ever. There is no lock that
    a fork could leave taken: single list operations are atomic, and counts need not be exact.
    """

    def __init__(self, make: Callable[[], Item]) -> None:
        self._make = make
        self._free: list[Item] = []
        self._calls = 0
        self._unused = 0

    def take(self) -> Item:
        """A free thing, or a new one."""
        free = self._free
        self._calls += 1
        if self._calls >= SHRINK_AFTER:
            del free[: self._unused]
            self._calls, self._unused = 0, len(free)
        try:
            item = free.pop()
        except IndexError:
            item = self._make()
        self._unused = min(self._unused, len(free))
        return item

    def give(self, item: Item) -> None:
        """Back on the shelf."""
        self._free.append(item)

    def free(self) -> list[Item]:
        """What lies there now."""
        return list(self._free)
