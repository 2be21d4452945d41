"""Allocation of result arrays: large ones are cache-line aligned, the largest reuse memory.

The system's allocator aligns to 16 bytes. 64-byte vectors at offset 16 or 48 of a cache line cross
into the next one: writing 4 MB takes 16 to 30 % longer. Alignment costs 0.9 us.

The C library maps allocations above 32 MB anew each time, and the system zeroes the pages: results
of 40 MB took 2.4 times as long. A model therefore caches the blocks of dead results, up to the
bytes of the results of the last call.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

import numpy

from anydim.runtime.pointers import pointers

_LINE = 64
_LARGE = 1 << 19  # bytes from which arrays are cache-line aligned
MAPPED = 1 << 25  # mmap threshold of the C library, at its maximum


class Results:
    """An allocator for a model's result arrays. Thread-safe without a lock, which a finalizer could
    find locked: single list operations are atomic."""

    def __init__(self) -> None:
        self._most = 0
        self._free: list[numpy.ndarray] = []

    @property
    def kept(self) -> int:
        """Cached bytes."""
        return sum(block.nbytes for block in list(self._free))

    def makers(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[numpy.dtype]
    ) -> list[Callable[..., numpy.ndarray]]:
        """Return an allocator for each shape and dtype, for use in many calls."""
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes)]
        self.expect(sum(_room(size) for size in sizes if size >= MAPPED))
        return [
            numpy.empty if size < _LARGE else allocate_aligned if size < MAPPED else self._reusing
            for size in sizes
        ]

    def expect(self, most: int) -> None:
        """Set the most bytes of cached blocks; frees them if they are more."""
        if most != self._most:
            self._most = most
            if self.kept > most:
                self.trim()

    def trim(self) -> None:
        """Free all cached blocks."""
        self._free.clear()

    def give(self, block: numpy.ndarray) -> None:
        """Cache a dead block if the limit allows."""
        if self.kept + block.nbytes <= self._most:
            self._free.append(block)

    def _reusing(self, shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
        """Allocate an array in a cached block if one fits, otherwise in a new one."""
        size = math.prod(shape) * dtype.itemsize
        lent = _Lent(weakref.ref(self), self._take_block(_room(size)), size)
        return numpy.asarray(lent).view(dtype).reshape(shape)

    def _take_block(self, size: int) -> numpy.ndarray:
        """Return a block of `size` bytes; without a fitting cached one, free others first."""
        kept: list[numpy.ndarray] = []
        found = None
        while self._free and found is None:
            try:
                block = self._free.pop()
            except IndexError:  # another thread was faster
                break
            found = block if block.nbytes == size else None
            if found is None:
                kept.append(block)
        if found is None:
            return numpy.empty(size, numpy.uint8)
        self._free.extend(kept)
        return found


class _Lent:
    """Base object of an array, its views and other users of a block; returns the block on
    deletion."""

    def __init__(self, results: weakref.ref[Results], block: numpy.ndarray, size: int) -> None:
        self._results, self._block = results, block
        (start,) = pointers((block,))
        data = start + -start % _LINE, False
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": data}

    def __del__(self) -> None:
        results = self._results()
        if results is not None:
            results.give(self._block)


def _room(size: int) -> int:
    """Round up the size of a block, so that it fits other results."""
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-(size + _LINE) // step) * step


def allocate_aligned(shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
    """Allocate an uninitialised array; raises MemoryError or ValueError on failure."""
    room = numpy.empty(math.prod(shape) * dtype.itemsize + _LINE, numpy.uint8)
    return numpy.ndarray(shape, dtype, room, -pointers((room,))[0] % _LINE)
