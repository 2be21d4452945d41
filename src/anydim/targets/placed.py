"""The devices that a program's names stand for, with the targets that make code for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from anydim.base.errors import DeviceError, OptionError
from anydim.base.given import shown, text_of
from anydim.base.records import dataclass
from anydim.base.text import listed
from anydim.devices.device import Device
from anydim.devices.hosted import HostedDevice
from anydim.devices.table import Driver, driver_of, open_device
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
        return HostedDevice(self.device, code, [kernel.name for kernel in kernels])


def placed_devices(devices: Any) -> dict[str, Placed]:
    """What `devices={"accel": "opencl:0"}` says, opened; two names of one device are one.

    A value is the name of a device or an open one. Raises OptionError for what is neither,
    DeviceError for a device that there is not.
    """
    if devices is None:
        return {}
    if not isinstance(devices, Mapping):
        hint = "say what the names of the program stand for: devices={'accel': 'cpu:0'}"
        raise OptionError(f"devices is {shown(devices)}", hint)
    opened: dict[tuple[Driver, int], Device] = {}
    placed = {}
    for name, given in devices.items():
        if not text_of("the name of a device", name):
            raise OptionError("the host needs no device: '' is no name for one")
        device = given if isinstance(given, Device) else _opened(name, given, opened)
        made_by = target(device.target)
        if device.link is None and made_by.load is not None:
            device.link = partial(_link, made_by.load)
        placed[name] = Placed(device, made_by)
    return placed


def _opened(name: str, given: Any, opened: dict[tuple[Driver, int], Device]) -> Device:
    kind = text_of(f"what device '{name}' stands for", given)
    key = driver_of(kind)
    if key not in opened:
        opened[key] = open_device(kind)
    return opened[key]


def _link(
    load: Load, code: Mapping[str, bytes], symbols: Sequence[str]
) -> tuple[Mapping[str, int], object]:
    loaded = load(code.values(), symbols)
    return {symbol: loaded.address(symbol) for symbol in symbols}, loaded


def unknown_device(model: str, wanted: Sequence[str], known: Sequence[str]) -> DeviceError:
    """The error for devices that a model's parts are on, where nobody says what they are."""
    said = f"; devices= names {listed(known)}" if known else ""
    return DeviceError(
        f"{model} has parts on {listed(wanted)}{said}",
        f"say what that is: devices={{'{wanted[0]}': 'cpu:0'}}",
    )
