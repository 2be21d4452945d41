"""The devices that a program's names stand for, with the targets that make code for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from anydim.base.records import dataclass
from anydim.devices.device import Device
from anydim.devices.hosted import HostedDevice
from anydim.devices.table import opened_devices
from anydim.kernels.ir import Kernel
from anydim.targets.target import Load, Target
from anydim.targets.targets import target


@dataclass(frozen=True)
class Placed:
    """An open device, and what makes code for it."""

    device: Device
    target: Target

    def hosted(self, kernels: Sequence[Kernel]) -> HostedDevice:
        """The device with these kernels on it."""
        sources = self.target.sources(kernels, self.target.processor)
        code = self.target.compile(sources).code
        if self.target.load is not None:
            self.device.link = partial(_link, self.target.load)
        return HostedDevice(self.device, code, [kernel.name for kernel in kernels])


def placed_devices(devices: Any) -> dict[str, Placed]:
    """What `devices={"accel": "opencl:0"}` says, opened, with the targets that make their code.

    Errors are those of `opened_devices`.
    """
    opened = opened_devices(devices)
    return {
        name: Placed(each, each.made_by or target(each.target, each.processor))
        for name, each in opened.items()
    }


def _link(
    load: Load, code: Mapping[str, bytes], symbols: Sequence[str]
) -> tuple[Mapping[str, int], object]:
    loaded = load(code.values(), symbols)
    return {symbol: loaded.address(symbol) for symbol in symbols}, loaded
