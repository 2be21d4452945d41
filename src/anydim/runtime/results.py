"""Arrays for results: large ones begin at a line of the cache, the largest lie where others lay.

The system's allocator aligns to 16 bytes. Vectors of 64 bytes that begin 16 or 48 bytes behind a
line reach into two: writing 4 MB takes 16 to 30 % longer. Finding the line takes 0.9 us.

What is larger than 32 MB the C library maps anew in each call, and the system clears its pages:
elements of 40 MB took 2.4 times as long. So a model keeps the blocks of results that nobody has any
more for the next ones, at most as many bytes as results of the last call took.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

import numpy

from anydim.runtime.pointers import pointers

_LINE = 64
_LARGE = 1 << 19  # bytes that are worth a line
MAPPED = 1 << 25  # bytes that the C library maps anew: the most that its threshold grows to


class Results:
    """What makes arrays for the results of a model. Threads may share it: there is no lock, which
    a finalizer could find taken; single operations of lists are atomic."""

    def __init__(self) -> None:
        self._most = 0
        self._free: list[numpy.ndarray] = []

    @property
    def kept(self) -> int:
        """Bytes that are kept for next results."""
        return sum(block.nbytes for block in list(self._free))

    def makers(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[numpy.dtype]
    ) -> list[Callable[..., numpy.ndarray]]:
        """What makes an array of each shape and type, given both; asked for once for many calls."""
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes)]
        most = sum(_room(size) for size in sizes if size >= MAPPED)
        if most != self._most:
            self._most = most
            if self.kept > most:
                self.trim()
        return [
            numpy.empty if size < _LARGE else aligned if size < MAPPED else self._reusing
            for size in sizes
        ]

    def trim(self) -> None:
        """Keep nothing."""
        self._free.clear()

    def give(self, block: numpy.ndarray) -> None:
        """Keep a block that no array lies in any more, unless that is too much."""
        if self.kept + block.nbytes <= self._most:
            self._free.append(block)

    def _reusing(self, shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
        """An array in a block of one that is gone, if one fits, or in a new one."""
        size = math.prod(shape) * dtype.itemsize
        lent = _Lent(weakref.ref(self), self._taken(_room(size)), size)
        return numpy.asarray(lent).view(dtype).reshape(shape)

    def _taken(self, size: int) -> numpy.ndarray:
        """A block of so many bytes; where none is kept, others make room for it."""
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
    """A block with bytes of an array, its views and what else shares them: the base of them all."""

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
    """Bytes of the block for results of so many: of some sizes alone, so that others fit."""
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-(size + _LINE) // step) * step


def aligned(shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
    """An array whose elements are any; raises MemoryError or ValueError where there is no room."""
    room = numpy.empty(math.prod(shape) * dtype.itemsize + _LINE, numpy.uint8)
    return numpy.ndarray(shape, dtype, room, -pointers((room,))[0] % _LINE)
