"""Virtual addresses, for devices whose memory is handles: block number << 40, plus an offset.

Host code adds offsets to addresses; a driver finds the handle and the offset of what came out.
"""

from __future__ import annotations

from typing import Generic, TypeVar

OFFSET_BITS = 40
_OFFSETS = (1 << OFFSET_BITS) - 1
_MOST_BLOCKS = 1 << 22

Handle = TypeVar("Handle")


class Blocks(Generic[Handle]):
    """The handles of blocks by number, which begin at 1: no block is at address 0."""

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        self._last = 0

    def add(self, handle: Handle) -> int:
        """The address of a new block."""
        number = self._last % _MOST_BLOCKS + 1
        while number in self._handles:
            number = number % _MOST_BLOCKS + 1
        self._last = number
        self._handles[number] = handle
        return number << OFFSET_BITS

    def find(self, address: int) -> tuple[Handle, int]:
        """The handle of the block that an address is in, and the bytes before it.

        KeyError where there is none.
        """
        return self._handles[address >> OFFSET_BITS], address & _OFFSETS

    def remove(self, address: int) -> Handle:
        """The handle of a block that goes."""
        return self._handles.pop(address >> OFFSET_BITS)

    def __len__(self) -> int:
        return len(self._handles)
