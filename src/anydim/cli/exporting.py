"""The command export: a model as a folder of C or WebAssembly, for programs without Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from anydim.base.errors import OptionError
from anydim.cli import arrays
from anydim.cli.language import language_module, refuse_options
from anydim.cli.opening import compile_model
from anydim.cli.options import Request, language_options, like_option, model_command
from anydim.cli.report.console import Console
from anydim.cli.saving import check_targets
from anydim.serving.language_models.paths import is_language_model


@model_command
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FOLDER",
    help="The folder to write; created if missing.",
)
@click.option("--name", default="", help="Prefix of all symbols.  [default: the name of the model]")
@click.option(
    "--target",
    default="native",
    show_default=True,
    metavar="PROCESSOR",
    help="The processor to generate code for: native (this machine), x86-64-v3, aarch64, ...; "
    "wasm32: WebAssembly for browsers and node.",
)
@language_options
@like_option
def export(
    request: Request, output: str, name: str, target: str, inputs: Sequence[str],
    context: int | None, quantize: str | None,
) -> None:  # fmt: skip
    """Write a header, code, weights, an example, a Makefile and a CMakeLists.txt of MODEL.

    The C program passes sizes and arrays; memory is its own or malloc's, errors are numbers with
    texts. The caller sets the number of threads, up to --threads. With --code c (without
    --code, too) kernels are C text for any compiler with GCC's vector types, with --code llvm
    objects for the processor.

    With --target wasm32: modules of WebAssembly for one thread and for several (up to --threads),
    weights, a module of JavaScript with its types, and a page. LLVM's linker is needed:
    pip install 'anydim[zig]'.

    A language model (GGUF, or a folder of Hugging Face) becomes functions that read tokens and give
    logits; with --target wasm32, a module that generates text, and a page that chats.

    \b
    Examples:
      anydim export encoder.onnx -o encoder/ --dim batch=0..64 --dim seq=1..512
      anydim export encoder.onnx -o encoder/ --target aarch64 --name enc --threads 4
      anydim export kernels.tc:norm -o norm/ --code llvm --target x86-64-v3
      anydim export encoder.onnx -o web/ --target wasm32
      anydim export SmolLM2.gguf -o chat/ --target wasm32 --context 2048
    """
    if Path(output).exists() and not Path(output).is_dir():
        raise OptionError(f"--output {output} is a file", "give a folder")
    check_targets([target])
    console = Console(request.quiet)
    options = (output, name, target, request.code or "c")
    if is_language_model(request.model):
        refuse_options(request, "--precision", "--code", input=inputs)
        _export_language(console, request, options, context, quantize)
    elif context is not None or quantize is not None:
        raise OptionError("--context and --quantize are of language models", "leave them out")
    else:
        model = compile_model(console, request, arrays.read(inputs), "exporting")
        with console.task(f"exporting to {output}"):
            model.export(*options, threads=request.cores)
    if (Path(output) / "Makefile").exists():
        console.note(f"wrote {output}; `make -C {output}` builds its example")
    else:
        console.note(f"wrote {output}; `python -m http.server -d {output}` serves its page")


def _export_language(
    console: Console, request: Request, options: tuple[str, ...], context: int | None,
    quantize: str | None,
) -> None:  # fmt: skip
    """Export a language model; the code of this machine is not needed."""
    with console.task(f"exporting to {options[0]}"):
        opened = language_module("sources").open_model(request.model, context, quantize)
        made = language_module("exporting").export(
            opened, *options, request.cores, request.precision
        )
    if made.chat is None:
        console.note(f"no chat: {made.chat_problem}")
