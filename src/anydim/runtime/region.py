"""A program of regions that can be called: one native call, whatever its data makes it do."""

from __future__ import annotations

import ctypes
import math
import os
import struct
import weakref
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy

from anydim.runtime import context, stopping
from anydim.runtime.executable import UNLIMITED, WORD, Executable, pointer, wrong_shape
from anydim.runtime.failures import Failure, no_memory
from anydim.runtime.frames import IDLE, trim_system

COPIED_BELOW = 1 << 16  # bytes of a result that is copied rather than handed over
WORTH_TRIMMING = 16 << 20  # bytes given back to malloc, which may keep them
_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_TRIM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_LEAVE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class RegionExecutable(Executable["_Frame"]):
    """Regions with the signature of the outermost one; what lies between steps is native's."""

    direct = False

    def __init__(self, *made: Any, **more: Any) -> None:
        super().__init__(*made, **more)
        self.leaked = 0  # blocks that calls which went well left behind: none, or it is a bug
        self._run, self._clear = (_CALL(self._function(role)) for role in ("run", "clear"))
        self._trim = _TRIM(self._function("trim"))
        self._leave = _LEAVE(self._function("leave"))
        inputs = self.signature.inputs
        self._pointers = struct.Struct(f"{len(inputs)}Q")
        self._sizes = struct.Struct(f"{sum(spec.rank for spec in inputs)}q")

    def _execute(
        self, frame: _Frame, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        block, interface = frame.block, self.interface
        self._pointers.pack_into(block, WORD * interface.inputs, *map(pointer, arrays))
        self._sizes.pack_into(block, WORD * interface.shapes, *shapes)
        pool = self._take_pool()
        block[context.POOL] = pool.address if pool else 0
        block[context.PEAK] = block[context.REFUSED] = 0
        block[context.ALLOWED] = 0 if self.most_bytes == UNLIMITED else max(1, self.most_bytes)
        try:
            stopping.begin(block, self.timeout)
            try:
                failed = self._run(frame.address)
            finally:
                if pool:
                    pool.lock.release()
            if failed:
                stopping.raise_kept(block)
            if failed and block[context.REFUSED]:
                raise self._refused(interface.failures[failed - 1], block)
            if failed:
                raise self._failed(failed, block)
            outputs, held = self._take_results(frame, into)
            self.leaked += block[context.COUNT] - bool(block[context.ARENA_BLOCK]) - held
            return outputs
        finally:
            self._clear(frame.address)
            frame.settle()

    def _take_results(
        self, frame: _Frame, into: Mapping[str, numpy.ndarray]
    ) -> tuple[dict[str, numpy.ndarray], int]:
        """The outputs, and how many blocks behind them are still in the memory of the call."""
        block, outputs = frame.block, {}
        held: set[int] = set()
        for (name, dtype, rank), words in zip(self._outputs, self.interface.results):
            data, owner, first = words
            shape = tuple(block[first : first + rank])
            bytes = dtype.itemsize
            for size in shape:
                bytes *= size
            wanted = into.get(name)
            if wanted is not None and wanted.shape != shape:
                raise wrong_shape(self.signature.name, name, wanted.shape, shape)
            large = bytes >= COPIED_BELOW and wanted is None
            if large and _alone(block[data], block[owner], bytes):
                memory = self._leave(frame.address, block[owner])
                outputs[name] = _owned(block[data], memory, bytes, dtype, shape)
                continue
            outputs[name] = self._result(shape, dtype) if wanted is None else wanted
            ctypes.memmove(outputs[name].ctypes.data, block[data], bytes)
            if block[owner]:
                held.add(block[owner])
        return outputs, len(held)

    def _result(self, shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
        try:
            return numpy.empty(shape, dtype)
        except MemoryError:
            bytes = math.prod(shape) * dtype.itemsize
            failed = Failure("memory", self.signature)
            raise no_memory(failed, (), 0, bytes) from None

    def _frame(self) -> _Frame:
        interface = self.interface
        words = {word: pointer(self._constants[name]) for word, name in interface.constants}
        words |= {word: pointer(table) for word, table in (self._tables | self.entries).items()}
        words |= dict(interface.numbers)
        return _Frame(interface.words, words, self._trim, self._image)

    # ---- memory --------------------------------------------------------------------------------

    @property
    def arena_bytes(self) -> int:
        """Bytes that idle calls keep for the next ones, all together."""
        return sum(frame.bytes for frame in self._frames.free())

    @property
    def highest_arena_bytes(self) -> int:
        """The most bytes that any of the idle calls has ever held."""
        return max((frame.highest for frame in self._frames.free()), default=0)


class _Frame:
    """The memory of one call in progress. What it keeps goes back to the system with it."""

    def __init__(self, words: int, filled: Mapping[int, int], trim: Any, code: Any) -> None:
        self.block = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.block)
        self.highest = 0
        self.needed = 0  # bytes, by the call in progress
        self.since = IDLE
        self._trim = trim
        self.block[context.MALLOC : context.FILL + 1] = list(_system_functions())
        stopping.prepare(self.block)
        for word, value in filled.items():
            self.block[word] = value
        weakref.finalize(self, _give_back, self.block, trim, code).atexit = False

    @property
    def bytes(self) -> int:
        """What it keeps for the next call."""
        return self.block[context.CACHED_BYTES]

    def settle(self) -> None:
        """After a call."""
        self.needed = needed = self.block[context.PEAK]
        if needed > self.highest:
            self.highest = needed

    def keep(self, most: int) -> None:
        """Give back to the system what is more than so many bytes."""
        before = self.bytes
        self.block[context.LIMIT] = most
        self._trim(self.address, most)
        if before - self.bytes >= WORTH_TRIMMING:
            trim_system()


def _give_back(block: ctypes.Array[ctypes.c_int64], trim: Any, code: Any) -> None:
    """While the code is still there."""
    trim(ctypes.addressof(block), 0)


@cache
def _system_functions() -> tuple[int, ...]:
    """Addresses of malloc, free, memcpy and memset."""
    system = ctypes.CDLL(None) if os.name == "posix" else ctypes.cdll.msvcrt
    found = (getattr(system, name) for name in ("malloc", "free", "memcpy", "memset"))
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found)


# ---- results that keep their memory --------------------------------------------------------------


class _Memory:
    """Memory of the system's malloc that goes back with the last array that looks at it."""

    def __init__(self, memory: int, data: int, bytes: int) -> None:
        self.__array_interface__ = {
            "data": (data, False), "shape": (bytes,), "typestr": "|u1", "version": 3
        }  # fmt: skip
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_system_functions()[1])
        weakref.finalize(self, function, memory).atexit = False


def _owned(
    data: int, memory: int, bytes: int, dtype: numpy.dtype, shape: tuple[int, ...]
) -> numpy.ndarray:
    return numpy.asarray(_Memory(memory, data, bytes)).view(dtype).reshape(shape)


def _alone(data: int, owner: int, bytes: int) -> bool:
    """Whether a block is held once, for this tensor, and not much larger than it."""
    if not owner or data != owner + context.HEAD:
        return False
    head = (ctypes.c_int64 * context.HEAD).from_address(owner)
    return bool(head[context.REFERENCES] == 1 and head[context.BYTES] <= bytes + bytes // 4)
