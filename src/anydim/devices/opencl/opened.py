"""Which driver a device of OpenCL has."""

from __future__ import annotations

from anydim.devices.opencl import inventory
from anydim.devices.opencl.device import OpenClDevice
from anydim.devices.opencl.shared import SharedOpenClDevice


def opened(name: str = "opencl:0", number: int = 0) -> OpenClDevice:
    """Device `number`; raises DeviceError where there is none."""
    form = SharedOpenClDevice if inventory.device(number).shares else OpenClDevice
    return form(name, number)
