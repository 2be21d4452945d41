"""A stream of requests at random sizes under a strategy: what a new size costs its caller.

    python -m bench.streams [--only MiniLM] [--requests 1000] [--strategy adaptive]

The first call at a size over the median of later ones at that size: its median and its 99th
percentile over all sizes, for generic code, for the same once more (`again`: nothing is new then,
so this is the noise), and under the strategy while it makes bodies. `made` counts these. `after`
is the time of some sizes once bodies are made, over that with generic code alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy
import onnx

import anydim as ad
from anydim.base.records import dataclass
from bench.light import light_model
from bench.networks.images import recogniser
from bench.strategies import settled, show, tables
from examples.minilm.model import model_path

SETTLED = 24  # sizes
Inputs = dict[str, numpy.ndarray]


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


def firsts(model: ad.Model, requests: list[Inputs]) -> list[float]:
    """For each size the time of its first call over the median of five at the end."""
    first: dict[object, float] = {}
    kept: dict[object, Inputs] = {}
    for request in requests:
        seconds, size = answered(model, request), key(request)
        if size not in first:
            first[size], kept[size] = seconds, request
    steady = {size: median(answered(model, kept[size]) for _ in range(5)) for size in kept}
    return sorted(first[size] / steady[size] for size in first)


def shown(ratios: list[float]) -> str:
    """The median and the slowest hundredth."""
    return f"{median(ratios):.2f} {ratios[min(len(ratios) - 1, int(0.99 * len(ratios)))]:.2f}"


def main() -> None:
    """Print a line for each stream."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--only", default="", help="streams whose name has this word")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--strategy", default="adaptive")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print(
        f"{'':12}{'sizes':>6}{'again':>14}{'generic':>14}{given.strategy:>14}{'made':>6}{'after':>8}"
    )
    for name, stream in STREAMS.items():
        if given.only not in name:
            continue
        random, source = numpy.random.default_rng(0), stream.model().SerializeToString()
        requests = [stream.draw(random) for _ in range(given.requests)]
        generic, model = (ad.compile(source, threads=given.threads) for _ in range(2))
        plain, cells = tables(model), []
        once = shown(firsts(generic, requests))
        cells += [shown(firsts(generic, requests)), once]
        model.serve_by(given.strategy)
        cells.append(shown(firsts(model, requests)))
        unlike = list({key(request): request for request in requests}.values())
        settled(model, unlike[:SETTLED], times=2)
        fitted, ratios = tables(model), []
        for turn in range(7):
            taken = {}
            for bodies in (plain, fitted) if turn % 2 else (fitted, plain):
                show(model, bodies)
                taken[id(bodies)] = sum(answered(model, request) for request in unlike[:SETTLED])
            ratios.append(taken[id(fitted)] / taken[id(plain)])
        figures = "".join(f"{cell:>14}" for cell in cells)
        made = len(model.variants())
        print(f"{name:12}{len(unlike):6}{figures}{made:6}{median(ratios):8.3f}", flush=True)


if __name__ == "__main__":
    main()
