"""Nodes in an order that defines before use.

The standard asks for such an order; onnxruntime sorts nodes itself, so that files are about that
have them in any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any


def names_made(nodes: Iterable[Any]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def names_read(nodes: Iterable[Any]) -> list[str]:
    """The values that nodes read, those that graphs inside of them take from outside included."""
    found: list[str] = []
    for node in nodes:
        found += filter(None, node.input)
        for body in _bodies(node):
            own = {*names_made(body.node), *_given(body)}
            found += [name for name in names_read(body.node) if name not in own]
    return found


def in_order(graph: Any, known: Iterable[str] = ()) -> bool:
    """Whether nodes read what is there before them."""
    there = {"", *known, *_given(graph)}
    for node in graph.node:
        if not there.issuperset(node.input):
            return False
        if not all(in_order(body, there) for body in _bodies(node)):
            return False
        there.update(node.output)
    return True


def ordered(proto: Any) -> Any:
    """The model with the nodes of all its graphs sorted; itself where they are in order already, or
    where no order is: of a cycle, or of a value that nothing makes."""
    if in_order(proto.graph):
        return proto
    own = type(proto)()
    own.CopyFrom(proto)
    try:
        _sort(own.graph)
    except CycleError:
        return proto
    return own


def _sort(graph: Any) -> None:
    """Sort nodes in place, first in the file first. Raises CycleError."""
    makers = {
        name: number for number, node in enumerate(graph.node) for name in node.output if name
    }
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, node in enumerate(graph.node):
        for body in _bodies(node):
            _sort(body)
        sorter.add(number, *(makers[name] for name in names_read([node]) if name in makers))
    nodes = [graph.node[number] for number in sorter.static_order()]
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _given(graph: Any) -> Iterator[str]:
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name


def _bodies(node: Any) -> list[Any]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]
