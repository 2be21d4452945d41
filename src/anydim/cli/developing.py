"""The commands about how a model is compiled, and whether that is right: show, check."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from anydim.base.errors import OptionError
from anydim.cli import arrays
from anydim.cli.opening import compile_model, load_saved, refuse_saved
from anydim.cli.options import (
    Named,
    Request,
    integers_option,
    like_option,
    model_command,
    seed_option,
)
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.deploy.container import is_saved
from anydim.deploy.load import LoadedModel

if TYPE_CHECKING:
    from anydim.api.model import Model
    from anydim.compiler.checking.report import CheckReport

# the passes between `segment` and `schedule` are those of the compiler, which help need not import
PASS_STAGES = (
    "lower", "integers", "weight_only_quant", "accumulate", "simplify", "channels",
    "unit_dimensions", "joins", "views", "sizes_once", "inline", "scales", "tap_ranges",
    "layouts", "split_reduction", "round_factors", "quantise_factors", "fuse",
    "store_rounded",
    "hoist_constants", "pad",
)  # fmt: skip
STAGES = (
    "import", "placed", "segment", *PASS_STAGES, "schedule", "kernels", "program", "host", "llvm",
    "assembly",
)  # fmt: skip


@model_command
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    metavar="STAGE",
    help="The stage, which must be given; the list above is in order.",
)
@click.option(
    "--kernel", default="", metavar="PATTERN",
    help="Of kernels, llvm and assembly, only the kernels whose names, or the names of whose "
    "nodes, match: 'contraction_*'.",
)  # fmt: skip
@like_option
@click.pass_context
def show(
    context: click.Context, request: Request, stage: str | None, kernel: str,
    inputs: Sequence[str],
) -> None:  # fmt: skip
    """Print MODEL as it stands after a stage of the compiler.

    \b
    import     the graph as read, with symbolic sizes
    placed     the device of each node and why, and copies; with --device
    segment    straight-line parts and the control flow between them
    lower      one statement of the comprehension language for each node
    simplify   after algebra and folding of shape arithmetic and constants
    unit_dimensions  without dimensions of size 1
    joins      nested concatenations merged
    views      transposes, reshapes and slices folded into indices
    layouts    channels-last images where that is estimated faster
    fuse       one node for each fused group
    schedule   the kernel and schedule of each group
    kernels    the loop nests
    program    the host side: arena offsets, launches
    host       the code of the host as loop IR: sizes, checks, launches
    llvm       LLVM IR of kernels, libraries and the host function
    assembly   machine code of a kernel with named loops; see --kernel

    \b
    Examples:
      anydim show encoder.onnx --dim seq=1..512 --stage kernels
      anydim show encoder.onnx --stage assembly
      anydim show encoder.onnx --stage assembly --kernel 'rows_*'
    """
    refuse_saved(request, "showing stages")
    if stage is None:  # not `required`: a saved model is refused first
        raise click.MissingParameter(
            ctx=context, param=next(each for each in context.command.params if each.name == "stage")
        )
    console = Console(request.quiet)
    made = compile_model(console, request, arrays.read(inputs))
    console.result(made.show(stage, kernel))


@model_command
@click.option(
    "--samples", type=click.IntRange(1), default=100, show_default=True, metavar="N",
    help="Number of calls.",
)  # fmt: skip
@seed_option("Seed for sizes and inputs.")
@click.option(
    "--against",
    metavar="ORACLE",
    help="reference, onnxruntime, evaluator, or an ONNX file. Default: the first "
    "that shares no code with the compiler.",
)
@click.option(
    "--seconds",
    type=FiniteRange(0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Time limit in seconds.",
)
@integers_option
@like_option
@click.pass_context
def check(
    context: click.Context, request: Request, samples: int, seed: int, against: str | None,
    seconds: float, integers: Named, inputs: Sequence[str],
) -> None:  # fmt: skip
    """Run MODEL and an oracle at many sizes inside the bounds; compare types, shapes and values.

    \b
    The oracle is the first of these that accepts MODEL:
    reference    onnx's reference evaluator, on the ONNX file itself
    onnxruntime  if the reference evaluator does not support the file
    evaluator    for other models: evaluates the graph that was compiled

    At most half of the calls use corners of the box (ends of the bounds, 0 and 1), the others use
    random sizes. The exit status is 1 if a result differs or if nothing could be compared. For a
    saved model, name its ONNX file: --against FILE.onnx.

    \b
    Example:
      anydim check encoder.onnx --dim batch=0..64 --dim seq=1..512 \\
        --samples 50 --seed 1 --integers attention_mask=1..1
    """
    console = Console(request.quiet)
    made = _model_to_check(console, request, inputs, against)
    arrays.check_integers(made, dict(integers))
    with console.task(f"checking {made.name}") as advance:
        if isinstance(made, LoadedModel):
            report = _loaded_report(made, against, samples, seed, advance, integers, seconds)
        else:
            report = made.check(samples, seed, advance, dict(integers), against, seconds)
    console.prose(str(report))
    if not report.ok:
        context.exit(1)


def _model_to_check(
    console: Console, request: Request, inputs: Sequence[str], against: str | None
) -> Model | LoadedModel:
    """What is checked; raises OptionError for a saved model and nothing to compare it with."""
    if not is_saved(request.model):
        return compile_model(console, request, arrays.read(inputs), "checking")
    if against is None or against in import_module("anydim.compiler.checking.choice").KNOWN:
        raise OptionError(
            f"{request.model} is a saved model, which holds no reference to compare with",
            "name the ONNX file that it was compiled from: --against FILE.onnx",
        )
    return load_saved(console, request)


def _loaded_report(
    made: LoadedModel, against: str | None, samples: int, seed: int, advance: Any,
    integers: Named, seconds: float,
) -> CheckReport:  # fmt: skip
    """A saved model beside the ONNX file that it was made from."""
    ranges = {**made.index_ranges, **dict(integers)}
    tame = made.program.straight is None
    checking = import_module("anydim.compiler.checking.run")
    subject = checking.Subject(made.program, made.executable, ranges=ranges, tame=tame)
    oracles = import_module("anydim.compiler.checking.choice").oracles_for(None, None, {}, against)
    report: CheckReport = checking.check(subject, oracles, samples, seed, advance, seconds)
    return report
