"""The command devices: what this machine has that parts of a model can run on."""

from __future__ import annotations

import click

from anydim.base.errors import DeviceError
from anydim.base.text import hanging
from anydim.cli.report.console import Console
from anydim.runtime.devices.engines.table import ENGINES
from anydim.runtime.devices.table import DRIVERS


@click.command
def devices() -> None:
    """List the devices of this machine by their names for --device, and why others are missing.

    \b
    Example:
      anydim devices
      anydim bench encoder.onnx --device accel=opencl:0 --placement '*=accel'
      anydim explain detector.onnx --placement 'Conv*=onnxruntime'
    """
    lines = []
    for kind, driver in DRIVERS.items():
        try:
            for number, about in enumerate(driver.here()):
                lines.append(_line(f"{kind}:{number}", about))
        except DeviceError as error:
            lines += _missing(kind, error)
    for name, engine in ENGINES.items():
        try:
            lines.append(_line(name, engine.here()))
        except DeviceError as error:
            lines += _missing(name, error)
    Console().prose("\n".join(lines))


def _line(name: str, about: str) -> str:
    return hanging(about, f"{name:<12} ", " " * 13)


def _missing(name: str, error: DeviceError) -> list[str]:
    more = (error.hint or "").splitlines()
    return [_line(name, f"none: {error.problem}"), *(_line("", line) for line in more)]
