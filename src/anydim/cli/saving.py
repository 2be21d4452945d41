"""The command compile, which writes the file of a saved model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from anydim.base.amounts import bytes_text
from anydim.base.errors import OptionError
from anydim.base.settings import USUAL_TARGET
from anydim.base.text import quote_list
from anydim.cli import arrays
from anydim.cli.language import open_language_model, refuse_options
from anydim.cli.opening import compile_model
from anydim.cli.options import Request, language_options, like_option, model_command
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.cli.report.text import duration
from anydim.serving.language_models.paths import is_language_model


@model_command
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="The file to write; the write is atomic.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=("native",),
    show_default=True,
    metavar="PROCESSOR",
    help="The processor to generate code for: native (this machine), x86-64-v2, x86-64-v3, "
    "x86-64-v4, x86-64-v4+amx, aarch64, windows-x86-64-v3, macos-aarch64, ... Repeat it for more.",
)
@click.option(
    "--profile",
    metavar="FILE",
    help="Also save specialised code for the sizes in FILE, which model.record wrote.",
)
@click.option(
    "--profile-seconds",
    type=FiniteRange(0),
    default=60.0,
    show_default=True,
    help="Time limit for making specialised code.",
)
@click.option(
    "--profile-mebibytes",
    type=FiniteRange(0),
    default=64.0,
    show_default=True,
    help="Size limit of specialised code.",
)
@language_options
@like_option
def compile(
    request: Request, output: str, targets: Sequence[str], inputs: Sequence[str],
    profile: str | None, profile_seconds: float, profile_mebibytes: float, context: int | None,
    quantize: str | None,
) -> None:  # fmt: skip
    """Compile MODEL for all sizes that --dim allows, and save it to a file.

    `anydim run | plan | explain | bench | inspect` accept the file as MODEL, and `anydim.load`
    loads it in Python, which needs numpy only: no compiler, no ONNX. The loader picks the best
    code in the file that the machine can run. The file of a language model (GGUF, or a folder of
    Hugging Face) has its tokenizer and chat template: `anydim chat | serve` and
    `anydim.language_model` open it.

    \b
    Examples:
      anydim compile encoder.onnx -o encoder.anydim --dim batch=0..64 --dim seq=1..512
      anydim compile encoder.onnx -o encoder.anydim --dim seq=1..512 \\
        --target x86-64-v3 --target x86-64-v4 --target aarch64
      anydim compile encoder.onnx -o encoder.anydim --profile sizes.jsonl
      anydim compile kernels.tc:norm -o norm.anydim --type T=float64
      anydim compile SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2.anydim
    """
    check_file(output)
    check_targets(targets)
    console = Console(request.quiet)
    if is_language_model(request.model):
        refuse_options(request, "--precision", input=inputs, profile=profile)
        lm = open_language_model(
            console, request.model, request.threads, "1GiB", context, quantize, request.precision
        )
        _save(console, lm, output, targets)
        return
    if context is not None or quantize is not None:
        raise OptionError("--context and --quantize are of language models", "leave them out")
    rest = {"profile_seconds": profile_seconds, "profile_mebibytes": profile_mebibytes}
    given = arrays.read(inputs)
    model = compile_model(console, request, given, "compiling", profile=profile, **rest)
    if profile is not None:
        console.note(f"bodies for recorded sizes: {len(model.variants())}")
    _save(console, model, output, targets)


def _save(console: Console, model: Any, output: str, targets: Sequence[str]) -> None:
    """Write the file of a model, and a line about it."""
    start = perf_counter()
    with console.task(f"saving {Path(output).name}") as advance:
        model.save(
            output, list(targets),
            progress=lambda stage, done, total: advance(done, total, f"for {stage}"),
        )  # fmt: skip
    written = bytes_text(os.path.getsize(output))
    console.note(
        f"wrote {output}, {written}, for {quote_list(targets)} in "
        f"{duration(perf_counter() - start)}"
    )


def check_file(path: str, example: str = "encoder.anydim", option: str = "--output") -> None:
    """Raise OptionError for a path at which no file can be written."""
    if Path(path).is_dir():
        raise OptionError(f"{option} {path} is a folder", f"give a file: {example}")
    folder = Path(path).parent
    if not folder.is_dir():
        raise OptionError(f"{option} {path}: folder {folder} does not exist", "create it first")


def check_targets(targets: Sequence[str]) -> None:
    """Raise OptionError for an unknown processor, before anything is compiled."""
    describe = import_module("anydim.compiler.targets.targets").target
    for name in targets:
        describe(USUAL_TARGET, name)
