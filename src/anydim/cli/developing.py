"""The commands about how a model is compiled, and whether that is right: show, check."""

from __future__ import annotations

from collections.abc import Sequence

import click

from anydim.cli import arrays
from anydim.cli.opening import compiled
from anydim.cli.options import Asked, Named, integers_option, like_option, model_options
from anydim.compiler import PASSES
from anydim.report.console import Console

PASS_STAGES = tuple(entry.name for entry in PASSES)
STAGES = (
    "import", "placed", "segment", *PASS_STAGES, "schedule", "kernels", "program", "host", "llvm",
)  # fmt: skip


@click.command(short_help="Print the program at a stage of the compiler.")
@model_options
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    required=True,
    metavar="STAGE",
    help="Which stage; above they stand in order.",
)
@like_option
def show(asked: Asked, stage: str, inputs: Sequence[str]) -> None:
    """Print MODEL as it stands after a stage of the compiler.

    \b
    import     the graph as read, with symbolic sizes
    placed     the device of each node and why, and copies; with --device
    segment    straight-line parts, and what stands between them
    lower      one statement of the comprehension language for each node
    simplify   after algebra: shape arithmetic and constants are gone
    unit_dimensions  without dimensions of size 1
    joins      concatenations of concatenations as one
    views      transposes, reshapes and slices are positions in reads
    layouts    images with channels last where that is faster, and by how much
    fuse       one node for each group that becomes a kernel
    schedule   the kernel and schedule of each group
    kernels    the loop nests
    program    the host side: arena offsets, launches
    host       its code as loop IR: sizes and checks, then launches
    llvm       what LLVM compiles: kernels, their libraries, the host function

    \b
    Example:
      anydim show encoder.onnx --dim seq=1..512 --stage kernels
    """
    console = Console(asked.quiet)
    console.result(compiled(console, asked, arrays.read(inputs), "showing stages").show(stage))


@click.command(short_help="Compare with the numpy reference at random sizes.")
@model_options
@click.option(
    "--samples", type=click.IntRange(1), default=100, show_default=True, metavar="N",
    help="How many sizes.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed for sizes and inputs.")
@integers_option
@like_option
@click.pass_context
def check(
    context: click.Context, asked: Asked, samples: int, seed: int, integers: Named,
    inputs: Sequence[str],
) -> None:  # fmt: skip
    """Run MODEL and its numpy reference at random sizes inside the bounds and compare.

    The ends of the bounds, 0 and 1 are always among the sizes. Exits with 1 if a sample differs.

    \b
    Example:
      anydim check encoder.onnx --dim batch=0..64 --dim seq=1..512 \\
        --samples 50 --seed 1 --integers attention_mask=1..1
    """
    console = Console(asked.quiet)
    made = compiled(console, asked, arrays.read(inputs), "checking")
    arrays.check_integers(made, dict(integers))
    with console.task(f"checking {made.name}") as advance:
        report = made.check(samples, seed, advance, dict(integers))
    console.prose(str(report))
    if not report.ok:
        context.exit(1)
