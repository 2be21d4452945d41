"""Promise: calls of a recursion are numbered by levels as in Python, for any data."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.dtypes import float32
from anydim.compiler.frontends.definition import kinds_of
from anydim.compiler.frontends.definition_graph import flattened_definition, graph_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.level_plan import CYCLE, OUTSIDE, Layout
from anydim.compiler.kernels.routines.levels import CALL_LEVELS
from anydim.lang.surface.parser import parse
from anydim.runtime.forest import Schema, solve_dims
from anydim.runtime.structures import read
from tests.unit.compiler.frontends.structures.definitions import MEANINGS, TEXT
from tests.unit.compiler.kernels.routine_running import Running

MACHINE = Machine(vector_bytes=64, registers=32)
KINDS = {"float": float32.numpy, "double": "float64", "half": "float16", "int": "int32"}
NAMES = ("total", "tree_lstm", "child_sum", "roses", "value", "dots", "same", "even", "evens",
         "pairs", "spine", "grid", "classify", "weighted", "leftmost")  # fmt: skip
Arrays = dict[str, np.ndarray]


@cache
def numbering(name: str) -> tuple[Graph, Node, Running]:
    """The graph of a definition, its node that numbers calls, and that routine."""
    definition = parse(TEXT)[name]
    flat = flattened_definition(definition)
    given = [np.zeros((2,) * len(each.shape), KINDS[each.type]) for each in flat.parameters]
    graph = graph_of(definition, kinds_of(flat, given, {}), {})
    (node,) = (node for node in graph.nodes if node.operator == "call_levels")
    types = [graph.types[each] for each in node.given]
    return graph, node, Running(CALL_LEVELS, types, graph.box, MACHINE, **node.attributes)


def drawn(name: str, seed: int) -> Arrays:
    """The inputs of the graph for random structures."""
    graph, _, _ = numbering(name)
    random = Random(seed)
    rows = random.choice([0, 1, 2, 7])
    found: Arrays = {}
    for key, draw in MEANINGS[name].structures.items():
        port: Any = graph.lists[key]
        given = [draw(random, 2) for _ in range(rows)]
        found.update(read(Schema(port), given)[0])
    return found


def changed(name: str, arrays: Arrays, seed: int) -> Arrays:
    """Other numbers in some places: shared nodes, cycles, nodes that do not exist."""
    _, node, _ = numbering(name)
    random, found = np.random.default_rng(seed), dict(arrays)
    for each in node.given:
        own = found[each].copy()
        places = random.random(own.shape) < 0.2
        most = 2 + int(own.max(initial=0))
        own[places] = random.integers(-1 if seed % 3 == 0 else 0, most, int(places.sum()))
        found[each] = own
    return found


def check(name: str, arrays: Arrays, compiled: bool) -> int:
    """Compare the parts of the results that mean something; returns the fault."""
    graph, node, running = numbering(name)
    given = [np.ascontiguousarray(arrays[each], np.int64) for each in node.given]
    pairs = [
        pair for each in (*node.given, *graph.inputs) if each in arrays
        for pair in zip(graph.types[each].shape, arrays[each].shape)
    ]  # fmt: skip
    env = {**dict.fromkeys(graph.box.names, 0), **solve_dims(pairs)}
    found, right = running(given, env, 1, compiled), running.expected(given, env)
    layout = Layout.of(node.attributes)
    sizes = dict(zip(layout.sizes(), right[0].tolist()))
    assert bool(found[0][0]) == bool(right[0][0])
    if right[0][0]:
        return int(found[0][0])  # the first of several faults depends on the order
    assert found[0].tolist() == right[0].tolist()
    for result, own, wanted in zip(layout.results(), found, right):
        word, *parts = result
        number = {
            "sizes": len(wanted), "roots": len(wanted), "table": sizes.get(("levels", *parts)),
            "down": sizes.get(("depths", *parts)), "owner": sizes.get(("edges", *parts)),
            "offsets": sizes.get(("calls", *parts[:1]), 0) + 1,
            "called": sizes.get(("edges", *parts), sizes.get(("calls", *parts[:1]))),
        }.get(word, sizes.get(("calls", *parts[:1])))  # fmt: skip
        np.testing.assert_array_equal(own[:number], wanted[:number], str(result))
    return 0


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", NAMES)
def test_it_numbers_as_the_reference(name: str) -> None:
    for seed in range(20):
        assert check(name, drawn(name, seed), True) == 0


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("name", NAMES)
def test_every_access_is_inside(name: str) -> None:
    """In the evaluator, which checks it, also for data with faults."""
    for seed in range(12):
        arrays = drawn(name, seed)
        if sum(map(np.size, arrays.values())) < 200:
            check(name, arrays, False)
            check(name, changed(name, arrays, seed), False)


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", NAMES)
def test_any_numbers_give_a_fault_or_levels(name: str) -> None:
    for seed in range(60):
        check(name, changed(name, drawn(name, seed), seed), True)


def test_faults_have_numbers() -> None:
    own = {"t.leaf.x": np.zeros((1, 2), np.float32), "t.roots": np.array([2, 0])}
    chain = {"t.node.left": np.array([0, 1]), "t.node.right": np.array([0, 0])}
    cycle = {"t.node.left": np.array([0, 1]), "t.node.right": np.array([2, 0])}
    for children, fault in ((chain, 0), (cycle, CYCLE)):
        assert check("sum_tree", {**own, **children}, True) == fault
    for child in (-1, 3, 1 << 40, -(1 << 62)):
        outside = {"t.node.left": np.array([0, 1]), "t.node.right": np.array([0, child])}
        assert check("sum_tree", {**own, **outside}, True) == OUTSIDE
    assert check("sum_tree", {**own, **chain, "t.roots": np.array([3])}, True) == OUTSIDE


@pytest.mark.parametrize("offsets", [[0, 2, 1], [0, -1, 2], [1, 1, 2], [0, 1, 3], [0, 1 << 40, 2]])
def test_ranges_of_children_are_checked(offsets: list[int]) -> None:
    given = {
        "t.bush.x": np.zeros((2, 2), np.float32), "t.bush.children": np.array([1, 1]),
        "t.bush.children.offsets": np.array(offsets), "t.roots": np.array([0]),
    }  # fmt: skip
    assert check("widest", given, True) in (0, OUTSIDE, CYCLE)
    assert check("widest", given, False) in (0, OUTSIDE, CYCLE)
