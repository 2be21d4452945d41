"""Sorting, top-k, unique, non-zero, running sums and box suppression beside numpy and onnxruntime.

    python -m bench.kernels.routines [--json FILE] [NAME ...]

Every kernel takes every size. All are on one thread, timed in turns on the same data; a ratio is
our median time over the peer's, so that below 1 is faster. Ours is the time of the launches; a
peer's is that of a call with results made new, as each call needs them.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import anydim.compiler.ops  # noqa: F401  fills the registry
from anydim.base.dtypes import DTYPES
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.routines.routine import Steps
from anydim.compiler.targets.llvm.host import machine
from anydim.compiler.targets.run import ENTRY, build
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from bench.arguments import cases_and_file

ROUNDS = 15
CHUNK_SECONDS = 0.02
Call = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """An operator on arrays; `shapes` name their dims, `peers` are calls that do the same."""

    name: str
    operator: str
    arrays: tuple[np.ndarray, ...]
    shapes: tuple[str, ...]
    attributes: Mapping[str, Any]
    peers: Mapping[str, Call]


@dataclass(frozen=True)
class Result:
    """Median times in microseconds, and ours over each peer's."""

    name: str
    ours: float
    peers: Mapping[str, float]
    ratios: Mapping[str, float]


class Ours:
    """A routine compiled once for every size, its tensors made for the sizes of some arrays."""

    def __init__(self, work: Workload) -> None:
        record = operator(work.operator)
        attributes = record.complete(work.attributes)
        env = {
            dim: size
            for array, shape in zip(work.arrays, work.shapes)
            for dim, size in zip(shape.split(), array.shape)
            if not dim.isdecimal()
        }
        env |= {
            name: int(value) for name, value in work.attributes.items() if name in ("k", "count")
        }
        box = Box.of(*(Dim(name, 0, 1 << 31) for name in env))
        symbolic = {n: as_size(n) if n in env else v for n, v in attributes.items()}
        types = [
            TensorType(DTYPES[array.dtype.name], tuple(as_size(s) for s in shape.split()))
            for array, shape in zip(work.arrays, work.shapes)
        ]
        assert record.routine is not None
        results = record.routine.infer(types, symbolic, box)
        self.steps: Steps = record.routine.lower(types, symbolic, box, machine())
        tensors = {f"x{n}": aligned(array) for n, array in enumerate(work.arrays)}
        made = {f"y{n}": kind for n, kind in enumerate(results)}
        made |= {tensor.name: tensor.type for tensor in self.steps.temporaries}
        for name, kind in made.items():
            shape = [size.evaluate(env) for size in kind.shape]
            tensors[name] = aligned(np.zeros(shape, kind.dtype.numpy))
        self.keep: list[object] = [tensors]
        self.calls = [call for call in self._calls(tensors, env) if call[2]]

    def _calls(self, tensors: Mapping[str, np.ndarray], env: Mapping[str, int]) -> Iterator[Any]:
        for launch in self.steps.launches:
            loaded = build(launch.kernel, machine().vector_bytes)
            slots = [tensors[a.tensor].ctypes.data for a in launch.arguments]
            slots += [size.evaluate(env) for size in launch.sizes]
            block = (ctypes.c_int64 * max(1, len(slots)))(*slots)
            scratch = aligned(np.zeros(launch.scratch.evaluate(env) + 64, np.uint8))
            self.keep += [loaded, block, scratch]
            entry = ENTRY(loaded.address(launch.kernel.name))
            stop = launch.parallel.evaluate(env)
            yield entry, ctypes.addressof(block), stop, scratch.ctypes.data

    def __call__(self) -> None:
        for entry, block, stop, scratch in self.calls:
            entry(block, 0, stop, scratch)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a 64-byte boundary."""
    block = np.empty(array.nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    view = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def session(kind: str, arrays: Sequence[np.ndarray], results: int, **attributes: Any) -> Call:
    """A call of one ONNX operator in onnxruntime, on one thread."""
    import onnxruntime
    from onnx import TensorProto, helper

    names = [f"x{n}" for n in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
        )
        for name, array in zip(names, arrays)
    ]
    outputs = [f"y{n}" for n in range(results)]
    node = helper.make_node(kind, names, outputs, **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node], "graph", inputs, values)
    for value in graph.output:
        value.ClearField("type")
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    made = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = dict(zip(names, arrays))
    return lambda: made.run(None, feed)


# ---- workloads ---------------------------------------------------------------------------------


def workloads() -> Iterator[Workload]:
    """Everything that is measured."""
    random = np.random.default_rng(0)
    yield from _top_k(random)
    yield from _sorts(random)
    yield from _unique(random)
    yield from _marks(random)
    yield from _sums(random)
    yield from _boxes(random)


def _top_k(random: np.random.Generator) -> Iterator[Workload]:
    for rows, length in ((1, 1000), (1, 100_000), (1, 1_000_000), (512, 1000), (64, 32000)):
        for k in (1, 5, 64):
            x = random.standard_normal((rows, length), dtype=np.float32)
            best = np.array([k])
            yield Workload(
                f"top_k {k} of {rows}x{length}", "top_k", (x,), ("r n",), {"k": k},
                {"onnxruntime": session("TopK", [x, best], 2)},
            )  # fmt: skip


def _sorts(random: np.random.Generator) -> Iterator[Workload]:
    for rows, length, dtype in (
        (1, 1_000_000, "f"), (1, 1_000_000, "i8"), (1000, 1000, "f"), (10_000, 16, "f"),
        (1000, 100, "f"),
    ):  # fmt: skip
        x = (random.standard_normal((rows, length)) * 1e6).astype(dtype)
        peers: dict[str, Call] = {
            "numpy stable": lambda x=x: np.argsort(x, 1, kind="stable"),
            "numpy": lambda x=x: np.argsort(x, 1),
        }
        if dtype == "f" and rows > 1:
            peers["onnxruntime"] = session("TopK", [x, np.array([length])], 2, largest=0)
        name = f"sort {rows}x{length} {np.dtype(dtype)}"
        yield Workload(name, "sort", (x,), ("r n",), {"axis": 1}, peers)


def _unique(random: np.random.Generator) -> Iterator[Workload]:
    for length, most, asked in (
        (1000, 100, True), (1_000_000, 1000, True), (1_000_000, 1 << 40, True),
        (1_000_000, 1000, False),
    ):  # fmt: skip
        x = random.integers(0, most, length)
        peers = {
            "numpy": lambda x=x, a=asked: np.unique(x, a, a, a),
            "onnxruntime": session("Unique", [x], 4 if asked else 1),
        }
        flags = dict.fromkeys(("indices", "inverse", "counts"), asked)
        name = f"unique {length} below {most}{' with places' if asked else ''}"
        yield Workload(name, "unique_fill", (x,), ("n",), flags, peers)


def _marks(random: np.random.Generator) -> Iterator[Workload]:
    for shape, share in (((1_000_000,), 0.5), ((1_000_000,), 0.01), ((1000, 1000), 0.5)):
        x = random.random(shape) < share
        count = int(np.count_nonzero(x))
        peers = {"numpy": lambda x=x: np.nonzero(x), "onnxruntime": session("NonZero", [x], 1)}
        name = f"nonzero {'x'.join(map(str, shape))}, {share:.0%}"
        dims = "n m"[: 2 * len(shape) - 1]
        yield Workload(name, "nonzero_fill", (x,), (dims,), {"count": count}, peers)


def _sums(random: np.random.Generator) -> Iterator[Workload]:
    for shape, axis in (((64, 4096), 1), ((4096, 64), 0), ((1, 1_000_000), 1)):
        x = random.standard_normal(shape, dtype=np.float32)
        peers = {
            "numpy": lambda x=x, axis=axis: np.cumsum(x, axis),
            "onnxruntime": session("CumSum", [x, np.array(axis)], 1),
        }
        name = f"cum_sum {shape[0]}x{shape[1]} along {axis}"
        yield Workload(name, "cum_sum", (x,), ("n m",), {"axis": axis}, peers)


def _boxes(random: np.random.Generator) -> Iterator[Workload]:
    for classes, count, most in ((1, 1000, 100), (1, 10_000, 200), (1, 10_000, 10_000),
                                 (80, 1000, 100), (80, 8400, 300)):  # fmt: skip
        middle = random.uniform(0, 600, (1, count, 2))
        size = random.uniform(10, 100, (1, count, 2))
        boxes = np.concatenate([middle - size / 2, middle + size / 2], -1).astype("f")
        scores = random.random((1, classes, count), dtype=np.float32)
        arrays = (boxes, scores, np.array([most]), np.array([0.5], "f"), np.array([0.3], "f"))
        peers = {"onnxruntime": session("NonMaxSuppression", arrays, 1)}
        name = f"boxes {classes}x{count}, {most} kept"
        shapes = ("b n 4", "b c n", "1", "1", "1")
        yield Workload(name, "non_max_suppression_fill", arrays, shapes, {}, peers)


# ---- measuring ---------------------------------------------------------------------------------


def seconds(function: Call, calls: int) -> float:
    """Time of one call, over `calls` of them."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def measure(work: Workload) -> Result:
    """Medians of all, timed in turns."""
    functions: dict[str, Call] = {"ours": Ours(work), **work.peers}
    calls = {}
    for name, function in functions.items():
        function()
        calls[name] = max(1, round(CHUNK_SECONDS / max(seconds(function, 1), 1e-7) / ROUNDS))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            times[name].append(seconds(function, calls[name]))
    found = {name: 1e6 * statistics.median(taken) for name, taken in times.items()}
    ours = found.pop("ours")
    return Result(work.name, ours, found, {name: ours / taken for name, taken in found.items()})


def main() -> None:
    """Print the table; with --json FILE also write it there. NAMEs choose by how names begin."""
    names, file = cases_and_file(__doc__)
    results = []
    for work in workloads():
        if not work.name.startswith(names or ""):
            continue
        result = measure(work)
        results.append(result)
        ratios = "  ".join(f"{name} {ratio:.2f}" for name, ratio in result.ratios.items())
        print(f"{result.name:40}{result.ours:12.1f} us   {ratios}", flush=True)
    if file:
        with open(file, "w", encoding="utf-8") as target:
            json.dump([asdict(result) for result in results], target, indent=1)


if __name__ == "__main__":
    main()
