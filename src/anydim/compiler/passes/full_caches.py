"""Caches of GroupQueryAttention that hold whole sequences, as concatenations.

    present = cached_rows(past, first, new, count=max(past, total))
    first = lengths - s                                   of each sequence, by data

    present = concat(past, new)                           where total = past + s

The operator places new rows by lengths that data decides. Where every sequence fills its cache,
which is so for sequences of one length and for each row alone, they follow the past, and `total`
is no size of its own. Data that says otherwise, a mask with zeros, is an error of the caller.
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.passes.ragged.groups import with_sizes
from anydim.lang.tree import TensorType
from anydim.sizes import Size, maximum, simplify

_AXIS = 2  # of cached_rows: [batch, heads, rows, depth]


def with_full_caches(graph: Graph) -> tuple[Graph, frozenset[str]]:
    """Make concatenations of caches that are inputs and results of a graph.

    Returns also the inputs that decide the lengths of sequences: all their elements must be 1.
    """
    nodes = [node for node in graph.nodes if _is_cache(graph, node)]
    totals = {total: whole for node in nodes for total, whole in _totals(graph, node)}
    if not totals:
        return graph, frozenset()
    masks = frozenset(name for node in nodes for name in _inputs_of(graph, node.given[1]))
    graph = with_sizes(graph, totals)
    types, made = dict(graph.types), list[Node]()
    caches = {node.outputs for node in nodes}
    for node in graph.nodes:
        if node.outputs not in caches:
            made.append(node)
            continue
        past, _, new = node.given
        attributes = FrozenMapping({"axis": _AXIS})
        made.append(Node("concat", (past, new), node.outputs, attributes, node.source, node.device))
        types[node.outputs[0]] = _concat_type(graph, past, new)
    return graph.replace(nodes=tuple(made), types=FrozenMapping(types)), masks


def _is_cache(graph: Graph, node: Node) -> bool:
    """Whether a node appends to an input, and its result is one of the graph."""
    if node.operator != "cached_rows" or node.given[0] not in graph.inputs:
        return False
    copies = {node.outputs[0]}
    copies.update(n.outputs[0] for n in graph.nodes if n.operator == "identity"
                  and n.given[0] in copies)  # fmt: skip
    return not copies.isdisjoint(graph.outputs)


def _totals(graph: Graph, node: Node) -> Iterator[tuple[str, Size]]:
    """Yield the dim that counts all rows of a full cache, and what it is: the past and new rows."""
    past, _, new = (graph.types[name].shape for name in _three(node))
    whole = past[_AXIS] + new[_AXIS]
    for name in graph.types[node.outputs[0]].shape[_AXIS].symbols - whole.symbols:
        total = maximum(past[_AXIS], Size.symbol(name))
        if simplify(total, graph.box) == graph.types[node.outputs[0]].shape[_AXIS]:
            yield name, whole


def _three(node: Node) -> tuple[str, str, str]:
    past, first, new = node.given
    return past, first, new


def _concat_type(graph: Graph, past: str, new: str) -> TensorType:
    before, after = graph.types[past], graph.types[new]
    count = before.shape[_AXIS] + after.shape[_AXIS]
    return TensorType(before.dtype, (*before.shape[:_AXIS], count, *before.shape[_AXIS + 1 :]))


def _inputs_of(graph: Graph, name: str) -> Iterator[str]:
    """Yield the inputs of the graph that a value depends on."""
    left, seen = [name], set[str]()
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in graph.inputs:
            yield each
        elif each in graph.producers:
            left += graph.producers[each].given
