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
from anydim.runtime.bound_sizes import UNBOUND, BoundSizes, Key, key_axes, key_of
from anydim.runtime.device_calls import Hosted
from anydim.runtime.executable import UNLIMITED, WORD, Constants, Executable, wrong_shape
from anydim.runtime.failures import no_memory
from anydim.runtime.frames import IDLE
from anydim.runtime.invoke import POSSIBLE, Invoke, NewResults, Table
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

_MOST_KNOWN = 128  # sizes that a frame can be bound to again
_MOST_SEEN = 1024  # sizes of its calls that are noted
_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True)
class _Setup:
    """Slots of a setup: its own first slot, and those of the dims that it depends on."""

    number: int
    first: int
    dims: tuple[int, ...]


class _Held(Constants):
    """Constants, the addresses of their table and of the table of code, and values of sizes."""

    addresses: tuple[int, ...]
    size_values: SizeValues


class _Frame(Arena):
    """The memory of a call in progress: an arena, and a block of slots at `words`.

    The block is bound to the sizes `bound`; `known` are sizes that it can be bound to again, and
    `seen` are keys of sizes that it was bound to. `stops` has the slots for interruption, as region
    calls have them.
    """

    def __init__(self, words: int, stops: bool, setups: bool, held: _Held) -> None:
        super().__init__()
        self.held = held
        self.setups = setups  # whether blocks may be behind the arena
        self.block = (ctypes.c_int64 * words)()
        self.words = ctypes.addressof(self.block)
        self.memory = memoryview(self.block).cast("B")
        self.since = IDLE
        self.bound = UNBOUND
        self.shapes: list[int] | None = None  # of the last repeated call
        self.known: dict[Key, BoundSizes] = {}
        self.seen: dict[Key, None] = {}
        self.key: Key | None = None  # of the call in progress, if determined
        self.arena = 0  # its address in the block
        self.table: Table | None = None  # of repeated calls
        self.invoke: Invoke | None = None  # its function while the block is bound
        self.tensors: type | None = None  # class of tensors accepted besides numpy arrays
        self.unfilled: list[tuple[_Setup, Block]] = []
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
        return self.bound.dropped or any(each.dropped for each in list(self.known.values()))

    def unbind(self) -> None:
        """Release all blocks; the next calls bind sizes again."""
        self.bound, self.invoke = UNBOUND, None
        self.known, self.unfilled = {}, []

    def rebind(self, bound: BoundSizes, table: Table) -> None:
        """Bind to known sizes. A signal handler that raises meanwhile leaves it unbound."""
        self.bound, self.invoke = UNBOUND, None
        assert bound.new is not None
        self.memory[:] = bound.slots
        self.block[ARENA] = self.arena = self.address
        table.bind(bound.new)
        self.bound = bound

    def keep_bound(self, key: Key) -> None:
        """Keep the bound sizes, most recent last, without the least recently used ones."""
        known = self.known
        if known.pop(key, None) is not self.bound:
            self.bound.slots = bytes(self.memory)
        known[key] = self.bound
        if len(known) > _MOST_KNOWN:
            del known[next(iter(known))]

    def note(self, key: Key) -> bool:
        """Note sizes of a call; return whether they were seen before."""
        if key in self.seen:
            return True
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen[key] = None
        return False

    def set_deadline(self, deadline: int) -> None:
        """Set the deadline of the call, 0: none."""
        if self.stopping is not None:
            self.stopping[context.DEADLINE] = deadline


class StraightExecutable(Executable[_Frame]):
    """One segment, which checks its inputs and writes results to where they are wanted."""

    direct = True
    held: _Held

    def __init__(self, *made: Any, **more: Any) -> None:
        super().__init__(*made, **more)
        interface, signature = self.interface, self.signature
        self._bind, self._run = (_CALL(self._function(role)) for role in ("bind", "run"))
        self._shapes = struct.Struct(f"{sum(spec.rank for spec in signature.inputs)}q")
        self._shapes_at = WORD * interface.shapes
        self._results = struct.Struct(f"{sum(spec.rank for spec in signature.outputs)}q")
        self._results_at = WORD * (interface.results[0][2] if interface.results else 0)
        arrays = len(signature.inputs) + len(signature.outputs)
        self._call = struct.Struct(f"{4 + arrays}Q")
        self._new = Results()
        self._slots = self._words_of_arrays() if POSSIBLE and not interface.requested_dims else []
        self._kinds = [dtype for _, dtype, _ in self._outputs]
        self._key_axes = key_axes(signature)
        self._stops = any(failure.kind in stopping.FAILURES for failure in interface.failures)
        self._setups = [
            _Setup(number, each.block, each.dims) for number, each in enumerate(interface.setups)
        ]
        if self._setups:
            self.size_values.most_bytes = settings.size_values_mb << 20
        self._shared_bytes = interface.setups[0].block - 1 if self._setups else 0

    def _hold(self, arrays: Mapping[str, numpy.ndarray]) -> _Held:
        held, before = _Held(self.interface, arrays), getattr(self, "held", None)
        held.addresses = tuple(pointers((held.tables[CONSTANTS], self.entries[CODE])))
        most = 0 if before is None else before.size_values.most_bytes
        held.size_values = SizeValues(most, changed=self._count_blocks)
        return held

    @property
    def size_values(self) -> SizeValues:
        """The cached values of sizes, which may depend on constants."""
        return self.held.size_values

    def _frame(self) -> _Frame:
        frame = _Frame(self.interface.words, self._stops, bool(self._setups), self.held)
        if self._slots:
            functions = map(self._function, ("invoke", "run"))
            frame.table = Table(self.signature, frame.words, self._slots, *functions)
        return frame

    def _repeat(
        self, frame: _Frame, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None
    ) -> dict[str, Any] | None:
        if self.watched.has_checks:
            return None
        outputs: dict[str, Any] | None = None
        invoke, needed = frame.invoke, frame.bound.asked_for
        if invoke is not None and needed <= frame.bytes and needed <= self._most_arena:
            if frame.address == frame.arena:  # not freed, not moved
                outputs = self._repeat_bound(frame, invoke, given, into)
        if outputs is None and frame.known:
            invoke = self._rebound(frame, given)
            if invoke is not None:
                outputs = self._repeat_bound(frame, invoke, given, into)
        return outputs

    def _repeat_bound(
        self, frame: _Frame, invoke: Invoke, given: Mapping[str, Any],
        into: Mapping[str, numpy.ndarray] | None,
    ) -> dict[str, Any] | None:  # fmt: skip
        """Run a call with the sizes that the frame is bound to; None if it has others."""
        bound = frame.bound
        frame.needed, frame.shapes = bound.asked_for, bound.shapes
        outputs = self._run_shared(frame, invoke, given, into)
        if outputs is False:
            assert frame.table is not None
            self._raise(frame, frame.table.failed)
        if frame.invoke is None or (bound.blocks and bound.dropped):  # meanwhile
            frame.unbind()
        found: dict[str, Any] | None = outputs
        return found

    def _rebound(self, frame: _Frame, given: Mapping[str, Any]) -> Invoke | None:
        """Bind the frame to the sizes of these inputs, if it was bound to them before."""
        key, table = key_of(given, self._key_axes), frame.table
        frame.key = key
        bound = None if key is None else frame.known.get(key)
        if key is None or table is None or bound is None or bound is frame.bound or bound.dropped:
            return None
        if bound.asked_for > frame.bytes or bound.asked_for > self._most_arena:
            return None
        frame.rebind(bound, table)
        frame.keep_bound(key)
        if self._setups:
            self._empty(frame)
        self._new.expect(0)
        self._take_tensors(frame, table, self.tensors)
        frame.invoke = table.invoke
        return table.invoke

    def _run_shared(self, frame: _Frame, run: Callable[..., Any], *given: Any) -> Any:
        """Call `run`, with threads if worthwhile, under a time limit or stop if set."""
        limit, stop, parallel = self.timeout, stopping.STOP.get(), frame.bound.parallel
        ends = limit is not None or stop is not None
        if not (ends or parallel):
            return run(*given)
        pool: Pool | None = None
        try:
            if parallel:
                pool = self._take_pool(frame)
            if pool:
                frame.block[PARALLEL] = pool.worth(parallel)
            frame.block[POOL] = pool.address if pool else 0
            if ends:
                stopping.begin(frame, limit, stop)
            return run(*given)
        finally:
            if pool:
                pool.taken.clear()
                pool.ended = perf_counter()
            elif parallel:
                self._leave_pool(frame)
            if ends:
                stopping.end_call(frame, stop)

    def _raise(self, frame: _Frame, failed: int) -> NoReturn:
        """Raise the error of a failed call."""
        if frame.stopping is not None:
            stopping.raise_kept(frame.stopping)
        raise self._failure_error(self.interface.bound + failed, frame.block)

    def _execute(
        self, frame: _Frame, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        known = shapes == frame.bound.shapes and not self.interface.requested_dims
        if not known or (frame.bound.blocks and frame.bound.dropped):
            known = False
            self._bind_shapes(frame, shapes)
        elif self._setups:
            self._empty(frame)
        if frame.block[ARENA_BYTES] + frame.bound.held > self.most_bytes:
            raise self._memory_error(self.interface.failures[-1], frame.block)
        outputs = self._allocate(frame, into)
        frame.arena = frame.address
        self._call.pack_into(
            frame.block, WORD * ARENA, frame.arena, 0, *frame.held.addresses, *pointers(arrays),
            *pointers(outputs.values()),
        )  # fmt: skip
        failed = self._run_shared(frame, self._run, frame.words)
        if frame.unfilled:
            self._keep_filled(frame)
        if failed:
            self._raise(frame, failed)
        if frame.table is not None:  # repeated calls find the block filled
            key, frame.key = frame.key, None
            if key is None:
                key = tuple([shapes[index] for _, _, index in self._key_axes])
            if frame.note(key) or known:
                self._expect(frame, frame.table, key)
        if frame.bound.blocks and frame.bound.dropped:  # by another call meanwhile
            frame.unbind()
        return outputs

    def _bind_shapes(self, frame: _Frame, shapes: list[int]) -> None:
        """Compute and check all sizes, unless the frame is bound to these shapes."""
        frame.bound, frame.invoke, frame.unfilled = UNBOUND, None, []
        block, bound = frame.block, BoundSizes()
        self._shapes.pack_into(block, self._shapes_at, *shapes)
        for dim, word in self.interface.requested_dims:
            block[word] = self.watched.size(dim)
        failed = self._bind(frame.words)
        if failed:
            raise self._failure_error(failed, block)
        bound.asked_for, bound.parallel = block[ARENA_BYTES], block[PARALLEL]
        if self._setups:
            bound.held = block[self._shared_bytes]
        sizes, at = self._results.unpack_from(block, self._results_at), 0
        bound.results = found = []
        for _, _, rank in self._outputs:
            found.append(sizes[at : at + rank])
            at += rank
        bound.makers = self._new.makers(bound.results, self._kinds)
        bound.shapes = shapes
        frame.bound = bound
        self.steady = bool(frame.known)

    def _expect(self, frame: _Frame, table: Table, key: Key) -> None:
        """Set up the fast path for repeated calls; this one is the second with its sizes.

        Results that the C library would map anew in each call are allocated by numpy over cached
        blocks, those of the last sizes only.
        """
        bound = frame.bound
        if frame.invoke is None:
            bound.new = bound.new or NewResults(bound.makers, bound.results, self._kinds)
            table.bind(bound.new)
        large = self._result_bytes(bound.results) >= MAPPED
        self._take_tensors(frame, table, None if large else self.tensors)
        if not (large or frame.unfilled):
            frame.keep_bound(key)
        frame.invoke, self.steady = table.invoke, True

    def _take_tensors(self, frame: _Frame, table: Table, kind: type | None) -> None:
        """Accept tensors of a class besides numpy arrays."""
        if kind is not frame.tensors:
            table.take(kind)
            frame.tensors = kind

    def _allocate(
        self, frame: _Frame, into: Mapping[str, numpy.ndarray]
    ) -> dict[str, numpy.ndarray]:
        """Allocate the outputs at the bound sizes, and the arena."""
        outputs = {}
        try:
            if frame.bound.held or self._limited:
                self._take_blocks(frame)
            bound = frame.bound
            frame.reserve(bound.asked_for)
            for (name, dtype, _), shape, make in zip(self._outputs, bound.results, bound.makers):
                held = into.get(name) if into else None
                if held is not None and held.shape != shape:
                    raise wrong_shape(self.signature.name, name, held.shape, shape)
                outputs[name] = make(shape, dtype) if held is None else held
        except (MemoryError, ValueError):  # ValueError: above numpy's maximum
            failed, made = self.interface.failures[-1], self._result_bytes(frame.bound.results)
            needed = frame.block[ARENA_BYTES] + frame.bound.held
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
        bound = frame.bound
        if not (bound.blocks or bound.behind):
            frame.bound = UNBOUND  # a signal handler may raise meanwhile
            self._find_blocks(frame, bound)
            frame.bound = bound
        if self._limited:
            own = tuple([each.key for each in bound.blocks])
            most = self.most_bytes - frame.block[ARENA_BYTES] - bound.held
            frame.held.size_values.make_room(most, own)
            self._forget(True)

    def _find_blocks(self, frame: _Frame, bound: BoundSizes) -> None:
        block, values = frame.block, frame.held.size_values
        bound.blocks = blocks = []
        for setup in self._setups:
            first = setup.first
            bytes = block[first + BYTES]
            if bytes > values.most_bytes:
                block[first + BEHIND] = bound.asked_for
                bound.asked_for += bytes
                bound.behind = True
            elif bytes:
                key = (setup.number, *[block[word] for word in setup.dims])
                found = values.find(key)
                if found is None:
                    found = Block(key, bytes)
                    frame.unfilled.append((setup, found))
                else:
                    block[first + EMPTY] = 0
                block[first + ADDRESS] = found.address
                blocks.append(found)

    def _keep_filled(self, frame: _Frame) -> None:
        """Cache the blocks that a run has filled."""
        filled = [pair for pair in frame.unfilled if not frame.block[pair[0].first + EMPTY]]
        for pair in filled:
            dropped = frame.held.size_values.put(pair[1])
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

    def _count_blocks(self, bytes: int) -> None:
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
        self._count_blocks(self.size_values.bytes)

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
