"""Large pages for what is kept for long and read from end to end: the packed weights of a model.

With pages of 4 KB a processor forgets where most of tens of megabytes lie before it reads them
again; with pages of 2 MB it knows them all.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy

ALIGNMENT = 64
_LARGE = 2 << 20
_FIRST, _MOST = 4 << 20, 64 << 20  # bytes of a mapping, from the first to later ones
_PRIVATE = getattr(mmap, "MAP_PRIVATE", None)  # shared memory would reach forked children
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)


class Pages:
    """Hands out memory; a mapping is given back when nothing that lies in it is used any more."""

    def __init__(self) -> None:
        self._room = numpy.empty(0, numpy.uint8)
        self._next = _FIRST

    def take(self, size: int) -> numpy.ndarray:
        """`size` bytes of zeros, 64-byte aligned. Raises MemoryError."""
        padded = -(-size // ALIGNMENT) * ALIGNMENT
        if padded > _MOST // 4:
            return _mapped(padded)[:size]
        if padded > len(self._room):
            while self._next < 2 * padded:
                self._next *= 2
            self._room = _mapped(self._next)
            self._next = min(2 * self._next, _MOST)
        taken, self._room = self._room[:size], self._room[padded:]
        return taken


def _mapped(size: int) -> numpy.ndarray:
    """Memory that begins at a large page, and has large pages where the system has them."""
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
    if _ADVICE is not None:
        with contextlib.suppress(OSError, ValueError):  # a system set up without large pages
            memory.madvise(_ADVICE, start, whole)
    return view[start : start + whole]
