"""Every kind of device there is, by name: "cpu", "cpu:1", "null"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anydim.base.errors import DeviceError
from anydim.base.given import text_of
from anydim.base.records import dataclass
from anydim.base.text import listed, suggestion
from anydim.devices.cpu import CpuDevice
from anydim.devices.device import Device
from anydim.devices.null import NullDevice
from anydim.devices.opencl.device import OpenClDevice


@dataclass(frozen=True)
class Driver:
    """A kind of device.

    `open(name, number)` opens the one of a number; it raises DeviceError where there is none, with
    the text of the system inside.
    """

    about: str
    open: Callable[[str, int], Device]


DRIVERS: Mapping[str, Driver] = {
    "cpu": Driver(
        "this machine's processor, with memory of its own for each number",
        lambda name, number: CpuDevice(name),
    ),
    "opencl": Driver("a device that OpenCL drives", OpenClDevice),
    "null": Driver(
        "computes nothing, counts what it is asked for", lambda name, number: NullDevice(name),
    ),
}  # fmt: skip
_MOST = 1 << 16


def driver_of(name: str) -> tuple[Driver, int]:
    """The driver and the number that a name says: "cpu:1"; none is 0. Raises DeviceError."""
    kind, colon, number = text_of("device", name).partition(":")
    if kind not in DRIVERS:
        hint = suggestion(kind, DRIVERS) or f"there are {listed(DRIVERS)}, with a number: 'cpu:0'"
        raise DeviceError(f"there is no device '{name}'", hint)
    if colon and not (number.isascii() and number.isdigit() and int(number[:9]) < _MOST):
        raise DeviceError(f"there is no device '{name}'", f"give a number: '{kind}:0'")
    return DRIVERS[kind], int(number or 0)


def open_device(name: str) -> Device:
    """The device of a name, opened anew: 'cpu' is 'cpu:0'. Raises DeviceError if there is none."""
    driver, number = driver_of(name)
    return driver.open(f"{name.partition(':')[0]}:{number}", number)
