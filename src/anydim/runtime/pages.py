"""Huge pages for memory that is long-lived and read sequentially: the packed weights of a model.

With 4 KB pages, tens of megabytes exceed the TLB between two reads; with 2 MB pages they fit.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy

ALIGNMENT = 64
_LARGE = 2 << 20
_FIRST, _MOST = 4 << 20, 64 << 20  # bytes of the first mapping, and the maximum of later ones
_PRIVATE = getattr(mmap, "MAP_PRIVATE", None)  # shared memory would reach forked children
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)


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


def block(size: int) -> numpy.ndarray:
    """Map `size` zeroed, 64-byte aligned bytes of their own. Raises MemoryError."""
    return _map_pages(size)[:size]


def _map_pages(size: int) -> numpy.ndarray:
    """Map memory that is aligned to a huge page and, if it fills one, uses huge pages where
    available."""
    whole = -(-size // _LARGE) * _LARGE
    try:
        if _PRIVATE is None:
            memory = mmap.mmap(-1, whole + _LARGE)
        else:
            memory = mmap.mmap(-1, whole + _LARGE, flags=_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no {size} bytes of memory: {error}") from None
    view = numpy.frombuffer(memory, numpy.uint8)
    start = -view.ctypes.data % _LARGE
    if _ADVICE is not None and size >= _LARGE:
        with contextlib.suppress(OSError, ValueError):  # a system without huge pages
            memory.madvise(_ADVICE, start, whole)
    return view[start : start + whole]
