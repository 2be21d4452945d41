"""The native verbs of a device as functions of Python, and models that use nothing else."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

from anydim.compiler.native.device_api.table import ENTRY_POINTS, entry_points_code
from anydim.compiler.targets.targets import target
from anydim.runtime import slots
from anydim.runtime.devices.c_entry_points import HostedDevice
from anydim.runtime.devices.device import Device

PYTHON = (
    "launch", "copy_in", "copy_out", "copy_within", "fill", "record", "wait"
)  # fmt: skip


@lru_cache(maxsize=4)
def _loaded(name: str) -> tuple[dict[str, int], object]:
    made = target(name)
    assert made.load is not None
    objects = made.compile(made.sources([entry_points_code()], made.processor))
    loaded = made.load(objects.code.values(), tuple(ENTRY_POINTS.values()))
    return {role: loaded.address(symbol) for role, symbol in ENTRY_POINTS.items()}, loaded


class Native:
    """The verbs of a device by the code of a target; what they return, and what they raise."""

    def __init__(self, device: Device, code: str = "llvm") -> None:
        self.device = device
        self._hosted = HostedDevice(device, {}, (), _loaded(code)[0])
        assert device.native and len(self._hosted.native) == len(slots.NAMES)
        self._functions = {
            name: self._function(self._hosted.native[word]) for name, word in slots.NAMES.items()
        }

    def _function(self, address: int) -> Callable[..., int]:
        function = ctypes.CFUNCTYPE(ctypes.c_int64)(address)
        function.argtypes = None  # type: ignore[assignment]

        def call(*given: int) -> int:
            result = function(*map(ctypes.c_int64, (self.device.context, *given)))
            self._hosted.raise_kept()
            return int(result)

        return call

    def __getattr__(self, name: str) -> Callable[..., int]:
        return self._functions[name]


def forbidden(monkeypatch: object, device: Device) -> None:
    """From now on a verb of the device that goes by way of Python, but memory, ends the test."""

    def fail(*given: object) -> int:
        raise AssertionError("a verb went by way of Python")

    for name in PYTHON:
        monkeypatch.setattr(type(device), f"_{name}", fail)  # type: ignore[attr-defined]
