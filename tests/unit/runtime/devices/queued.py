"""A device that does its work later, in a thread of its own: what is read too early is wrong."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable

from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.device import Launch


class QueuedDevice(CpuDevice):
    """The processor with a queue: launches and copies out are done `delay` seconds late or more.

    Arguments and bytes that come in are taken at once, as a driver has to.
    """

    def __init__(self, name: str = "queued", delay: float = 0.0) -> None:
        super().__init__(name)
        self.delay = delay
        self.failures: list[Exception] = []
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._events: dict[int, threading.Event] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            time.sleep(self.delay)
            work()

    def close(self) -> None:
        self._work.put(None)

    def _later(self, work: Callable[..., None], *given: object) -> None:
        self._work.put(lambda: work(*given))

    def _free(self, address: int) -> None:
        self._later(super()._free, address)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        taken = ctypes.create_string_buffer(ctypes.string_at(source, bytes), bytes)
        self._later(lambda: ctypes.memmove(target, taken, bytes))

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        self._later(super()._copy_out, target, source, bytes)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        self._later(super()._copy_within, target, source, bytes)

    def _fill(self, target: int, value: int, bytes: int) -> None:
        self._later(super()._fill, target, value, bytes)

    def _launch(self, launch: Launch) -> None:
        count = launch.operands + launch.sizes
        words = (ctypes.c_int64 * count).from_buffer_copy(
            ctypes.string_at(launch.arguments, 8 * count)
        )
        kernel = self._kernels[launch.entry]
        self._later(lambda: kernel(words, 0, launch.parallel, launch.scratch))

    def _record(self) -> int:
        number, happened = len(self._events) + 1, threading.Event()
        self._events[number] = happened
        self._work.put(happened.set)
        return number

    def _wait(self, event: int) -> None:
        self._events[event].wait()

    def _synchronise(self) -> None:
        self._wait(self._record())
