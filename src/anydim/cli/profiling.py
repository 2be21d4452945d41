"""`anydim profile`: where the time of a call goes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from anydim.base.errors import OptionError
from anydim.cli.feeding import CallInputs, fed_command
from anydim.cli.opening import own_kind
from anydim.cli.options import Request
from anydim.cli.report.compared import LaunchComparison, comparison, match_nodes, node_times
from anydim.cli.report.console import Console
from anydim.cli.saving import check_file
from anydim.deploy.container import is_saved


@fed_command
@click.option(
    "--repeat", type=click.IntRange(1), default=20, show_default=True, metavar="N",
    help="Number of calls.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="A JSON document with every launch.")
@click.option(
    "--compare", type=click.Choice(["onnxruntime"]),
    help="Also show its times for the same nodes; it must be installed.",
)  # fmt: skip
@click.option(
    "--onnx", metavar="FILE", help="The ONNX file to compare with if MODEL is a saved model."
)
@click.option(
    "--trace", metavar="FILE.json",
    help="Write the last call as a trace for ui.perfetto.dev.",
)  # fmt: skip
def profile(
    request: Request, fed: CallInputs, repeat: int, as_json: bool, compare: str | None,
    onnx: str | None, trace: str | None,
) -> None:  # fmt: skip
    """Time every launch of MODEL over repeated calls, the costliest first.

    The table has the operations and bytes of each launch, and its share of the limits of this
    machine, which are measured once.

    \b
    Examples:
      anydim profile encoder.onnx --dim seq=1..512 --at batch=8,seq=77
      anydim profile encoder.onnx --at batch=1,seq=22 --compare onnxruntime --threads 1
      anydim profile encoder.onnx --input ids.npz --trace trace.json
      anydim profile encoder.anydim --at batch=1,seq=22 --json
    """
    source = onnx or request.model
    if compare and onnx is None and (is_saved(request.model) or own_kind(request.model)):
        raise OptionError(
            f"--compare {compare}: {compare} cannot run {Path(request.model).name}",
            "name the ONNX file: --onnx encoder.onnx",
        )
    if trace:
        check_file(trace, "trace.json", "--trace")
    console = Console(request.quiet)
    made, feeds = fed.model(console, request)
    with console.task(f"profiling {made.name}"):
        report = made.profile(feeds, repeat=repeat)
    beside: list[LaunchComparison] = []
    if compare:
        with console.task(f"profiling {Path(source).name} with {compare}"):
            beside = match_nodes(report, node_times(source, report.threads, feeds, repeat))
    if as_json:
        document = report.document()
        if compare:
            document[compare] = [each.document() for each in beside]
        click.echo(json.dumps(document))
    else:
        console.result(str(report))
    if compare and not as_json:
        console.result("\n" + comparison(report, beside))
    if trace:
        report.save_trace(trace)
        console.note(f"wrote {trace}: open it at ui.perfetto.dev")
