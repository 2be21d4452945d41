"""All kinds of devices, by name: "cpu", "cpu:1", "null"."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anydim.base.errors import DeviceError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import short_repr, text_of
from anydim.runtime.cpu import processor_name
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.cuda import CudaDeviceInfo as Cuda
from anydim.runtime.devices.cuda import list_cuda_devices as cuda_devices
from anydim.runtime.devices.device import HOSTS, Device
from anydim.runtime.devices.null import NullDevice
from anydim.runtime.devices.opencl.inventory import OpenClDeviceInfo as OpenCl
from anydim.runtime.devices.opencl.inventory import devices as opencl_devices
from anydim.runtime.devices.opencl.opened import open_opencl as opened_opencl


@dataclass(frozen=True)
class Driver:
    """A kind of device; `targets` are the names of targets whose code such devices run.

    `open(name, number)` opens a device; it raises DeviceError with the system's text if there is
    none. `here()` describes each device of this machine, in the order of numbers; it raises
    DeviceError if none is possible.
    """

    about: str
    open: Callable[[str, int], Device]
    here: Callable[[], Sequence[str]]
    targets: tuple[str, ...]


DRIVERS: Mapping[str, Driver] = {
    "cpu": Driver(
        "this machine's processor; each number has its own memory",
        lambda name, number: CpuDevice(name),
        lambda: [f"{processor_name() or platform.machine()}, one thread each, any number"],
        (CpuDevice.target,),
    ),
    "opencl": Driver(
        "an OpenCL device", opened_opencl, lambda: _descriptions(opencl_devices()),
        ("opencl", "opencl-groups"),
    ),
    "cuda": Driver(
        "an NVIDIA device, by its driver", CudaDevice, lambda: _descriptions(cuda_devices()),
        (CudaDevice.target,),
    ),
    "null": Driver(
        "simulated: counts commands, computes nothing", lambda name, number: NullDevice(name),
        lambda: ["simulated, any number"], (NullDevice.target,),
    ),
}  # fmt: skip
_MAX_NUMBER = 1 << 16
_KINDS = {"gpu": "'cuda' for an NVIDIA graphics card, 'opencl' for any"}  # hints


def _descriptions(found: Sequence[OpenCl | Cuda]) -> list[str]:
    if not found:
        raise DeviceError("its driver lists no device", "install the driver of the device")
    return [each.about for each in found]


def driver_of(name: str) -> tuple[Driver, int]:
    """Return the driver and the number in a name: "cpu:1"; the default is 0. Raises DeviceError."""
    kind, colon, number = text_of("device", name).partition(":")
    if kind not in DRIVERS:
        hint = f"use {_KINDS[kind]}" if kind in _KINDS else suggestion(kind, DRIVERS)
        hint = hint or f"there are {quote_list(DRIVERS)}, with a number: 'cpu:0'"
        raise DeviceError(
            f"there is no device '{name}'",
            f"{hint}\n  `anydim devices` lists those of this machine",
        )
    if colon and not (number.isascii() and number.isdigit() and int(number[:9]) < _MAX_NUMBER):
        raise DeviceError(f"there is no device '{name}'", f"give a number: '{kind}:0'")
    return DRIVERS[kind], int(number or 0)


def open_device(name: str) -> Device:
    """Open the device of a name: 'cpu' is 'cpu:0'. Raises DeviceError if there is none."""
    driver, number = driver_of(name)
    return driver.open(f"{name.partition(':')[0]}:{number}", number)


def opened_devices(devices: Any) -> dict[str, Device]:
    """Open the devices of `devices={"accel": "opencl:0"}`; two names of one device share it.

    A value is the name of a device or an open one. Raises OptionError for other values, DeviceError
    for a missing device.
    """
    if devices is None:
        return {}
    if not isinstance(devices, Mapping):
        said = devices if isinstance(devices, str) else "opencl:0"
        hint = f"expected a dict of the program's device names: devices={{'accel': '{said}'}}"
        raise OptionError(f"devices is {short_repr(devices)}", hint)
    known: dict[tuple[Driver, int], Device] = {}
    found = {}
    for name, given in devices.items():
        if not text_of("the name of a device", name) or name in HOSTS:
            raise OptionError(
                f"devices: '{name}' is the host's own processor",
                f"choose another name for the device: devices={{'accel': {given!r}}}",
            )
        if isinstance(given, Device):
            found[name] = given
            continue
        if not isinstance(given, str):
            raise OptionError(
                f"device '{name}' is {short_repr(given)}",
                "expected the name of a device, such as 'opencl:0', or an open device",
            )
        kind = given
        key = driver_of(kind)
        if key not in known:
            known[key] = open_device(kind)
        found[name] = known[key]
    return found


def unknown_device(model: str, wanted: Sequence[str], known: Sequence[str]) -> DeviceError:
    """Return the error for devices that a model refers to and the caller did not define."""
    said = f"; devices= names {quote_list(known)}" if known else ""
    return DeviceError(
        f"{model} has parts on {quote_list(wanted)}{said}",
        f"define it: devices={{'{wanted[0]}': 'cpu:0'}}",
    )
