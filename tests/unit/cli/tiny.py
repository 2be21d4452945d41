"""A small ONNX file for tests of the command line: relu(x + table[ids]), with the dim n."""

from __future__ import annotations

from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS, WIDTH = 5, 4
TABLE = numpy.arange(ROWS * WIDTH, dtype=numpy.float32).reshape(ROWS, WIDTH) - 9


def write(path: Path) -> Path:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "look_up"),
        helper.make_node("Add", ["x", "rows"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["y"], "relu"),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])]
    weights = [numpy_helper.from_array(TABLE, "table")]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def write_rows(path: Path) -> Path:
    """The mean of table[ids] over the tokens that a mask marks: ids and mask [batch, seq]."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "look_up"),
        helper.make_node("Unsqueeze", ["mask", "last"], ["marks"]),
        helper.make_node("Cast", ["marks"], ["weights"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["rows", "weights"], ["marked"]),
        helper.make_node("ReduceSum", ["marked", "middle"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["weights", "middle"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["mean"], "mean"),
    ]
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"])
        for name in ("ids", "mask")
    )
    outputs = [
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", "seq", WIDTH]),
        helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["batch", WIDTH]),
    ]
    axes = [numpy_helper.from_array(numpy.array([axis]), name)
            for name, axis in (("last", 2), ("middle", 1))]  # fmt: skip
    weights = [numpy_helper.from_array(TABLE, "table"), *axes]
    graph = helper.make_graph(nodes, "rows", [ids, mask], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def feeds(n: int) -> dict[str, numpy.ndarray]:
    chance = numpy.random.default_rng(n)
    ids = chance.integers(0, ROWS, n)
    return {"ids": ids, "x": chance.standard_normal((n, WIDTH)).astype(numpy.float32)}


def expected(ids: numpy.ndarray, x: numpy.ndarray) -> numpy.ndarray:
    return numpy.maximum(x + TABLE[ids], 0)
