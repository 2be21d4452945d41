"""The commands about one model, compiled or saved: run, plan, explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter

import click

from anydim.base.amounts import bytes_text, exact_bytes_text
from anydim.base.errors import OptionError
from anydim.base.text import count_of, table
from anydim.cli import arrays
from anydim.cli.feeding import OR_FILES, refuse_drawing
from anydim.cli.language import open_requested, refuse_options
from anydim.cli.lengths import (
    RowSizes,
    lengths_option,
    packing_of,
    ragged_request,
    row_lengths,
)
from anydim.cli.opening import need_sizes, open_model
from anydim.cli.options import (
    Named,
    Request,
    at_option,
    input_option,
    integers_option,
    level_option,
    like_option,
    model_command,
)
from anydim.cli.report import plot_page
from anydim.cli.report.console import Console
from anydim.cli.report.text import amount, duration, sizes_text
from anydim.runtime.program.memory_map import arena
from anydim.runtime.program.plan import LaunchPlan, Plan
from anydim.serving.language_models.paths import is_language_model


@model_command
@level_option
@input_option(
    "An .npz file that holds the inputs by name, NAME=FILE.npy for one input, or NAME=0.5."
)
@at_option(False, "Draw random inputs at these sizes instead.")
@click.option(
    "--random", "seed", type=click.IntRange(0), default=0, show_default=True, metavar="SEED",
    help="Seed for random inputs.",
)  # fmt: skip
@integers_option
@click.option("--output", metavar="FILE.npz", help="Write the outputs to this file, by name.")
def run(
    request: Request, inputs: Sequence[str], at: dict[str, int] | None, seed: int, integers: Named,
    output: str | None,
) -> None:  # fmt: skip
    """Run MODEL once and show its outputs.

    The inputs come from files written by numpy.savez or numpy.save, or are drawn at random: floats
    from the normal distribution, indices from all that are valid, other integers from 0 and 1.

    \b
    Examples:
      anydim run encoder.onnx --dim seq=1..512 --input ids.npz --output out.npz
      anydim run encoder.onnx --input input_ids=ids.npy --input attention_mask=m.npy
      anydim run encoder.onnx --at batch=2,seq=16 --integers attention_mask=1..1
      anydim run kernels.tc:scale --input x=x.npy --input by=0.5
      anydim run encoder.anydim --at batch=2,seq=16
    """
    refuse_drawing(inputs, at)
    if output:
        arrays.check_output(output)
    found = arrays.read(inputs)
    console = Console(request.quiet)
    if not inputs and at is None:
        need_sizes(request, OR_FILES)
    made = open_model(console, request, found)
    if inputs:
        feeds, origin = arrays.inputs_by_name(made, found), "inputs from files"
    else:
        at = arrays.no_sizes(made, OR_FILES) if at is None else at
        feeds = arrays.draw_inputs(made, at, seed, dict(integers))
        origin = f"random inputs, seed {seed}, at {sizes_text(arrays.sizes_of(made, at))}"
    start = perf_counter()
    results = made._results(feeds)
    seconds = perf_counter() - start
    console.title(str(made.name))
    console.prose(f"  {origin}")
    console.result(f"  {duration(seconds)} on {_cores(made.executable.threads)}, the first call")
    console.result()
    console.table(arrays.summary(results))
    if output:
        arrays.save(results, output)
        console.note(f"wrote {output}")


@model_command
@level_option
@at_option(True, "The sizes; repeat it for several plans.")
@input_option("Take the sizes, and types and ranks of a definition, from these files.")
@click.option("--launches", is_flag=True, help="One line for each launch, in order.")
@click.option("--json", "as_json", is_flag=True, help="A JSON document for each plan, one a line.")
@click.option(
    "--plot", metavar="FILE",
    help="Draw the memory layout over the launches: FILE.svg, or FILE.html with tables. Without "
    "--at, at the upper bounds of the dims.",
)  # fmt: skip
def plan(
    request: Request, at: Sequence[dict[str, int]], inputs: Sequence[str], launches: bool,
    as_json: bool, plot: str | None,
) -> None:  # fmt: skip
    """Show what a call of MODEL at given sizes will do, without running it.

    The arena holds the intermediate values of a call; its size is exact.

    \b
    Examples:
      anydim plan encoder.onnx --dim seq=1..512 --at batch=8,seq=77
      anydim plan encoder.onnx --at batch=1,seq=22 --launches
      anydim plan encoder.onnx --at batch=1,seq=22 --json | python -m json.tool
      anydim plan encoder.onnx --dim batch=0..8 --dim seq=1..512 --plot plan.svg
      anydim plan kernels.tc:matmul --input in.npz
      anydim plan encoder.anydim --at batch=8,seq=77 --plot plan.html
    """
    if plot:
        plot_page.check(plot)
    found = arrays.read(inputs)
    console = Console(request.quiet)
    if not (inputs or at or plot):
        need_sizes(request, OR_FILES)
    made = open_model(console, request, found)
    wanted = [*at, *([arrays.sizes_in(made, arrays.inputs_by_name(made, found))] if inputs else [])]
    if plot and len(wanted) > 1:
        raise OptionError("--plot draws a single plan", "give --at or --input once")
    if not wanted:
        wanted = [arrays.upper_bounds(made) if plot else arrays.no_sizes(made, OR_FILES)]
    for number, sizes in enumerate(wanted):
        sizes = arrays.sizes_of(made, sizes)
        planned = made.plan(**sizes)
        if number and not as_json:
            console.result()
        if as_json:
            click.echo(planned.json(indent=None))
        elif launches:
            console.result(str(planned))
        else:
            _show_plan(console, planned)
        if plot:
            plot_page.write(arena(made.program, sizes), plot)
            console.note(f"wrote {plot}")


@model_command
@level_option
@like_option
@click.option("--details", is_flag=True, help="Every kernel with its schedule, reason and nodes.")
@click.option(
    "--kernel", "pattern", default="", metavar="PATTERN",
    help="Only the kernels whose names, or the names of whose nodes, match: 'layer.0/*'.",
)  # fmt: skip
@lengths_option(
    False, "The cost of a ragged call with rows of these lengths beside a padded one, by formula."
)
@at_option(False, "The other sizes for --lengths.")
def explain(
    request: Request, inputs: Sequence[str], details: bool, pattern: str,
    lengths: RowSizes | None, at: dict[str, int] | None,
) -> None:  # fmt: skip
    """Summarize how MODEL was compiled: fusion, memory as a formula, warnings, kernel templates.

    For a ragged model, the summary says which dims are ragged, which inputs mark padding, and what
    a padded call would cost beside a ragged one: work, bytes moved and memory.

    \b
    Examples:
      anydim explain encoder.onnx --dim batch=0..64 --dim seq=1..512
      anydim explain encoder.onnx --details | less
      anydim explain encoder.onnx --kernel '*/layer.0/*'
      anydim explain kernels.tc:norm --type T=float64
      anydim explain encoder.anydim --level x86-64-v3
      anydim explain encoder.onnx --lengths natural
      anydim explain SmolLM2-135M-Instruct.Q4_1.gguf
    """
    console = Console(request.quiet)
    if is_language_model(request.model):
        refuse_options(request, "--precision", input=inputs, lengths=lengths, at=at)
        with open_requested(console, request) as lm:
            console.prose(f"{lm.explain()}\n\n{lm.model.model.explain(pattern, details=details)}")
        return
    if lengths is None:
        if at is not None:
            raise OptionError("--at gives other sizes for --lengths, which is missing",
                              "plan shows a call at given sizes")  # fmt: skip
        made = open_model(console, request, arrays.read(inputs))
        console.prose(made.explain(pattern, details=details))
        return
    made = open_model(console, ragged_request(request), arrays.read(inputs))
    rows = row_lengths(packing_of(made), lengths)
    console.prose(made.explain(pattern, details=details, lengths=rows, **(at or {})))


def _show_plan(console: Console, planned: Plan) -> None:
    """Memory and work, then one line for each kernel."""
    between = bytes_text(planned.value_bytes) if planned.value_bytes else ""
    launches = count_of(len(planned.launches), "launch", "es")
    console.title(f"{planned.name} at {sizes_text(planned.sizes)}")
    for name, value, more in (
        ("arena", exact_bytes_text(planned.arena_bytes), ""),
        *(
            (("between", between, " of values between steps, at most: taken as known"),)
            if between
            else ()
        ),
        ("inputs", bytes_text(planned.input_bytes), ""),
        ("outputs", bytes_text(planned.output_bytes), ""),
        ("constants", bytes_text(planned.constant_bytes), ""),
        ("work", amount(planned.flops, "flop"), f" in {launches}"),
    ):
        console.result(f"  {name:<10} {value:>10}{more}")
    rows = _kernel_rows(planned.launches)
    if rows:
        headers = ("kernel", "launches", "range", "parts", "flop", "moved", "body")[: len(rows[0])]
        console.result()
        console.table(table(headers, rows))


def _kernel_rows(launches: Sequence[LaunchPlan]) -> list[tuple[str, ...]]:
    """Rows of kernels; with the body that serves each, where any is not the generic one."""
    kernels: dict[str, list[LaunchPlan]] = {}
    others = any(launch.body != "generic" for launch in launches)
    for launch in launches:
        kernels.setdefault(launch.kernel, []).append(launch)
    return [
        (
            name,
            str(sum(1 if launch.times is None else launch.times for launch in same)),
            _span(launch.parallel for launch in same),
            _span(launch.parts for launch in same),
            amount(sum(launch.flops for launch in same), "").strip(),
            bytes_text(sum(launch.moved for launch in same)),
            *([" and ".join(dict.fromkeys(launch.body for launch in same))] if others else []),
        )
        for name, same in kernels.items()
    ]


def _span(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]}..{found[-1]}"


def _cores(threads: int) -> str:
    return "1 core" if threads == 1 else f"{threads} cores"
