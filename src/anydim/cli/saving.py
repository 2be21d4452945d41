"""The command compile, which writes the file of a saved model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter

import click

from anydim.base.errors import OptionError
from anydim.base.text import listed
from anydim.cli import arrays
from anydim.cli.opening import compiled
from anydim.cli.options import Asked, like_option, model_options
from anydim.report.console import Console
from anydim.report.text import amount, duration


@click.command(short_help="Compile a model and save it, for this processor or others.")
@model_options
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="The file to write, whole or not at all."
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=("native",),
    show_default=True,
    metavar="PROCESSOR",
    help="A kind of processor to make code for: native is this one; x86-64-v2, x86-64-v3, "
    "x86-64-v4, x86-64-v4+vnni, aarch64, aarch64+dotprod, ... are described. Repeat it for more.",
)
@like_option
def compile(asked: Asked, output: str, targets: Sequence[str], inputs: Sequence[str]) -> None:
    """Compile MODEL for all sizes that --dim allows, and save it to a file.

    `anydim run | plan | explain | bench | inspect` take the file in MODEL's place, and
    `anydim.load` in Python, where numpy is all that is needed: no compiler, no ONNX. A machine
    that loads the file takes the best code in it that it can run.

    \b
    Examples:
      anydim compile encoder.onnx -o encoder.anydim --dim batch=0..64 --dim seq=1..512
      anydim compile encoder.onnx -o encoder.anydim --dim seq=1..512 \\
        --target x86-64-v3 --target x86-64-v4 --target aarch64
      anydim compile kernels.tc:norm -o norm.anydim --type T=float64
    """
    check_file(output)
    check_targets(targets)
    console = Console(asked.quiet)
    model = compiled(console, asked, arrays.read(inputs), "compiling")
    start = perf_counter()
    with console.task(f"saving {Path(output).name}") as advance:
        model.save(
            output, list(targets),
            progress=lambda stage, done, total: advance(done, total, f"for {stage}"),
        )  # fmt: skip
    written = amount(os.path.getsize(output), "B")
    console.note(
        f"wrote {output}, {written}, for {listed(targets)} in {duration(perf_counter() - start)}"
    )


def check_file(path: str) -> None:
    """Raise OptionError for a path at which no file can be written."""
    if Path(path).is_dir():
        raise OptionError(f"--output {path} is a folder", "give a file: encoder.anydim")
    folder = Path(path).parent
    if not folder.is_dir():
        raise OptionError(f"--output {path}: there is no folder {folder}", "make it")


def check_targets(targets: Sequence[str]) -> None:
    """Raise OptionError for a processor that there is not, before anything is compiled."""
    describe = import_module("anydim.targets.targets").target
    for name in targets:
        describe("llvm", name)
