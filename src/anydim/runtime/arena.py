"""Memory for intermediate values: one arena per concurrent call, reused from call to call.

An arena takes exactly the bytes that the program's formula asks for. It grows and shrinks in place,
so that pages in use are not touched for the first time again; when it shrinks, `frames.py` says.
New pages are taken in one go, large ones where the system has them: several times faster than one
page fault after the other in the first call at a size.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys

_PRIVATE = getattr(mmap, "MAP_PRIVATE", None)  # shared memory would reach forked children
_POPULATE_WRITE = 23  # Linux 5.14; Python's mmap does not name it


class Arena:
    """Page-aligned memory of `bytes` bytes at `address`."""

    def __init__(self) -> None:
        self.bytes = 0
        self.address = 0
        self.highest = 0
        self.needed = 0  # bytes, by the call in progress
        self._memory: mmap.mmap | None = None

    def reserve(self, needed: int) -> int:
        """The address of memory for a call. Raises MemoryError, and stays usable."""
        if needed > self.bytes:
            self._resize(needed)
        self.needed = needed
        return self.address

    def keep(self, most: int) -> None:
        """Give back to the system what is more than so many bytes."""
        if self.bytes > most:
            with contextlib.suppress(MemoryError):  # then it has none
                self._resize(most)

    def _resize(self, size: int) -> None:
        """It has no memory where an exception ends this, such as one that a signal's handler raises
        after the mapping was changed."""
        memory, kept = self._memory, self.bytes
        self._memory, self.bytes, self.address = None, 0, 0
        if memory is not None and (size == 0 or not _moved(memory, size)):
            memory, kept = None, 0
        if memory is None and size:
            memory = _new(size)
        if memory is not None:
            _populate(memory, kept, size)
            self._memory, self.address = memory, _address(memory)
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
