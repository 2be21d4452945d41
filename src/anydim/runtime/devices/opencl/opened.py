"""Selects the driver of an OpenCL device."""

from __future__ import annotations

from anydim.runtime.devices.opencl import inventory
from anydim.runtime.devices.opencl.device import OpenClDevice
from anydim.runtime.devices.opencl.shared import SharedOpenClDevice


def open_opencl(name: str = "opencl:0", number: int = 0) -> OpenClDevice:
    """Open device `number`; raises DeviceError if there is none."""
    form = SharedOpenClDevice if inventory.device(number).shares else OpenClDevice
    return form(name, number)
