"""Promise: what follows unlike branches of an If runs in either, until results are alike again."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import anydim as ad
from anydim.base.errors import ModelError


def branch(name: str, *nodes: Any) -> onnx.GraphProto:
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, [], [result])


def model(condition: list[Any], tail: list[Any], outputs: tuple[str, ...]) -> onnx.ModelProto:
    """An If that keeps x [n, m, 1] or drops its last axis, and what follows it."""
    one = numpy_helper.from_array(numpy.array([-1]), "last")
    zero = numpy_helper.from_array(numpy.float32(0), "zero")
    choice = helper.make_node(
        "If", ["condition"], ["y"], name="choice",
        then_branch=branch("same", helper.make_node("Neg", ["x"], ["kept"])),
        else_branch=branch("less", helper.make_node("Squeeze", ["x", "last"], ["dropped"])),
    )  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m", 1]),
        helper.make_tensor_value_info("c", TensorProto.FLOAT, []),
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([*condition, choice, *tail], "g", inputs, results, [one, zero])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


DATA = [helper.make_node("Greater", ["c", "zero"], ["condition"])]
SIZES = [
    helper.make_node("Shape", ["x"], ["sizes"], start=0, end=1),
    helper.make_node("Shape", ["x"], ["others"], start=1, end=2),
    helper.make_node("Greater", ["sizes", "others"], ["conditions"]),
    helper.make_node("Squeeze", ["conditions"], ["condition"]),
]
TAILS = {
    "at once": [helper.make_node("ReduceSum", ["y"], ["s"], keepdims=0)],
    "later": [
        helper.make_node("Relu", ["y"], ["a"]),
        helper.make_node("Exp", ["x"], ["beside"]),  # depends on nothing of it
        helper.make_node("Add", ["a", "y"], ["b"]),
        helper.make_node("ReduceSum", ["beside"], ["more"], keepdims=0),
        helper.make_node("ReduceMax", ["b"], ["t"], keepdims=0),
        helper.make_node("Add", ["t", "more"], ["s"]),
        helper.make_node("Tanh", ["s"], ["after"]),
    ],
    "in a graph": [
        helper.make_node("If", ["condition"], ["s"],
            then_branch=branch("p", helper.make_node("ReduceMin", ["y"], ["p0"], keepdims=0)),
            else_branch=branch("q", helper.make_node("ReduceMax", ["y"], ["q0"], keepdims=0))),
    ],
}  # fmt: skip


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("condition", [DATA, SIZES], ids=["data", "sizes"])
def test_ranks_meet_again(condition: list[Any], tail: str) -> None:
    outputs = ("s", "after") if tail == "later" else ("s",)
    source = model(condition, TAILS[tail], outputs)
    compiled, reference = ad.compile(source), ReferenceEvaluator(source)
    for n, m, c in ((2, 3, 1.0), (3, 2, -1.0), (1, 1, 1.0), (5, 1, 0.0), (1, 7, 2.0)):
        x = numpy.random.default_rng(n).standard_normal((n, m, 1)).astype(numpy.float32)
        given = {"x": x, "c": numpy.float32(c)}
        right = reference.run(None, {"x": x, "c": numpy.array(c, numpy.float32)})
        for name, value in zip(outputs, right):
            # float32 sums of at most ten terms, in another order
            numpy.testing.assert_allclose(compiled(**given)[name], value, rtol=1e-5, atol=1e-6)


def test_what_does_not_depend_on_it_runs_once() -> None:
    compiled = ad.compile(model(DATA, TAILS["later"], ("s", "after")))
    text = compiled.report.stages["import"]()
    assert text.count("exp(") == 1
    assert text.count("tanh(") == 1


def test_the_same_condition_is_decided_inside() -> None:
    """The second If has results of other ranks too, and only together do they fit."""
    again = helper.make_node(
        "If", ["condition"], ["w"], name="again",
        then_branch=branch("p", helper.make_node("Exp", ["x"], ["p0"])),
        else_branch=branch("q", helper.make_node("Squeeze", ["x", "last"], ["q0"])),
    )  # fmt: skip
    tail = [again, helper.make_node("Concat", ["y", "w"], ["both"], axis=1)]
    tail.append(helper.make_node("ReduceSum", ["both"], ["s"], keepdims=0))
    compiled = ad.compile(model(DATA, tail, ("s",)))
    assert compiled.report.stages["import"]().count("branch(") == 1
    x = numpy.random.default_rng(0).standard_normal((3, 4, 1)).astype(numpy.float32)
    for c, right in ((1.0, numpy.exp(x).sum() - x.sum()), (-1.0, 2 * x.sum())):
        # float32 sums of two dozen terms
        numpy.testing.assert_allclose(compiled(x=x, c=numpy.float32(c))["s"], right, rtol=1e-5)


@pytest.mark.parametrize("condition", [DATA, SIZES], ids=["data", "sizes"])
def test_ranks_that_never_meet_are_those_of_the_call(condition: list[Any]) -> None:
    source = model(condition, [helper.make_node("Relu", ["y"], ["s"])], ("s",))
    compiled, reference = ad.compile(source), ReferenceEvaluator(source)
    for n, m, c in ((2, 3, 1.0), (3, 2, -1.0), (1, 1, 1.0), (0, 1, -1.0)):
        x = numpy.random.default_rng(n).standard_normal((n, m, 1)).astype(numpy.float32)
        (right,) = reference.run(None, {"x": x, "c": numpy.array(c, numpy.float32)})
        numpy.testing.assert_array_equal(compiled(x=x, c=numpy.float32(c))["s"], right)


def test_types_that_never_meet_are_refused_by_name() -> None:
    same = branch("same", helper.make_node("Neg", ["x"], ["kept"]))
    other = branch("other", helper.make_node("Shape", ["x"], ["sizes"]))
    choice = helper.make_node(
        "If", ["condition"], ["y"], name="choice", then_branch=same, else_branch=other
    )
    source = model(DATA, [], ("y",))
    del source.graph.node[-1]
    source.graph.node.append(choice)
    with pytest.raises(ModelError, match=r"choice: If .* float32 and int64; no later node"):
        ad.compile(source)
