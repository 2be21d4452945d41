"""A simulated device: it counts commands and estimates their time, but computes nothing.

Commands take no time and results are zero; `seconds` grows by the estimates of a `TimeModel`. The
cost of a placement is thus a number that does not depend on the machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import field

from anydim.base.records import dataclass
from anydim.base.settings import USUAL_TARGET
from anydim.runtime.devices.addresses import Blocks
from anydim.runtime.devices.device import Device, Launch


@dataclass(frozen=True)
class TimeModel:
    """The speed of a simulated device.

    `latency`: seconds per launch, `copy_latency` per copy; `bandwidth`: bytes per second between
    host and device, `memory` within it. `flops` per second of each kind of kernel, by the prefix of
    its name ('contraction', 'rows', 'pointwise'), '' for all others. A kernel takes the maximum of
    its compute and memory times.
    """

    latency: float = 0.0
    copy_latency: float = 0.0
    bandwidth: float = float("inf")
    memory: float = float("inf")
    flops: Mapping[str, float] = field(default_factory=dict)

    def copy(self, bytes: int) -> float:
        """Return the seconds of a copy from or to the host."""
        return self.copy_latency + bytes / self.bandwidth

    def launch(self, kind: str, flops: int, moved: int) -> float:
        """Return the seconds of a launch of a kind of kernel."""
        speed = self.flops.get(kind, self.flops.get("", float("inf")))
        return self.latency + max(flops / speed, moved / self.memory)


class NullDevice(Device):
    """It has `capacity` bytes of memory, None: unlimited; `seconds` is its busy time."""

    target = USUAL_TARGET  # its kernels are compiled, but never run

    def __init__(
        self, name: str = "null", time: TimeModel | None = None, capacity: int | None = None
    ) -> None:
        super().__init__(name)
        self.time = time or TimeModel()
        self.capacity = capacity
        self.seconds = 0.0
        self._blocks: Blocks[int] = Blocks()
        self._kinds: list[str] = [""]
        self._events = 0

    def clock(self) -> float:
        """Return the simulated seconds."""
        return self.seconds

    def _allocate(self, bytes: int) -> int:
        if self.capacity is not None and self.counters.bytes + bytes > self.capacity:
            raise MemoryError(f"it has {self.capacity} bytes")
        return self._blocks.add(bytes)

    def _free(self, address: int) -> None:
        self._blocks.remove(address)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        self._inside(target, bytes)
        self.seconds += self.time.copy(bytes)

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        self._inside(source, bytes)
        ctypes.memset(target, 0, bytes)
        self.seconds += self.time.copy(bytes)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        self._inside(target, bytes)
        self._inside(source, bytes)
        self.seconds += 2 * bytes / self.time.memory

    def _fill(self, target: int, value: int, bytes: int) -> None:
        self._inside(target, bytes)
        self.seconds += bytes / self.time.memory

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        entries = {}
        for symbol in symbols:
            entries[symbol] = len(self._kinds)
            self._kinds.append(symbol.rpartition("_")[0])
        return entries

    def _launch(self, launch: Launch) -> None:
        words = (ctypes.c_int64 * launch.operands).from_address(launch.arguments)
        for address in words:
            self._inside(address, 0)
        kind = self._kinds[launch.entry]
        self.seconds += self.time.launch(kind, launch.flops, launch.moved)

    def _record(self) -> int:
        self._events += 1
        return self._events

    def _wait(self, event: int) -> None:
        """Return; all work is synchronous."""

    def _synchronise(self) -> None:
        """Return; all work is synchronous."""

    def _inside(self, address: int, bytes: int) -> None:
        held, offset = self._blocks.find(address)
        if offset + bytes > held:
            raise IndexError(f"bytes {offset}:{offset + bytes} of a block of {held}")
