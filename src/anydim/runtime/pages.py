"""Memory that is mapped: huge pages for packed weights, and pages that are given back for caches.

Weights are long-lived and read sequentially: with 4 KB pages, tens of megabytes exceed the TLB
between two reads; with 2 MB pages they fit.
"""

from __future__ import annotations

import contextlib
import mmap
import sys

import numpy

ALIGNMENT = 64
_LARGE = 2 << 20
_FIRST, _MOST = 4 << 20, 64 << 20  # bytes of the first mapping, and the maximum of later ones
_PRIVATE = getattr(mmap, "MAP_PRIVATE", None)  # shared memory would reach forked children
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
_SMALL_PAGES = getattr(mmap, "MADV_NOHUGEPAGE", None)
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED" if sys.platform == "linux" else "MADV_FREE", None)
_POPULATE = 23 if sys.platform == "linux" else None  # MADV_POPULATE_WRITE, since Linux 5.14
PAGE = 1 if _GIVE_BACK is None else mmap.PAGESIZE
"""Bytes that exist, and are given back, at once; 1 where the system takes nothing back."""


class Pages:
    """An allocator over huge-page mappings; a mapping is freed with the last array in it."""

    def __init__(self) -> None:
        self._room = numpy.empty(0, numpy.uint8)
        self._next = _FIRST

    def take(self, size: int) -> numpy.ndarray:
        """Allocate `size` zeroed, 64-byte aligned bytes. Raises MemoryError."""
        padded = -(-size // ALIGNMENT) * ALIGNMENT
        if padded > _MOST // 4:
            return block(size)
        if padded > len(self._room):
            while self._next < 2 * padded:
                self._next *= 2
            self._room = _map_pages(self._next)
            self._next = min(2 * self._next, _MOST)
        taken, self._room = self._room[:size], self._room[padded:]
        return taken


class Space:
    """Addresses whose memory exists page by page: from the first write to a page until it is given
    back. Raises MemoryError.

    Attributes:
        bytes: All of them, zeros at first, uint8 [size].
    """

    def __init__(self, size: int) -> None:
        self._memory = new_memory(max(size, 1))
        self.bytes = numpy.frombuffer(self._memory, numpy.uint8, size)
        if _SMALL_PAGES is not None:  # a huge page would exist as a whole
            with contextlib.suppress(OSError, ValueError):
                self._memory.madvise(_SMALL_PAGES)

    def populate(self, first: int, last: int) -> None:
        """Let the pages with the bytes between two of them exist, if the system can. Threads that
        write to missing pages at the same time take two to three times as long for each."""
        if last - first // PAGE * PAGE > PAGE:
            populate(self._memory, first, last)

    def give_back(self, first: int, last: int) -> None:
        """Give the pages between two bytes back to the system, contents and all; a page that begins
        before `first` or ends behind `last` stays."""
        first, last = round_up(first), last // PAGE * PAGE
        if _GIVE_BACK is not None and first < last:
            self._memory.madvise(_GIVE_BACK, first, last - first)


def round_up(size: int) -> int:
    """The bytes of whole pages."""
    return -(-size // PAGE) * PAGE


def block(size: int) -> numpy.ndarray:
    """Map `size` zeroed, 64-byte aligned bytes of their own. Raises MemoryError."""
    return _map_pages(size)[:size]


def _map_pages(size: int) -> numpy.ndarray:
    """Map memory that is aligned to a huge page and, if it fills one, uses huge pages where
    available."""
    whole = -(-size // _LARGE) * _LARGE
    memory = new_memory(whole + _LARGE)
    view = numpy.frombuffer(memory, numpy.uint8)
    start = -view.ctypes.data % _LARGE
    if _ADVICE is not None and size >= _LARGE:
        with contextlib.suppress(OSError, ValueError):  # a system without huge pages
            memory.madvise(_ADVICE, start, whole)
    return view[start : start + whole]


def populate(memory: mmap.mmap, first: int, last: int) -> None:
    """Let the pages from byte `first` to `last` exist; an optimisation."""
    first -= first % mmap.PAGESIZE
    if _POPULATE is not None and first < last:
        with contextlib.suppress(OSError, ValueError):  # an older system: pages come with writes
            memory.madvise(_POPULATE, first, last - first)


def new_memory(size: int) -> mmap.mmap:
    """Map zeroed memory. Raises MemoryError."""
    try:
        if _PRIVATE is None:
            return mmap.mmap(-1, size)
        return mmap.mmap(-1, size, flags=_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no {size} bytes of memory: {error}") from None
