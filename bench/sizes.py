"""Networks with batch, height and width free at random sizes, beside onnxruntime.

    python -m bench.sizes                        # minutes; out/sizes.json
    python -m bench.sizes --only mobilenet --count 24 --threads 2

Sizes are drawn from 64 to 224 either way, batches from 1 to 4; each network is compiled once, with
nothing said of its dims. Both engines take turns at each size. Printed are the geometric mean of
the ratios, the worst, and where it was; results are compared first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import click
import numpy
import onnx

from anydim.cli.report.measure import largest_difference, time_interleaved
from bench.isolated import pinned
from bench.light import light_model
from bench.networks.classifiers import convnext, mobilenet, resnet18
from bench.networks.images import detector, segmenter, unet
from bench.six.engines import LOADED
from bench.six.workloads import resnet

IMAGES = ("b", 3, "h", "w")
NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": partial(light_model, "squeezenet", IMAGES),
    "densenet121": partial(light_model, "densenet121", IMAGES),
    "resnet50": resnet,
    "resnet18": resnet18,
    "mobilenet": mobilenet,
    "convnext": convnext,
    "YOLOv8n": detector,
    "U-Net": unet,
    "SegFormer-B0": segmenter,
}
STEPS = {"YOLOv8n": 32, "U-Net": 16, "SegFormer-B0": 32}  # that sides are multiples of


@click.command(help=__doc__)
@click.option("--only", default="", help="Networks whose name has this.")
@click.option("--count", default=10, show_default=True, help="Sizes of each.")
@click.option("--threads", default=1, show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="For a size.")
@click.option("--out", default="out/sizes.json", show_default=True, type=click.Path(path_type=Path))
def main(only: str, count: int, threads: int, seconds: float, out: Path) -> None:
    pinned(threads)
    rows = []
    for name, model in NETWORKS.items():
        if only in name:
            rows.append(measured(name, model(), count, threads, seconds))
            print(line(rows[-1]), flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1), "utf-8")


def measured(
    name: str, model: onnx.ModelProto, count: int, threads: int, seconds: float
) -> dict[str, Any]:
    """The ratio at each size."""
    source, random = model.SerializeToString(), numpy.random.default_rng(0)
    calls = {engine: LOADED[engine](source, threads) for engine in ("anydim", "onnxruntime")}
    initial = {tensor.name for tensor in model.graph.initializer}
    (image,) = (value.name for value in model.graph.input if value.name not in initial)
    step, found, apart = STEPS.get(name, 1), [], 0.0
    for _ in range(count):
        batch, *sides = (int(n) for n in random.integers((1, 64, 64), (5, 225, 225)))
        height, width = (side // step * step for side in sides)
        feeds = {image: random.standard_normal((batch, 3, height, width), numpy.float32)}
        bound = {engine: partial(call, feeds) for engine, call in calls.items()}
        ours, theirs = (list(call().values()) for call in bound.values())
        for a, b in zip(ours, theirs, strict=True):
            apart = max(apart, largest_difference(a, b) / max(1.0, float(numpy.abs(b).max())))
        ratio = time_interleaved(bound, rounds=3, seconds=seconds).ratio("anydim", "onnxruntime")
        found.append({"size": [batch, height, width], "ratio": ratio})
    return {"network": name, "sizes": found, "difference": apart}


def line(row: Mapping[str, Any]) -> str:
    """Of the table."""
    worst = max(row["sizes"], key=lambda each: each["ratio"])
    mean = geometric_mean(each["ratio"] for each in row["sizes"])
    at = " x ".join(map(str, worst["size"]))
    return (
        f"{row['network']:14} mean {mean:.2f}  worst {worst['ratio']:.2f} at {at:14}"
        f"  differs by {row['difference']:.0e}"
    )


if __name__ == "__main__":
    main()
