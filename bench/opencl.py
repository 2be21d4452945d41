"""Kernels and whole models on an OpenCL device, beside the host's own code on the same cores.

    python -m bench.opencl [--device opencl:0] [--threads 2] [--only MiniLM] [--rounds 7]

Every node is on the device; a call copies its inputs in and its results out. The time is the least
of some rounds, in which both are called in turns; `ratio` is that of the device over the host's.
Results are compared first: `difference` is the largest, over the largest result. What a launch
costs is told by `bench.devices`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy

import anydim as ad
from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from bench.decoding import feeds
from bench.networks.sequences import decoder
from bench.streams import photographed
from examples.minilm.model import MINILM, build_model, random_weights

Inputs = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Work:
    """What is compiled, and inputs to call it with."""

    source: Callable[[], Any]
    inputs: Callable[[], Mapping[str, Inputs]]  # by what they are called


def _drawn(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(shape).standard_normal(shape, numpy.float32)


def _product() -> Any:
    g = ad.Builder("product")
    n = g.dim("n", 1, 4096)
    x = g.input("x", float32, [n, 768])
    g.output("y", g.matmul(x, g.constant(_drawn(768, 768) / 27)))
    return g.graph()


def _convolution() -> Any:
    g = ad.Builder("convolution")
    n, h = g.dim("n", 1, 64), g.dim("h", 1, 256)
    x = g.input("x", float32, [n, 64, h, h])
    g.output("y", g.conv(x, g.constant(_drawn(64, 64, 3, 3) / 24), pads=(1, 1, 1, 1)))
    return g.graph()


def _softmax() -> Any:
    g = ad.Builder("softmax")
    n, m = g.dim("n", 1, 4096), g.dim("m", 1, 4096)
    g.output("y", g.softmax(g.input("x", float32, [n, m]), axis=-1))
    return g.graph()


def _gelu() -> Any:
    g = ad.Builder("gelu")
    n = g.dim("n", 1, 1 << 24)
    g.output("y", g.gelu(g.input("x", float32, [n])))
    return g.graph()


def _sentences(batch: int, length: int) -> Inputs:
    ids = numpy.random.default_rng(0).integers(0, 30000, (batch, length))
    return {"input_ids": ids, "attention_mask": numpy.ones((batch, length), numpy.int64)}


def _image(height: int, width: int) -> Inputs:
    return {"gpu_0/data_0": _drawn(1, 3, height, width)}


def _products() -> Mapping[str, Inputs]:
    return {f"{n}": {"x": _drawn(n, 768)} for n in (1, 64, 512)}


def _images() -> Mapping[str, Inputs]:
    return {f"{n} x {h}": {"x": _drawn(n, 64, h, h)} for n, h in ((1, 28), (4, 56))}


def _steps() -> Mapping[str, Inputs]:
    return {f"past {past}": feeds(4, 6, 1, past) for past in (0, 64, 500)}


WORK: Mapping[str, Work] = {
    "product": Work(_product, _products),
    "convolution": Work(_convolution, _images),
    "softmax": Work(_softmax, lambda: {"2048 x 1000": {"x": _drawn(2048, 1000)}}),
    "gelu": Work(_gelu, lambda: {"2000000": {"x": _drawn(2_000_000)}}),
    "MiniLM": Work(
        lambda: build_model(MINILM, random_weights(MINILM)),
        lambda: {f"{b} x {s}": _sentences(b, s) for b, s in ((1, 16), (4, 48), (8, 128))},
    ),
    "resnet50": Work(
        photographed, lambda: {f"{h} x {w}": _image(h, w) for h, w in ((96, 128), (224, 224))}
    ),
    "decoder": Work(lambda: decoder(4, 6, words=8192), _steps),
}


def results(model: ad.Model, given: Inputs) -> list[numpy.ndarray]:
    made = model(**given)
    if isinstance(made, Mapping):
        return list(made.values())
    return list(made) if isinstance(made, (list, tuple)) else [made]


def difference(found: list[numpy.ndarray], right: list[numpy.ndarray]) -> float:
    """The largest, over the largest result."""
    pairs = [(a.astype(numpy.float64), b.astype(numpy.float64)) for a, b in zip(found, right)]
    return max(
        (float(abs(a - b).max() / max(1e-30, abs(b).max())) for a, b in pairs if b.size),
        default=0.0,
    )


def compare(name: str, work: Work, device: str, threads: int, rounds: int) -> None:
    """Print a line for each of its inputs."""
    source = work.source()
    placed = {"devices": {"accel": device}, "placement": {"*": "accel"}}
    begin = time.perf_counter()
    host = ad.compile(source, threads=threads)
    middle = time.perf_counter()
    model = ad.compile(source, threads=threads, **placed)
    compiled = f"compiled in {middle - begin:.1f} and {time.perf_counter() - middle:.1f} s"
    print(f"{name}: {compiled}; {placement(model)}")
    for size, given in work.inputs().items():
        apart = difference(results(model, given), results(host, given))
        calls = (partial(model, **given), partial(host, **given))
        least = [min(times) for times in zip(*([seconds(c) for c in calls] for _ in range(rounds)))]
        there, here = (1e3 * one for one in least)
        print(f"  {size:>12}  {there:9.3f} ms  host {here:9.3f} ms  ratio {there / here:5.2f}"
              f"  difference {apart:.1e}", flush=True)  # fmt: skip


def placement(model: ad.Model) -> str:
    """What `explain` says of where its nodes are."""
    lines = model.explain(details=True).splitlines()
    return next((line.strip() for line in lines if "placement:" in line), "")


def seconds(call: Callable[[], Any]) -> float:
    """Of a call; of several, where it is short."""
    begin = time.perf_counter()
    call()
    count = max(1, min(50, int(0.02 / max(1e-6, time.perf_counter() - begin))))
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="what has this word in its name")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    for name, work in WORK.items():
        if given.only in name:
            compare(name, work, given.device, given.threads, given.rounds)


if __name__ == "__main__":
    main()
