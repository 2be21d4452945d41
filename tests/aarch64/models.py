"""Five models, each compiled, called at several sizes and compared with what it means.

Runs in an aarch64 process (`python -m tests.aarch64 --only models`), and in any other. Expected
results are onnx's reference, or numpy's where it has none, computed in the same process.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import anydim as ad

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Arrays = dict[str, numpy.ndarray]
numbers = numpy.random.default_rng(0)


def floats(*shape: int) -> numpy.ndarray:
    return numbers.standard_normal(shape).astype(numpy.float32)


class Graph:
    """Nodes and constants of a model while it is written."""

    def __init__(self, stem: str = "") -> None:
        self.stem = stem
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, operator: str, *inputs: Any, results: int = 1, **attributes: Any) -> Any:
        names = [f"{self.stem}{operator}{len(self.nodes)}.{number}" for number in range(results)]
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(operator, given, names, **attributes))
        return names[0] if results == 1 else names

    def constant(self, value: Any) -> str:
        name = f"{self.stem}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def body(self, name: str, inputs: list[Any], results: list[str]) -> onnx.GraphProto:
        made = [onnx.ValueInfoProto(name=result) for result in results]
        return helper.make_graph(self.nodes, name, inputs, made, self.constants)

    def model(self, inputs: dict[str, tuple[int, list[Any]]], results: list[str]) -> Any:
        given = [helper.make_tensor_value_info(n, kind, axes) for n, (kind, axes) in inputs.items()]
        graph = self.body("g", given, results)
        for value in graph.output:
            value.type.tensor_type.elem_type = FLOAT
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def encoder() -> tuple[onnx.ModelProto, Iterator[Arrays]]:
    """Two layers of a transformer over tokens, with a mask, and a mean over them, as MiniLM has."""
    g, width, heads = Graph(), 48, 4
    depth = width // heads
    split = [0, 0, heads, depth]
    x = g("Gather", floats(100, width), "ids")
    bias = g("Mul", g("Sub", numpy.float32(1), g("Unsqueeze", "mask", [1, 2])), numpy.float32(-1e4))
    for _ in range(2):
        query, key, value = (
            g("Transpose", g("Reshape", g("MatMul", x, floats(width, width)), split), perm=order)
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )  # fmt: skip
        scores = g("Div", g("MatMul", query, key), numpy.float32(49 * depth**0.5))
        mixed = g("MatMul", g("Softmax", g("Add", scores, bias), axis=-1), value)
        mixed = g("Reshape", g("Transpose", mixed, perm=(0, 2, 1, 3)), [0, 0, width])
        one = numpy.ones(width, numpy.float32)
        x = g("LayerNormalization", g("Add", x, mixed), one, one * 0, axis=-1)
        inner = g("Add", g("MatMul", x, floats(width, 96) / 7), floats(96))
        inner = g("Mul", inner, g("Sigmoid", inner))
        inner = g("MatMul", inner, floats(96, width) / 9)
        x = g("LayerNormalization", g("Add", x, inner), one, one * 0)
    shares = g("Unsqueeze", "mask", [2])
    total = g("ReduceSum", g("Mul", x, shares), [1], keepdims=0)
    y = g("Div", total, g("ReduceSum", shares, [1], keepdims=0))
    axes = ["batch", "seq"]

    def calls() -> Iterator[Arrays]:
        for batch, seq in ((1, 1), (2, 7), (3, 16), (1, 33), (0, 5)):
            mask = numpy.ones((batch, seq), numpy.float32)
            mask[:, seq // 2 + 1 :] = 0
            yield {"ids": numbers.integers(0, 100, (batch, seq)), "mask": mask}

    return g.model({"ids": (INT64, axes), "mask": (FLOAT, axes)}, [y]), calls()


def images() -> tuple[onnx.ModelProto, Iterator[Arrays]]:
    """Convolutions, plain, depthwise and with a stride, pooling and a classifier."""
    g = Graph()
    x = g("Relu", g("Conv", "x", floats(16, 3, 3, 3) / 5, floats(16), pads=[1] * 4))
    x = g("Relu", g("Conv", x, floats(16, 1, 3, 3) / 3, group=16, pads=[1] * 4, strides=[2, 2]))
    x = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    x = g("Clip", g("Conv", x, floats(32, 16, 1, 1) / 4), numpy.float32(0), numpy.float32(6))
    x = g("ReduceMean", x, axes=[2, 3], keepdims=0)
    y = g("Softmax", g("Gemm", x, floats(32, 10), floats(10)), axis=-1)
    sizes = ((1, 8, 8), (2, 17, 13), (3, 32, 40), (1, 5, 64))
    calls = ({"x": floats(n, 3, h, w)} for n, h, w in sizes)
    return g.model({"x": (FLOAT, ["n", 3, "h", "w"])}, [y]), calls


def recurrent() -> tuple[onnx.ModelProto, Iterator[Arrays]]:
    """An LSTM in both directions over sequences of any length."""
    g, width, hidden = Graph(), 12, 16
    weights = [floats(2, 4 * hidden, part) / 4 for part in (width, hidden)]
    y, last, _ = g(
        "LSTM", "x", *weights, floats(2, 8 * hidden) / 4, results=3, hidden_size=hidden,
        direction="bidirectional",
    )  # fmt: skip
    sizes = ((1, 1), (5, 3), (17, 2), (33, 1))
    calls = ({"x": floats(t, n, width)} for t, n in sizes)
    return g.model({"x": (FLOAT, ["t", "n", width])}, [y, last]), calls


def detector() -> tuple[onnx.ModelProto, Iterator[Arrays]]:
    """The end of a detector: as many boxes as pass a threshold, sorted; their number is data's."""
    g = Graph()
    best = g("ReduceMax", "scores", axes=[1], keepdims=0)
    found = g("Reshape", g("NonZero", g("Greater", best, numpy.float32(0.8))), [-1])
    kept, boxes = g("Gather", best, found), g("Gather", "boxes", found)
    count = g("Shape", kept)
    top, order = g("TopK", kept, count, results=2, axis=0)
    area = g("Sub", g("Gather", boxes, numpy.array([2, 3]), axis=1),
             g("Gather", boxes, numpy.array([0, 1]), axis=1))  # fmt: skip
    y = g("Gather", g("ReduceProd", area, axes=[1], keepdims=0), order)
    calls = ({"scores": floats(n, 6), "boxes": floats(n, 4)} for n in (1, 4, 50, 333))
    inputs = {"scores": (FLOAT, ["n", 6]), "boxes": (FLOAT, ["n", 4])}
    return g.model(inputs, [top, y]), calls


def loop() -> tuple[onnx.ModelProto, Iterator[Arrays]]:
    """Newton's iteration until it settles: data decides how often the body runs."""
    inner = Graph("inner.")
    better = inner("Mul", inner("Add", "root", inner("Div", "x", "root")), numpy.float32(0.5))
    moved = inner("ReduceSum", inner("Abs", inner("Sub", better, "root")), keepdims=0)
    going = inner("Greater", moved, numpy.float32(1e-3))
    given = [
        helper.make_tensor_value_info(name, kind, axes)
        for name, kind, axes in (("i", INT64, []), ("on", BOOL, []), ("root", FLOAT, ["n"]))
    ]  # fmt: skip
    g = Graph()
    y = g("Loop", 60, True, "x", body=inner.body("newton", given, [going, better]))
    calls = ({"x": abs(floats(n)) + 1} for n in (1, 2, 7, 100))
    return g.model({"x": (FLOAT, ["n"])}, [y]), calls


MODELS: tuple[Callable[[], tuple[onnx.ModelProto, Iterator[Arrays]]], ...] = (
    encoder, images, recurrent, detector, loop,
)  # fmt: skip


def main() -> int:
    """Print a line for each model; the number of those that are wrong."""
    wrong = 0
    print(f"{'model':10} {'compile s':>9} {'calls':>5} {'ms a call':>9} {'error':>8}", flush=True)
    for make in MODELS:
        source, calls = make()
        start = time.perf_counter()
        model = ad.compile(source)
        compiled = time.perf_counter() - start
        reference, times, worst = ReferenceEvaluator(source), [], 0.0
        for feeds in calls:
            with numpy.errstate(all="ignore"):
                right = reference.run(None, feeds)
            start = time.perf_counter()
            came = list(model(**feeds).values())
            times.append(1000 * (time.perf_counter() - start))
            for one, other in zip(came, right):
                if one.shape != other.shape:
                    worst = float("inf")
                elif one.size:
                    unit = max(1.0, float(numpy.abs(other).max()))
                    worst = max(worst, float(numpy.abs(one - other).max()) / unit)
        good = worst < 2e-5  # float32 sums of at most some hundred terms, in another order
        wrong += not good
        middle = sorted(times)[len(times) // 2]
        print(f"{make.__name__:10} {compiled:9.1f} {len(times):5} {middle:9.2f} {worst:8.1e}"
              f"{'' if good else '  WRONG'}", flush=True)  # fmt: skip
    print(f"{len(MODELS) - wrong} of {len(MODELS)} models agree, on {platform.machine()}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
