"""The driver of an OpenCL device that works in host memory: a processor.

Kernels take host addresses. Copies to or from an idle block are immediate; a copy to the host is
done by the thread that waits for it, unless further commands come before. The native entry points
(`native/device_api/opencl.py`), which programs use, work the same; methods of this class wait until
the device is idle, run, and wait again.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p
from functools import lru_cache

from anydim.runtime.devices import context as common
from anydim.runtime.devices.device import Device, Launch
from anydim.runtime.devices.host_memory import HostMemory
from anydim.runtime.devices.native_state import NativeState
from anydim.runtime.devices.opencl import state
from anydim.runtime.devices.opencl.device import Kernel, OpenClDevice, context_of
from anydim.runtime.devices.opencl.libopencl import Library, error_of
from anydim.runtime.devices.opencl.watching import Watched

KIND = "opencl-shared 2"


@lru_cache(maxsize=16)
def _context_of(known: Library, handles: tuple[int, ...]) -> int:
    return context_of(known, handles)


class SharedOpenClDevice(NativeState, OpenClDevice):
    """Device `number` of OpenCL, in host memory."""

    kind = KIND
    own_words = state.WORDS
    shared = on_host = True

    def __init__(self, name: str = "opencl:0", number: int = 0) -> None:
        super().__init__(name, number)
        self.words[common.FAMILY] = self._context
        self._memory = HostMemory()
        self._table = (c_int64 * 0)()
        self._records: dict[int, tuple[ctypes.Array[c_int64], Kernel]] = {}
        for word, function in enumerate(state.FUNCTIONS, state.SET_ARGUMENT):
            at = ctypes.cast(self.library.functions[function], c_void_p)
            self.words[word] = at.value or 0
        self.words[state.QUEUE] = self._work

    def _made_context(self) -> int:
        """Return the context of all devices of the platform: their queues wait for each other's
        events."""
        return _context_of(self.library, self.found.beside)

    # ---- times ---------------------------------------------------------------------------------

    def _use(self, work: int, copies: int, watched: Watched | None) -> None:
        with self._mutex:  # no command may start between waiting for idle and the queue switch
            self.library.do("clFinish", self._work)
            super()._use(work, copies, watched)
            self.words[state.QUEUE] = work
            self.words[state.AT_ONCE] = watched is not None
            self._seen = self.words[state.LAUNCHED]

    def command_number(self) -> int:
        with self._mutex:
            launched, event = self.words[state.LAUNCHED], self.words[state.LAST]
            if self._watched is None or launched == self._seen:
                return -1
            self._seen = launched
            self._watched.add(event)
            return len(self._watched) - 1

    # ---- memory --------------------------------------------------------------------------------

    def _allocate(self, bytes: int) -> int:
        if bytes > self.found.memory:
            raise MemoryError(f"it has {self.found.memory} bytes")
        address = self._memory.take(bytes)
        with self._mutex:
            rows = sorted([*self._rows(), (address, address + bytes, 0)])
            self._store_rows(rows)
        return address

    def _release(self, address: int) -> None:
        with self._mutex:
            self._store_rows([row for row in self._rows() if row[state.FIRST] != address])
        self._memory.give(address)

    def _rows(self) -> list[tuple[int, ...]]:
        """Return the table of blocks."""
        values = list(self._table)
        return list(zip(*(values[word :: state.BLOCK_WORDS] for word in range(state.BLOCK_WORDS))))

    def _store_rows(self, rows: list[tuple[int, ...]]) -> None:
        self._table = (c_int64 * (state.BLOCK_WORDS * len(rows)))(*sum(rows, ()))
        self.words[state.BLOCKS] = ctypes.addressof(self._table)
        self.words[state.BLOCK_COUNT] = len(rows)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        self._synchronise()
        ctypes.memmove(target, source, bytes)

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        self._synchronise()
        ctypes.memmove(target, source, bytes)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        self._synchronise()
        ctypes.memmove(target, source, bytes)

    def _fill(self, target: int, value: int, bytes: int) -> None:
        self._synchronise()
        ctypes.memset(target, value, bytes)

    # ---- work ----------------------------------------------------------------------------------

    def _entry(self, kernel: Kernel) -> int:
        """Return the address of a kernel's record for native entry points."""
        record = (c_int64 * 3)(kernel.handle, kernel.group, self.workers)
        self._records[ctypes.addressof(record)] = record, kernel
        return ctypes.addressof(record)

    def _launch(self, launch: Launch, start: int = 0) -> None:
        kernel = self._records[launch.entry][1]
        items, part = self._split(kernel, launch, start)
        count = launch.operands + launch.sizes
        given = (c_int64 * count).from_address(launch.arguments)
        rest = (start, launch.parallel, part, launch.scratch, launch.stride)
        arguments = (c_int64 * (count + len(rest)))(*given, *rest)
        do, group = self.library.do, c_size_t(kernel.group or 1)
        with self._mutex:
            do("clSetKernelArg", kernel.handle, 0, ctypes.sizeof(arguments), arguments)
            do(
                "clEnqueueNDRangeKernel", self._work, kernel.handle, 1, None,
                byref(c_size_t(items)), byref(group), 0, None, None,
            )  # fmt: skip
        self._synchronise()

    def _record(self) -> int:
        return 1

    def _wait(self, event: int) -> None:
        self._synchronise()

    def _synchronise(self) -> None:
        """Wait until the device is idle and pending copies are done."""
        known = self.words
        launched = known[state.LAUNCHED]
        self.library.do("clFinish", self._work)
        with self._mutex:
            known[state.DONE] = done = max(known[state.DONE], launched)
            left: list[int] = []
            for row in range(known[state.PENDING]):
                first = state.PENDINGS + state.PENDING_WORDS * row
                target, source, bytes, command = held = known[first : first + state.PENDING_WORDS]
                if command <= done:
                    ctypes.memmove(target, source, bytes)
                else:
                    left += held
            ctypes.memmove(
                self.context + 8 * state.PENDINGS, (c_int64 * len(left))(*left), 8 * len(left)
            )
            known[state.PENDING] = len(left) // state.PENDING_WORDS
            while known[state.STAGED]:
                head = (c_int64 * 2).from_address(known[state.STAGED])
                if head[state.COMMAND] > done:
                    break
                at, known[state.STAGED] = known[state.STAGED], head[state.NEXT]
                self._give_memory(at)

    def _copy_from(self, target: int, origin: Device, source: int, bytes: int) -> bool:
        if origin.words[common.FAMILY] == self.words[common.FAMILY]:
            origin.synchronise()
            self._copy_in(target, source, bytes)
            return True
        return super()._copy_from(target, origin, source, bytes)

    def _raise(self, function: int, code: int) -> None:
        raise error_of(state.FUNCTIONS[function], c_int32(code & 0xFFFFFFFF).value)
