"""Small ONNX models for tests, and the comparison of what they mean with onnx's own reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify

TYPES = {
    "f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "h": TensorProto.FLOAT16,
    "l": TensorProto.INT64, "i": TensorProto.INT32, "b": TensorProto.BOOL,
    "u": TensorProto.UINT8, "s": TensorProto.INT8,
}  # fmt: skip


def value(text: str) -> onnx.ValueInfoProto:
    """`x f[n, 3, ?]`: an input of float32."""
    name, kind = text.split(" ", 1)
    parts = [part.strip() for part in kind[2:-1].split(",") if part.strip()]
    shape = [None if p == "?" else int(p) if p.lstrip("-").isdigit() else p for p in parts]
    return helper.make_tensor_value_info(name, TYPES[kind[0]], shape)


def model(
    nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], opset: int = 18,
    **constants: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model; outputs are names, constants initializers."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [value(text) for text in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node(text: str, **attributes: Any) -> onnx.NodeProto:
    """`y, z = Split(x, , s)`"""
    left, right = text.split(" = ")
    operator, inputs = right.rstrip(")").split("(")
    names = [part.strip() for part in inputs.split(",")] if inputs.strip() else []
    return helper.make_node(operator, names, left.split(", "), name=f"/{left}", **attributes)


def compare(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray], graph: Graph | None = None
) -> None:
    """The imported graph and onnx's reference agree, in type, shape and values."""
    graph = verify(import_model(proto.SerializeToString())) if graph is None else graph
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(proto).run(None, feeds)
    got = evaluate(graph, {name: feeds[name] for name in graph.inputs})
    for name, right in zip(graph.outputs, expected):
        right = np.asarray(right)
        assert got[name].dtype == right.dtype, name
        assert got[name].shape == right.shape, name
        tolerance = 2e-3 if right.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got[name], right, rtol=tolerance, atol=tolerance, err_msg=name)
