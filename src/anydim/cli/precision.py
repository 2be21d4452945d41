"""The command `precision`: errors and times of a model in each precision, on given inputs."""

from __future__ import annotations

from importlib import import_module

import click

from anydim.base.errors import OptionError
from anydim.cli import arrays
from anydim.cli.feeding import CallInputs, fed_command
from anydim.cli.opening import refuse_saved
from anydim.cli.options import Request
from anydim.cli.report.console import Console


@fed_command
@click.option(
    "--tolerance", type=float, default=None, metavar="ERROR",
    help="Largest error, over the largest magnitude of a result.  [default: 0.001]",
)  # fmt: skip
@click.pass_context
def precision(
    context: click.Context, request: Request, fed: CallInputs, tolerance: float | None
) -> None:
    """Measure MODEL in each precision, and name the fastest one that keeps a tolerance.

    Errors are those of a call with the inputs, against the graph in float64: the largest difference
    over the largest magnitude of a result. Inputs come from files, or are drawn at random, which
    says less. The exit status is 1 if no precision keeps the tolerance.

    \b
    Examples:
      anydim precision encoder.onnx --input ids.npz --tolerance 1e-2
      anydim precision detector.onnx --at batch=1 --threads 1
    """
    if request.precision is not None:
        raise OptionError("--precision cannot be combined with this command", "it measures all")
    refuse_saved(request, "measuring precisions")
    console, choice = Console(request.quiet), import_module("anydim.api.precision_choice")
    limit = choice.known_tolerance(tolerance)
    made, feeds = fed.model(console, request)
    compile_request = import_module("anydim.cli.compiling").compile_request
    files = arrays.read(fed.inputs)

    def compile_in(source: Request, word: str) -> object:
        return compile_request(Console(True), source, files, precision=word)

    with console.task(f"measuring {made.name}"):
        report = choice.measure_rungs(compile_in, request, feeds, limit)
    console.result(str(report))
    if report.chosen is None:
        console.prose("no precision keeps the tolerance")
        context.exit(1)
