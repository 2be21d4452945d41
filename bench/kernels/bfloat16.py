"""Products with factors of bfloat16 beside float32 ones: python -m bench.kernels.bfloat16

    python -m bench.kernels.bfloat16 [--depth 768] [--columns 3072] [--rows 1 16 128]
    python -m bench.kernels.bfloat16 --model minilm.onnx
    python -m bench.kernels.bfloat16 --layers       convolutions, channels last and first
    python -m bench.kernels.bfloat16 --small        convolutions of few positions, all sizes free
    python -m bench.kernels.bfloat16 --precision int8 --model minilm.onnx
    python -m bench.kernels.bfloat16 --model minilm.onnx --openvino       with its bfloat16
    python -m bench.kernels.bfloat16 --network bert [--openvino]          or vit, resnet50

One thread, called in turns: medians of processor time in microseconds, their ratio, and the largest
error, also of the largest value. A model takes images [batch, 3, 224, 224], or int64 [batch, seq]
in `input_ids` and `attention_mask`; then also the least cosine of the means over tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import product as product_of
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import anydim as ad
from anydim.base import settings
from bench.kernels.convolution import LAYERS, Layer, model_of
from bench.kernels.narrow import ROWS, product

ROUNDS, SECONDS = 7, 0.05
SIZES = ((1, 8), (1, 32), (1, 128), (8, 32), (8, 128), (32, 64))
IMAGES = ((1, 3, 224, 224), (8, 3, 224, 224))


def processor_times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Median processor time of a call, in seconds, measured in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, times in zip(calls, found):
            call()
            begun, count = time.process_time(), 0
            while (spent := time.process_time() - begun) < SECONDS or not count:
                call()
                count += 1
            times.append(spent / count)
    return [median(times) for times in found]


def compare(models: Sequence[Callable[..., Any]], **inputs: np.ndarray) -> str:
    """Times of both models, and the difference of their first results."""
    wide, narrow = processor_times([partial(model, **inputs) for model in models])
    first, second = (next(iter(model(**inputs).values())) for model in models)
    text = f"{wide * 1e6:9.0f} {narrow * 1e6:9.0f}   {narrow / wide:.2f}"
    error = abs(first - second).max(initial=0)
    text += f"   error {error:.1e}, {error / abs(first).max(initial=1e-30):.1e} of the largest"
    if first.ndim != 3:
        return text
    a, b = (each.mean(1, dtype=np.float64) for each in (first, second))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return f"{text}   cosine {cosines.min():.6f}"


def both(source: object, precision: str) -> list[ad.Model]:
    """The model in float32 and in another precision."""
    return [ad.compile(source, threads=1, precision=p) for p in ("exact", precision)]


def layer_lines(precision: str) -> Iterator[str]:
    """A line for each convolution and layout, of one image."""
    random = np.random.default_rng(0)
    for layer in LAYERS:
        x = random.standard_normal((1, layer.inner, layer.side, layer.side), np.float32)
        for layout in ("channels_last", "channels_first"):
            with settings.override(layout=layout):
                yield f"{layer}  {layout[9:]:5} {compare(both(model_of(layer), precision), x=x)}"


def small_lines(precision: str) -> Iterator[str]:
    """A line for each convolution, layout and size of few positions."""
    random = np.random.default_rng(0)
    windows, channels = ((1, 1), (3, 2), (5, 1), (7, 2)), ((16, 32), (64, 256), (512, 512))
    sizes = ((1, 1, 1), (1, 2, 2), (1, 1, 8), (4, 2, 2), (16, 1, 1), (1, 8, 8))
    for (window, stride), (inner, outer) in product_of(windows, channels):
        for layout in ("channels_last", "channels_first"):
            with settings.override(layout=layout):
                models = both(model_of(Layer(inner, outer, 0, window, stride)), precision)
            for size in sizes:
                x = random.standard_normal((size[0], inner, *size[1:]), np.float32)
                where = f"{inner} -> {outer} {window}x{window} /{stride} {layout[9:]:5} {size}"
                yield f"{where:42} {compare(models, x=x)}"


class InOpenvino:
    """A model in OpenVINO's bfloat16, one thread, called as an `ad.Model` is."""

    def __init__(self, path: str) -> None:
        openvino = import_module("openvino")
        hints = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 1}
        self.request = openvino.Core().compile_model(path, "CPU", hints).create_infer_request()

    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        found = self.request.infer(inputs, share_inputs=True, share_outputs=True)
        return {"": np.array(found[0])}


def lines(given: argparse.Namespace) -> Iterator[str]:
    """A line for each size."""
    if given.layers:
        yield from layer_lines(given.precision)
        return
    if given.small:
        yield from small_lines(given.precision)
        return
    if given.model or given.network:
        yield from network_lines(given)
        return
    made = both(product(given.depth, given.columns).SerializeToString(), given.precision)
    random = np.random.default_rng(0)
    for rows in given.rows:
        x = random.standard_normal((rows, given.depth), np.float32)
        yield f"{rows:8} {compare(made, x=x)}"


def network_lines(given: argparse.Namespace) -> Iterator[str]:
    """A line for each size of a model, and one for OpenVINO beside it."""
    with TemporaryDirectory() as folder:
        sizes: Sequence[tuple[int, ...]] = SIZES
        if given.network:
            networks = import_module("bench.kernels.larger_networks")
            sizes = networks.NETWORKS[given.network]
        path = given.model or str(networks.write_network(given.network, Path(folder)))
        made = both(path, given.precision)
        other = InOpenvino(path) if given.openvino else None
    (first, *_) = made[0].signature.inputs
    if given.model and len(first.shape) == 4:
        sizes = IMAGES
    random = np.random.default_rng(0)
    for size in sizes:
        if len(size) == 4:
            inputs = {first.name: random.standard_normal(size, np.float32)}
        else:
            ids = random.integers(1000, 20000, size)
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        named = " x ".join(map(str, size)) if len(size) == 2 else f"{size[0]}"
        yield f"{named:>8} {compare(made, **inputs)}"
        if other is not None:
            theirs = compare([made[0], other], **inputs)
            ours = processor_times([partial(each, **inputs) for each in (made[1], other)])
            yield f"OpenVINO {theirs}   beside it {ours[0] / ours[1]:.2f}"


def main() -> None:
    """Print a line for each size."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--depth", type=int, default=768)
    parser.add_argument("--columns", type=int, default=3072)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--layers", action="store_true", help="single convolutions")
    parser.add_argument("--small", action="store_true", help="convolutions of few positions")
    parser.add_argument("--model")
    parser.add_argument("--network", choices=["bert", "vit", "resnet50"], help="random weights")
    parser.add_argument("--openvino", action="store_true", help="beside its bfloat16")
    given = parser.parse_args()
    print(f"    size   float32  {given.precision:8}  ratio")
    for line in lines(given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
