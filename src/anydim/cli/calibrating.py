"""The command `calibrate`: limits between versions of kernels, measured on this machine."""

from __future__ import annotations

from importlib import import_module

import click

from anydim.base.cache_folder import limits_path, remove
from anydim.base.text import table
from anydim.cli.report.console import Console


@click.command
@click.option("--show", is_flag=True, help="Print the limits in use, and measure nothing.")
@click.option("--reset", is_flag=True, help="Return to the defaults.")
@click.option("--quiet", is_flag=True, help="Show results only.")
def calibrate(show: bool, reset: bool, quiet: bool) -> None:
    """Measure limits between versions of kernels on this machine, in less than 10 seconds.

    Kernels with several versions choose by limits on sizes, such as the rows up to which a matrix
    is not packed. Later compilations use the measured limits. The bits of results do not change.

    \b
    Examples:
      anydim calibrate
      anydim calibrate --show
      anydim calibrate --reset
    """
    console, path = Console(quiet), limits_path()
    if reset and path is not None:
        remove(path)
    if not (show or reset):
        with console.task("measuring") as advance:
            found = import_module("anydim.api.calibration").calibrate_machine(advance)
        rows = [
            (each.name, str(each.usual), str(each.found), f"{100 * each.saved:.0f} %")
            for each in found
        ]
        console.table(table(("limit", "default", "measured", "saved"), rows))
    limits = str(import_module("anydim.compiler.kernels.limits").limits_in_use())
    console.result(f"limits: {limits or 'the defaults'}")
