"""Sorts nodes topologically.

The standard requires this order, but onnxruntime sorts nodes itself, so some files violate it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any


def names_made(nodes: Iterable[Any]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def names_read(nodes: Iterable[Any]) -> list[str]:
    """The values that nodes read, with those that their subgraphs read from outside."""
    found: list[str] = []
    for node in nodes:
        found += filter(None, node.input)
        for body in _bodies(node):
            own = {*names_made(body.node), *_inputs_and_constants(body)}
            read = (*names_read(body.node), *(value.name for value in body.output))
            found += [name for name in read if name not in own]
    return found


def in_order(graph: Any, known: Iterable[str] = ()) -> bool:
    """Whether every node reads only values defined before it."""
    there = {"", *known, *_inputs_and_constants(graph)}
    for node in graph.node:
        if not there.issuperset(node.input):
            return False
        if not all(in_order(body, there) for body in _bodies(node)):
            return False
        there.update(node.output)
    return True


def sort_nodes(proto: Any) -> Any:
    """Sort the nodes of all graphs of a model.

    Returns the model itself if they are sorted, or cannot be: for a cycle, or an undefined value.
    """
    if in_order(proto.graph):
        return proto
    own = type(proto)()
    own.CopyFrom(proto)
    try:
        _sort(own.graph)
    except CycleError:
        return proto
    return own


def _sort(graph: Any) -> dict[str, None]:
    """Sort the nodes of a graph in place, stably; returns the names it reads from outside.

    Every graph is visited once, at any depth of nesting. Raises CycleError.
    """
    makers = {
        name: number for number, node in enumerate(graph.node) for name in node.output if name
    }
    sorter: TopologicalSorter[int] = TopologicalSorter()
    outside: dict[str, None] = {}
    for number, node in enumerate(graph.node):
        read = dict.fromkeys(filter(None, node.input))
        for body in _bodies(node):
            read |= _sort(body)
        sorter.add(number, *(makers[name] for name in read if name in makers))
        outside |= read
    order = list(sorter.static_order())
    if order != sorted(order):
        places = iter(sorted(range(len(order)), key=order.__getitem__))
        graph.node.sort(key=lambda node: next(places))
    own = {*makers, *_inputs_and_constants(graph)}
    return {name: None for name in outside if name not in own}


def _inputs_and_constants(graph: Any) -> Iterator[str]:
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name


def _bodies(node: Any) -> list[Any]:
    """The subgraphs of a node."""
    single = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return single + [graph for attribute in node.attribute for graph in attribute.graphs]
