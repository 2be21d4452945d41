"""A stream of requests at random sizes under a strategy: what a new size costs its caller.

    python -m bench.streams [--only MiniLM] [--requests 1000] [--strategy adaptive] [--passes 3]

The time of the first call at each size over the median of later ones: the median and the 99th
percentile over sizes, of the `least` of some passes (what a new size always costs), and of `all`
passes (with what the machine does now and then by itself). With generic code, then under the
strategy while it makes bodies, each pass knowing nothing from before. `busy` is the share of that
time in which the processes that make bodies worked; `made` counts bodies of the last pass. With
`--after` the time of some sizes once bodies are made, over that with generic code alone.

Calls run on the first core that there is, all else on the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy
import onnx

import anydim as ad
from anydim.base import settings
from anydim.base.records import dataclass
from anydim.compiler.variants.workers import workers
from bench.isolated import pinned
from bench.light import light_model
from bench.networks.images import recogniser
from bench.strategies import SETTLE, settled, show, tables
from examples.minilm.model import model_path

SETTLED = 24  # sizes
Inputs = dict[str, numpy.ndarray]
Tables = dict[int, numpy.ndarray]


@dataclass(frozen=True)
class Stream:
    """A model, and how a request is drawn."""

    model: Callable[[], onnx.ModelProto]
    draw: Callable[[numpy.random.Generator], Inputs]


def sentences(random: numpy.random.Generator) -> Inputs:
    """Token numbers of a batch."""
    shape = (int(random.integers(1, 5)), int(random.integers(3, 49)))
    ids = random.integers(0, 30000, shape)
    return {"input_ids": ids, "attention_mask": numpy.ones(shape, numpy.int64)}


def photographs(random: numpy.random.Generator) -> Inputs:
    """One image."""
    height, width = (int(8 * random.integers(8, 17)) for _ in range(2))
    return {"gpu_0/data_0": random.standard_normal((1, 3, height, width), numpy.float32)}


def lines(random: numpy.random.Generator) -> Inputs:
    """The image of a line of text."""
    width = int(random.integers(20, 320))
    return {"lines": random.standard_normal((1, 3, 48, width), numpy.float32)}


def photographed() -> onnx.ModelProto:
    """resnet50 for images of any size: its last pool, 7 x 7 in the file, is over all there is."""
    model = light_model("resnet50", ("b", 3, "h", "w"))
    pool = next(node for node in model.graph.node if node.op_type == "AveragePool")
    pool.op_type = "GlobalAveragePool"
    del pool.attribute[:]
    return model


STREAMS: Mapping[str, Stream] = {
    "MiniLM": Stream(lambda: onnx.load(model_path()), sentences),
    "resnet50": Stream(photographed, photographs),
    "recogniser": Stream(recogniser, lines),
}


def answered(model: ad.Model, request: Inputs) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    model(**request)
    return time.perf_counter() - start


def key(request: Inputs) -> tuple[tuple[int, ...], ...]:
    """The sizes of a request."""
    return tuple(array.shape for array in request.values())


def asides(cores: set[int]) -> None:
    """Threads that look after bodies run on these cores, not on that of the call that wakes one."""
    if not hasattr(os, "sched_setaffinity"):
        return
    started = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name == "anydim-adaptive":
            os.sched_setaffinity(0, cores)
        started(thread)

    threading.Thread.run = run  # type: ignore[method-assign]


def passed(model: ad.Model, requests: Sequence[Inputs]) -> dict[object, float]:
    """The time of the first call at each size, over the median of later ones.

    Sizes that come less than five times are called again at the end.
    """
    times: dict[object, list[float]] = {}
    for request in requests:
        times.setdefault(key(request), []).append(answered(model, request))
    for size, request in {key(request): request for request in requests}.items():
        times[size] += [answered(model, request) for _ in range(5 - len(times[size]))]
    return {size: some[0] / median(some[1:]) for size, some in times.items()}


def cells(passes: Sequence[Mapping[object, float]]) -> str:
    """Of the least of all passes, and of all."""
    least = [min(each[size] for each in passes) for size in passes[0]]
    every = [ratio for each in passes for ratio in each.values()]
    return f"{shown(sorted(least)):>12}{shown(sorted(every)):>12}"


def shown(ratios: list[float]) -> str:
    """The median and the slowest hundredth."""
    return f"{median(ratios):.2f} {ratios[min(len(ratios) - 1, int(0.99 * len(ratios)))]:.2f}"


def worked() -> float:
    """Seconds that processes which make bodies have worked; 0 where the system does not say."""
    ids = [process.pid for polite in (True, False) for process in workers(polite).processes()]
    try:
        rows = [
            Path(f"/proc/{each}/stat").read_text("utf-8").rpartition(")")[2].split() for each in ids
        ]
    except OSError:
        return 0.0
    return sum(int(row[11]) + int(row[12]) for row in rows) / os.sysconf("SC_CLK_TCK")


def after(model: ad.Model, plain: Tables, some: Sequence[Inputs]) -> float:
    """The time of requests with the bodies that are there, over that with generic code."""
    fitted, ratios = tables(model), []
    for turn in range(9):
        taken = {}
        for bodies in (plain, fitted) if turn % 2 else (fitted, plain):
            show(model, bodies)
            taken[id(bodies)] = sum(answered(model, request) for request in some)
        ratios.append(taken[id(fitted)] / taken[id(plain)])
    return median(ratios)


def main() -> None:
    """Print a line for each stream."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--only", default="", help="streams whose name has this word")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--strategy", default="adaptive(after=2)")
    parser.add_argument("--after", action="store_true", help="wait for bodies; it takes minutes")
    parser.add_argument("--passes", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("error")
    every = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    workers(True).warm()  # before this thread is on one core: what it starts stays there
    workers(False)
    pinned(1)
    asides(every)
    print(f"{'':18}{'generic':>24}{given.strategy:>24}")
    print(f"{'':12}{'sizes':>6}" + 2 * f"{'least':>12}{'all':>12}" + "  busy  made  after")
    for name, stream in STREAMS.items():
        if given.only in name:
            print(line(name, stream, given), flush=True)


def line(name: str, stream: Stream, given: argparse.Namespace) -> str:
    """Of the table."""
    random, source = numpy.random.default_rng(0), stream.model().SerializeToString()
    drawn = [stream.draw(random) for _ in range(given.requests)]
    unlike = list({key(request): request for request in drawn}.values())
    passes: dict[str, list[dict[object, float]]] = {"generic": [], given.strategy: []}
    work = seconds = 0.0
    for _ in range(given.passes):
        for strategy, found in passes.items():
            model = ad.compile(source, threads=1, strategy="generic")
            plain = tables(model)
            with tempfile.TemporaryDirectory() as folder, settings.override(cache_dir=folder):
                model.serve_by(strategy)  # verdicts of its own
            before, start = worked(), time.perf_counter()
            found.append(passed(model, drawn))
            if strategy == given.strategy:
                work, seconds = work + worked() - before, seconds + time.perf_counter() - start
                if len(found) < given.passes:  # nothing more is made for it
                    model.serve_by("generic")
                    stilled()
    figures = "".join(map(cells, passes.values()))
    told = f"{name:12}{len(unlike):6}{figures}{work / seconds:6.0%}{len(model.variants()):6}"
    if given.after:
        settled(model, unlike[:SETTLED], times=2)
        return f"{told}{after(model, plain, unlike[:SETTLED]):7.3f}"
    model.serve_by("generic")
    stilled()
    return told


def stilled() -> None:
    """Wait until nothing is made any more."""
    for thread in threading.enumerate():
        if thread.name == "anydim-adaptive":
            thread.join(SETTLE)


if __name__ == "__main__":
    main()
