"""A compiled program that can be called: native addresses, constants, arenas, threads.

A call costs two native calls: `bind` computes and checks all sizes, `run` does the launches.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from anydim.base.errors import DimError, InputError
from anydim.runtime.arena import Arena, Shelf
from anydim.runtime.arrays import check_names, plain, wrapper
from anydim.runtime.checks import Check, failure
from anydim.runtime.layout import ARENA, ARENA_BYTES, PARALLEL, Layout
from anydim.runtime.positions import Position, outside
from anydim.runtime.signature import Signature
from anydim.runtime.threads import Pool, PoolCode

_WORD = 8
_READY = 0x0101  # numpy's flags C_CONTIGUOUS and ALIGNED
_BIND = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True)
class Native:
    """Addresses of a program's native functions; `keep` holds their memory alive.

    `entries` are those of the kernels, one for each launch of the program.
    """

    bind: int
    run: int
    worker: int
    stop: int
    entries: tuple[int, ...]
    keep: object


class _Frame:
    """What one call in progress needs: a block of words and an arena."""

    def __init__(self, layout: Layout) -> None:
        self.block = (ctypes.c_int64 * layout.words)()
        self.address = ctypes.addressof(self.block)
        self.arena = Arena()


class Runnable:
    """What runs with arrays that fit a signature, on a pool of threads; calls may be concurrent."""

    def __init__(self, signature: Signature, code: PoolCode, threads: int) -> None:
        self.signature = signature
        self.threads = threads
        self._code = code
        self._pool: Pool | None = None
        self._pool_lock = threading.Lock()
        self._serial = threads < 2
        self._inputs = [(s.name, s, s.dtype.numpy, len(s.shape)) for s in signature.inputs]
        self._outputs = [(s.key, s.dtype.numpy, len(s.shape)) for s in signature.outputs]

    def _arrays(self, given: Mapping[str, Any]) -> tuple[list[numpy.ndarray], list[int], bool]:
        """The inputs in order, all their sizes, and whether one was no numpy array."""
        arrays, shapes, foreign = [], [], False
        for name, spec, dtype, rank in self._inputs:
            try:
                array = given[name]
            except KeyError:
                check_names(given, self.signature)
                raise
            if (
                type(array) is not numpy.ndarray
                or array.dtype is not dtype
                or array.ndim != rank
                or array.flags.num & _READY != _READY
            ):
                foreign = foreign or not isinstance(array, numpy.ndarray)
                array = plain(array, spec, dtype, self.signature.name)
            arrays.append(array)
            shapes.extend(array.shape)
        return arrays, shapes, foreign

    def _wrapped(
        self, outputs: dict[str, numpy.ndarray], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The outputs as the kind of array that came in."""
        wrap = wrapper([given[name] for name, *_ in self._inputs])
        if wrap is None:
            return outputs
        return {name: wrap(array) for name, array in outputs.items()}

    def _take_pool(self) -> Pool | None:
        """The pool with its lock taken; None while another call has it or there are no threads."""
        pool = self._pool
        if pool is None or pool.process != os.getpid():
            pool = self._make_pool()
        return pool if pool is not None and pool.lock.acquire(blocking=False) else None

    def _make_pool(self) -> Pool | None:
        if self._serial or not self._pool_lock.acquire(blocking=False):
            return None
        try:
            pool = self._pool
            if pool is None or pool.process != os.getpid():
                self._pool = Pool(self._code, self.threads)
        except (OSError, RuntimeError):
            self._serial = True
        finally:
            self._pool_lock.release()
        return self._pool


class Executable(Runnable):
    """A program with a signature, called with arrays. Several threads may call it at once.

    `constants` lie where the program expects them, in its order, 64-byte aligned; `checks` are
    the meanings of bind's failure codes, `positions` those of run's. `entries` is the table of
    code: a word for each launch, where its kernel begins, looked up by every call.
    """

    def __init__(
        self,
        signature: Signature,
        native: Native,
        layout: Layout,
        checks: Sequence[Check],
        constants: Sequence[numpy.ndarray],
        threads: int = 1,
        positions: Sequence[Position] = (),
    ) -> None:
        super().__init__(signature, PoolCode(native.worker, native.stop, native.keep), threads)
        self.layout = layout
        self._checks = tuple(checks)
        self._positions = tuple(positions)
        self._constants = tuple(constants)
        self._table = numpy.array([_pointer(array) for array in constants], numpy.uint64)
        self.entries = numpy.array(native.entries, numpy.uint64)
        self._tables = (_pointer(self._table), _pointer(self.entries))
        self._bind, self._run = _BIND(native.bind), _RUN(native.run)
        self._frames = Shelf(lambda: _Frame(layout))
        self._shapes = struct.Struct(f"{sum(layout.input_ranks)}q")
        self._results = struct.Struct(f"{sum(layout.output_ranks)}q")
        pointers = len(layout.input_ranks) + len(layout.output_ranks)
        self._call = struct.Struct(f"{4 + pointers}Q")

    def __call__(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None = None
    ) -> dict[str, Any]:
        """The outputs by name, new arrays that belong to the caller.

        Arrays in `into` are filled instead of new ones: contiguous, of the output's type, and apart
        from the inputs. Raises InputError or DimError, before anything runs, for inputs that do not
        fit, and InputError for an index among them that is outside the axis it points into.
        """
        if len(given) != len(self._inputs):
            check_names(given, self.signature)
        arrays, shapes, foreign = self._arrays(given)
        frame = self._frames.take()
        try:
            outputs = self._execute(frame, arrays, shapes, into or {})
        finally:
            self._frames.give(frame)
        return self._wrapped(outputs, given) if foreign else outputs

    def _execute(
        self, frame: _Frame, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        layout, block = self.layout, frame.block
        self._shapes.pack_into(block, _WORD * layout.input_shapes, *shapes)
        code = self._bind(frame.address)
        if code:
            raise self._failure(code, arrays, block)
        outputs = self._allocate(frame, into)
        pointers = [array.ctypes.data for array in arrays]
        pointers += [array.ctypes.data for array in outputs.values()]
        pool = self._take_pool() if block[PARALLEL] else None
        call = (frame.arena.address, pool.address if pool else 0, *self._tables, *pointers)
        self._call.pack_into(block, _WORD * ARENA, *call)
        try:
            failed = self._run(frame.address)
        finally:
            if pool:
                pool.lock.release()
        if failed:
            found = block[layout.first_status + failed - 1]
            position = self._positions[failed - 1]
            raise outside(position, found, self.signature.name, self._dims(block))
        return outputs

    def _allocate(
        self, frame: _Frame, into: Mapping[str, numpy.ndarray]
    ) -> dict[str, numpy.ndarray]:
        """Arrays for the outputs at the sizes just bound, and the arena."""
        sizes = self._results.unpack_from(frame.block, _WORD * self.layout.output_shapes)
        outputs, at = {}, 0
        try:
            frame.arena.reserve(frame.block[ARENA_BYTES])
            for name, dtype, rank in self._outputs:
                shape = sizes[at : at + rank]
                held = into.get(name)
                if held is not None and held.shape != shape:
                    raise wrong_shape(self.signature.name, name, held.shape, shape)
                outputs[name] = numpy.empty(shape, dtype) if held is None else held
                at += rank
        except (MemoryError, ValueError) as error:
            at_sizes = ", ".join(f"{n} = {v}" for n, v in self._dims(frame.block).items())
            raise DimError(
                f"{self.signature.name}: not enough memory at {at_sizes}: {error}",
                "use smaller inputs",
            ) from None
        return outputs

    def _dims(self, block: ctypes.Array[ctypes.c_int64]) -> dict[str, int]:
        first, names = self.layout.first_dim, self.signature.box.names
        return {name: block[first + number] for number, name in enumerate(names)}

    def _failure(
        self, code: int, arrays: list[numpy.ndarray], block: ctypes.Array[ctypes.c_int64]
    ) -> InputError:
        shapes = [array.shape for array in arrays]
        return failure(self._checks[code - 1], self.signature, shapes, self._dims(block))

    # ---- memory --------------------------------------------------------------------------------

    @property
    def arena_bytes(self) -> int:
        """Bytes that idle arenas hold now, all together."""
        return sum(frame.arena.bytes for frame in self._frames.free())

    @property
    def highest_arena_bytes(self) -> int:
        """The most bytes that any of the idle arenas has ever held."""
        return max((frame.arena.highest for frame in self._frames.free()), default=0)

    def release(self) -> None:
        """Give the memory of idle arenas back to the system."""
        frames = [self._frames.take() for _ in self._frames.free()]
        for frame in frames:
            frame.arena.release()
            self._frames.give(frame)


def wrong_shape(
    model: str, name: str, given: tuple[int, ...], made: tuple[int, ...]
) -> InputError:
    """The error for an array that was given for an output of another shape."""
    return InputError(
        f"{model}: the array for '{name}' has shape {given}, the result has {made}",
        "give an array of that shape",
    )


def _pointer(array: numpy.ndarray) -> int:
    return int(array.ctypes.data)
