"""The light architectures of onnx beside onnxruntime, images of 224 x 224.

    python -m bench.architectures                          # all, batches 1 and 4, one thread
    python -m bench.architectures --name vgg19 --batch 1 --threads 2

One compile serves all batches from 1 to 16. Both take turns in one process; a ratio is the median
of the ratios of neighbours, below 1 where anydim is faster. Weights are random; the final Softmax
is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

import click
import numpy
import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.cli.report.measure import largest_difference, time_interleaved
from bench.isolated import pinned
from bench.light import NAMES, light_model

SIDE = 224


@click.command(help=__doc__)
@click.option("--name", "names", multiple=True, type=click.Choice(NAMES))
@click.option("--batch", "batches", multiple=True, type=int, default=(1, 4), show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--seconds", default=6.0, show_default=True, help="For a row of the table.")
def main(names: tuple[str, ...], batches: tuple[int, ...], threads: int, seconds: float) -> None:
    pinned(threads)
    console = Console()
    table = Table(title=f"milliseconds of a call on {threads} thread(s)")
    for column in ("", "batch", "compile s", "anydim", "onnxruntime", "ratio", "difference"):
        table.add_column(column, justify="left" if not column else "right")
    ratios = []
    for name in names or NAMES:
        source = light_model(name)
        start = time.perf_counter()
        model = ad.compile(source, dims={"batch": ad.Dim(1, 16)}, threads=threads)
        compiled = time.perf_counter() - start
        theirs = peer(source, threads)
        for batch in batches:
            shape = (batch, 3, SIDE, SIDE)
            x = numpy.random.default_rng(batch).standard_normal(shape, numpy.float32)
            feed = {model.inputs[0].name: x}
            calls: dict[str, Callable[[], Any]] = {
                "anydim": lambda model=model, feed=feed: next(iter(model(**feed).values())),
                "onnxruntime": lambda theirs=theirs, feed=feed: theirs.run(None, feed)[0],
            }
            found, expected = (call() for call in calls.values())
            apart = largest_difference(found, expected) / numpy.abs(expected).max()
            timings = time_interleaved(calls, rounds=7, seconds=seconds)
            ratios.append(timings.ratio("anydim", "onnxruntime"))
            cells = [f"{1e3 * timings.median(engine):.2f}" for engine in calls]
            table.add_row(
                name, str(batch), f"{compiled:.2f}", *cells, f"{ratios[-1]:.2f}", f"{apart:.0e}"
            )
    console.print(table)
    console.print(f"geometric mean of the ratios {geometric_mean(ratios):.2f}")


def peer(source: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    """onnxruntime's session of a model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        source.SerializeToString(), options, ["CPUExecutionProvider"]
    )


if __name__ == "__main__":
    main()
