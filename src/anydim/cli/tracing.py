"""`anydim trace`: what a call does, and when, on the host and on each device."""

from __future__ import annotations

import click

from anydim.cli.feeding import CallInputs, fed_command
from anydim.cli.options import Request
from anydim.cli.report.console import Console
from anydim.cli.report.trace_page import page
from anydim.cli.saving import check_file
from anydim.runtime.program.profile.trace import write


@fed_command
@click.option(
    "--calls", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="Number of calls, after one that is not traced.",
)  # fmt: skip
@click.option(
    "--wait", "waited", is_flag=True,
    help="Wait for each launch and copy before the next, so that times are device times.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE.json", help="The trace, for ui.perfetto.dev.")
@click.option("--html", metavar="FILE.html", help="A self-contained page that draws the trace.")
def trace(
    request: Request,
    fed: CallInputs,
    calls: int,
    waited: bool,
    output: str | None,
    html: str | None,
) -> None:
    """Write a timeline of a call of MODEL: a track for each thread and each queue of a device.

    The file is in Chrome's format of trace events: launches with their kernel, nodes, sizes and
    schedule, copies with their bytes and direction, waits.

    \b
    Examples:
      anydim trace encoder.onnx --at batch=8,seq=77 -o trace.json
      anydim trace encoder.onnx --at batch=1,seq=22 --calls 3 --html trace.html
      anydim trace detector.onnx --device accel=opencl:0 --placement '*=accel' \\
          --at height=480,width=640 --wait -o trace.json
    """
    for path, example, option in (output, "trace.json", "--output"), (html, "trace.html", "--html"):
        if path:
            check_file(path, example, option)
    console = Console(request.quiet)
    made, feeds = fed.model(console, request)
    with console.task(f"tracing {made.name}"):
        report = made.trace(inputs=feeds, calls=calls, waited=waited)
    console.result(str(report))
    if output:
        report.save(output)
        console.note(f"wrote {output}: open it at ui.perfetto.dev")
    if html:
        write(html, page(report))
        console.note(f"wrote {html}")
