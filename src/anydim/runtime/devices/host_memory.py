"""Blocks in host memory, for devices that work in it."""

from __future__ import annotations

import numpy

from anydim.runtime.pages import block

_ALIGNMENT = 64
_LARGE = 1 << 20  # bytes of a block from which huge pages pay off


class HostMemory:
    """Blocks by their addresses."""

    def __init__(self) -> None:
        self._held: dict[int, numpy.ndarray] = {}

    def take(self, bytes: int) -> int:
        """Allocate a block, aligned to 64; returns its address. Raises MemoryError."""
        if bytes < _LARGE:
            memory = numpy.empty(bytes + _ALIGNMENT, numpy.uint8)
        else:
            memory = block(bytes)
        address = -(-memory.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        self._held[address] = memory
        return address

    def give(self, address: int) -> None:
        """Free a block."""
        del self._held[address]
