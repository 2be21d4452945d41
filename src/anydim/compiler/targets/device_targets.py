"""The devices that a program's names refer to, with their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.kernels.launch import TF32
from anydim.compiler.targets.target import Load, Target
from anydim.compiler.targets.targets import target
from anydim.runtime.devices.c_entry_points import HostedDevice
from anydim.runtime.devices.device import Device
from anydim.runtime.devices.table import opened_devices


@dataclass(frozen=True)
class DeviceTarget:
    """An open device and its target."""

    device: Device
    target: Target

    def rounding(self) -> DeviceTarget:
        """Return the same with tf32 rounding of float32 matmuls, if the target has it."""
        if not self.target.allows_tf32 or self.device.made_by is not None:
            return self
        processor = target(self.target.name, f"{self.target.processor.name}+{TF32}").processor
        return replace(self, target=replace(self.target, processor=processor))

    def load_kernels(self, kernels: Sequence[Kernel], native: Mapping[str, int]) -> HostedDevice:
        """Return the device with these kernels; `native` are entry points in host code."""
        sources = self.target.sources(kernels, self.target.processor)
        code = self.target.compile(sources).code
        if self.target.load is not None:
            self.device.link = partial(_link, self.target.load)
        return HostedDevice(self.device, code, [kernel.name for kernel in kernels], native)


def placed_devices(devices: Any) -> dict[str, DeviceTarget]:
    """Open the devices of `devices={"accel": "opencl:0"}` with their targets.

    Raises as `opened_devices`.
    """
    opened = opened_devices(devices)
    return {
        name: DeviceTarget(
            each, each.made_by or target(each.target, each.processor + each.features)
        )
        for name, each in opened.items()
    }


def _link(
    load: Load, code: Mapping[str, bytes], symbols: Sequence[str]
) -> tuple[Mapping[str, int], object]:
    loaded = load(code.values(), symbols)
    return {symbol: loaded.address(symbol) for symbol in symbols}, loaded
