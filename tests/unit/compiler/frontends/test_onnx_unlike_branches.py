"""Promise: of branches of unlike ranks that sizes choose, the one that can be is the model."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper

import anydim as ad

FLOAT = onnx.TensorProto.FLOAT


def body(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=nodes[-1].output[0])])


def squeezing(test: str, tail: list[onnx.NodeProto], swap: bool = False) -> onnx.ModelProto:
    """`x.squeeze(-1)` as an exporter writes it, the condition by operator `test`, then `tail`."""
    squeeze = body("squeeze", helper.make_node("Squeeze", ["x", "last"], ["squeezed"]))
    keep = body("keep", helper.make_node("Identity", ["x"], ["kept"]))
    first, second = (keep, squeeze) if swap else (squeeze, keep)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["size"]),
        helper.make_node(test, ["size", "one"], ["flag"]),
        *([helper.make_node("Not", ["flag"], ["not_flag"])] if swap else []),
        helper.make_node("If", ["not_flag" if swap else "flag"], ["y"], name="If_7",
                         then_branch=first, else_branch=second),
        *tail,
    ]  # fmt: skip
    numbers = {
        "last": [-1], "one": [1], "weight": numpy.ones((5, 2), numpy.float32),
        "filters": numpy.ones((4, 5, 1), numpy.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "squeezing", [helper.make_tensor_value_info("x", FLOAT, ["n", 5, "m"])],
        [helper.make_tensor_value_info("z", FLOAT, None)],
        [numpy_helper.from_array(numpy.asarray(array), name) for name, array in numbers.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


GEMM = [helper.make_node("Gemm", ["y", "weight"], ["z"])]  # of matrices alone


@pytest.mark.parametrize("swap", [False, True])
def test_the_branch_after_which_the_model_has_a_meaning(swap: bool) -> None:
    model = ad.compile(squeezing("Equal", GEMM, swap))
    x = numpy.arange(15, dtype=numpy.float32).reshape(3, 5, 1)
    numpy.testing.assert_array_equal(model(x)["z"], x[..., 0].sum(1, keepdims=True).repeat(2, 1))
    with pytest.raises(
        ad.DimError, match=r"do not fit at m = 2[\s\S]*If_7[\s\S]*m == 1 does not hold"
    ):
        model(numpy.zeros((3, 5, 2), numpy.float32))
    assert model(numpy.zeros((0, 5, 1), numpy.float32))["z"].shape == (0, 2)


def test_the_other_branch() -> None:
    conv = helper.make_node("Conv", ["y", "filters"], ["z"])
    model = ad.compile(squeezing("Equal", [conv]))
    x = numpy.ones((2, 5, 3), numpy.float32)
    numpy.testing.assert_array_equal(model(x)["z"], numpy.full((2, 4, 3), 5.0))
    with pytest.raises(
        ad.DimError, match=r"do not fit at m = 1[\s\S]*If_7[\s\S]*m != 1 does not hold"
    ):
        model(numpy.zeros((2, 5, 1), numpy.float32))


def test_what_has_a_meaning_after_both_has_the_rank_of_the_call() -> None:
    relu = [helper.make_node("Relu", ["y"], ["z"])]
    model = ad.compile(squeezing("Equal", relu))
    assert model(numpy.ones((2, 5, 1), numpy.float32))["z"].shape == (2, 5)
    assert model(numpy.ones((2, 5, 3), numpy.float32))["z"].shape == (2, 5, 3)
    model = ad.compile(squeezing("Equal", relu), dims={"m": 1})
    assert model(numpy.ones((2, 5, 1), numpy.float32))["z"].shape == (2, 5)
    model = ad.compile(squeezing("Equal", relu), dims={"m": (2, 9)})
    assert model(numpy.ones((2, 5, 3), numpy.float32))["z"].shape == (2, 5, 3)


def test_what_has_a_meaning_after_neither_is_refused_for_what_follows() -> None:
    with pytest.raises(ad.ModelError, match="Conv"):
        ad.compile(squeezing("Equal", [helper.make_node("Conv", ["y", "weight"], ["z"])]))
