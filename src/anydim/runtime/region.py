"""A program of regions that can be called: one native call, whatever its data makes it do."""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy

from anydim.runtime import context
from anydim.runtime.arena import SHRINK_AFTER, Shelf
from anydim.runtime.arrays import check_names
from anydim.runtime.executable import Runnable
from anydim.runtime.failures import Failure, region_error
from anydim.runtime.signature import Signature
from anydim.runtime.threads import PoolCode

COPIED_BELOW = 1 << 16  # bytes of a result that is copied rather than handed over
_WORD = 8
_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_TRIM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_LEAVE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class RegionNative:
    """Addresses of native functions: `run` a call, and those of `native/blocks.py`."""

    run: int
    clear: int
    trim: int
    leave: int
    pool: PoolCode


@dataclass(frozen=True)
class RegionTables:
    """Where a call finds things in its memory of `words` words.

    `inputs` is the first word of their addresses, `shapes` that of their sizes. `results` are, for
    each output, the words of address, block and first size. `constants` lie at the address that a
    word has to hold, each; `tables` are those of segments, which want the address of a table;
    `entries` are tables of code. `numbers` are other words that have a value from the beginning.
    """

    words: int
    inputs: int
    shapes: int
    results: tuple[tuple[int, int, int], ...]
    constants: tuple[tuple[int, numpy.ndarray], ...]
    tables: tuple[tuple[int, tuple[numpy.ndarray, ...]], ...]
    entries: tuple[tuple[int, tuple[int, ...]], ...]
    numbers: tuple[tuple[int, int], ...]


class RegionExecutable(Runnable):
    """Regions with the signature of the outermost one. Several threads may call it at once."""

    def __init__(
        self,
        signature: Signature,
        native: RegionNative,
        tables: RegionTables,
        failures: Sequence[Failure],
        threads: int = 1,
    ) -> None:
        super().__init__(signature, native.pool, threads)
        self.leaked = 0  # blocks that calls which went well left behind: none, or it is a bug
        self._failures = tuple(failures)
        self._tables = tables
        self._native = native
        self._run, self._clear = _CALL(native.run), _CALL(native.clear)
        self._trim, self._leave = _TRIM(native.trim), _LEAVE(native.leave)
        filled = [(word, numpy.array([a.ctypes.data for a in arrays], numpy.uint64))
                  for word, arrays in tables.tables]  # fmt: skip
        filled += [(word, numpy.array(code, numpy.uint64)) for word, code in tables.entries]
        self._filled = tuple(filled)
        self._frames = Shelf(self._frame)
        self._pointers = struct.Struct(f"{len(signature.inputs)}Q")
        self._sizes = struct.Struct(f"{sum(spec.rank for spec in signature.inputs)}q")

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, new arrays that belong to the caller.

        Raises InputError or DimError, before anything runs, for inputs that do not fit; InputError
        for what data decides and does not fit: an index, or the size of a dim.
        """
        if len(given) != len(self._inputs):
            check_names(given, self.signature)
        arrays, shapes, foreign = self._arrays(given)
        frame = self._frames.take()
        try:
            outputs = self._execute(frame, arrays, shapes)
        finally:
            self._frames.give(frame)
        return self._wrapped(outputs, given) if foreign else outputs

    def _execute(
        self, frame: _Frame, arrays: list[numpy.ndarray], shapes: list[int]
    ) -> dict[str, numpy.ndarray]:
        block, tables = frame.block, self._tables
        self._pointers.pack_into(block, _WORD * tables.inputs, *(a.ctypes.data for a in arrays))
        self._sizes.pack_into(block, _WORD * tables.shapes, *shapes)
        pool = self._take_pool()
        block[context.POOL] = pool.address if pool else 0
        block[context.PEAK] = 0
        try:
            try:
                failed = self._run(frame.address)
            finally:
                if pool:
                    pool.lock.release()
            if failed:
                failure = self._failures[failed - 1]
                raise region_error(failure, block, self.signature.name)
            outputs, held = self._take_results(frame)
            self.leaked += block[context.COUNT] - bool(block[context.ARENA_BLOCK]) - held
            return outputs
        finally:
            self._clear(frame.address)
            frame.settle(self._trim)

    def _take_results(self, frame: _Frame) -> tuple[dict[str, numpy.ndarray], int]:
        """The outputs, and how many blocks behind them are still in the memory of the call."""
        block, outputs = frame.block, {}
        held: set[int] = set()
        for (name, dtype, rank), words in zip(self._outputs, self._tables.results):
            data, owner, first = words
            shape = tuple(block[first : first + rank])
            bytes = dtype.itemsize
            for size in shape:
                bytes *= size
            if bytes >= COPIED_BELOW and _alone(block[data], block[owner], bytes):
                memory = self._leave(frame.address, block[owner])
                outputs[name] = _owned(block[data], memory, bytes, dtype, shape)
                continue
            outputs[name] = numpy.empty(shape, dtype)
            ctypes.memmove(outputs[name].ctypes.data, block[data], bytes)
            if block[owner]:
                held.add(block[owner])
        return outputs, len(held)

    def _frame(self) -> _Frame:
        return _Frame(self._tables, self._filled, self._native)

    # ---- memory --------------------------------------------------------------------------------

    @property
    def arena_bytes(self) -> int:
        """Bytes that idle calls keep for the next ones, all together."""
        return sum(frame.block[context.CACHED_BYTES] for frame in self._frames.free())

    @property
    def highest_arena_bytes(self) -> int:
        """The most bytes that any of the idle calls has ever held."""
        return max((frame.highest for frame in self._frames.free()), default=0)

    def release(self) -> None:
        """Give the memory that idle calls keep back to the system."""
        frames = [self._frames.take() for _ in self._frames.free()]
        for frame in frames:
            frame.block[context.LIMIT] = 0
            self._trim(frame.address, 0)
            self._frames.give(frame)


class _Frame:
    """The memory of one call in progress. What it keeps goes back to the system with it."""

    def __init__(
        self, tables: RegionTables, filled: Sequence[tuple[int, numpy.ndarray]],
        native: RegionNative,
    ) -> None:  # fmt: skip
        self.block = (ctypes.c_int64 * tables.words)()
        self.address = ctypes.addressof(self.block)
        self.highest = 0
        self._calls = 0  # in a row that needed less than half of what is held
        self._most = 0  # bytes that any of them needed
        self.block[context.MALLOC : context.FILL + 1] = list(_system_functions())
        for word, array in (*tables.constants, *filled):
            self.block[word] = array.ctypes.data
        for word, number in tables.numbers:
            self.block[word] = number
        weakref.finalize(self, _give_back, self.block, native).atexit = False

    def settle(self, trim: Any) -> None:
        """After a call: keep less when many calls in a row needed less than half."""
        block = self.block
        peak, limit = block[context.PEAK], block[context.LIMIT]
        self.highest = max(self.highest, peak)
        if 2 * peak >= limit:
            self._calls = self._most = 0
            return
        self._calls += 1
        self._most = max(self._most, peak)
        if self._calls >= SHRINK_AFTER:
            block[context.LIMIT] = self._most
            trim(self.address, self._most)
            self._calls = self._most = 0


def _give_back(block: ctypes.Array[ctypes.c_int64], native: RegionNative) -> None:
    _TRIM(native.trim)(ctypes.addressof(block), 0)


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
