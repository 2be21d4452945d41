"""A graph prints, and reads back as an equal graph; a bad text says where it is bad."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anydim.base.dtypes import float32, int64
from anydim.base.errors import GraphError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Constant, Graph, Node
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import print_graph
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Guard, as_size
from tests.unit.runtime.forests import BUSH, PARITY, TREE, program


def every_kind_of_attribute() -> Graph:
    n = as_size("n")
    values = {
        "integer": -3, "real": 1e-5, "inf": math.inf, "yes": True, "text": 'a "b"\n', "none": None,
        "size": n * 2 + 1, "constant size": as_size(4), "dtype": int64, "empty": (),
        "nested": ((1, n), (2.5,), ("x",)),
    }  # fmt: skip
    node = Node("strange", ("x", None, "a b"), ("y", "float32"), FrozenMapping(values), "f: /n")
    kind = TensorType(float32, (n, as_size(3)))
    return Graph(
        name='odd "graph"',
        box=Box.of(Dim("n", 0, 9), Dim("m", 1), constraints=(as_size("m - n"),)),
        types=FrozenMapping(dict.fromkeys(("x", "a b", "y", "float32"), kind)),
        inputs=("x", "a b"),
        outputs=("float32", "y"),
        nodes=(node,),
        guards=(Guard(n, "<=", as_size("m*n"), "why not"),),
    )


def with_constants() -> Graph:
    g = Builder("constants")
    x = g.input("x", float32, (g.dim("n"), 2))
    w = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3), "layer.0/weight:0")
    g.output("y", g.softmax(x @ w * 0.5))
    return g.graph()


def fused() -> Graph:
    """Every node of a graph as a group whose tensors are the graph's values."""
    graph = with_constants()
    nodes = []
    for node in graph.nodes:
        group = group_of(graph, node)
        text = print_graph(graph)
        assert text
        names = dict(zip((t.name for t in group.inputs), node.given))
        names.update(zip((t.name for t in group.outputs), node.outputs))
        nodes.append(_as_fused(group, names, node))
    return graph.replace(nodes=tuple(nodes))


def _as_fused(group, names, node):
    from dataclasses import replace

    from anydim.lang.tree import Read
    from anydim.lang.tree.affine import rewrite

    def own(name):
        return names.get(name, f"{node.outputs[0]}.{name}")

    def renamed(expr):
        return replace(expr, tensor=own(expr.tensor)) if isinstance(expr, Read) else None

    statements = tuple(
        replace(s, target=own(s.target), body=rewrite(s.body, renamed)) for s in group.statements
    )
    inputs, outputs, temporaries = (
        tuple(replace(t, name=own(t.name)) for t in tensors)
        for tensors in (group.inputs, group.outputs, group.temporaries)
    )
    whole = replace(
        group, statements=statements, inputs=inputs, outputs=outputs, temporaries=temporaries
    )
    given = tuple(t.name for t in inputs)
    return Node(FUSED, given, node.outputs, FrozenMapping(group=whole), node.source)


@pytest.mark.parametrize("make", [every_kind_of_attribute, with_constants, fused])
def test_text_reads_back(make):
    graph = make()
    text = print_graph(graph)
    again = read_graph(text, graph.constants)
    assert again == graph
    assert print_graph(again) == text


@pytest.mark.parametrize("port", [TREE, BUSH, PARITY])
def test_structure_inputs_read_back(port):
    graph = program().replace(lists={"t": port, "float32": port})
    assert read_graph(print_graph(graph), graph.constants) == graph


def test_text_shows_structure_inputs():
    assert print_graph(program().replace(lists={"t": BUSH})).splitlines()[-1] == (
        "structure t = t of Bush type Bush constructor bush field x = t.x [D] "
        "field children = t.children of Bush offsets t.offsets"
    )


def test_text_shows_the_graph():
    graph = with_constants()
    lines = print_graph(graph).splitlines()
    assert lines[:3] == ['graph "constants"', "dim n 0..", "input x: float32[n, 2]"]
    assert lines[3].startswith('constant "layer.0/weight:0": float32[2, 3] = ')
    assert " = matmul(x, " in lines[5]
    assert lines[-1] == "output y"


def test_a_constant_must_be_the_one_that_was_printed():
    graph = with_constants()
    others = {name: Constant(c.array + 1) for name, c in graph.constants.items()}
    with pytest.raises(GraphError, match="that the text was printed with"):
        read_graph(print_graph(graph), others)
    with pytest.raises(GraphError, match="a constant given for"):
        read_graph(print_graph(graph), {})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hello", "a line cannot start with 'hello'"),
        ("input x: float33[n]", "an element type"),
        ("input x: float32[n", "a shape in brackets"),
        ("input x: float32[n +]", "a size"),
        ("output", "a name"),
        ("output x y", "the end of the line"),
        ("dim n 0.", "'..'"),
        ("guard {n} >> {m}", "== or"),
        ('node y: float32[] = add(x) {a: ?} "s"', "a value"),
        ("node y: float32[] = add(x)", "a string in quotes"),
    ],
)
def test_a_bad_line_is_pointed_at(line, problem):
    with pytest.raises(GraphError) as caught:
        read_graph(f'graph "g"\n{line}\n', {})
    message = str(caught.value)
    assert problem in message and "line 2" in message
