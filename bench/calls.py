"""What a call costs by itself: a model of Adds of 4 numbers, beside onnxruntime, on one core.

    python -m bench.calls [NAME ...] [--json FILE]

Both engines run in one process in turns, 200 calls at a time; each figure is a median of 200 turns.
Rows of torch need torch: they compare anydim with itself, torch tensors beside numpy arrays.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import anydim as ad
from anydim import ort
from bench.arguments import cases_and_file
from bench.isolated import pinned

COUNTS = (1, 10)  # of inputs, and as many outputs
CALLS, ROUNDS = 200, 200
Call = Callable[[], Any]


def model(count: int) -> bytes:
    """`count` inputs, each [n], and as many outputs: each the sum of two inputs."""
    nodes, inputs, outputs = [], [], []
    for number in range(count):
        other = (number + 1) % count
        nodes.append(helper.make_node("Add", [f"x{number}", f"x{other}"], [f"y{number}"]))
        inputs.append(helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, ["n"]))
        outputs.append(helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, ["n"]))
    graph = helper.make_graph(nodes, f"adds{count}", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def bound(session: Any, feeds: dict[str, Any], outputs: dict[str, Any] | None) -> Call:
    """A run of what is bound: results in new memory, or in `outputs`."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        if outputs is None:
            binding.bind_output(output.name, "cpu")
        else:
            array = outputs[output.name]
            place = ("cpu", 0, np.float32, array.shape, array.ctypes.data)
            binding.bind_output(output.name, *place)

    def call(kept: Any = outputs) -> None:  # memory that is bound is the caller's
        session.run_with_iobinding(binding)

    return call


def cases(count: int) -> dict[str, tuple[Call, Call]]:
    """Pairs of calls by what they measure: anydim's, then what it stands beside."""
    file = model(count)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    own_options = ort.SessionOptions()
    own_options.intra_op_num_threads = 1
    session = ort.InferenceSession(file, own_options)
    compiled = ad.compile(file, threads=1)
    feeds = {f"x{number}": np.ones(4, np.float32) for number in range(count)}
    values = list(feeds.values())
    own_places = {f"y{number}": np.empty(4, np.float32) for number in range(count)}
    peer_places = {name: np.empty_like(array) for name, array in own_places.items()}
    run = partial(peer.run, None, feeds)
    found = {
        "model(**feeds)": (partial(compiled, **feeds), run),
        "model(*values)": (partial(compiled, *values), run),
        "session.run": (partial(session.run, None, feeds), run),
        "run_with_iobinding, new memory": (bound(session, feeds, None), bound(peer, feeds, None)),
        "run_with_iobinding, bound memory": (
            bound(session, feeds, own_places), bound(peer, feeds, peer_places),
        ),
    }  # fmt: skip
    if importlib.util.find_spec("torch"):
        import torch

        tensors = {name: torch.from_numpy(array.copy()) for name, array in feeds.items()}
        found["model(**tensors), beside numpy"] = (
            partial(compiled, **tensors), partial(compiled, **feeds),
        )  # fmt: skip
    return found


def measured(first: Call, second: Call) -> tuple[float, float]:
    """Microseconds a call of each, medians of turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, own in zip((first, second), times):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            own.append((time.perf_counter() - start) / CALLS * 1e6)
    return median(times[0]), median(times[1])


def main() -> None:
    """Print a table."""
    names, path = cases_and_file(__doc__)
    rows = []
    pinned(1)
    for count in COUNTS:
        for name, (own, other) in cases(count).items():
            if names and not name.startswith(names):
                continue
            own(), other()
            gc.collect()
            mine, theirs = measured(own, other)
            rows.append((count, name, mine, theirs))
            print(
                f"{count:3} {name:34} {mine:7.2f} us  beside {theirs:7.2f} us  "
                f"ratio {mine / theirs:.2f}",
                flush=True,
            )
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
