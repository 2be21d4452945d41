"""Virtual addresses for devices whose memory objects are handles: block number << 40, plus an
offset.

Host code adds offsets to addresses; a driver maps an address back to handle and offset.
"""

from __future__ import annotations

from typing import Generic, TypeVar

OFFSET_BITS = 40
_OFFSETS = (1 << OFFSET_BITS) - 1
_MAX_BLOCKS = 1 << 22

Handle = TypeVar("Handle")


class Blocks(Generic[Handle]):
    """The handles of blocks by number, from 1 on: no block has address 0."""

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        self._last = 0

    def add(self, handle: Handle) -> int:
        """Return the address of a new block."""
        number = self._last % _MAX_BLOCKS + 1
        while number in self._handles:
            number = number % _MAX_BLOCKS + 1
        self._last = number
        self._handles[number] = handle
        return number << OFFSET_BITS

    def find(self, address: int) -> tuple[Handle, int]:
        """Return the handle of the block that contains an address, and the offset.

        Raises KeyError if there is none.
        """
        return self._handles[address >> OFFSET_BITS], address & _OFFSETS

    def remove(self, address: int) -> Handle:
        """Remove a block; returns its handle."""
        return self._handles.pop(address >> OFFSET_BITS)

    def __len__(self) -> int:
        return len(self._handles)
