"""Memory blocks of region calls that outlive the call as results.

A block is freed with the last array that refers to it. Blocks so large that the C library maps them
anew for each allocation are cached for later calls, as `results.py` does for straight programs.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy

from anydim.runtime import context
from anydim.runtime.results import MAPPED
from anydim.runtime.system_functions import memory_functions

_Head = ctypes.c_int64 * (context.HEAD // 8)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(memory_functions()[1])


def _free(block: int, to_system: Any, head: Any = _Head, memory: int = context.MEMORY) -> None:
    """Free a block; uses no globals, which may be gone at interpreter exit."""
    to_system(head.from_address(block)[memory])


class BlockCache:
    """A cache of large free blocks for the next calls of a model; thread-safe like `Results`.

    Its capacity is the bytes of the large results of the last call.
    """

    def __init__(self) -> None:
        self._most = 0
        self._to_system = FREE
        self._free: list[tuple[int, int]] = []  # bytes, address

    @property
    def kept(self) -> int:
        """Cached bytes."""
        return sum(bytes for bytes, _ in list(self._free))

    def expect(self, most: int) -> None:
        """Set the limit: the bytes of large results of the last call."""
        if most != self._most:
            self._most = most
            if self.kept > most:
                self.trim()

    def give(self, block: int) -> None:
        """Cache a block if the limit allows, otherwise free it."""
        bytes = _Head.from_address(block)[context.BYTES]
        if self.kept + bytes <= self._most:
            self._free.append((bytes, block))
        else:
            _free(block, self._to_system)

    def lend(self, call: Any) -> None:
        """Move all blocks to the free lists of a call.

        The limit of the call is raised by a quarter of its last peak for small blocks; otherwise it
        would free a large block for them, though both are not live at once.
        """
        while self._free:
            try:
                bytes, block = self._free.pop()
            except IndexError:  # another thread was faster
                return
            bin = context.BINS + bytes.bit_length() - 1
            _Head.from_address(block)[context.NEXT], call[bin] = call[bin], block
            call[context.CACHED_BYTES] += bytes
            peak = call[context.PEAK]
            call[context.LIMIT] = max(call[context.LIMIT], peak + peak // 4)

    def trim(self, free: Callable[[int, Any], None] = _free) -> None:
        """Free all cached blocks."""
        while self._free:
            try:
                free(self._free.pop()[1], self._to_system)
            except IndexError:  # another thread was faster
                return

    def __del__(self) -> None:
        self.trim()


class _Owner:
    """Owner of a block, which is freed or cached with the last array that refers to it."""

    __slots__ = ("__array_interface__", "_block", "_keep", "_to_system")

    def __init__(
        self,
        block: int,
        dtype: numpy.dtype,
        shape: tuple[int, ...],
        keep: weakref.ref[BlockCache] | None,
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


def own_block(
    block: int, dtype: numpy.dtype, shape: tuple[int, ...], keep: weakref.ref[BlockCache] | None
) -> numpy.ndarray:
    """Return an array over an escaped block; dtypes unknown to numpy are viewed from bytes."""
    array = numpy.asarray(_Owner(block, dtype, shape, keep))
    return array if array.dtype is dtype else array.view(dtype)


def bytes_alone(data: int, owner: int, bytes: int) -> int:
    """Return the size of a block that only this tensor refers to, else 0.

    Also 0 for blocks much larger than the tensor. Mapped blocks, which earlier results may have
    used, may be up to twice as large.
    """
    if not owner or data != owner + context.HEAD:
        return 0
    head = _Head.from_address(owner)
    fits = bytes >= MAPPED or head[context.BYTES] <= bytes + bytes // 4
    return head[context.BYTES] if fits and head[context.REFERENCES] == 1 else 0
