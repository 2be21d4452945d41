"""Splits a functional graph into sections: compiled ones, and fallbacks that run in torch.

Sections follow the order of the graph, so that random numbers are drawn in its order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from anydim.base.records import dataclass

LEAST_OPERATORS = 4  # of a compiled section; for fewer, the call costs more than it saves
Run = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Section:
    """A part of a graph as a module of its own; `inputs` and `results` are nodes of the graph."""

    module: torch.fx.GraphModule
    inputs: Sequence[torch.fx.Node]
    results: Sequence[torch.fx.Node]
    is_refused: bool


def sections(module: torch.fx.GraphModule, refused: Collection[str]) -> list[Section]:
    """Splits a graph, in order; `refused` are the names of nodes that must run in torch."""
    runs: list[tuple[bool, list[torch.fx.Node]]] = []
    for is_refused, nodes in _runs(module.graph, refused):
        is_refused = is_refused or sum(map(_computes, nodes)) < LEAST_OPERATORS
        if runs and runs[-1][0] and is_refused:
            runs[-1][1].extend(nodes)
        else:
            runs.append((is_refused, nodes))
    binding = _binding(module.graph)
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    inputs = [_inputs(nodes, binding, order) for _, nodes in runs]
    (returned,) = next(iter(reversed(module.graph.nodes))).args
    used = {*returned, *(each for own in inputs for each in own)}
    return [
        _section(module, nodes, is_refused, own, used)
        for (is_refused, nodes), own in zip(runs, inputs)
    ]


def _runs(
    graph: torch.fx.Graph, refused: Collection[str]
) -> Iterator[tuple[bool, list[torch.fx.Node]]]:
    """Yields maximal runs of nodes that are all compiled, or all refused."""
    found: list[torch.fx.Node] = []
    kind = False
    for nodes in _groups(graph):
        is_refused = any(node.name in refused for node in nodes)
        if found and is_refused != kind:
            yield kind, found
            found = []
        kind = is_refused
        found.extend(nodes)
    if found:
        yield kind, found


def _groups(graph: torch.fx.Graph) -> Collection[Sequence[torch.fx.Node]]:
    """Groups each computing node with the `getitem` nodes of its results."""
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            found.setdefault(_source(node), []).append(node)
    return found.values()


def _source(node: torch.fx.Node) -> torch.fx.Node:
    """The multi-result node behind a `getitem` node; otherwise the node itself."""
    if node.target is not operator.getitem or not isinstance(node.args[0], torch.fx.Node):
        return node
    return _source(node.args[0])


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node computes elements: no view, no size arithmetic."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and not target.is_view and (
        not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
    )  # fmt: skip


def _binding(graph: torch.fx.Graph) -> dict[Any, torch.fx.Node]:
    """The first node that gives each symbol's value, by symbol."""
    found: dict[Any, torch.fx.Node] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            found.setdefault(value.node.expr, node)
    return found


def _inputs(
    nodes: Sequence[torch.fx.Node], binding: Mapping[Any, torch.fx.Node],
    order: Mapping[torch.fx.Node, int],
) -> Sequence[torch.fx.Node]:  # fmt: skip
    """The inputs of a section: values, and the symbols in their shapes that other nodes give."""
    own = set(nodes)
    inputs: dict[torch.fx.Node, None] = {}
    for node in nodes:
        for each in node.all_input_nodes:
            if each not in own and each.op != "get_attr":
                inputs[each] = None
    for node in list(inputs):
        for symbol in sorted(_symbols(node), key=str):
            bound = binding.get(symbol)
            if bound is not None and order[bound] < order[nodes[0]]:
                inputs[bound] = None
    return tuple(inputs)


def _section(
    module: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node], is_refused: bool,
    inputs: Sequence[torch.fx.Node], used: Collection[Any],
) -> Section:  # fmt: skip
    """`used` are the results of the graph, and the inputs of all sections."""
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta = dict(node.meta)
    for node in nodes:
        for each in node.all_input_nodes:
            if each not in made:
                made[each] = graph.node_copy(each)
        made[node] = graph.node_copy(node, made.__getitem__)
    results = [
        node for node in nodes
        if node in used and not isinstance(node.meta.get("val"), (list, tuple))
    ]  # fmt: skip
    graph.output(tuple(made[node] for node in results))
    return Section(torch.fx.GraphModule(module, graph), inputs, results, is_refused)


def _symbols(node: torch.fx.Node) -> Collection[Any]:
    """The symbols in the shape of a tensor, or in a number."""
    value = node.meta.get("val")
    is_sized = isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))
    return free_symbols(value) if is_sized else ()


class InSections:
    """Calls the sections of a graph in order; each value is dropped after its last use."""

    def __init__(self, graph: torch.fx.Graph, parts: Sequence[tuple[Section, Run]]) -> None:
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        places = {node: place for place, node in enumerate(placeholders)}
        for section, _ in parts:
            for node in section.results:
                places[node] = len(places)
        self._count = len(places) - len(placeholders)
        (results,) = next(iter(reversed(graph.nodes))).args
        self._results = [
            (True, places[each]) if isinstance(each, torch.fx.Node) else (False, each)
            for each in results
        ]  # fmt: skip
        kept = {place for is_place, place in self._results if is_place}
        steps = []
        for section, run in reversed(parts):
            own = [places[node] for node in section.inputs]
            dropped = [place for place in own if place not in kept]
            kept.update(own)
            steps.append((run, own, [places[node] for node in section.results], dropped))
        self._steps = steps[::-1]

    def __call__(self, *arguments: Any) -> list[Any]:
        values = [*arguments, *[None] * self._count]
        for run, inputs, results, dropped in self._steps:
            found = run(*[values[place] for place in inputs])
            for place, value in zip(results, found):
                values[place] = value
            for place in dropped:
                values[place] = None
            del found
        return [values[held] if is_place else held for is_place, held in self._results]
