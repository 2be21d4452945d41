"""A callable straight program: two native calls, and one arena for intermediate values.

`bind` computes and checks all sizes, `run` launches the kernels. Values that depend on sizes alone
are stored in blocks that calls share (`size_values.py`); a call at new sizes fills them first.
Blocks that are too small to be worth a lookup, or larger than the cache, are stored behind the
arena of a call and reused by the next calls with the same sizes.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NoReturn

import numpy

from anydim.base import settings
from anydim.base.records import dataclass
from anydim.runtime import context, stopping
from anydim.runtime.arena import Arena
from anydim.runtime.device_calls import Hosted
from anydim.runtime.executable import UNLIMITED, WORD, Executable, wrong_shape
from anydim.runtime.failures import no_memory
from anydim.runtime.frames import IDLE
from anydim.runtime.invoke import POSSIBLE, Invoke, Table
from anydim.runtime.layout import (
    ADDRESS,
    ARENA,
    ARENA_BYTES,
    BEHIND,
    BYTES,
    CODE,
    CONSTANTS,
    EMPTY,
    PARALLEL,
    POOL,
    STOPPING,
)
from anydim.runtime.pointers import pointers
from anydim.runtime.results import MAPPED, Results
from anydim.runtime.size_values import Block, SizeValues
from anydim.runtime.threads import Pool

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True)
class _Setup:
    """Slots of a setup: its own first slot, and those of the dims that it depends on."""

    number: int
    first: int
    dims: tuple[int, ...]


class _Frame(Arena):
    """The memory of a call in progress: an arena, and a block of slots at `words`.

    The block is bound to `shapes` (None: unbound); `results` are the resulting shapes. `stops` has
    the slots for interruption, as region calls have them.
    """

    def __init__(self, words: int, stops: bool, setups: bool) -> None:
        super().__init__()
        self.setups = setups  # whether blocks may be behind the arena
        self.block = (ctypes.c_int64 * words)()
        self.words = ctypes.addressof(self.block)
        self.since = IDLE
        self.shapes: list[int] | None = None
        self.results: list[tuple[int, ...]] = []
        self.makers: list[Callable[..., numpy.ndarray]] = []  # allocators of results
        self.asked_for = 0  # requested bytes of the arena
        self.arena = 0  # its address in the block
        self.parallel = 0  # whether threads are worthwhile at these sizes
        self.table: Table | None = None  # of repeated calls
        self.invoke: Invoke | None = None  # its function while the block is bound
        self.tensors: type | None = None  # class of tensors accepted besides numpy arrays
        self.held = 0  # bytes of blocks outside the arena
        self.blocks: list[Block] = []  # shared blocks
        self.unfilled: list[tuple[_Setup, Block]] = []
        self.behind = False  # whether blocks too large to be shared are behind the arena
        self.stopping = (ctypes.c_int64 * context.BINS)() if stops else None
        if self.stopping is not None:
            stopping.prepare(self.stopping)
            self.block[STOPPING] = ctypes.addressof(self.stopping)

    def _resize(self, size: int) -> None:
        """Mark blocks in the arena as empty: the memory may have moved."""
        if self.setups:
            self.invoke = None
        super()._resize(size)

    @property
    def dropped(self) -> bool:
        """Whether a block that it holds was dropped from the cache."""
        return any(block.dropped for block in self.blocks)

    def unbind(self) -> None:
        """Release all blocks; the next call binds sizes again."""
        self.shapes, self.invoke = None, None
        self.blocks, self.unfilled, self.behind = [], [], False

    def end(self, deadline: int) -> None:
        """Set the deadline of the call, 0: none."""
        if self.stopping is not None:
            self.stopping[context.DEADLINE] = deadline


class StraightExecutable(Executable[_Frame]):
    """One segment, which checks its inputs and writes results to where they are wanted."""

    direct = True

    def __init__(self, *made: Any, **more: Any) -> None:
        self.size_values = SizeValues(0, changed=self._counted)
        super().__init__(*made, **more)
        interface, signature = self.interface, self.signature
        self._bind, self._run = (_CALL(self._function(role)) for role in ("bind", "run"))
        self._addresses = pointers((self._tables[CONSTANTS], self.entries[CODE]))
        self._shapes = struct.Struct(f"{sum(spec.rank for spec in signature.inputs)}q")
        self._shapes_at = WORD * interface.shapes
        self._results = struct.Struct(f"{sum(spec.rank for spec in signature.outputs)}q")
        self._results_at = WORD * (interface.results[0][2] if interface.results else 0)
        arrays = len(signature.inputs) + len(signature.outputs)
        self._call = struct.Struct(f"{4 + arrays}Q")
        self._new = Results()
        self._slots = self._words_of_arrays() if POSSIBLE and not interface.requested_dims else []
        self._kinds = [dtype for _, dtype, _ in self._outputs]
        self._stops = any(failure.kind in stopping.FAILURES for failure in interface.failures)
        self._setups = [
            _Setup(number, each.block, each.dims) for number, each in enumerate(interface.setups)
        ]
        if self._setups:
            self.size_values.most_bytes = settings.size_values_mb << 20
        self._shared_bytes = interface.setups[0].block - 1 if self._setups else 0

    def _frame(self) -> _Frame:
        frame = _Frame(self.interface.words, self._stops, bool(self._setups))
        if self._slots:
            functions = map(self._function, ("invoke", "run"))
            frame.table = Table(self.signature, frame.words, self._slots, *functions)
        return frame

    def _repeat(
        self, frame: _Frame, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None
    ) -> dict[str, Any] | None:
        invoke, needed = frame.invoke, frame.asked_for
        if invoke is None or needed > self._most_arena or self.watched.busy:
            return None
        if needed > frame.bytes or frame.address != frame.arena:  # freed or moved
            return None
        frame.needed = needed
        outputs = self._shared(frame, invoke, given, into)
        if outputs is False:
            assert frame.table is not None
            self._raise(frame, frame.table.failed)
        if frame.invoke is None:  # blocks were dropped meanwhile
            frame.unbind()
        found: dict[str, Any] | None = outputs
        return found

    def _shared(self, frame: _Frame, run: Callable[..., Any], *given: Any) -> Any:
        """Call `run`, with threads if worthwhile, under a time limit or stop if set."""
        limit, stop = self.timeout, stopping.STOP.get()
        ends = limit is not None or stop is not None
        if not (ends or frame.parallel):
            return run(*given)
        pool: Pool | None = None
        try:
            if frame.parallel:
                pool = self._take_pool(frame)
            if pool:
                frame.block[PARALLEL] = pool.worth(frame.parallel)
            frame.block[POOL] = pool.address if pool else 0
            if ends:
                stopping.begin(frame, limit, stop)
            return run(*given)
        finally:
            if pool:
                pool.taken.clear()
                pool.ended = perf_counter()
            elif frame.parallel:
                self._leave_pool(frame)
            if ends:
                stopping.ended(frame, stop)

    def _raise(self, frame: _Frame, failed: int) -> NoReturn:
        """Raise the error of a failed call."""
        if frame.stopping is not None:
            stopping.raise_kept(frame.stopping)
        raise self._failed(self.interface.bound + failed, frame.block)

    def _execute(
        self, frame: _Frame, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        known = shapes == frame.shapes and not self.interface.requested_dims
        if not known or (frame.blocks and frame.dropped):
            known = False
            self._bound(frame, shapes)
        elif self._setups:
            self._empty(frame)
        if frame.block[ARENA_BYTES] + frame.held > self.most_bytes:
            raise self._refused(self.interface.failures[-1], frame.block)
        outputs = self._allocate(frame, into)
        frame.arena = frame.address
        self._call.pack_into(
            frame.block, WORD * ARENA, frame.arena, 0, *self._addresses, *pointers(arrays),
            *pointers(outputs.values()),
        )  # fmt: skip
        failed = self._shared(frame, self._run, frame.words)
        if frame.unfilled:
            self._keep_filled(frame)
        if failed:
            self._raise(frame, failed)
        if known and frame.table is not None:  # repeated calls find the block filled
            self._expect(frame, frame.table)
        if frame.blocks and frame.dropped:  # by another call meanwhile
            frame.unbind()
        return outputs

    def _bound(self, frame: _Frame, shapes: list[int]) -> None:
        """Compute and check all sizes, unless the frame is bound to these shapes."""
        block, frame.shapes, frame.invoke = frame.block, None, None
        self._shapes.pack_into(block, self._shapes_at, *shapes)
        for dim, word in self.interface.requested_dims:
            block[word] = self.watched.size(dim)
        failed = self._bind(frame.words)
        if failed:
            raise self._failed(failed, block)
        frame.asked_for, frame.parallel = block[ARENA_BYTES], block[PARALLEL]
        if self._setups:
            frame.held = block[self._shared_bytes]
            frame.blocks, frame.unfilled, frame.behind = [], [], False
        sizes, at, frame.results = self._results.unpack_from(block, self._results_at), 0, []
        for _, _, rank in self._outputs:
            frame.results.append(sizes[at : at + rank])
            at += rank
        frame.makers = self._new.makers(frame.results, self._kinds)
        frame.shapes = shapes
        self.steady = False

    def _expect(self, frame: _Frame, table: Table) -> None:
        """Set up the fast path for repeated calls; this one is the second with its sizes.

        Results that the C library would map anew in each call are allocated by numpy over cached
        blocks.
        """
        if frame.invoke is None:
            table.bind(frame.makers, frame.results, self._kinds)
        if frame.invoke is None or self.tensors is not frame.tensors:
            large = self._result_bytes(frame.results) >= MAPPED
            table.take(None if large else self.tensors)
        frame.invoke, frame.tensors, self.steady = table.invoke, self.tensors, True

    def _allocate(
        self, frame: _Frame, into: Mapping[str, numpy.ndarray]
    ) -> dict[str, numpy.ndarray]:
        """Allocate the outputs at the bound sizes, and the arena."""
        outputs = {}
        try:
            if frame.held or self._limited:
                self._take_blocks(frame)
            frame.reserve(frame.asked_for)
            for (name, dtype, _), shape, make in zip(self._outputs, frame.results, frame.makers):
                held = into.get(name) if into else None
                if held is not None and held.shape != shape:
                    raise wrong_shape(self.signature.name, name, held.shape, shape)
                outputs[name] = make(shape, dtype) if held is None else held
        except (MemoryError, ValueError):  # ValueError: above numpy's maximum
            failed, made = self.interface.failures[-1], self._result_bytes(frame.results)
            needed = frame.block[ARENA_BYTES] + frame.held
            frame.unbind()
            raise no_memory(failed, frame.block, needed, made) from None
        return outputs

    def _result_bytes(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Bytes of all results."""
        kinds = (dtype.itemsize for _, dtype, _ in self._outputs)
        return sum(size * math.prod(shape) for size, shape in zip(kinds, shapes))

    # ---- values of sizes alone -----------------------------------------------------------------

    def _empty(self, frame: _Frame) -> None:
        """Mark blocks in the arena as empty: it may have moved or been freed."""
        for setup in self._setups:
            if frame.block[setup.first + BEHIND] >= 0:
                frame.block[setup.first + EMPTY] = 1

    def _take_blocks(self, frame: _Frame) -> None:
        """Find the blocks of the bound sizes, or allocate them."""
        if not (frame.blocks or frame.behind):
            shapes, frame.shapes = frame.shapes, None  # a signal handler may raise meanwhile
            self._find_blocks(frame)
            frame.shapes = shapes
        if self._limited:
            own = tuple([each.key for each in frame.blocks])
            most = self.most_bytes - frame.block[ARENA_BYTES] - frame.held
            self.size_values.make_room(most, own)
            self._forget(True)

    def _find_blocks(self, frame: _Frame) -> None:
        block, values = frame.block, self.size_values
        for setup in self._setups:
            first = setup.first
            bytes = block[first + BYTES]
            if bytes > values.most_bytes:
                block[first + BEHIND] = frame.asked_for
                frame.asked_for += bytes
                frame.behind = True
            elif bytes:
                key = (setup.number, *[block[word] for word in setup.dims])
                found = values.find(key)
                if found is None:
                    found = Block(key, bytes)
                    frame.unfilled.append((setup, found))
                else:
                    block[first + EMPTY] = 0
                block[first + ADDRESS] = found.address
                frame.blocks.append(found)

    def _keep_filled(self, frame: _Frame) -> None:
        """Cache the blocks that a run has filled."""
        filled = [pair for pair in frame.unfilled if not frame.block[pair[0].first + EMPTY]]
        for pair in filled:
            dropped = self.size_values.put(pair[1])
            frame.unfilled.remove(pair)
            self._forget(dropped)

    def _forget(self, dropped: bool) -> None:
        """Release dropped blocks of idle frames; other frames bind again."""
        if not dropped:
            return
        for frame in [known() for known in self._every]:
            if isinstance(frame, _Frame) and frame.dropped:
                frame.invoke = None  # a call in progress releases it at its end
        if any(frame.dropped for frame in self._frames.free()):
            self._frames.visit(_let_go)

    def _counted(self, bytes: int) -> None:
        """Update the memory limit of arenas for the bytes of cached blocks."""
        self._limited = self._most_bytes != UNLIMITED and bool(self.interface.setups)
        self._most_arena = self._most_bytes - bytes if self._limited else self._most_bytes

    # ---- memory --------------------------------------------------------------------------------

    @property
    def most_bytes(self) -> int:
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, most: int) -> None:
        self._most_bytes = most
        self._counted(self.size_values.bytes)

    def twin(self, devices: Mapping[str, Hosted] | None = None) -> StraightExecutable:
        made = super().twin(devices)
        assert isinstance(made, StraightExecutable)
        made.size_values.most_bytes = self.size_values.most_bytes
        return made

    def trim(self) -> int:
        self._new.trim()
        given = self.size_values.clear()
        self._forget(given > 0)
        return given + super().trim()

    @property
    def arena_bytes(self) -> int:
        """Bytes of idle arenas and of cached size values."""
        return self.size_values.bytes + sum(frame.bytes for frame in self._frames.free())

    @property
    def result_bytes(self) -> int:
        return self._new.kept

    @property
    def highest_arena_bytes(self) -> int:
        """The maximum number of bytes that an idle arena ever held."""
        return max((frame.highest for frame in self._frames.free()), default=0)


def _let_go(frame: _Frame) -> None:
    if frame.dropped:
        frame.unbind()
