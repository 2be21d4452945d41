"""Promise: what a graph inside a node cannot do is said with its place, all at once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import anydim as ad
from anydim.base.errors import DimError, InputError, ModelError
from anydim.compiler.frontends.onnx.importer import import_model
from tests.models.building import graph, model, node


def refused(nodes: list[onnx.NodeProto], inputs: list[str], output: str = "y") -> str:
    with pytest.raises(ModelError) as caught:
        import_model(model(graph("tiny", inputs, nodes, [output], {"one": np.int64([1])})))
    return str(caught.value)


def branches(then: list[onnx.NodeProto], otherwise: list[onnx.NodeProto]) -> onnx.NodeProto:
    return node(
        "y = If(c)", then_branch=graph("then", [], then, ["a"]),
        else_branch=graph("else", [], otherwise, ["b"]),
    )  # fmt: skip


def test_all_nodes_of_all_graphs_are_listed_at_once() -> None:
    then = [node("a0 = Absent(x)"), node("a = Missing(a0)")]
    nodes = [branches(then, [node("b = Relu(x)")]), node("z = Nonsense(x)"), node("w = Add(y, z)")]
    text = refused(nodes, ["x f[n]", "c b[]"], "w")
    assert "2 nodes" in text or "3 nodes" in text
    assert "/y//a0: Absent (opset 18)" in text
    assert "/z: Nonsense (opset 18)" in text
    assert "/w" not in text


def test_branches_of_different_types() -> None:
    nodes = [branches([node("a = Relu(x)")], [node("b = Cast(x)", to=7)])]
    assert "float32 and int64" in refused(nodes, ["x f[n]", "c b[]"])


def loop_of(*nodes: onnx.NodeProto, result: str = "w") -> onnx.NodeProto:
    inner = [*nodes, node("on = Identity(go)")]
    return node("y = Loop(trips, , x)", body=graph("b", ["t l[]", "go b[]", "v"], inner,
                                                   ["on b[]", result]))  # fmt: skip


def test_a_carried_value_that_changes_its_rank() -> None:
    text = refused([loop_of(node("w = Unsqueeze(v, one)"))], ["x f[n]", "trips l[]"])
    assert "'v'" in text and "number of axes must not change" in text


def test_a_name_that_nobody_defines_in_a_body() -> None:
    text = refused([loop_of(node("w = Add(v, nothing)"))], ["x f[n]", "trips l[]"])
    assert "'nothing' is not defined" in text


def test_functions_that_call_each_other() -> None:
    calls = [onnx.helper.make_node("F", ["a"], ["b"], domain="own")]
    opsets = [onnx.helper.make_opsetid("own", 1)]
    own = onnx.helper.make_function("own", "F", ["a"], ["b"], calls, opsets)
    nodes = [onnx.helper.make_node("F", ["x"], ["y"], domain="own")]
    with pytest.raises(ModelError, match="without end"):
        import_model(model(graph("tiny", ["x f[n]"], nodes, ["y"]), [own]))


def test_slices_of_different_sizes_are_an_error_of_the_call() -> None:
    body = graph(
        "b", ["t l[]", "go b[]"],
        [node("on = Identity(go)"), node("end = Unsqueeze(t, zero)"),
         node("part = Slice(x, zero, end, zero)")], ["on b[]", "part f[k]"],
    )  # fmt: skip
    nodes = [node("y = Loop(trips, )", body=body)]
    proto = model(graph("tiny", ["x f[n]", "trips l[]"], nodes, ["y f[a, b]"],
                        {"zero": np.int64([0])}))  # fmt: skip
    run = ad.compile(proto)
    assert run(x=np.ones(4, np.float32), trips=np.array(1))["y"].shape == (1, 0)
    with pytest.raises((DimError, InputError)):
        run(x=np.ones(4, np.float32), trips=np.array(3))
