"""Graphs are immutable values with producers, consumers and an evaluator; verify finds faults."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import bfloat16, boolean, float32, float64, int64
from anydim.base.errors import DimError, GraphError, InputError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.verify import verify
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Guard, as_size


def pair() -> Graph:
    g = Builder("pair")
    n = g.dim("n", 0, 8)
    x, y = g.input("x", float32, (n, 3)), g.input("y", float32, (n, 3))
    g.output("z", g.exp(x + y))
    return g.graph()


def test_mappings_are_frozen():
    graph = pair()
    with pytest.raises(TypeError):
        graph.types["x"] = None
    with pytest.raises(TypeError):
        graph.nodes[0].attributes.update(a=1)
    node = Node("f", (), ("y",), {"axes": [1, [2]]})
    assert node.attributes["axes"] == (1, (2,))
    assert hash(node) == hash(Node("f", (), ("y",), {"axes": (1, (2,))}))


def test_constants_are_read_only_and_equal_only_themselves():
    array = np.zeros(3, np.float32)
    constant = Constant(array)
    assert not constant.array.flags.writeable
    assert constant != Constant(array) and constant == constant
    assert constant.digest == Constant(array.copy()).digest != Constant(array + 1).digest
    assert Constant(np.array(1.0)).type.shape == ()


def test_producers_and_consumers():
    graph = pair()
    add, exp, copy = graph.nodes
    assert graph.producers[add.outputs[0]] is add
    assert graph.consumers["x"] == (add,) and graph.consumers[add.outputs[0]] == (exp,)
    assert copy.outputs == ("z",)


def test_what_no_output_needs_goes():
    g = Builder("g")
    x = g.input("x", float32, (3,))
    g.exp(x + np.ones(3, np.float32))
    g.output("y", -x)
    graph = g.graph()
    assert [node.operator for node in graph.nodes] == ["neg", "identity"]
    assert not graph.constants and graph.inputs == ("x",)


def test_evaluation_frees_and_keeps_what_it_should():
    g = Builder("g")
    x = g.input("x", float32, (g.dim("n"),))
    a = x + x
    g.output("first", a)
    g.output("second", a * a)
    g.output("same", x)
    got = evaluate(g.graph(), {"x": np.array([1, 2], np.float32)})
    assert {name: value.tolist() for name, value in got.items()} == {
        "first": [2, 4], "second": [4, 16], "same": [1, 2]
    }  # fmt: skip


def test_precision_widens():
    g = Builder("g")
    x = g.input("x", float32, (3,))
    g.output("y", g.reduce_sum(x))
    values = np.array([1e8, 1, -1e8], np.float32)
    assert evaluate(g.graph(), {"x": values}, float64)["y"] == 1.0


def test_sizes_come_from_expressions_too():
    g = Builder("g")
    n = g.dim("n", 0, 9)
    x = g.input("x", float32, (n * 2 + 1,))
    g.output("y", g.expand(g.reduce_sum(x), shape=(n,)))
    assert evaluate(g.graph(), {"x": np.ones(7, np.float32)})["y"].tolist() == [7, 7, 7]
    with pytest.raises(DimError, match=r"size 6 in axis 0|has no size"):
        evaluate(g.graph(), {"x": np.ones(6, np.float32)})


@pytest.mark.parametrize(
    ("inputs", "kind", "problem"),
    [
        ({}, InputError, "input 'x' is missing"),
        ({"x": (2, 3), "y": (2, 3), "w": (1,)}, InputError, "no input 'w'"),
        ({"x": (2, 3, 1), "y": (2, 3)}, InputError, "has 3 axes"),
        ({"x": (2, 4), "y": (2, 3)}, DimError, "size 4 in axis 1, expected 3"),
        ({"x": (2, 3), "y": (1, 3)}, DimError, "size 1 in axis 0, expected n = 2"),
        ({"x": (9, 3), "y": (9, 3)}, DimError, "'n' is 9, above its bound 8"),
    ],
)
def test_wrong_inputs_are_refused(inputs, kind, problem):
    values = {name: np.zeros(shape, np.float32) for name, shape in inputs.items()}
    with pytest.raises(kind, match=problem):
        evaluate(pair(), values)


def test_wrong_dtype_is_refused():
    values = {"x": np.zeros((2, 3)), "y": np.zeros((2, 3), np.float32)}
    with pytest.raises(InputError, match="is float64, expected float32"):
        evaluate(pair(), values)


def test_guards_are_checked():
    graph = pair().replace(guards=(Guard(as_size("n"), "!=", as_size(2), "n is not two"),))
    values = {name: np.zeros((2, 3), np.float32) for name in "xy"}
    with pytest.raises(DimError, match="n is not two"):
        evaluate(graph, values)


# ---- verify ------------------------------------------------------------------------------------


def broken(**changes) -> Graph:
    kind = TensorType(float32, (as_size("n"),))
    node = Node("exp", ("x",), ("y",), FrozenMapping(), "model: /exp")
    parts = {
        "name": "g", "box": Box.of(Dim("n")), "types": {"x": kind, "y": kind}, "inputs": ("x",),
        "outputs": ("y",), "nodes": (node,),
    }  # fmt: skip
    return Graph(**{**parts, **changes})


def test_a_good_graph_passes():
    assert verify(broken()) is not None
    assert verify(pair())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"outputs": ("z",)}, "output 'z' is not defined"),
        ({"inputs": ()}, "reads 'x', which is not defined before it"),
        ({"inputs": ("x", "x")}, "'x' is defined twice"),
        ({"inputs": ("x", "y")}, "defines 'y', which is defined already"),
        ({"box": Box.of()}, "uses 'n', which is not a dim"),
        ({"types": {"x": TensorType(float32, (as_size(2),)),
                    "y": TensorType(float32, (as_size(3),))}, "box": Box()},
         r"makes 'y' as float32\[2\], but it is declared float32\[3\]"),
        ({"types": {"x": TensorType(boolean, (as_size(2),)),
                    "y": TensorType(boolean, (as_size(2),))}}, "model: /exp"),
        ({"nodes": (Node("nothing", ("x",), ("y",)),)}, "no operator 'nothing'"),
        ({"nodes": (Node("exp", ("x",), ("y", "x")),)}, "has 2 results"),
        ({"constants": {"c": Constant(np.zeros(2))}}, "value 'c' has no type"),
        ({"constants": {"x": Constant(np.zeros(2, np.int64))}, "inputs": ()},
         "constant 'x' is int64"),
    ],
)  # fmt: skip
def test_verify_names_the_fault(changes, problem):
    with pytest.raises(GraphError, match=problem):
        verify(broken(**changes))


def test_integers_are_hashable_attributes():
    assert hash(Node("f", (), (), {"a": int64, "b": as_size("n")})) is not None


def test_constants_of_narrow_types_have_a_digest():
    one, other = (Constant(np.arange(6).astype(bfloat16.numpy).reshape(s)) for s in ((2, 3), (6,)))
    assert one.digest != other.digest
    assert one.digest == Constant(one.array.copy()).digest
    assert Constant(np.zeros((0, 2), bfloat16.numpy)).digest
