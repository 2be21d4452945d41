"""A callable program of regions: one native call, whatever control flow its data selects."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.runtime import context, slots, stopping
from anydim.runtime.arrays import AtAddress, wrapper
from anydim.runtime.escaped_blocks import BlockCache, bytes_alone, own_block
from anydim.runtime.executable import UNLIMITED, WORD, Executable, pointer, wrong_shape
from anydim.runtime.failures import Failure, no_memory
from anydim.runtime.frames import IDLE, trim_system
from anydim.runtime.interface import OnDevice
from anydim.runtime.invoke import POSSIBLE, Invoke, NewResults, Table
from anydim.runtime.pointers import fill, pointers
from anydim.runtime.results import MAPPED
from anydim.runtime.system_functions import memory_functions
from anydim.runtime.threads import Pool

COPIED_BELOW = 1 << 16  # results below this size in bytes are copied instead of owned
WORTH_TRIMMING = 16 << 20  # freed bytes from which malloc is trimmed
_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_CLEAR = ctypes.PYFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p
)  # too short to release the interpreter's lock
_TRIM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_LEAVE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class RegionExecutable(Executable["_Frame"]):
    """Regions with the signature of the outermost one; native code owns all intermediate values."""

    direct = False

    def __init__(self, *made: Any, **more: Any) -> None:
        super().__init__(*made, **more)
        self.leaked = 0  # blocks that successful calls leaked; nonzero is a bug
        self._run = _CALL(self._function("run"))
        self._clear = _CLEAR(self._function("clear"))
        self._trim = _TRIM(self._function("trim"))
        self._leave = _LEAVE(self._function("leave"))
        interface = self.interface
        self._homes = tuple(each.home for each in interface.devices)
        self._left = BlockCache()
        self._keep = weakref.ref(self._left)
        self._elsewhere = bool(self.devices or interface.handed)
        self._clear_device: Any = None
        self._trim_device: Any = None
        if self._homes:
            self._clear_device = _CALL(self._function("device_clear"))
            self._trim_device = _TRIM(self._function("device_trim"))
            self._leave_device = _LEAVE(self._function("device_leave"))
        self._on_devices = [self._words_of_device(each) for each in self.interface.devices]
        inputs = self.signature.inputs
        self._numbers = {spec.name: number for number, spec in enumerate(inputs)}
        ranks = sum(spec.rank for spec in inputs)
        self._pointers, self._pointers_at = (
            struct.Struct(f"{len(inputs)}Q"),
            WORD * interface.inputs,
        )
        self._sizes, self._sizes_at = struct.Struct(f"{ranks}q"), WORD * interface.shapes
        self._given: struct.Struct | None = None  # addresses and shapes in one write, if adjacent
        if interface.inputs + len(inputs) == interface.shapes:
            self._given = struct.Struct(f"{len(inputs)}Q{ranks}q")
        alone = POSSIBLE and not self._elsewhere and not interface.requested_dims
        alone = alone and not self.updates
        self._slots = self._words_of_arrays() if alone else []
        self._makers = [numpy.empty] * len(self._outputs)
        self._kinds = [dtype for _, dtype, _ in self._outputs]
        self._results = [
            (name, dtype, dtype.itemsize, data, owner, WORD * first, struct.Struct(f"{rank}q"))
            for (name, dtype, rank), (data, owner, first) in zip(self._outputs, interface.results)
        ]

    def _execute(
        self, frame: _Frame, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        block, frame.invoke = frame.block, None
        if self.updates:
            arrays, into = self._writable(arrays, into)
        self._left.lend(block)
        block[context.PEAK] = 0
        if self._given is not None:
            self._given.pack_into(block, self._pointers_at, *pointers(arrays), *shapes)
        else:
            self._pointers.pack_into(block, self._pointers_at, *pointers(arrays))
            self._sizes.pack_into(block, self._sizes_at, *shapes)
        limited = self.most_bytes != UNLIMITED
        for dim, word in self.interface.requested_dims:
            block[word] = self.watched.size(dim)
        block[context.ALLOWED] = 1 + self.most_bytes if limited else 0
        if self._elsewhere:
            self._begin(frame, limited, arrays)
        outputs = self._run_call(frame, partial(self._run, frame.address), into)
        assert outputs is not None
        again, frame.shapes = shapes == frame.shapes, shapes
        self.steady = again and frame.table is not None and not limited
        if frame.table is not None and self.steady:
            frame.table.take(self.tensors)
            frame.invoke = frame.table.invoke
        return outputs

    def _writable(
        self, arrays: list[numpy.ndarray], into: Mapping[str, numpy.ndarray]
    ) -> tuple[list[numpy.ndarray], Mapping[str, numpy.ndarray]]:
        """Inputs with copies of those that are updated in place but not given as results, too."""
        made, results = list(arrays), dict(into)
        for result, name in self.updates:
            number = self._numbers[name]
            array, held = arrays[number], into.get(result)
            if held is None or pointer(held) != pointer(array):
                made[number] = array.copy()
                results.setdefault(result, made[number])
        return made, results

    def _repeat(
        self, frame: _Frame, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None
    ) -> dict[str, Any] | None:
        invoke, table = frame.invoke, frame.table
        if invoke is None or table is None or into or type(given) is not dict:
            return None
        if self.most_bytes != UNLIMITED or self.watched.has_checks:
            return None
        self._left.lend(frame.block)
        frame.block[context.PEAK] = 0
        held = given.copy()  # results may alias inputs until they are copied
        if not self._serial or self.timeout is not None or stopping.STOP.get() is not None:
            return _export_results(
                self._run_call(frame, lambda: _number(invoke(held, None), table), {}), held
            )
        try:
            found = invoke(held, None)
        except BaseException:  # from a signal handler
            self._clear(frame.address)
            raise
        if type(found) is bool:
            return _export_results(self._run_call(frame, lambda: _number(found, table), {}), held)
        frame.settle()
        outputs: dict[str, Any] | None = found
        return outputs

    def _run_call(
        self, frame: _Frame, run: Callable[[], Any], into: Mapping[str, numpy.ndarray]
    ) -> dict[str, Any] | None:
        """Return the outputs that `run` returns, or leaves in memory if it returns 0; None if it
        declines.

        Any other number is a failure.
        """
        block = frame.block
        pool: Pool | None = None
        held: int | None = None
        limit, stop = self.timeout, stopping.STOP.get()
        ends = limit is not None or stop is not None
        try:
            try:
                if not self._serial:
                    pool = self._take_pool(frame)
                if pool:
                    block[context.POOL] = pool.address
                if ends:
                    stopping.begin(frame, limit, stop)
                outputs = run()
            finally:
                block[context.POOL] = 0
                if pool:
                    pool.taken.clear()
                elif not self._serial:
                    self._leave_pool(frame)
                if ends:
                    stopping.end_call(frame, stop)
            if outputs is None or type(outputs) is dict:
                held = 0
            elif outputs:
                self._raise(outputs, block)
            else:
                outputs, held = self._take_results(frame, into)
            found: dict[str, Any] | None = outputs
            return found
        finally:
            left = self._clear(frame.address)
            for at in self._homes:
                left += self._clear_device(frame.address + WORD * at)
            if held is not None:
                self.leaked += left - held
            frame.settle()

    def keep_on_device(self, names: Sequence[str]) -> None:
        """Let later calls return these results as arrays on their devices.

        Raises OptionError for a result that no segment on a device with DLPack's addresses made.
        """
        results = {spec.key: spec.name for spec in self.signature.outputs}
        for name in names:
            if results.get(name) not in self.resident:
                known = [key for key, inner in results.items() if inner in self.resident]
                raise OptionError(
                    f"{self.signature.name}: result '{name}' cannot stay on a device",
                    f"those that can are {quote_list(known)}"
                    if known
                    else "place the nodes that make it on a 'cuda' device",
                )
        self.kept = {name: results[name] for name in names}

    def _leave_on_device(
        self, frame: _Frame, name: str, dtype: numpy.dtype, shape: tuple[int, ...], data: int,
        owner: int,
    ) -> Any:  # fmt: skip
        """Return a result in its block of a device, which leaves the call's memory."""
        alias, _ = self.resident[name]
        home = next(each.home for each in self.interface.devices if each.name == alias)
        self._leave_device(frame.address + WORD * home, owner)
        return self.devices[alias].own_array(data, shape, dtype, owner)

    def _begin(self, frame: _Frame, limited: bool, arrays: Sequence[numpy.ndarray]) -> None:
        """Prepare a call that uses devices or engines."""
        block = frame.block
        for at in self._homes:  # memory of all devices counts
            block[at + context.PEAK] = 0
            block[at + context.ALLOWED] = frame.address if limited else 0
        for *_, word in self.interface.resident:
            block[word] = 0
        stay = {spec.name for spec, array in zip(self.signature.inputs, arrays)
                if type(array) is AtAddress}  # fmt: skip
        for name in (*stay, *self.kept.values()):
            block[self.resident[name][1]] = 1
        for device in self.devices.values():
            device.begin()
        self.handed.begin()

    def _raise(self, failed: int, block: Any) -> NoReturn:
        """Raise the error of a failed call."""
        refused, block[context.REFUSED] = block[context.REFUSED], 0
        for device in self.devices.values():  # it may still write to memory that is freed
            device.settle()
        stopping.raise_kept(block)
        for device in self.devices.values():
            device.raise_kept()
        self.handed.raise_kept()
        if refused:
            raise self._memory_error(self.interface.failures[failed - 1], block)
        raise self._failure_error(failed, block)

    def _take_results(
        self, frame: _Frame, into: Mapping[str, numpy.ndarray]
    ) -> tuple[dict[str, Any], int]:
        """Return the outputs, and the number of blocks that remain in the call's memory."""
        block = frame.block
        outputs: dict[str, Any] = {}
        held: set[int] = set()
        copied: list[int] = []
        large = 0
        for name, dtype, bytes, data_at, owner_at, first, sizes in self._results:
            data, owner, shape = block[data_at], block[owner_at], sizes.unpack_from(block, first)
            for size in shape:
                bytes *= size
            made = into.get(name) if into else None
            if name in self.kept:
                outputs[name] = self._leave_on_device(
                    frame, self.kept[name], dtype, shape, data, owner
                )
                continue
            if made is None:
                room = bytes_alone(data, owner, bytes) if bytes >= COPIED_BELOW else 0
                if room:
                    self._leave(frame.address, owner)
                    kept = room >= MAPPED
                    copied.append(-1)
                    outputs[name] = own_block(owner, dtype, shape, self._keep if kept else None)
                    large += room if kept else 0
                    continue
                try:
                    made = numpy.empty(shape, dtype)
                except MemoryError:
                    failed = Failure("memory", self.signature)
                    raise no_memory(failed, (), 0, bytes) from None
            elif made.shape != shape:
                raise wrong_shape(self.signature.name, name, made.shape, shape)
            outputs[name] = made
            if not self.updates or pointer(made) != data:  # else it was updated in place
                fill(made, data, bytes)
            copied.append(bytes if bytes < COPIED_BELOW else -1)
            if owner:
                held.add(owner)
        self._left.expect(large)
        shapes = [each.shape for each in outputs.values()]
        if frame.table is not None and shapes == frame.results != frame.expected:
            frame.table.bind(NewResults(self._makers, shapes, self._kinds))
            frame.table.expect(copied)
            frame.expected = shapes
        frame.results = shapes
        return outputs, len(held)

    def _frame(self) -> _Frame:
        interface = self.interface
        held = self.held
        words = {word: pointer(held.arrays[name]) for word, name in interface.constants}
        words |= {word: pointer(table) for word, table in (held.tables | self.entries).items()}
        words |= dict(interface.numbers) | dict(self.handed.functions())
        for filled, _ in self._on_devices:
            words |= filled
        keep = (self._image, self.devices, self._on_devices, self.handed, held)
        trims = [(0, self._trim), *((at, self._trim_device) for at in self._homes)]
        frame = _Frame(interface.words, words, trims, keep)
        if self._slots:
            roles = ("invoke", "run", "clear")
            functions = map(self._function, roles)
            frame.table = Table(self.signature, frame.address, self._slots, *functions)
        return frame

    def _words_of_device(self, uses: OnDevice) -> tuple[dict[int, int], list[numpy.ndarray]]:
        """Return the slot values of a device in a call's memory, and the tables that they refer
        to."""
        device, arrays = self.devices[uses.name], self.held.of_devices
        address = device.upload({name: arrays[name] for name in uses.held})
        words = {uses.home + word: value for word, value in device.words.items()}
        words |= {word: address[name] for word, name in uses.constants}
        words[uses.home + slots.EMPTY] = device.empty()
        tables = {
            **{word: [address[name] for name in names] for word, names in uses.tables},
            **{word: [device.entry(name) for name in names] for word, names in uses.entries},
        }
        kept = {word: numpy.array(table, numpy.uint64) for word, table in tables.items()}
        words |= {word: pointer(table) for word, table in kept.items()}
        malloc, free = memory_functions()[:2]
        words |= {uses.home + slots.MALLOC: malloc, uses.home + slots.FREE_HEAD: free}
        return words, list(kept.values())

    # ---- memory --------------------------------------------------------------------------------

    def trim(self) -> int:
        self._left.trim()
        return super().trim()

    @property
    def arena_bytes(self) -> int:
        """Bytes that all idle calls keep cached."""
        return sum(frame.bytes for frame in self._frames.free())

    @property
    def result_bytes(self) -> int:
        return self._left.kept

    @property
    def highest_arena_bytes(self) -> int:
        """The maximum number of bytes that an idle call ever held."""
        return max((frame.highest for frame in self._frames.free()), default=0)


def _number(found: Any, table: Table) -> Any:
    """Return the result of the builtin function, or the failure number if it returned False."""
    return table.failed if found is False else 0 if found is True else found


def _export_results(
    outputs: dict[str, Any] | None, given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return results that are arrays in the library of the inputs, as `Executable` does."""
    wrap = None if outputs is None else wrapper(list(given.values()))
    if outputs is None or wrap is None:
        return outputs
    return {
        name: wrap(each) if isinstance(each, numpy.ndarray) else each
        for name, each in outputs.items()
    }


class _Frame:
    """The memory of a call in progress; freed with this object.

    `trims` are the offsets of the slots of the host's blocks and of each device's, with the
    function that frees them; `code` is kept alive for it.
    """

    def __init__(
        self, words: int, filled: Mapping[int, int], trims: Sequence[tuple[int, Any]], code: Any
    ) -> None:
        self.block = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.block)
        self.shapes: list[int] = []
        self.table: Table | None = None  # of repeated calls
        self.invoke: Invoke | None = None  # its function, if created
        self.results: list[tuple[int, ...]] = []  # shapes of the last results
        self.expected: list[tuple[int, ...]] = []  # shapes of results that repeated calls copy
        self.highest = 0
        self.bytes = 0  # cached for the next call
        self.needed = 0  # bytes, by the call in progress
        self.since = IDLE
        self._trims, self._devices = trims, tuple(at for at, _ in trims if at)
        self.block[context.MALLOC : context.FILL + 1] = list(memory_functions())
        stopping.prepare(self.block)
        for word, value in filled.items():
            self.block[word] = value
        weakref.finalize(self, _give_back, self.block, trims, code).atexit = False

    def set_deadline(self, deadline: int) -> None:
        """Set the deadline of the call, 0: none."""
        self.block[context.DEADLINE] = deadline

    def settle(self) -> None:
        """Update the cache after a call."""
        block = self.block
        needed, kept = block[context.PEAK], block[context.CACHED_BYTES]
        for at in self._devices:
            needed += block[at + context.PEAK]
            kept += block[at + context.CACHED_BYTES]
        self.needed, self.bytes = needed, kept
        if needed > self.highest:
            self.highest = needed

    def keep(self, most: int) -> None:
        """Return all but `most` bytes to the system."""
        before = self.bytes
        for at, trim in self._trims:  # proportional shares
            own = self.block[at + context.CACHED_BYTES]
            share = most if len(self._trims) == 1 else most * own // max(before, 1)
            self.block[at + context.LIMIT] = share
            trim(self.address + WORD * at, share)
        self.bytes = sum(self.block[at + context.CACHED_BYTES] for at, _ in self._trims)
        if before - self.bytes >= WORTH_TRIMMING:
            trim_system()


def _give_back(
    block: ctypes.Array[ctypes.c_int64], trims: Sequence[tuple[int, Any]], code: Any
) -> None:
    """Free all blocks while the code is still loaded."""
    for at, trim in trims:
        trim(ctypes.addressof(block) + WORD * at, 0)
