"""`anydim bench`: a model beside other engines at given sizes, in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy

from anydim.base.errors import OptionError
from anydim.base.missing_package import missing_module
from anydim.base.text import count_of, table
from anydim.cli import arrays
from anydim.cli.bench_rows import bench_rows
from anydim.cli.lengths import RowSizes, lengths_option
from anydim.cli.opening import need_sizes, open_model, own_kind
from anydim.cli.options import (
    Request,
    at_option,
    integers_option,
    level_option,
    model_command,
    seed_option,
)
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.cli.report.measure import Timings, largest_difference, time_interleaved
from anydim.cli.report.peers import PEERS, Arrays, Engine
from anydim.cli.report.text import duration, sizes_text
from anydim.deploy.container import is_saved

OURS = "anydim"


@model_command
@level_option
@at_option(True, "The sizes; repeat it for several rows.")
@lengths_option(
    True, "Time a batch of rows of different lengths: ragged, padded and one by one. Repeat it for "
    "several batches. --at gives the other sizes.",
)  # fmt: skip
@click.option(
    "--against", type=click.Choice(sorted(PEERS)), multiple=True,
    help="Another engine to time on the same file; it must be installed.",
)  # fmt: skip
@click.option(
    "--onnx", metavar="FILE", help="The ONNX file for the other engines if MODEL is a saved model."
)
@click.option(
    "--tokens", type=click.IntRange(1), metavar="N",
    help="Time a language model, a GGUF file or a folder of Hugging Face: prompts of N tokens, and "
    "new tokens for 1, 4 and 16 sequences.",
)  # fmt: skip
@seed_option("Seed for the inputs.")
@integers_option
@click.option(
    "--rounds", type=click.IntRange(1), default=9, show_default=True, metavar="N",
    help="Rounds at each size; the engines alternate.",
)  # fmt: skip
@click.option(
    "--seconds", type=FiniteRange(0, min_open=True), default=2.0, show_default=True,
    metavar="S", help="About how long to measure each size.",
)  # fmt: skip
def bench(
    request: Request, at: Sequence[dict[str, int]], lengths: Sequence[RowSizes],
    against: Sequence[str], onnx: str | None, tokens: int | None, seed: int,
    integers: Sequence[tuple[str, tuple[int, int]]], rounds: int, seconds: float,
) -> None:  # fmt: skip
    """Time MODEL at given sizes, beside other engines with the same number of threads.

    The engines alternate on the same random inputs. Each time is the median over the rounds. Each
    ratio is the median of the ratios of the rounds; below 1.00 anydim is faster.

    With --lengths, MODEL runs a batch of rows of different lengths in one ragged call, beside one
    call with padded rows and a call for each row of the model without ragged dims; other engines
    run padded and single calls. Ratios are the ragged call's time divided by the other's; padding
    is part of it.

    \b
    Examples:
      anydim bench encoder.onnx --dim seq=1..512 --at batch=1,seq=22
      anydim bench encoder.onnx --at batch=1,seq=22 --at batch=8,seq=128 \\
        --against onnxruntime --threads 2
      anydim bench encoder.anydim --at batch=1,seq=22 \\
        --against onnxruntime --onnx encoder.onnx
      anydim bench encoder.onnx --lengths natural --lengths 3,17,300
      anydim bench encoder.onnx --lengths rows.txt --against onnxruntime
      anydim bench SmolLM2-135M-Instruct.Q4_1.gguf --tokens 512
    """
    console = Console(request.quiet)
    if tokens is not None:
        for option, given in (("--at", at), ("--lengths", lengths), ("--against", against),
                              ("--onnx", onnx), ("--integers", integers)):  # fmt: skip
            if given:
                raise OptionError(f"{option} cannot be combined with --tokens", "leave one out")
        try:
            module: Any = import_module("anydim.cli.bench_tokens")
        except ModuleNotFoundError as error:
            raise missing_module("--tokens", error) from error
        module.bench_tokens(console, request, tokens, rounds, seed)
        return
    kind = "a saved model" if is_saved(request.model) else own_kind(request.model)
    if against and onnx is None and kind:
        name = Path(request.model).name
        hint = "name the ONNX file: --onnx encoder.onnx"
        raise OptionError(f"--against {against[0]}: it cannot run {name}, {kind}", hint)
    source = request.model if onnx is None else onnx
    if lengths:
        if kind and onnx is None:
            hint = "name the ONNX file for padded calls: --onnx encoder.onnx"
            problem = f"--lengths: a padded call needs an ONNX file, and {request.model} is {kind}"
            raise OptionError(problem, hint)
        if len(at) > 1:
            raise OptionError("--lengths: --at is given twice", "give the other sizes once")
        others, timing = {} if not at else at[0], (rounds, seconds)
        bench_rows(console, request, source, others, lengths, against, seed, dict(integers), timing)
        return
    if not at:
        need_sizes(request)
    made = open_model(console, request)
    threads = made.executable.threads
    engines: dict[str, Engine] = {OURS: lambda inputs: made(**inputs)}
    for peer in against:
        with console.task(f"loading {Path(source).name} with {peer}"):
            engines[peer] = PEERS[peer](source, threads)
    at = at or [arrays.no_sizes(made)]
    feeds = [arrays.draw_inputs(made, sizes, seed, dict(integers)) for sizes in at]
    rows = []
    with console.task("measuring") as advance:
        for number, (sizes, inputs) in enumerate(zip(at, feeds)):
            where = sizes_text(arrays.sizes_of(made, sizes))
            advance(number, len(at), where)
            rows.append(_row(where, engines, inputs, rounds, seconds))
    console.table(_table(list(engines), rows))
    meaning = "; ratio is anydim's time divided by the other engine's" if against else ""
    console.note(f"{count_of(threads, 'thread')}, {rounds} rounds at each size{meaning}")


def _row(
    where: str, engines: Mapping[str, Engine], inputs: Arrays, rounds: int, seconds: float
) -> tuple[str, ...]:
    results = {name: engine(inputs) for name, engine in engines.items()}
    times = time_interleaved({n: partial(e, inputs) for n, e in engines.items()}, rounds, seconds)
    row = [where, duration(times.median(OURS))]
    for peer in list(engines)[1:]:
        row += _against(peer, times, _worst(results[OURS], results[peer]))
    return tuple(row)


def _against(peer: str, times: Timings, worst: float) -> tuple[str, str, str]:
    return duration(times.median(peer)), f"{times.ratio(OURS, peer):.2f}", f"{worst:.1e}"


def _worst(ours: Mapping[str, numpy.ndarray], theirs: Mapping[str, numpy.ndarray]) -> float:
    return max((largest_difference(ours[name], theirs[name]) for name in ours), default=0.0)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    headers = ["sizes", names[0]]
    for peer in names[1:]:
        headers += [peer, "ratio", "largest diff"]
    return table(headers, rows)
