"""Promise: an attribute keeps its name and value in the text of a graph, 'group' included."""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import print_graph
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Size


def test_an_operator_may_have_an_attribute_called_group() -> None:
    kind = TensorType(float32, (Size.symbol("n"),))
    node = Node("some_operator", ("x",), ("y",), {"group": 2, "size": Size.symbol("n")}, "m: /N")
    graph = Graph("g", Box.of(Dim("n")), {"x": kind, "y": kind}, ("x",), ("y",), {}, (node,))
    assert read_graph(print_graph(graph), {}) == graph
