"""Binds the devices of a loaded program: names to devices, with the code stored in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from anydim.base.errors import ArtefactError, DeviceError
from anydim.deploy.saved import Saved, SavedDevice
from anydim.runtime.device_calls import Hosted
from anydim.runtime.devices.c_entry_points import HostedDevice
from anydim.runtime.devices.device import Device
from anydim.runtime.devices.table import DRIVERS, opened_devices, unknown_device


def open_devices(
    saved: Saved, devices: Any, address: Callable[[str], int],
    objects: Callable[[int, SavedDevice], Mapping[str, bytes]],
) -> dict[str, Hosted]:  # fmt: skip
    """Open the devices and load the program's code on them.

    `address` returns the address of a symbol of the host's code, `objects` the code for a device.
    Raises OptionError and DeviceError for devices that do not fit.
    """
    opened = opened_devices(devices)
    on = {each.name: each for each in saved.interface.devices}
    missing = [name for name in on if name not in opened]
    if missing:
        raise unknown_device(saved.signature.name, missing, tuple(opened))
    if {each.name for each in saved.devices} != on.keys():
        raise ArtefactError(f"the records of {saved.signature.name} have code for other devices")
    found: dict[str, Hosted] = {}
    for number, each in enumerate(saved.devices):
        device = opened[each.name]
        _check(saved.signature.name, each, device)
        if not each.modules:
            device.link = partial(_find_addresses, address)
        code, entry_points = objects(number, each), saved.interface.verbs(address)
        found[each.name] = HostedDevice(device, code, on[each.name].symbols, entry_points)
    return found


def _find_addresses(
    address: Callable[[str], int], code: Mapping[str, bytes], symbols: Sequence[str]
) -> tuple[Mapping[str, int], object]:
    """Addresses of symbols that are in the host's code."""
    return {symbol: address(symbol) for symbol in symbols}, address


def _check(model: str, saved: SavedDevice, device: Device) -> None:
    if device.target != saved.target:
        raise DeviceError(
            f"{model} has {saved.target} code for '{saved.name}', and device '{device.name}' runs "
            f"{device.target} code",
            f"give a device of that kind{_such(saved.target)},"
            " or compile the model for this one and save it again",
        )
    if device.workers > saved.workers:
        raise DeviceError(
            f"{model} has memory for {saved.workers} workers on '{saved.name}', and device "
            f"'{device.name}' has {device.workers}",
            "compile the model for this device and save it again",
        )


def _such(target: str) -> str:
    """An example of a device that runs code of a target."""
    kinds = (kind for kind, driver in DRIVERS.items() if target in driver.targets)
    kind = next(kinds, "")
    return f", such as '{kind}:0'" if kind else ""
