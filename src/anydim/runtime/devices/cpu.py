"""The host's processor as a device: its own memory, kernels of the program's own target.

It is single-threaded and synchronous. Two of them ("cpu:0", "cpu:1") are separate devices.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from anydim.base.settings import USUAL_TARGET
from anydim.runtime.devices import context
from anydim.runtime.devices.device import Device, Launch
from anydim.runtime.devices.host_memory import HostMemory

KIND = "cpu"
_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)  # fmt: skip


class CpuDevice(Device):
    """Runs kernels that `link` loads from objects."""

    target = USUAL_TARGET
    kind = KIND

    def __init__(self, name: str = "cpu") -> None:
        super().__init__(name)
        self._memory = HostMemory()
        self.words[context.FAMILY] = context.AT_ONCE if self.native else 0
        self._code: list[object] = []
        self._kernels: dict[int, ctypes._FuncPointer] = {}

    @property
    def identity(self) -> str:
        """The same processor for every number."""
        return "cpu"

    def _allocate(self, bytes: int) -> int:
        return self._memory.take(bytes)

    def _free(self, address: int) -> None:
        self._memory.give(address)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        ctypes.memmove(target, source, bytes)

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        ctypes.memmove(target, source, bytes)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        ctypes.memmove(target, source, bytes)

    def _fill(self, target: int, value: int, bytes: int) -> None:
        ctypes.memset(target, value, bytes)

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        if self.link is None:
            raise self.command_error("load", "no target links code for it")
        entries, kept = self.link(code, symbols)
        self._code.append(kept)
        self._kernels |= {address: _KERNEL(address) for address in entries.values()}
        return entries

    def _launch(self, launch: Launch) -> None:
        self._kernels[launch.entry](launch.arguments, 0, launch.parallel, launch.scratch)

    def _record(self) -> int:
        return 1

    def _wait(self, event: int) -> None:
        """Return; all work is synchronous."""

    def _synchronise(self) -> None:
        """Return; all work is synchronous."""
