"""Promise: nodes that hold graphs verify, print, read back, evaluate, and go when unneeded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anydim.base.dtypes import int64
from anydim.base.errors import DimError, GraphError, InputError
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.regions import LoopRegion
from anydim.compiler.graph.text import constants_of, print_graph
from anydim.compiler.graph.verify import verify
from anydim.sizes import Box, Dim
from tests.unit.compiler.graph.region_graphs import EXAMPLES, growing, kind, node, prefix, until


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_region_means_what_numpy_says(name: str) -> None:
    example = EXAMPLES[name]()
    rng = np.random.default_rng(3)
    for _ in range(40):
        inputs = example.draw(rng)
        expected = example.meaning(**inputs)
        made = evaluate(example.graph, inputs)
        assert made.keys() == expected.keys()
        for output, value in expected.items():
            _same(made[output], value)


def _same(made: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(made) == len(expected)
        for one, other in zip(made, expected):
            _same(one, other)
        return
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
    assert made.shape == np.shape(expected)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_region_prints_and_reads_back_equal(name: str) -> None:
    graph = verify(EXAMPLES[name]().graph)
    again = read_graph(print_graph(graph), constants_of(graph))
    assert again == graph
    assert hash(again) == hash(graph)
    assert print_graph(again) == print_graph(graph)


def test_a_size_outside_its_bounds_names_the_node() -> None:
    inputs = {"x": np.zeros(3, np.float32), "count": np.array(4)}
    with pytest.raises(InputError, match=r"(?s)data-dependent size.*n - k"):
        evaluate(prefix().graph, inputs)


def test_a_found_dim_goes_with_the_node_that_nobody_needs() -> None:
    graph = prefix().graph
    bare = graph.replace(outputs=("x",)).pruned()
    assert bare.nodes == ()
    assert bare.box == Box.of(Dim("n", 0, 9))
    assert graph.pruned() == graph


def test_a_node_stays_for_the_dim_that_its_result_tells() -> None:
    graph = until().graph
    counting = node("size_tensor", "", "k", values=(Dim("iterations").size,), scalar=True)
    graph = graph.replace(
        nodes=(graph.nodes[0], counting), outputs=("k",),
        types={**graph.types, "k": kind(int64)},
    )  # fmt: skip
    assert len(verify(graph).pruned().nodes) == 2
    made = evaluate(graph, {"go": np.array(True), "v": np.float32(1), "limit": np.float32(7)})
    assert made["k"] == 3


def _broken(graph: Graph, position: int, **changes: Any) -> Graph:
    """The graph with fields of one node's region changed."""
    old = graph.nodes[position]
    region = replace(old.attributes["region"], **changes)
    new = Node(old.operator, old.inputs, old.outputs, {"region": region}, old.source)
    nodes = [*graph.nodes]
    nodes[position] = new
    return graph.replace(nodes=tuple(nodes))


def test_wrong_regions_are_refused() -> None:
    loop = growing().graph
    body = loop.nodes[0].attributes["region"]
    assert isinstance(body, LoopRegion)
    other = Box.of(Dim("n"), Dim("s"), Dim("t"), Dim("m", 0, 9))
    wrong = {
        "stacked results": _broken(loop, 0, scans=()),
        "bool": _broken(loop, 0, conditional=True),
        "dim .t.": _broken(loop, 0, counter="n"),
        "around it": _broken(loop, 0, body=body.body.replace(box=other)),
        "known": prefix().graph.replace(nodes=prefix().graph.nodes[::-1]),
    }  # fmt: skip
    for text, graph in wrong.items():
        with pytest.raises(GraphError, match=text):
            verify(graph)


def test_slices_that_differ_do_not_stack() -> None:
    graph = growing().graph
    region = graph.nodes[0].attributes["region"]
    body = region.body.replace(outputs=("longer", "longer"))
    graph = _broken(graph, 0, body=body).replace(
        types={**graph.types, "sums": kind(graph.types["x"].dtype, "m", "q")},
        box=Box((*graph.box.dims, Dim("q"))),
    )  # fmt: skip
    inputs = {name: np.zeros(size, np.float32) for name, size in (("start", 1), ("x", 2), ("w", 3))}
    with pytest.raises(DimError, match="do not stack"):
        evaluate(verify(graph), inputs)
