"""A cache of values that depend on sizes alone: a memory block per setup and sizes.

    (0, 77)      values of setup 0 at seq = 77
    (1, 8, 77)   values of setup 1 at batch = 8, seq = 77

All calls of a model share the blocks. At most `MOST` blocks and a number of bytes are cached; the
least recently used ones are dropped. A call holds references to the blocks that it reads, so
dropped blocks stay valid until it ends. Two concurrent calls that miss the same block both fill
one, with equal bytes; the first one is kept.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count

import numpy

from anydim.runtime.pointers import pointers

Key = tuple[int, ...]
MOST = 1024  # blocks
_ALIGNMENT = 64  # bytes; that of values in an arena


class Block:
    """Memory of `bytes` bytes at `address`, for a setup at some sizes. Raises MemoryError."""

    __slots__ = ("address", "bytes", "dropped", "key", "memory", "used")

    def __init__(self, key: Key, bytes: int) -> None:
        self.key, self.bytes, self.used, self.dropped = key, bytes, 0, False
        self.memory = numpy.empty(bytes + _ALIGNMENT, numpy.uint8)
        self.address = pointers((self.memory,))[0] + _ALIGNMENT - 1 & -_ALIGNMENT


class SizeValues:
    """The cached blocks of a program, at most `most_bytes`; `changed` receives their total size.

    Lookups take no lock: dict operations are atomic. Changes take a lock per process, so that a
    child of a fork never waits for a lock of its parent. A change may be interrupted by a fork of
    another thread or by a signal handler, which may raise or call the model; the bytes are then
    counted anew.
    """

    def __init__(
        self, most_bytes: int, most: int = MOST, changed: Callable[[int], None] = lambda bytes: None
    ) -> None:
        self.most_bytes, self.most = most_bytes, most
        self.bytes = 0
        self._changed = changed
        self._blocks: dict[Key, Block] = {}
        self._clock = count(1)
        self._locks: dict[int, threading.RLock] = {}
        self._changing = False

    def __len__(self) -> int:
        return len(self._blocks)

    def find(self, key: Key) -> Block | None:
        """Return the filled block of these sizes, or None."""
        block = self._blocks.get(key)
        if block is not None:
            block.used = next(self._clock)
        return block

    def put(self, block: Block) -> bool:
        """Cache a filled block; return whether others were dropped for it."""
        if block.bytes > self.most_bytes:
            block.dropped = True
            return False
        with self._lock():
            block.used = next(self._clock)
            known = self._blocks.get(block.key)
            if known is not None:  # another call was faster: this block serves its own call only
                block.dropped = known is not block
                return False
            self._begin()
            self._blocks[block.key] = block
            self.bytes += block.bytes
            dropped = self.bytes > self.most_bytes or len(self._blocks) > self.most
            if dropped:  # more than necessary, so that not each new block drops one
                self._drop(self.most_bytes * 7 // 8, self.most * 7 // 8, (block.key,))
            self._end()
        return dropped

    def make_room(self, most_bytes: int, own: tuple[Key, ...]) -> bool:
        """Shrink the cache to `most_bytes` besides the blocks of `own`; return whether any were
        dropped."""
        with self._lock():
            self._begin()
            mine = sum(self._blocks[key].bytes for key in own if key in self._blocks)
            dropped = self._drop(max(0, most_bytes) + mine, self.most, own)
            self._end()
        return dropped

    def clear(self) -> int:
        """Drop all blocks; return their bytes."""
        with self._lock():
            self._begin()
            bytes = self.bytes
            self._drop(0, 0, ())
            self._end()
        return bytes

    def _drop(self, most_bytes: int, most: int, own: tuple[Key, ...]) -> bool:
        """Drop the least recently used blocks, except `own`."""
        if self.bytes <= most_bytes and len(self._blocks) <= most:
            return False
        dropped = False
        for block in sorted(self._blocks.values(), key=lambda each: each.used):
            if self.bytes <= most_bytes and len(self._blocks) <= most:
                break
            if block.key in own or self._blocks.get(block.key) is not block:
                continue
            block.dropped = dropped = True
            del self._blocks[block.key]
            self.bytes -= block.bytes
        return dropped

    def _begin(self) -> None:
        """Begin a change; the lock is held."""
        if self._changing:  # an earlier one was interrupted
            self._count()
        self._changing = True

    def _end(self) -> None:
        if not self._changing:  # another one began and ended meanwhile
            self._count()
        self._changing = False
        self._changed(self.bytes)

    def _count(self) -> None:
        self.bytes = sum([block.bytes for block in list(self._blocks.values())])

    def _lock(self) -> threading.RLock:
        """The lock of this process; setdefault is atomic."""
        process = os.getpid()
        lock = self._locks.get(process)
        if lock is None:  # also after a fork, which interrupts changes of other threads
            self._changing = True
            lock = self._locks.setdefault(process, threading.RLock())
        return lock
