"""The command devices: what this machine has that parts of a model can run on."""

from __future__ import annotations

import click

from anydim.base.errors import DeviceError
from anydim.devices.table import DRIVERS
from anydim.report.console import Console


@click.command(short_help="What is here that parts of a model can run on.")
def devices() -> None:
    """List the devices of this machine, by the names that --device takes, and why others are not.

    \b
    Example:
      anydim devices
      anydim bench encoder.onnx --device accel=opencl:0 --placement '*=accel'
    """
    lines = []
    for kind, driver in DRIVERS.items():
        try:
            for number, about in enumerate(driver.here()):
                lines.append(f"{f'{kind}:{number}':<10} {about}")
        except DeviceError as error:
            lines.append(f"{kind:<10} none: {error.problem}")
            lines += [f"{'':<10} {line}" for line in (error.hint or "").splitlines()]
    Console().result("\n".join(lines))
