"""Values that depend on sizes alone, kept from call to call: a block of memory for each sizes.

    (0, 77)      what the first setup of a program makes at seq = 77
    (1, 8, 77)   what the second one makes at batch = 8, seq = 77

All calls of a model share the blocks. There are at most `MOST` of them, with a number of bytes in
all; where there are more, those go that were not used for the longest time. A call holds the blocks
that it reads, so whatever is dropped meanwhile serves it to its end. Two calls that miss the same
block both fill one, with equal bytes; the first that is there is kept.
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
    """The blocks of a program, `most_bytes` in all; `changed` is told their bytes.

    Looking one up takes no lock: operations on a dict are atomic. Whoever changes what is kept has
    the lock of its process, so that none is taken forever in the child of a fork. A change may be
    interrupted: by a fork of another thread, or by a signal's handler, which may raise or call the
    model. Bytes are counted anew then.
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
        """The block of these sizes, which is filled; None where there is none."""
        block = self._blocks.get(key)
        if block is not None:
            block.used = next(self._clock)
        return block

    def put(self, block: Block) -> bool:
        """Keep a block that is filled; whether others were dropped for it."""
        if block.bytes > self.most_bytes:
            block.dropped = True
            return False
        with self._lock():
            block.used = next(self._clock)
            known = self._blocks.get(block.key)
            if known is not None:  # another call was faster: this one is its own call's
                block.dropped = known is not block
                return False
            self._begin()
            self._blocks[block.key] = block
            self.bytes += block.bytes
            dropped = self.bytes > self.most_bytes or len(self._blocks) > self.most
            if dropped:  # more than has to be, so that it is not done for each new block
                self._drop(self.most_bytes * 7 // 8, self.most * 7 // 8, (block.key,))
            self._end()
        return dropped

    def make_room(self, most_bytes: int, own: tuple[Key, ...]) -> bool:
        """Keep no more than so many bytes beside those of `own`; whether some were dropped."""
        with self._lock():
            self._begin()
            mine = sum(self._blocks[key].bytes for key in own if key in self._blocks)
            dropped = self._drop(max(0, most_bytes) + mine, self.most, own)
            self._end()
        return dropped

    def clear(self) -> int:
        """Keep nothing; the bytes that were."""
        with self._lock():
            self._begin()
            bytes = self.bytes
            self._drop(0, 0, ())
            self._end()
        return bytes

    def _drop(self, most_bytes: int, most: int, own: tuple[Key, ...]) -> bool:
        """Drop those that were not used for the longest time, but for `own`."""
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
        """Begin a change; the lock is taken."""
        if self._changing:  # one did not end
            self._count()
        self._changing = True

    def _end(self) -> None:
        if not self._changing:  # another one began meanwhile, and ended
            self._count()
        self._changing = False
        self._changed(self.bytes)

    def _count(self) -> None:
        self.bytes = sum([block.bytes for block in list(self._blocks.values())])

    def _lock(self) -> threading.RLock:
        """That of this process; setdefault is atomic."""
        process = os.getpid()
        lock = self._locks.get(process)
        if lock is None:  # in the child of a fork, too: a change of another thread ends there
            self._changing = True
            lock = self._locks.setdefault(process, threading.RLock())
        return lock
