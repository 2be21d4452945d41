"""Promise: a node keeps the device that it was made on, in the graph and in its text."""

from __future__ import annotations

import numpy

import anydim as ad
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import constants_of, print_graph


def test_nodes_are_made_on_the_device_of_the_block() -> None:
    g = ad.Builder("placed")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 4))
    with g.on("accel"):
        h = g.exp(x) * 2.0
        with g.on(""):
            h = g.neg(h)
        h = g.matmul(h, numpy.ones((4, 4), numpy.float32))
    condition = g.less(g.reduce_sum(h, axes=(0, 1)), 5.0)
    with g.on("other device"):
        y = g.branch(condition, lambda b: b.sin(h), lambda b: b.cos(h))
    g.output("y", y)
    graph = g.graph()
    devices = {node.operator: node.device for node in graph.nodes}
    assert devices == {
        "exp": "accel", "mul": "accel", "neg": "", "matmul": "accel", "reduce_sum": "", "less": "",
        "branch": "", "identity": "",
    }  # fmt: skip
    (branch,) = (node for node in graph.nodes if node.region is not None)
    held = [node for each in branch.region.held.values() for node in each.nodes]
    assert {node.device for node in held} == {"other device"}
    text = print_graph(graph)
    assert ' on "accel" "placed: exp"' in text
    assert read_graph(text, constants_of(graph)) == graph
