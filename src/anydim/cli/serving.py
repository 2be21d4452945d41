"""`anydim serve` and `anydim load`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy

from anydim.base.amounts import bytes_of
from anydim.base.errors import MissingError, OptionError
from anydim.base.missing_package import install
from anydim.base.text import count_of, table
from anydim.cli.lengths import RowSizes, lengths_option
from anydim.cli.options import DIM, RANGE, NamedType, dims_by_name, once, seed_option
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.runtime.program.padding import natural
from anydim.runtime.program.profile.trace import write
from anydim.serving.drafts import MOST_DRAFT, draft_length
from anydim.sizes import Dim


@click.command
@click.argument("models", nargs=-1, metavar="MODEL...")
@click.option(
    "--memory", default="2GiB", show_default=True, metavar="BYTES",
    help="Limit of the process: weights, requests, calls, results.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(1), metavar="N",
    help="Threads of a call; of a saved model at most those it was compiled with. Default: these, "
    "or the cores.",
)  # fmt: skip
@click.option(
    "--calls", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N",
    help="Calls that run at once, besides one for long requests.",
)  # fmt: skip
@click.option(
    "--queue", type=click.IntRange(1), default=1024, show_default=True, metavar="N",
    help="Requests that wait at most; others get 503.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
    help="Port of REST and of the page; 0: any.",
)  # fmt: skip
@click.option(
    "--grpc-port", type=click.IntRange(0, 65535), default=8001, show_default=True,
    help="Port of gRPC; 0: any.",
)  # fmt: skip
@click.option("--no-grpc", is_flag=True, help="Do not serve gRPC.")
@click.option(
    "--tokenizer", "tokenizers", type=NamedType("--tokenizer", "encoder=tokenizer.json"),
    multiple=True, metavar="NAME=FILE",
    help="The tokenizer of a model, for texts at /v1/embeddings. Default: tokenizer.json beside "
    "the model.",
)  # fmt: skip
@click.option(
    "--batch", type=NamedType("--batch", "detector=batch"), multiple=True, metavar="NAME=DIM",
    help="For a model without ragged dims: its dim of rows that do not depend on each other. "
    "Requests of equal shapes then share calls.",
)  # fmt: skip
@click.option(
    "--decoder", "decoders", type=NamedType("--decoder", "writer=decoder.onnx"), multiple=True,
    metavar="NAME=FILE",
    help="A decoder with caches, as an ONNX file, for /v1/completions.",
)  # fmt: skip
@click.option(
    "--cache-memory", metavar="BYTES",
    help="Most bytes of the caches and steps of each decoder; a part of --memory. Default: 256 "
    "MiB, and three quarters of what is free for language models.",
)  # fmt: skip
@click.option(
    "--dim", "dims", type=DIM, multiple=True, metavar="NAME=LOW..HIGH",
    help="Bounds of a dim of ONNX files: seq=1..512.",
)  # fmt: skip
@click.option(
    "--context", type=click.IntRange(1), metavar="TOKENS",
    help="Most tokens of a sequence of language models. Default: what the model declares, at most "
    "8192.",
)  # fmt: skip
@click.option(
    "--quantize", type=click.Choice(["q8", "q4"]),
    help="Float weights of language models become codes of 8 or 4 bits.",
)  # fmt: skip
@click.option(
    "--precision", metavar="TEXT",
    help="How products of language models may round: bfloat16 or int8. Default: float32.",
)  # fmt: skip
@click.option(
    "--cache-type", type=click.Choice(["float32", "float16", "bfloat16", "int8"]),
    help="Element type of caches of language models; those of 16 bits take half the memory, int8 "
    "a quarter. Default: float32, or that of a saved model.",
)  # fmt: skip
@click.option(
    "--speculate", type=click.IntRange(0, MOST_DRAFT), metavar="N",
    help="Most tokens of a draft that a step of language models checks: what followed the last "
    "tokens where they occurred before. Answers are the same; those that repeat their prompt come "
    "faster. Default: 0, and 4 with --draft.",
)  # fmt: skip
@click.option(
    "--draft", metavar="MODEL",
    help="A smaller language model with the same tokens that writes the drafts of the served one.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Log warnings and errors only.")
def serve(
    models: Sequence[str], memory: str, threads: int | None, calls: int, queue: int, host: str,
    port: int, grpc_port: int, no_grpc: bool, tokenizers: Sequence[tuple[str, str]],
    batch: Sequence[tuple[str, str]], decoders: Sequence[tuple[str, str]], cache_memory: str | None,
    dims: Sequence[Any], context: int | None, quantize: str | None, precision: str | None,
    cache_type: str | None, speculate: int | None, draft: str | None, quiet: bool,
) -> None:  # fmt: skip
    """Serve models over REST and gRPC, by the open inference protocol v2.

    MODEL is a saved model, an ONNX file, NAME=FILE, or a folder of models or of versions
    (name/1/model.anydim); or a language model, a GGUF file or a folder of Hugging Face, which
    answers /v1/chat/completions and /v1/completions as OpenAI's clients expect.

    Requests of any sizes share calls without padding where a model has ragged dims (`anydim compile
    --ragged auto`; ONNX files are compiled so); an answer has the bits of a call alone. The page at
    / shows load, queue, latency and memory.

    \b
    Examples:
      anydim serve encoder.anydim --memory 2GiB
      anydim serve models/ --port 9000 --no-grpc
      anydim serve encoder=minilm.onnx --dim seq=1..512 \\
        --tokenizer encoder=tokenizer.json
      anydim serve SmolLM2-135M-Instruct.Q4_1.gguf --memory 4GiB
      anydim serve --decoder writer=decoder.onnx --tokenizer writer=tokenizer.json
    """
    if not models and not decoders:
        raise OptionError("no model to serve", "name saved models, ONNX files or language models")
    settings = _module("run").Settings(
        models=tuple(models), memory=bytes_of(memory, "--memory"),
        threads=threads, host=host, port=port,
        grpc_port=None if no_grpc else grpc_port, queue=queue, calls=calls,
        tokenizers=once("--tokenizer", tokenizers), batch=once("--batch", batch),
        decoders=once("--decoder", decoders),
        cache_memory=None if cache_memory is None else bytes_of(cache_memory, "--cache-memory"),
        dims=dims_by_name(dims), context=context, quantize=quantize, precision=precision,
        speculate=draft_length(speculate, draft is not None), cache=cache_type, draft=draft,
        quiet=quiet,
    )  # fmt: skip
    _module("run").serve(settings)


def _module(name: str) -> Any:
    """A module of the server; raises MissingError without its packages."""
    try:
        return import_module(f"anydim.serving.server.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "anydim").startswith("anydim"):
            raise
        raise MissingError(
            f"the server needs the package {error.name}", install("serve")
        ) from error


class OutliersType(click.ParamType):
    """0.01:512"""

    name = "outliers"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[float, int]:
        """Raises OptionError for another form."""
        share, _, length = str(value).partition(":")
        try:
            found = float(share), int(length)
        except ValueError:
            found = -1.0, 0
        if not 0 <= found[0] <= 1 or found[1] < 0:
            raise OptionError(f"--outliers {value}: expected SHARE:LENGTH", "such as 0.01:512")
        return found


@click.command
@click.argument("url", metavar="URL")
@click.option("--model", metavar="NAME", help="The model. Default: the only one.")
@click.option(
    "--rate", type=FiniteRange(0, min_open=True), default=50.0, show_default=True,
    metavar="N", help="Mean requests per second.",
)  # fmt: skip
@click.option(
    "--seconds", type=FiniteRange(0, min_open=True), default=10.0, show_default=True,
    metavar="S", help="How long requests are sent.",
)  # fmt: skip
@lengths_option(False, "Sizes of requests, drawn from these. Default: natural.")
@click.option(
    "--outliers", type=OutliersType(), metavar="SHARE:LENGTH",
    help="A share of requests has this length: 0.01:512.",
)  # fmt: skip
@click.option(
    "--integers", type=RANGE, multiple=True, metavar="INPUT=LOW..HIGH",
    help="Draw this integer input from LOW to HIGH, both included. Default: 0 and 1.",
)  # fmt: skip
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Results to request.")
@click.option(
    "--timeout", type=FiniteRange(0, min_open=True), default=60.0, show_default=True,
    metavar="S", help="How long an answer may take; a later one counts as none.",
)  # fmt: skip
@seed_option("Seed of times, lengths and inputs.")
@click.option("--chart", metavar="FILE", help="Write a picture of the latencies, as SVG.")
@click.option("--quiet", is_flag=True, help="Print the table only.")
@click.pass_context
def load(
    context: click.Context, url: str, model: str | None, rate: float, seconds: float,
    lengths: RowSizes | None, outliers: tuple[float, int] | None,
    integers: Sequence[tuple[str, tuple[int, int]]], outputs: Sequence[str], timeout: float,
    seed: int, chart: str | None, quiet: bool,
) -> None:  # fmt: skip
    """Send random requests to a server at a rate, and print latencies.

    Requests leave at the times of a Poisson process, whether or not earlier ones were answered, and
    latency counts from these times: a server that stalls does not slow the load. The exit status is
    1 if no request had a result.

    \b
    Examples:
      anydim load http://localhost:8000 --rate 100 --lengths natural
      anydim load localhost:8000 --rate 60 --seconds 30 --outliers 0.01:512
      anydim load localhost:8000 --chart latency.svg \\
        --integers input_ids=0..30521 --output sentence_embedding
    """
    console, made = Console(quiet), _module("loading")
    if chart is not None and not Path(chart).parent.is_dir():
        raise OptionError(f"--chart {chart}: there is no folder {Path(chart).parent}", "make it")
    plan = made.LoadPlan(
        url, model, rate, seconds, _draw_lengths(lengths, round(rate * seconds), seed), outliers,
        dict(integers), tuple(outputs), seed, timeout,
    )  # fmt: skip
    console.note(f"sending {count_of(len(plan.lengths), 'request')} in {seconds:g} s")
    sent = made.send_plan(plan)
    first, *others = made.summary(plan, sent)
    if not any(each.status == 200 for each in sent):
        console.error(first, "\n".join(others))
        context.exit(1)
    for line in (first, *others):
        console.note(line)
    console.table(table(made.HEADERS, made.rows(sent)))
    if chart is not None:
        write(chart, made.picture(plan, sent))
        console.note(f"wrote {chart}")


def _draw_lengths(lengths: RowSizes | None, count: int, seed: int) -> list[int]:
    """The lengths of requests: natural ones, or drawn from a list."""
    count = max(1, count)
    if lengths is None or not lengths.rows:
        return natural([Dim("length", 1)], count, seed)["length"]
    rows = [row[0] for row in lengths.rows]
    return [rows[each] for each in numpy.random.default_rng(seed).integers(0, len(rows), count)]
