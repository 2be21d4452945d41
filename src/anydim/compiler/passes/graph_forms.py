"""Graphs up to names: equal layers of a network have one form, whatever their weights are.

Values, sources and weights are numbered in the order of their first use. A constant of one element
belongs to the form. Fused groups are compared with their names.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant, Graph, Node


class _Numbers(dict[Hashable, int]):
    """Numbers of keys, in the order of their first use."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = len(self)
        return self[key]


@dataclass(frozen=True)
class GraphForm:
    """The form of a graph as a key, with what its numbers are: names, sources, weights."""

    key: Hashable
    values: tuple[str, ...]
    sources: tuple[str, ...]
    weights: tuple[Constant, ...]


def form_of(graph: Graph) -> GraphForm:
    """Return the form of a graph."""
    values, sources, weights = _Numbers(), _Numbers(), _Numbers()

    def numbers(names: tuple[str | None, ...]) -> tuple[int | None, ...]:
        return tuple(None if name is None else values[name] for name in names)

    def node(each: Node) -> Hashable:
        given, made = numbers(each.inputs), numbers(each.outputs)
        return each.operator, given, made, each.attributes, sources[each.source], each.device

    def constant(name: str) -> Hashable:
        held = graph.constants.get(name)
        if held is None:
            return None
        return held.array.tobytes() if prod(held.shape) == 1 else weights[held]

    used = numbers(graph.inputs), tuple(map(node, graph.nodes)), numbers(graph.outputs)
    names = tuple(map(str, values))
    about = tuple((graph.types[name], constant(name)) for name in names)
    key = (graph.name, graph.box, graph.guards, used, about)
    return GraphForm(key, names, tuple(map(str, sources)), tuple(weights))  # type: ignore[arg-type]
