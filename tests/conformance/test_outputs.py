"""Promise: whatever a model names as its outputs comes back, computed or passed through."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
TABLE = numpy.arange(4, dtype=numpy.float32).reshape(2, 2)
CONSTANTS = [numpy_helper.from_array(TABLE, "w"), numpy_helper.from_array(numpy.array([-1]), "s")]


def out(name: str, kind: int = TensorProto.FLOAT, shape: tuple = ("n", 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def node(operator: str, inputs: list[str], output: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], **attributes)


RELU = node("Relu", ["x"], "y")
CASES = {
    "an input": ([], [out("x")], lambda x: {"x": x}),
    "a constant": ([], [out("w", shape=(2, 2))], lambda x: {"w": TABLE}),
    "an input and its copy": (
        [node("Identity", ["x"], "y")], [out("x"), out("y")], lambda x: {"x": x, "y": x},
    ),
    "one value twice": (
        [RELU, node("Identity", ["y"], "z")], [out("y"), out("z")],
        lambda x: {"y": numpy.maximum(x, 0), "z": numpy.maximum(x, 0)},
    ),
    "a reshape": (
        [RELU, node("Reshape", ["y", "s"], "z")], [out("z", shape=("m",))],
        lambda x: {"z": numpy.maximum(x, 0).reshape(-1)},
    ),
    "a value, its transpose and its reshape": (
        [RELU, node("Reshape", ["y", "s"], "z"), node("Transpose", ["y"], "t", perm=[1, 0])],
        [out("z", shape=("m",)), out("y"), out("t", shape=(3, "n"))],
        lambda x: {
            "z": numpy.maximum(x, 0).reshape(-1), "y": numpy.maximum(x, 0),
            "t": numpy.maximum(x, 0).T,
        },
    ),
    "a constant computed from constants": (
        [node("Relu", ["w"], "y")], [out("y", shape=(2, 2))], lambda x: {"y": TABLE},
    ),
    "a shape": (
        [node("Shape", ["x"], "y")], [out("y", TensorProto.INT64, (2,))],
        lambda x: {"y": numpy.array(x.shape)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_outputs_come_back(case: str) -> None:
    nodes, outputs, wanted = CASES[case]
    graph = helper.make_graph(nodes, "g", [X], outputs, CONSTANTS)
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = ad.compile(file)
    for n in (0, 4, 1, 0):
        x = numpy.arange(3 * n, dtype=numpy.float32).reshape(n, 3) - 4
        came, expected = model(x=x), wanted(x)
        assert list(came) == list(expected)
        for name, array in came.items():
            numpy.testing.assert_array_equal(array, expected[name])
            assert not numpy.shares_memory(array, x)
    assert model.check(samples=5).ok
