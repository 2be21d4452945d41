"""Every kind of device there is, by name: "cpu", "cpu:1", "null"."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anydim.base.errors import DeviceError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import listed, suggestion
from anydim.base.user_values import shown, text_of
from anydim.devices.cpu import CpuDevice
from anydim.devices.cuda import CudaDevice
from anydim.devices.cuda import Found as Cuda
from anydim.devices.cuda import found as cuda_devices
from anydim.devices.device import HOSTS, Device
from anydim.devices.null import NullDevice
from anydim.devices.opencl.inventory import Found as OpenCl
from anydim.devices.opencl.inventory import devices as opencl_devices
from anydim.devices.opencl.opened import opened as opened_opencl
from anydim.runtime.cpu import processor_name


@dataclass(frozen=True)
class Driver:
    """A kind of device.

    `open(name, number)` opens the one of a number; it raises DeviceError where there is none, with
    the text of the system inside. `here()` says what each device is that this machine has, in the
    order of numbers; it raises DeviceError where there can be none.
    """

    about: str
    open: Callable[[str, int], Device]
    here: Callable[[], Sequence[str]]


DRIVERS: Mapping[str, Driver] = {
    "cpu": Driver(
        "this machine's processor, with memory of its own for each number",
        lambda name, number: CpuDevice(name),
        lambda: [f"{processor_name() or platform.machine()}, one thread each, any number"],
    ),
    "opencl": Driver("a device that OpenCL drives", opened_opencl, lambda: _told(opencl_devices())),
    "cuda": Driver(
        "a device of NVIDIA's, by its driver", CudaDevice, lambda: _told(cuda_devices())
    ),
    "null": Driver(
        "computes nothing, counts what it is asked for", lambda name, number: NullDevice(name),
        lambda: ["computes nothing and counts, any number"],
    ),
}  # fmt: skip
_MOST = 1 << 16
_KINDS = {"gpu": "'cuda' for a graphics card of NVIDIA's, 'opencl' for any"}  # said of others


def _told(found: Sequence[OpenCl | Cuda]) -> list[str]:
    if not found:
        raise DeviceError("its driver shows no device", "install the driver of the device")
    return [each.about for each in found]


def driver_of(name: str) -> tuple[Driver, int]:
    """The driver and the number that a name says: "cpu:1"; none is 0. Raises DeviceError."""
    kind, colon, number = text_of("device", name).partition(":")
    if kind not in DRIVERS:
        hint = f"say {_KINDS[kind]}" if kind in _KINDS else suggestion(kind, DRIVERS)
        hint = hint or f"there are {listed(DRIVERS)}, with a number: 'cpu:0'"
        raise DeviceError(
            f"there is no device '{name}'", f"{hint}\n  `anydim devices` lists what is here"
        )
    if colon and not (number.isascii() and number.isdigit() and int(number[:9]) < _MOST):
        raise DeviceError(f"there is no device '{name}'", f"give a number: '{kind}:0'")
    return DRIVERS[kind], int(number or 0)


def open_device(name: str) -> Device:
    """The device of a name, opened anew: 'cpu' is 'cpu:0'. Raises DeviceError if there is none."""
    driver, number = driver_of(name)
    return driver.open(f"{name.partition(':')[0]}:{number}", number)


def opened_devices(devices: Any) -> dict[str, Device]:
    """What `devices={"accel": "opencl:0"}` says, opened; two names of one device are one.

    A value is the name of a device or an open one. Raises OptionError for what is neither,
    DeviceError for a device that there is not.
    """
    if devices is None:
        return {}
    if not isinstance(devices, Mapping):
        said = devices if isinstance(devices, str) else "opencl:0"
        hint = f"say what the names of the program stand for: devices={{'accel': '{said}'}}"
        raise OptionError(f"devices is {shown(devices)}", hint)
    known: dict[tuple[Driver, int], Device] = {}
    found = {}
    for name, given in devices.items():
        if not text_of("the name of a device", name) or name in HOSTS:
            raise OptionError(
                f"devices: '{name}' is the processor that runs the program itself",
                f"take another name for a device of one's own: devices={{'accel': {given!r}}}",
            )
        if isinstance(given, Device):
            found[name] = given
            continue
        if not isinstance(given, str):
            raise OptionError(
                f"what device '{name}' stands for is {shown(given)}",
                "give the name of a device, such as 'opencl:0', or an open one",
            )
        kind = given
        key = driver_of(kind)
        if key not in known:
            known[key] = open_device(kind)
        found[name] = known[key]
    return found


def unknown_device(model: str, wanted: Sequence[str], known: Sequence[str]) -> DeviceError:
    """The error for devices that a model's parts are on, where nobody says what they are."""
    said = f"; devices= names {listed(known)}" if known else ""
    return DeviceError(
        f"{model} has parts on {listed(wanted)}{said}",
        f"say what that is: devices={{'{wanted[0]}': 'cpu:0'}}",
    )
