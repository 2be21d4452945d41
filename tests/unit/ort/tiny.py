"""Tiny models for programs that run on onnxruntime and on anydim.ort alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from onnx import TensorProto, helper

value = helper.make_tensor_value_info
node = helper.make_node
FLOAT, INT64, STRING, BOOL = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL,
)  # fmt: skip
X = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)


def model(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any],
    weights: Mapping[str, numpy.ndarray] = {}, ir: int = 10, opset: int = 17, **about: str,
) -> bytes:  # fmt: skip
    """The bytes of a model; `about` are its custom metadata."""
    held = [
        helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(w.dtype), w.shape, w.reshape(-1))
        for name, w in weights.items()
    ]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, held)
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    made = helper.make_model(graph, opset_imports=versions, ir_version=ir, producer_name="test")
    helper.set_model_props(made, about)
    return bytes(made.SerializeToString())


W = numpy.array([1, 2, 3], numpy.float32)
ADD = model(
    [node("Add", ["x", "w"], ["y"]), node("Mul", ["x", "x"], ["z"])],
    [value("x", FLOAT, ["n", 3])],
    [value("y", FLOAT, ["n", 3]), value("z", FLOAT, ["n", 3])],
    {"w": W}, character="a\nb",
)  # fmt: skip
OVERRIDABLE = model(
    [node("Add", ["x", "w"], ["y"]), node("Mul", ["y", "v"], ["z"])],
    [value("x", FLOAT, ["n", 3]), value("w", FLOAT, [3])],
    [value("z", FLOAT, ["n", 3])],
    {"v": 2 * W, "w": W},
)  # fmt: skip
TWO = model(
    [node("Add", ["a", "b"], ["y"])],
    [value("a", FLOAT, ["n", 3]), value("b", FLOAT, ["n", 3])], [value("y", FLOAT, ["n", 3])],
)  # fmt: skip
RANKLESS = model([node("Relu", ["x"], ["y"])], [value("x", FLOAT, None)], [value("y", FLOAT, None)])
SCALAR = model([node("Relu", ["x"], ["y"])], [value("x", FLOAT, [])], [value("y", FLOAT, [])])
OPEN = model(
    [node("Relu", ["x"], ["y"])],
    [value("x", FLOAT, [None, "n", -1, 3])], [value("y", FLOAT, [None, "n", -1, 3])],
)  # fmt: skip
STRINGS = model(
    [node("Identity", ["x"], ["y"])], [value("x", STRING, ["n"])], [value("y", STRING, ["n"])]
)
SEQUENCE = model(
    [node("SequenceLength", ["x"], ["n"]), node("Identity", ["x"], ["y"])],
    [helper.make_tensor_sequence_value_info("x", FLOAT, None)],
    [value("n", INT64, []), helper.make_tensor_sequence_value_info("y", FLOAT, None)],
)
NOT = model([node("Not", ["x"], ["y"])], [value("x", BOOL, ["n"])], [value("y", BOOL, ["n"])])
GATHER = model(
    [node("Gather", ["x", "i"], ["y"])],
    [value("x", FLOAT, ["n"]), value("i", INT64, ["m"])], [value("y", FLOAT, ["m"])],
)  # fmt: skip
EMPTY_NODES = model([node("Identity", ["x"], ["y"])], [value("x", INT64, ["n"])],
                    [value("y", INT64, ["n"])])  # fmt: skip


def refused(nodes: Sequence[Any], output: str = "y", **options: Any) -> bytes:
    """A model of these nodes from x [n] to an output [n]."""
    inputs = [value("x", FLOAT, ["n"]), value("i", INT64, ["n"])]
    return model(nodes, inputs, [value(output, FLOAT, ["n"])], **options)
