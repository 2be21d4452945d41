"""A stream of requests at random sizes under a strategy: what a new size costs its caller.

    python -m bench.streams [--only MiniLM] [--requests 1000] [--strategy adaptive]

The time of a call over the median of all calls at its size, at the median and at the 99th
percentile: for the `first` call at each size, and for all `later` ones, which says what the machine
does by itself. Once with generic code, once under the strategy while it makes bodies, knowing
nothing from before. `busy` is the share of that time in which the processes that make bodies
worked; `made` counts bodies. `after` is the time of some sizes once bodies are made, over that
with generic code alone.

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
from anydim.variants.workers import workers
from bench.isolated import pinned
from bench.light import light_model
from bench.networks.images import recogniser
from bench.strategies import settled, show, tables
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


def passed(model: ad.Model, requests: Sequence[Inputs]) -> tuple[list[float], list[float]]:
    """Times of the first calls at each size and of all later ones, over the medians of sizes.

    Sizes that come less than five times are called again at the end.
    """
    times: dict[object, list[float]] = {}
    for request in requests:
        times.setdefault(key(request), []).append(answered(model, request))
    for size, request in {key(request): request for request in requests}.items():
        times[size] += [answered(model, request) for _ in range(5 - len(times[size]))]
    steady = {size: median(some[1:]) for size, some in times.items()}
    first = [some[0] / steady[size] for size, some in times.items()]
    later = [each / steady[size] for size, some in times.items() for each in some[1:]]
    return sorted(first), sorted(later)


def shown(ratios: list[float]) -> str:
    """The median and the slowest hundredth."""
    return f"{median(ratios):.2f} {ratios[min(len(ratios) - 1, int(0.99 * len(ratios)))]:.2f}"


def worked() -> float:
    """Seconds that processes which make bodies have worked; 0 where the system does not say."""
    ids = [process.pid for polite in (True, False) for process in workers(polite).processes()]
    try:
        rows = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in ids]
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
    parser.add_argument("--strategy", default="adaptive")
    given = parser.parse_args()
    warnings.simplefilter("error")
    every = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    workers(True).warm()  # before this thread is on one core: what it starts stays there
    workers(False)
    pinned(1)
    asides(every)
    print(f"{'':12}{'sizes':>6}{'first':>12}{'later':>12}{'first':>12}{'later':>12}{'busy':>6}"
          f"{'made':>6}{'after':>7}")  # fmt: skip
    for name, stream in STREAMS.items():
        if given.only in name:
            print(line(name, stream, given.requests, given.strategy), flush=True)


def line(name: str, stream: Stream, requests: int, strategy: str) -> str:
    """Of the table."""
    random, source = numpy.random.default_rng(0), stream.model().SerializeToString()
    drawn = [stream.draw(random) for _ in range(requests)]
    unlike = list({key(request): request for request in drawn}.values())
    model = ad.compile(source, threads=1)
    cells = [shown(each) for each in passed(model, drawn)]
    model = ad.compile(source, threads=1)
    plain = tables(model)
    with tempfile.TemporaryDirectory() as folder:
        with settings.override(cache_dir=folder):  # verdicts of its own
            model.serve_by(strategy)
        before, start = worked(), time.perf_counter()
        cells += [shown(each) for each in passed(model, drawn)]
        busy = (worked() - before) / (time.perf_counter() - start)
        settled(model, unlike[:SETTLED], times=2)
        share = after(model, plain, unlike[:SETTLED])
    figures = "".join(f"{cell:>12}" for cell in cells)
    return f"{name:12}{len(unlike):6}{figures}{busy:6.0%}{len(model.variants()):6}{share:7.3f}"


if __name__ == "__main__":
    main()
