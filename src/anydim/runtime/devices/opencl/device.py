"""The driver of an OpenCL device: a context, a queue for kernels, one for copies, and programs.

The two queues behave as if in call order: a copy waits for earlier kernels on its block, a kernel
for the copies of its blocks. Unchanged arguments of a kernel's last launch are not set again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_int64, c_size_t, c_void_p
from dataclasses import field

from anydim.base.records import dataclass
from anydim.runtime.devices.addresses import Blocks
from anydim.runtime.devices.device import Device, Launch
from anydim.runtime.devices.opencl import inventory
from anydim.runtime.devices.opencl.libopencl import Library, library
from anydim.runtime.devices.opencl.programs import build
from anydim.runtime.devices.opencl.watching import PROFILED, Watched

_COMPILE_GROUP = 0x11B1
_ITEMS_ELSEWHERE = 256  # work-items per compute unit other than a CPU core, of range kernels


@dataclass(eq=False)
class _Block:
    """Memory: its handle, the event and the number of its last copy, the number of its last
    launch."""

    memory: c_void_p
    copied: int = 0
    copy: int = 0
    worked: int = 0


@dataclass
class Kernel:
    """A launchable kernel: `group` work-items per group, 0: any number."""

    handle: int
    name: str
    group: int
    given: list[object] = field(default_factory=list)  # its current arguments


def context_of(library: Library, handles: Sequence[int]) -> int:
    """Create a context of devices."""
    given = (c_void_p * len(handles))(*handles)
    return library.make("clCreateContext", None, len(handles), given, None, None)


class OpenClDevice(Device):
    """Device `number` of OpenCL; raises DeviceError if there is none."""

    target = "opencl"  # for a processor
    shared = False  # whether it works in host memory

    def __init__(self, name: str = "opencl:0", number: int = 0) -> None:
        super().__init__(name)
        self.found = inventory.device(number)
        if not self.found.processor:
            self.target = "opencl-groups"
        self.workers = self.found.units * (1 if self.found.processor else _ITEMS_ELSEWHERE)
        self.library = library()
        self._context = self._made_context()
        self._work, self._copies = self._queues(0)
        self._profiled: tuple[int, int] | None = None  # profiling queues while watching
        self._watched: Watched | None = None
        self._blocks: Blocks[_Block] = Blocks()
        self._kernels: list[Kernel] = []
        self._programs: list[int] = []
        self._launched = self._waited = 0  # launches, and those that copies have waited for
        self._copied = self._arrived = 0  # copies, and those known to be done
        self._events: dict[int, tuple[int, ...]] = {}
        self._until: dict[int, tuple[int, int]] = {}  # launches and copies before each event
        self._last_event = 0
        self._staged: dict[int, list[object]] = {}
        self._staging: list[object] = []

    def _made_context(self) -> int:
        """Create its own context."""
        return context_of(self.library, (self.found.handle,))

    @property
    def identity(self) -> str:
        """The device and its driver version."""
        return self.found.identity

    # ---- times ---------------------------------------------------------------------------------

    def _queues(self, properties: int) -> tuple[int, int]:
        given = (self._context, self.found.handle, properties)
        first, second = (self.library.make("clCreateCommandQueue", *given) for _ in range(2))
        return first, second

    def _use(self, work: int, copies: int, watched: Watched | None) -> None:
        """Switch to other queues; the device is idle."""
        self._work, self._copies, self._watched = work, copies, watched

    def watch(self) -> bool:
        with self._lock:
            if self._watched is not None:
                return False
            self._usual = self._work, self._copies
            self._profiled = self._profiled or self._queues(PROFILED)
            self._synchronise()
            self._use(*self._profiled, Watched(self.library))
            return True

    def command_number(self) -> int:
        return len(self._watched or ()) - 1

    def unwatch(self) -> list[tuple[int, int]]:
        with self._lock:
            watched = self._watched
            if watched is None:
                return []
            self._synchronise()
            self._use(*self._usual, None)
            return watched.times()

    def _enqueue(self, name: str, *given: object) -> None:
        """Enqueue a command; its event is kept only while watching."""
        if self._watched is None:
            self.library.do(name, *given, None)
            return
        event = c_void_p()
        self.library.do(name, *given, byref(event))
        self._watched.add(event.value or 0)
        self.library.do("clReleaseEvent", event)

    # ---- memory --------------------------------------------------------------------------------

    def _allocate(self, bytes: int) -> int:
        memory = self.library.make("clCreateBuffer", self._context, 1, bytes, None)
        return self._blocks.add(_Block(c_void_p(memory)))

    def _free(self, address: int) -> None:
        block = self._blocks.remove(address)
        self._forget([block])
        self.library.do("clReleaseMemObject", block.memory)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        block, at = self._blocks.find(target)
        idle = block.worked <= self._waited and block.copy <= self._arrived
        data: object = source
        if not idle:  # the caller may change its bytes after this returns
            data = ctypes.create_string_buffer(ctypes.string_at(source, bytes), bytes)
            self._staging.append(data)
        waits = self._before_copy([block])
        if idle:
            self._enqueue(
                "clEnqueueWriteBuffer", self._copies, block.memory, 1, at, bytes, data, *waits
            )
            return
        event = c_void_p()
        self.library.do(
            "clEnqueueWriteBuffer", self._copies, block.memory, 0, at, bytes, data,
            *waits, byref(event),
        )  # fmt: skip
        self._note_copy(block, event)

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        block, at = self._blocks.find(source)
        event = c_void_p()
        self.library.do(
            "clEnqueueReadBuffer", self._copies, block.memory, 0, at, bytes, target,
            *self._before_copy([block]), byref(event),
        )  # fmt: skip
        self._note_copy(block, event)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        (first, to), (second, at) = self._blocks.find(target), self._blocks.find(source)
        self._before_work([first, second])
        self._enqueue(
            "clEnqueueCopyBuffer", self._work, second.memory, first.memory, at, to, bytes, 0, None
        )

    def _fill(self, target: int, value: int, bytes: int) -> None:
        block, at = self._blocks.find(target)
        self._before_work([block])
        pattern = (ctypes.c_uint8 * 1)(value)
        self._enqueue(
            "clEnqueueFillBuffer", self._work, block.memory, pattern, 1, at, bytes, 0, None
        )

    # ---- order between the queues --------------------------------------------------------------

    def _before_copy(self, blocks: Iterable[_Block]) -> tuple[int, object]:
        """Return the wait list of a copy: the kernels so far, if any used these blocks."""
        if all(block.worked <= self._waited for block in blocks):
            return 0, None
        event = c_void_p()
        self.library.do("clEnqueueMarkerWithWaitList", self._work, 0, None, byref(event))
        self.library.do("clFlush", self._work)
        waits = (c_void_p * 1)(event)
        self.library.do("clEnqueueBarrierWithWaitList", self._copies, 1, waits, None)
        self.library.do("clReleaseEvent", event)
        self._waited = self._launched
        return 0, None

    def _note_copy(self, block: _Block, event: c_void_p) -> None:
        if self._watched is not None:
            self._watched.add(event.value or 0)
        self._forget([block])
        self._copied += 1
        block.copied, block.copy = event.value or 0, self._copied

    def _before_work(self, blocks: Sequence[_Block]) -> None:
        """Let kernels on these blocks wait for the copies of them."""
        pending = [b.copied for b in blocks if b.copied and b.copy > self._arrived]
        if pending:
            self.library.do("clFlush", self._copies)
            events = (c_void_p * len(pending))(*pending)
            self.library.do("clEnqueueBarrierWithWaitList", self._work, len(pending), events, None)
        self._forget(blocks)
        self._launched += 1
        for block in blocks:
            block.worked = self._launched

    def _forget(self, blocks: Iterable[_Block]) -> None:
        for block in blocks:
            if block.copied:
                self.library.do("clReleaseEvent", block.copied)
                block.copied = 0

    # ---- work ----------------------------------------------------------------------------------

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        entries = {}
        for symbol in symbols:
            program = build(
                self.library, self._context, self.found, symbol, code[symbol], self.shared
            )
            self._programs.append(program)
            handle = self.library.make("clCreateKernel", program, symbol.encode())
            sizes = (c_size_t * 3)()
            self.library.do(
                "clGetKernelWorkGroupInfo", handle, self.found.handle, _COMPILE_GROUP,
                ctypes.sizeof(sizes), sizes, None,
            )  # fmt: skip
            entries[symbol] = self._entry(Kernel(handle, symbol, sizes[0]))
        return entries

    def _entry(self, kernel: Kernel) -> int:
        self._kernels.append(kernel)
        return len(self._kernels)

    def launch_part(self, launch: Launch, start: int) -> None:
        """Start a kernel on `start`:`parallel`, a part of its range."""
        with self._lock:
            self._counted.launches += 1
            if launch.parallel > start:
                self._converting_errors("launch", self._launch, launch, start)

    def _launch(self, launch: Launch, start: int = 0) -> None:
        kernel = self._kernels[launch.entry - 1]
        operands, sizes = launch.operands, launch.sizes
        words = (c_int64 * (operands + sizes + 5)).from_buffer_copy(
            ctypes.string_at(launch.arguments, 8 * (operands + sizes)) + bytes(40)
        )
        blocks: list[_Block] = []
        memories: list[c_void_p] = []
        for index in range(operands):
            words[index] = self._locate(words[index], blocks, memories)
        at = self._locate(launch.scratch, blocks, memories)
        items, part = self._split(kernel, launch, start)
        words[operands + sizes :] = [start, launch.parallel, part, at, launch.stride]
        self._before_work(blocks)
        self._set_arguments(kernel, memories, words)
        total, group = c_size_t(items), c_size_t(kernel.group or 1)
        self._enqueue(
            "clEnqueueNDRangeKernel", self._work, kernel.handle, 1, None, byref(total),
            byref(group), 0, None,
        )  # fmt: skip

    def _locate(self, address: int, blocks: list[_Block], memories: list[c_void_p]) -> int:
        """Return the offset of an address in its block, and record the block; address 0 is null."""
        if not address:
            memories.append(c_void_p())
            return 0
        block, offset = self._blocks.find(address)
        if block not in blocks:
            blocks.append(block)
        memories.append(block.memory)
        return offset

    def _split(self, kernel: Kernel, launch: Launch, start: int) -> tuple[int, int]:
        """Return the number of work-items, and the positions of the range per work-item."""
        count = launch.parallel - start
        if kernel.group:
            return count * kernel.group, 1
        workers = min(self.workers, -(-count // max(1, launch.grain)))
        part = -(-count // workers)
        return -(-count // part), part

    def _set_arguments(
        self, kernel: Kernel, memories: list[c_void_p], words: ctypes.Array[c_int64]
    ) -> None:
        """Set the changed arguments of a launch."""
        given, do = kernel.given, self.library.do
        if not given:
            given.extend([None] * (len(memories) + 1))
        for index, memory in enumerate(memories):
            if given[index] is not memory:
                do("clSetKernelArg", kernel.handle, index, 8, byref(memory))
                given[index] = memory
        raw = bytes(words)
        if given[-1] != raw:
            do("clSetKernelArg", kernel.handle, len(memories), len(raw), words)
            given[-1] = raw

    def _record(self) -> int:
        events = []
        queues = [self._copies]
        if self._waited < self._launched:  # otherwise the copies are after all kernels
            queues.append(self._work)
        for queue in queues:
            event = c_void_p()
            self.library.do("clEnqueueMarkerWithWaitList", queue, 0, None, byref(event))
            self.library.do("clFlush", queue)
            events.append(event.value or 0)
        self._last_event += 1
        self._events[self._last_event] = tuple(events)
        self._until[self._last_event] = self._launched, self._copied
        self._staged[self._last_event], self._staging = self._staging, []
        return self._last_event

    def _wait(self, event: int) -> None:
        with self._lock:  # other threads may release these events meanwhile
            waited = self._events.get(event, ())
            for handle in waited:
                self.library.do("clRetainEvent", handle)
        if not waited:
            return
        try:
            self.library.do("clWaitForEvents", len(waited), (c_void_p * len(waited))(*waited))
        finally:
            for handle in waited:
                self.library.do("clReleaseEvent", handle)
        with self._lock:
            for number in [number for number in self._events if number <= event]:
                launched, copied = self._until.pop(number)
                self._waited = max(self._waited, launched)
                self._arrived = max(self._arrived, copied)
                for handle in self._events.pop(number):
                    self.library.do("clReleaseEvent", handle)
                self._staged.pop(number)

    def _synchronise(self) -> None:
        for queue in (self._copies, self._work, self._copies):
            self.library.do("clFinish", queue)
        with self._lock:
            self._staging = []
