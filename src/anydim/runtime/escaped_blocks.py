"""Blocks of a call of regions that results are the owners of, from then on.

A block goes back to the system with the last array that looks at it. Those that the C library maps
anew in each call are kept for next calls, as `results.py` does for straight programs.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy

from anydim.runtime import context
from anydim.runtime.results import MAPPED
from anydim.runtime.system import memory_functions

_Head = ctypes.c_int64 * (context.HEAD // 8)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(memory_functions()[1])


def _free(block: int, to_system: Any, head: Any = _Head, memory: int = context.MEMORY) -> None:
    """Back to the system; names of the module may be gone when the interpreter ends."""
    to_system(head.from_address(block)[memory])


class Left:
    """Large blocks that no array lies in any more, for the next calls of a model.

    Threads may share it, as they may `Results`. At most so many bytes are kept as large results of
    the last call took.
    """

    def __init__(self) -> None:
        self._most = 0
        self._to_system = FREE
        self._free: list[tuple[int, int]] = []  # bytes, address

    @property
    def kept(self) -> int:
        """Bytes that are kept for next calls."""
        return sum(bytes for bytes, _ in list(self._free))

    def expect(self, most: int) -> None:
        """So many bytes are what large results of the last call took."""
        if most != self._most:
            self._most = most
            if self.kept > most:
                self.trim()

    def give(self, block: int) -> None:
        """Keep a block, unless that is too much."""
        bytes = _Head.from_address(block)[context.BYTES]
        if self.kept + bytes <= self._most:
            self._free.append((bytes, block))
        else:
            _free(block, self._to_system)

    def lend(self, call: Any) -> None:
        """All of them to the memory of a call, which keeps them as its own, with room for small
        blocks beside what the last call took: it would give back a large one for these."""
        while self._free:
            try:
                bytes, block = self._free.pop()
            except IndexError:  # another thread was faster
                return
            bin = context.BINS + bytes.bit_length() - 1
            _Head.from_address(block)[context.NEXT], call[bin] = call[bin], block
            call[context.CACHED_BYTES] += bytes
            peak = call[context.PEAK]
            call[context.LIMIT] = max(call[context.LIMIT], peak + peak // 16)

    def trim(self, free: Callable[[int, Any], None] = _free) -> None:
        """Keep nothing."""
        while self._free:
            try:
                free(self._free.pop()[1], self._to_system)
            except IndexError:  # another thread was faster
                return

    def __del__(self) -> None:
        self.trim()


class _Owner:
    """A block that goes back, or is kept, with the last array that looks at it."""

    __slots__ = ("__array_interface__", "_block", "_keep", "_to_system")

    def __init__(
        self, block: int, dtype: numpy.dtype, shape: tuple[int, ...], keep: weakref.ref[Left] | None
    ) -> None:
        self.__array_interface__ = {
            "data": (block + context.HEAD, False), "shape": shape, "typestr": dtype.str,
            "version": 3,
        }  # fmt: skip
        self._block, self._keep, self._to_system = block, keep, FREE

    def __del__(self, free: Callable[[int, Any], None] = _free) -> None:
        left = self._keep and self._keep()
        if left:
            left.give(self._block)
        else:
            free(self._block, self._to_system)


def owned(
    block: int, dtype: numpy.dtype, shape: tuple[int, ...], keep: weakref.ref[Left] | None
) -> numpy.ndarray:
    """The array in a block that has left its call; types that numpy does not have are bytes to it
    at first."""
    array = numpy.asarray(_Owner(block, dtype, shape, keep))
    return array if array.dtype is dtype else array.view(dtype)


def bytes_alone(data: int, owner: int, bytes: int) -> int:
    """Those of a block that is held once, for this tensor; 0 for other ones, and for those that are
    much larger. The largest lay under other results before: they may be up to twice as large."""
    if not owner or data != owner + context.HEAD:
        return 0
    head = _Head.from_address(owner)
    fits = bytes >= MAPPED or head[context.BYTES] <= bytes + bytes // 4
    return head[context.BYTES] if fits and head[context.REFERENCES] == 1 else 0
