"""Promise: nodes may stand in any order in a file, and what is asked to the end ends there."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.compiler.frontends.onnx.file.order import in_order, sort_nodes


def model(nodes, constants=(), opset=17):
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "m", values, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def branch(name, *nodes):
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
    return helper.make_graph(list(nodes), name, [], outputs)


def test_nodes_of_a_file_in_any_order():
    """Also those inside of a branch, and those that a branch alone reads."""
    node = helper.make_node
    yes = branch("t", node("Exp", ["e"], ["t"]), node("Neg", ["a"], ["e"]))
    made = model(
        [
            node("If", ["positive"], ["y"], then_branch=yes, else_branch=branch(
                "f", node("Identity", ["a"], ["f"]))),
            node("Add", ["x", "x"], ["a"]),
            node("Greater", ["sum", "zero"], ["positive"]),
            node("ReduceSum", ["a"], ["sum"], keepdims=0),
        ],
        [numpy_helper.from_array(numpy.float32(0), "zero")],
    )  # fmt: skip
    before = made.SerializeToString()
    compiled = ad.compile(made)
    assert made.SerializeToString() == before
    for n in (0, 1, 17):
        x = numpy.linspace(-1, 2, n, dtype=numpy.float32)
        expected = numpy.exp(-2 * x) if x.sum() > 0 else 2 * x
        numpy.testing.assert_allclose(compiled(x)["y"], expected, rtol=1e-6)


def test_an_order_that_is_there_stays():
    node = helper.make_node
    made = model([node("Relu", ["x"], ["b"]), node("Neg", ["x"], ["a"]),
                  node("Add", ["a", "b"], ["y"])])  # fmt: skip
    assert in_order(made.graph) and sort_nodes(made) is made
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(made)
    nodes = [made.graph.node[place] for place in (2, 0, 1)]
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    assert [each.op_type for each in sort_nodes(shuffled).graph.node] == ["Neg", "Relu", "Add"]


@pytest.mark.parametrize(("end", "backwards"), [(2**31 - 1, -(2**31)), (2**63 - 1, -(2**63))])
def test_a_slice_to_the_end_of_int32_has_the_size_of_one_without_an_end(end, backwards):
    def slices(start, stop, step):
        parts = zip(("s", "e", "a", "t"), (start, stop, 0, step))
        constants = [numpy_helper.from_array(numpy.int64([value]), name) for name, value in parts]
        return ad.compile(
            model([helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])], constants)
        )

    ahead, back = slices(1, end, 1), slices(-1, backwards, -2)
    assert str(ahead.outputs[0].shape[0]) == "max(N - 1, 0)"
    for n in (0, 1, 2, 33):
        x = numpy.arange(n, dtype=numpy.float32)
        numpy.testing.assert_array_equal(ahead(x)["y"], x[1:])
        numpy.testing.assert_array_equal(back(x)["y"], x[::-2])
