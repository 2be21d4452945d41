"""The command about memory: the formula, its bound, peaks beside the lower bound, what fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from anydim.base.amounts import bytes_of, bytes_text, exact_bytes_text
from anydim.base.errors import DimError, MemoryLimitError
from anydim.base.text import hanging, table
from anydim.cli import arrays
from anydim.cli.language import memory_report, open_requested, refuse_options
from anydim.cli.opening import open_model
from anydim.cli.options import Request, at_option, level_option, like_option, model_command
from anydim.cli.report.console import Console
from anydim.cli.report.text import sizes_text
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.program.memory_map import arena
from anydim.serving.language_models.paths import is_language_model
from anydim.sizes import samples

_SAMPLES = 5
_LIMITS = ("64 MiB", "256 MiB", "1 GiB", "4 GiB")


@model_command
@level_option
@at_option(True, "Sizes to show the peak at; repeat it. Default: some sizes within the bounds.")
@like_option
@click.option(
    "--within", multiple=True, metavar="BYTES",
    help="A limit to show the largest sizes for, such as '512 MiB'; repeat it.  "
    "[default: 64 MiB, 256 MiB, 1 GiB, 4 GiB]",
)  # fmt: skip
def memory(
    request: Request, at: Sequence[dict[str, int]], inputs: Sequence[str], within: Sequence[str]
) -> None:
    """Show the memory that a call of MODEL allocates, at every size; runs nothing.

    The formula is exact. It does not include inputs and results. The lower bound is the largest
    number of bytes that are live at one time. If data determines sizes, peaks are upper bounds.

    The memory of a language model is that of its weights, of the caches of its sequences, and of a
    step; --at gives how many sequences of how many tokens: rows=4,tokens=512.

    \b
    Examples:
      anydim memory encoder.onnx --dim batch=0..64 --dim seq=1..512
      anydim memory encoder.onnx --at batch=8,seq=77 --at batch=64,seq=512
      anydim memory encoder.anydim --within '512 MiB' --at batch=1,seq=128
      anydim memory SmolLM2-135M-Instruct.Q4_1.gguf --at rows=16,tokens=1000
    """
    limits = [(text, bytes_of(text, "--within")) for text in within or _LIMITS]
    console = Console(request.quiet)
    if is_language_model(request.model):
        refuse_options(request, "--precision", input=inputs)
        _language(console, request, at, limits)
        return
    made = open_model(console, request, arrays.read(inputs))
    known = made.memory
    bound = "none" if known.bound is None else exact_bytes_text(known.bound)
    console.title(str(made.name))
    for name, text in (
        ("bytes", str(known.bytes)),
        ("bound", f"{bound} for {str(known.box) or 'its only size'}"),
        ("inputs", str(known.inputs)),
        ("outputs", str(known.outputs)),
        ("constants", exact_bytes_text(known.constants)),
    ):
        console.prose(hanging(text, f"  {name:<10} ", " " * 13))
    points = [arrays.sizes_of(made, sizes) for sizes in at] or _points(made)
    console.result()
    console.table(table(_PEAKS, [_peak(made, sizes) for sizes in points]))
    if known.box.dims:
        console.result()
        console.table(_fitting(made, points[len(points) // 2], limits))


def _language(
    console: Console, request: Request, at: Sequence[dict[str, int]],
    limits: Sequence[tuple[str, int]],
) -> None:  # fmt: skip
    """Memory of a language model: of its sequences, and what fits."""
    with open_requested(console, request) as lm:
        console.prose(lm.explain())
        for each in memory_report(lm, at, limits):
            console.result()
            console.table(each)


_PEAKS = ("peak at", "bytes", "", "lower bound", "ratio")


def _points(made: CallableProgram) -> list[dict[str, int]]:
    """Some sizes of the box, from small to large."""
    known = made.memory
    found = samples(known.box, _SAMPLES, known.guards) or [{}]
    return sorted(found, key=known.bytes.evaluate)


def _peak(made: CallableProgram, sizes: Mapping[str, int]) -> tuple[str, ...]:
    placed = arena(made.program, sizes)
    least = placed.lower_bound + placed.between
    total = placed.bytes + placed.between
    ratio = f"{total / least:.3f}" if least else "-"
    return sizes_text(sizes), str(total), bytes_text(total), str(least), ratio


def _fitting(
    made: CallableProgram, sizes: Mapping[str, int], limits: Sequence[tuple[str, int]]
) -> str:
    """The largest size of each dim within each limit, where the other dims keep theirs."""
    names = [name for name in made.memory.box.names if name in sizes]
    rows = [
        (text, *(_largest(made, name, limit, sizes) for name in names)) for text, limit in limits
    ]
    return table((f"largest within, others at {sizes_text(sizes)}", *names), rows)


def _largest(made: CallableProgram, name: str, limit: int, sizes: Mapping[str, int]) -> str:
    try:
        found = made.memory.largest(name, limit, {n: s for n, s in sizes.items() if n != name})
    except (MemoryLimitError, DimError):
        return "-"
    if found is None:
        return "any"
    return f"{found} (its bound)" if found == made.memory.box.dim(name).hi else str(found)
