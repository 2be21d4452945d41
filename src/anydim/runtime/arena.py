"""Memory for intermediate values: one arena per concurrent call, reused across calls.

An arena has exactly the size that the program's formula computes. It is resized in place, so that
resident pages stay resident; `frames.py` decides when it shrinks. New pages are populated at once,
as huge pages where available: several times faster than page faults during the first call.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys

from anydim.runtime.pages import new_memory, populate


class Arena:
    """Page-aligned memory of `bytes` bytes at `address`."""

    def __init__(self) -> None:
        self.bytes = 0
        self.address = 0
        self.highest = 0
        self.needed = 0  # bytes, by the call in progress
        self._memory: mmap.mmap | None = None

    def reserve(self, needed: int) -> int:
        """Return the address of `needed` bytes. After a MemoryError the arena stays usable."""
        if needed > self.bytes:
            self._resize(needed)
        self.needed = needed
        return self.address

    def keep(self, most: int) -> None:
        """Return all but `most` bytes to the system."""
        if self.bytes > most:
            with contextlib.suppress(MemoryError):  # then it has none
                self._resize(most)

    def _resize(self, size: int) -> None:
        """Resize the mapping. If an exception interrupts this, for example from a signal handler,
        the arena is left empty."""
        memory, kept = self._memory, self.bytes
        self._memory, self.bytes, self.address = None, 0, 0
        if memory is not None and (size == 0 or not _remap(memory, size)):
            memory, kept = None, 0
        if memory is None and size:
            memory = new_memory(size)
        if memory is not None:
            _populate(memory, kept, size)
            self._memory, self.address = memory, _address(memory)
        self.bytes = size
        self.highest = max(self.highest, size)


def _remap(memory: mmap.mmap, size: int) -> bool:
    """Resize the mapping and keep its pages; return whether that succeeded."""
    try:
        memory.resize(size)
    except (OSError, OverflowError, SystemError, ValueError):
        return False
    return True


def _populate(memory: mmap.mmap, start: int, stop: int) -> None:
    """Populate the pages from byte `start` on, with huge pages if possible; an optimisation."""
    start -= start % mmap.PAGESIZE
    if sys.platform != "linux" or start >= stop:
        return
    with contextlib.suppress(OSError, ValueError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE, start, stop - start)
    populate(memory, start, stop)


def _address(memory: mmap.mmap) -> int:
    view = ctypes.c_char.from_buffer(memory)
    return ctypes.addressof(view)  # the view ends here, so the mapping can be resized
