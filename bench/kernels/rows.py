"""Softmax, layer normalisation, GELU and their fusions against onnxruntime, on one thread.

    python -m bench.kernels.rows [--json FILE] [NAME ...]

The kernels take every size; the peer is a session with dynamic dims, called through io binding.
Both are timed in turns on the same 64-byte aligned arrays; a figure is the best of the rounds.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from anydim.base.dtypes import float32
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.compiler.targets.run import ENTRY, build
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from bench.arguments import cases_and_file

SIZES = ((7, 384), (128, 384), (1024, 384), (1024, 1536))
MACHINE = Machine(vector_bytes=64, registers=32)
ROUNDS = 30
CHUNK_SECONDS = 0.004

NORM = """
  total(r) +=! {t}
  mean(r) = total(r) / C
  square(r) +=! ({t} - mean(r)) * ({t} - mean(r))
  inverse(r) = rsqrt(square(r) / C + 1e-5)
  y(r,c) = ({t} - mean(r)) * inverse(r) * scale(c) + shift(c)
}}"""

TEXTS = {
    "softmax": """def softmax(float(R,C) x) -> (y) {
  top(r) max=! x(r,c)
  e(r,c) = exp(x(r,c) - top(r))
  total(r) +=! e(r,c)
  y(r,c) = e(r,c) / total(r)
}""",
    "layer norm": "def norm(float(R,C) x, float(C) scale, float(C) shift) -> (y) {"
    + NORM.format(t="x(r,c)"),
    "gelu": """def gelu(float(R,C) x) -> (y) {
  y(r,c) = 0.5 * x(r,c) * (1.0 + erf(x(r,c) * 0.7071067811865476))
}""",
    "add, bias, norm": """def norm(
  float(R,C) x, float(R,C) other, float(C) bias, float(C) scale, float(C) shift
) -> (y) {
  t(r,c) = x(r,c) + other(r,c) + bias(c)"""
    + NORM.format(t="t(r,c)"),
}
PEER_NODES = {
    "softmax": (("Softmax", ("x",), "y"),),
    "layer norm": (("LayerNormalization", ("x", "scale", "shift"), "y"),),
    "gelu": (("Gelu", ("x",), "y"),),
    "add, bias, norm": (
        ("Add", ("x", "other"), "s"),
        ("Add", ("s", "bias"), "t"),
        ("LayerNormalization", ("t", "scale", "shift"), "y"),
    ),
}


@dataclass(frozen=True)
class Result:
    """Best times in microseconds, and how many times faster the kernel is."""

    name: str
    rows: int
    columns: int
    ours: float
    onnxruntime: float
    speedup: float


def aligned(array: np.ndarray) -> np.ndarray:
    """The array at a 64-byte boundary."""
    block = np.empty(array.nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    view = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


class Ours:
    """A definition compiled once for every size."""

    def __init__(self, name: str) -> None:
        box = Box.of(Dim("R", 0, 65536), Dim("C", 0, 65536))
        definition = parse_definition(TEXTS[name])
        shapes = {"x": "R C", "other": "R C"}
        self.names = [parameter.name for parameter in definition.parameters]
        types = [
            TensorType(float32, tuple(as_size(s) for s in shapes.get(n, "C").split()))
            for n in self.names
        ]
        self.group = instantiate(definition, types, box=box)
        for template in (rows.TEMPLATE, pointwise.TEMPLATE):
            schedule = template.match(self.group, box, MACHINE, frozenset())
            if schedule is not None:
                self.launch = template.lower(self.group, schedule, box, MACHINE, frozenset())
                break
        self.loaded = build(self.launch.kernel, MACHINE.vector_bytes)

    def call(self, tensors: dict[str, np.ndarray], env: dict[str, int]) -> Callable[[], None]:
        """A function that runs the kernel once on these tensors."""
        launch = self.launch
        slots = [tensors[a.tensor].ctypes.data for a in launch.arguments]
        slots += [size.evaluate(env) for size in launch.sizes]
        block = (ctypes.c_int64 * len(slots))(*slots)
        scratch = aligned(np.zeros(launch.scratch.evaluate(env) + 1, np.uint8))
        entry = ENTRY(self.loaded.address(launch.kernel.name))
        stop = launch.parallel.evaluate(env)
        at, where = ctypes.addressof(block), scratch.ctypes.data

        def once(keep: object = (block, scratch)) -> None:
            entry(at, 0, stop, where)

        return once


def peer(name: str, tensors: dict[str, np.ndarray], fused: bool) -> Callable[[], None]:
    """A function that runs the same operators in onnxruntime once on these tensors."""
    import onnxruntime
    from onnx import TensorProto, helper

    def value(n: str) -> object:
        shape = ["R", "C"] if tensors[n].ndim == 2 else ["C"]
        return helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)

    nodes = []
    for operator, inputs, output in PEER_NODES[name]:
        extra = {"axis": -1} if operator == "Softmax" else {}
        nodes.append(helper.make_node(operator, list(inputs), [output], **extra))
    inputs = [value(n) for n in tensors if n != "y"]
    graph = helper.make_graph(nodes, "graph", inputs, [value("y")])
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if fused else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for n, array in tensors.items():
        if n != "y":
            binding.bind_cpu_input(n, array)
    y = np.empty_like(tensors["y"])
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    return lambda: (session.run_with_iobinding(binding), y)[0]


def seconds(function: Callable[[], None], calls: int) -> float:
    """Time of one call, over `calls` of them."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def compare(functions: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The best time of each function, all timed in turns."""
    calls = {
        name: max(1, round(CHUNK_SECONDS / max(seconds(f, 3), 1e-7)))
        for name, f in functions.items()
    }
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            times[name].append(seconds(function, calls[name]))
    return {name: min(found) for name, found in times.items()}


def measure(name: str, ours: Ours, height: int, width: int) -> Result:
    """One workload at one size."""
    random = np.random.default_rng(0)
    env = {"R": height, "C": width}
    tensors = {
        n: aligned(random.standard_normal((height, width) if n in ("x", "other") else width,
                                          dtype=np.float32))
        for n in ours.names
    }  # fmt: skip
    tensors["y"] = aligned(np.zeros((height, width), np.float32))
    functions = {"ours": ours.call(tensors, env), "plain": peer(name, tensors, fused=False)}
    if len(PEER_NODES[name]) > 1:
        functions["fused"] = peer(name, tensors, fused=True)
    found = {n: 1e6 * t for n, t in compare(functions).items()}
    best = min(time for n, time in found.items() if n != "ours")
    return Result(name, height, width, found["ours"], best, best / found["ours"])


def main() -> None:
    """Print the table; with --json FILE also write it there. NAMEs choose by how names begin."""
    names, file = cases_and_file(__doc__)
    results = []
    print(f"{'':18}{'rows':>6}{'columns':>9}{'ours us':>10}{'ort us':>10}{'speed-up':>10}")
    for name in TEXTS:
        if not name.startswith(names or ""):
            continue
        ours = Ours(name)
        for height, width in SIZES:
            r = measure(name, ours, height, width)
            results.append(r)
            print(f"{name:18}{height:6}{width:9}{r.ours:10.1f}{r.onnxruntime:10.1f}"
                  f"{r.speedup:10.2f}")  # fmt: skip
    if file:
        with open(file, "w", encoding="utf-8") as target:
            json.dump([asdict(result) for result in results], target, indent=1)


if __name__ == "__main__":
    main()
