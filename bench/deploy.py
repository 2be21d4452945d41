"""How long a saved model takes from nothing to its first result, and what memory processes share.

    python -m bench.deploy MODEL.onnx --dim batch=0..64 --dim seq=1..512 --at batch=1,seq=16

Every figure is the median over fresh processes, those of anydim and of onnxruntime in turn. Memory
is the proportional set size (Linux) of four processes that hold the model at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anydim as ad
from anydim.cli.options import DIM, SIZES, dims_by_name

LOADED = """
import json, sys, time
start = time.perf_counter()
import numpy
import_numpy = time.perf_counter()
import anydim
imported = time.perf_counter()
model = anydim.load(sys.argv[1])
loaded = time.perf_counter()
shapes = json.loads(sys.argv[2])
inputs = {name: numpy.ones(shape, dtype) for name, (dtype, shape) in shapes.items()}
model(**inputs)
first = time.perf_counter()
print(json.dumps([imported - import_numpy, loaded - imported, first - loaded]), flush=True)
sys.stdin.readline()
"""
PEER = """
import json, sys
import numpy
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
shapes = json.loads(sys.argv[2])
inputs = {name: numpy.ones(shape, dtype) for name, (dtype, shape) in shapes.items()}
session.run(None, inputs)
print("[]", flush=True)
sys.stdin.readline()
"""


def once(script: str, path: str, shapes: str) -> tuple[float, list[float]]:
    """Seconds from process start to the first result, and what the process itself measured."""
    start = time.perf_counter()
    process = running(script, path, shapes)
    assert process.stdout is not None
    figures = json.loads(process.stdout.readline())
    seconds = time.perf_counter() - start
    process.communicate("\n")
    return seconds, figures


def running(script: str, path: str, shapes: str) -> subprocess.Popen[str]:
    """A process that has the first result when it has written a line."""
    return subprocess.Popen(
        [sys.executable, "-c", script, path, shapes], text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip


def shared_bytes(path: str, shapes: str, count: int = 4) -> list[int]:
    """The proportional set size of processes that hold the model at the same time."""
    processes = [running(LOADED, path, shapes) for _ in range(count)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    found = []
    for process in processes:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")]
    for process in processes:
        process.communicate("\n")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--at", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    dims = dims_by_name([DIM.convert(text, None, None) for text in options.dim])
    sizes = SIZES.convert(options.at, None, None)
    model = ad.compile(options.model, dims or None)
    shapes = json.dumps({
        spec.name: [spec.dtype.name, [size.evaluate(sizes) for size in spec.shape]]
        for spec in model.inputs
    })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.anydim")
        model.save(path)
        rounds = [(once(LOADED, path, shapes), once(PEER, options.model, shapes))
                  for _ in range(options.rounds)]  # fmt: skip
        steps = zip(*(figures for (_, figures), _ in rounds))
        for name, values in zip(("import beyond numpy", "load", "first call"), steps):
            print(f"  {name:<22} {1e3 * statistics.median(values):8.1f} ms")
        ours, theirs = (statistics.median(each[n][0] for each in rounds) for n in (0, 1))
        print(f"  start to first result  {1e3 * ours:8.1f} ms, onnxruntime {1e3 * theirs:.1f} ms, "
              f"ratio {statistics.median(a[0] / b[0] for a, b in rounds):.2f}")  # fmt: skip
        held = shared_bytes(path, shapes)
        print(f"  four processes         {sum(held) / 1e6:8.1f} MB together, "
              f"file {os.path.getsize(path) / 1e6:.1f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
