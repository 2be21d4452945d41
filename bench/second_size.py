"""Batches of 32, then a last one of 16: the cost of the second size by strategy, and of peers.

    python -m bench.second_size [--rounds 3]

Three dense layers, 784 to 512 to 512 to 10, float32, one thread. Each row is a process of its own
with empty caches. `made`: seconds from the model to its first answer, at batch 32. `stall`:
milliseconds of the first call at batch 16. `32` and `16`: microseconds of a call after warm-up,
with what was made aside; `to ort` is that at 16 over onnxruntime's. Medians of rounds, in turns.
torch, where it is installed: as it is, and compiled with sizes dynamic from the start and by
default, which takes the first size as it is.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy

from bench.isolated import ROOT

WIDTHS = (784, 512, 512, 10)
FIRST, SECOND = 32, 16
WARM = 200  # calls at both sizes, until what is made aside is there
PASSES, TIMES = 25, 20
Array = numpy.ndarray
Call = Callable[[Array], object]

ENGINES = (
    "anydim generic",
    "anydim exact",
    "anydim adaptive(after=4)",
    "anydim buckets(batch=[16, 32])",
    'anydim library("openblas")',
    'anydim pad(batch="pow2")',
    "onnxruntime",
    "torch eager",
    "torch.compile dynamic",
    "torch.compile default",
)


def weights() -> list[tuple[Array, Array]]:
    """A matrix and a bias for each layer."""
    random = numpy.random.default_rng(0)
    return [
        (random.standard_normal((m, n), numpy.float32) / m**0.5, random.random(n, numpy.float32))
        for m, n in pairwise(WIDTHS)
    ]


def onnx_model() -> bytes:
    """As a file has it."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, held, last = [], [], "x"
    for number, (matrix, bias) in enumerate(weights()):
        held += [
            numpy_helper.from_array(matrix, f"w{number}"),
            numpy_helper.from_array(bias, f"b{number}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"w{number}", f"b{number}"], [f"h{number}"]))
        last = f"h{number}"
        if number < len(WIDTHS) - 2:
            nodes.append(helper.make_node("Relu", [last], [f"r{number}"]))
            last = f"r{number}"
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTHS[0]])]
    wanted = [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", WIDTHS[-1]])]
    graph = helper.make_graph(nodes, "dense", given, wanted, held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def anydim_call(strategy: str) -> Call:
    import anydim as ad

    model = ad.compile(onnx_model(), threads=1, strategy=strategy)
    return lambda x: model(x=x)


def onnxruntime_call(_: str) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_model(), options, ["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})


def torch_call(kind: str) -> Call:
    import torch

    torch.set_num_threads(1)
    layers: list[torch.nn.Module] = []
    for matrix, bias in weights():
        layer = torch.nn.Linear(*matrix.shape)
        layer.weight.data = torch.from_numpy(matrix.T.copy())
        layer.bias.data = torch.from_numpy(bias)
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1]).eval()
    made = {
        "eager": lambda: model,
        "dynamic": lambda: torch.compile(model, dynamic=True),
        "default": lambda: torch.compile(model),
    }[kind]()

    def call(x: Array) -> object:
        with torch.inference_mode():
            return made(torch.from_numpy(x)).numpy()

    return call


def engine(name: str) -> Call:
    """What answers."""
    kind, _, rest = name.partition(" ")
    return {
        "anydim": anydim_call, "onnxruntime": onnxruntime_call,
        "torch": torch_call, "torch.compile": torch_call,
    }[kind](rest)  # fmt: skip


def alone(name: str) -> dict[str, float]:
    """The life of one row."""
    random = numpy.random.default_rng(1)
    first, second = (random.random((n, WIDTHS[0]), numpy.float32) for n in (FIRST, SECOND))
    __import__({"anydim": "anydim", "onnxruntime": "onnxruntime"}.get(name.split()[0], "torch"))
    start = time.perf_counter()
    call = engine(name)
    call(first)
    made = time.perf_counter() - start
    for _ in range(5):
        call(first)
    start = time.perf_counter()
    call(second)
    stall = time.perf_counter() - start
    warm(lambda: [call(x) for x in (first, second)])
    taken: dict[int, list[float]] = {FIRST: [], SECOND: []}
    for _ in range(PASSES):
        for size, x in ((FIRST, first), (SECOND, second)):
            start = time.perf_counter()
            for _ in range(TIMES):
                call(x)
            taken[size].append((time.perf_counter() - start) / TIMES)
    steady = {str(size): 1e6 * median(some) for size, some in taken.items()}
    return {"made": made, "stall": 1e3 * stall, **steady}


def warm(calls: Callable[[], object]) -> None:
    """Call until nothing is made aside any more."""
    for _ in range(3):
        for _ in range(WARM):
            calls()
        for thread in threading.enumerate():
            if thread.name == "anydim-adaptive":
                thread.join(60)


def apart(name: str) -> dict[str, float] | None:
    """A row, in a process of its own with empty caches; None where it cannot run."""
    with tempfile.TemporaryDirectory(prefix="anydim-second-size-") as folder:
        caches = {"ANYDIM_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-m", "bench.second_size", "--alone", name], cwd=ROOT,
            env={**os.environ, **caches}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        Path("out").mkdir(exist_ok=True)
        Path("out/second_size.log").write_text(done.stderr, "utf-8")
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        print(json.dumps(alone(given.alone)))
        return
    chosen = [name for name in ENGINES if given.only in name]
    if importlib.util.find_spec("torch") is None:
        chosen = [name for name in chosen if not name.startswith("torch")]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for _ in range(given.rounds):
        for name in chosen:
            found = apart(name)
            if found is not None:
                rounds[name].append(found)
    show(rounds)


def show(rounds: dict[str, list[dict[str, float]]]) -> None:
    """The table."""
    print(f"{'':34}{'made s':>8}{'stall ms':>10}{'32 us':>8}{'16 us':>8}{'to ort':>8}")
    found = {
        name: {column: median(row[column] for row in rows) for column in rows[0]}
        for name, rows in rounds.items() if rows
    }  # fmt: skip
    base = found.get("onnxruntime", {}).get(str(SECOND))
    for name in rounds:
        row = found.get(name)
        if row is None:
            print(f"{name:34}  does not run here: out/second_size.log")
            continue
        ratio = f"{row[str(SECOND)] / base:8.2f}" if base else ""
        print(
            f"{name:34}{row['made']:8.2f}{row['stall']:10.2f}{row[str(FIRST)]:8.0f}"
            f"{row[str(SECOND)]:8.0f}{ratio}"
        )


if __name__ == "__main__":
    main()
