"""`anydim serve` and `anydim load`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from anydim.base.amounts import bytes_of
from anydim.base.errors import MissingError
from anydim.cli.options import DIM, NamedType, dims_by_name, once
from anydim.runtime.threads import AUTO


@click.command
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--memory", default="2GiB", show_default=True, metavar="BYTES",
    help="Limit of the process: weights, requests, calls, results.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(1), metavar="N",
    help="Threads of a call of an ONNX file. Default: the cores. A saved model has its own.",
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
    "--dim", "dims", type=DIM, multiple=True, metavar="NAME=LOW..HIGH",
    help="Bounds of a dim of ONNX files: seq=1..512.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Log warnings and errors only.")
def serve(
    models: Sequence[str], memory: str, threads: int | None, calls: int, queue: int, host: str,
    port: int, grpc_port: int, no_grpc: bool, tokenizers: Sequence[tuple[str, str]],
    batch: Sequence[tuple[str, str]], dims: Sequence[Any], quiet: bool,
) -> None:  # fmt: skip
    """Serve models over REST and gRPC, by the open inference protocol v2.

    MODEL is a saved model, an ONNX file, NAME=FILE, or a folder of models or of versions
    (name/1/model.anydim). Requests of any sizes share calls without padding where a model has
    ragged dims (`anydim compile --ragged auto`; ONNX files are compiled so); an answer has the bits
    of a call alone. The page at / shows load, queue, latency and memory.

    \b
    Examples:
      anydim serve encoder.anydim --memory 2GiB
      anydim serve models/ --port 9000 --no-grpc
      anydim serve encoder=minilm.onnx --dim seq=1..512 --threads 2 --tokenizer encoder=tokenizer.json
    """
    settings = _module("run").Settings(
        models=tuple(models), memory=bytes_of(memory, "--memory"),
        threads=AUTO if threads is None else threads, host=host, port=port,
        grpc_port=None if no_grpc else grpc_port, queue=queue, calls=calls,
        tokenizers=once("--tokenizer", tokenizers), batch=once("--batch", batch),
        dims=dims_by_name(dims), quiet=quiet,
    )  # fmt: skip
    _module("run").serve(settings)


def _module(name: str) -> Any:
    """A module of the server; raises MissingError without its packages."""
    try:
        return import_module(f"anydim.server.{name}")
    except ModuleNotFoundError as error:
        raise MissingError(
            f"the server needs the package {error.name}", 'install "anydim[serve]"'
        ) from error
