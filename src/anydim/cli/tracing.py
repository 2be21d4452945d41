"""`anydim trace`: what a call does, and when, on the host and on each device."""

from __future__ import annotations

from collections.abc import Sequence

import click

from anydim.base.errors import OptionError
from anydim.cli import arrays
from anydim.cli.opening import opened
from anydim.cli.options import (
    Asked,
    Named,
    at_option,
    input_option,
    integers_option,
    level_option,
    model_options,
)
from anydim.program.profile.trace import write
from anydim.report.console import Console
from anydim.report.trace_page import page


@click.command(short_help="A call as a trace: launches, copies and waits, when they were.")
@model_options
@level_option
@at_option(False, False, "The sizes; inputs are random.")
@input_option("Inputs from files instead: an .npz file, or NAME=FILE.npy.")
@integers_option
@click.option("--seed", default=0, show_default=True, help="Seed for random inputs.")
@click.option(
    "--calls", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="How many calls, after one that is not traced.",
)  # fmt: skip
@click.option(
    "--wait", "waited", is_flag=True,
    help="See each launch and copy through before the next: times are those of the device.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE.json", help="The trace, for ui.perfetto.dev.")
@click.option("--html", metavar="FILE.html", help="A page that draws it; it needs no network.")
def trace(
    asked: Asked, at: dict[str, int] | None, inputs: Sequence[str], integers: Named, seed: int,
    calls: int, waited: bool, output: str | None, html: str | None,
) -> None:  # fmt: skip
    """Write what a call of MODEL does, and when: a track for each thread and queue of a device.

    The file is in Chrome's format of trace events: launches with their kernel, nodes, sizes and
    schedule, copies with their bytes and direction, waits.

    \b
    Examples:
      anydim trace encoder.onnx --at batch=8,seq=77 -o trace.json
      anydim trace encoder.onnx --at batch=1,seq=22 --calls 3 --html trace.html
      anydim trace detector.onnx --device accel=opencl:0 --placement '*=accel' \\
          --at height=480,width=640 --wait -o trace.json
    """
    if bool(inputs) == (at is not None):
        raise OptionError("give --at NAME=SIZE,... or --input FILE.npz", "one of both")
    found = arrays.read(inputs)
    console = Console(asked.quiet)
    made = opened(console, asked, found)
    feeds = arrays.drawn(made, at, seed, dict(integers)) if at is not None else None
    feeds = arrays.named(made, found) if feeds is None else feeds
    with console.task(f"tracing {made.name}"):
        report = made.trace(inputs=feeds, calls=calls, waited=waited)
    console.result(str(report))
    if output:
        report.save(output)
        console.note(f"wrote {output}: open it at ui.perfetto.dev")
    if html:
        write(html, page(report))
        console.note(f"wrote {html}")
