"""Constant folding of nodes between steps.

`simplify` folds constants inside a straight-line part. A loop is between parts: its operands are
folded here, or its weights would be packed again in every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anydim.base.errors import UserError
from anydim.graph.evaluate import evaluate_node
from anydim.graph.nodes import Constant, Graph, Node
from anydim.graph.operator import OPERATORS

_MAX_ELEMENTS = 1 << 24  # elements of a value


def with_known(graph: Graph, names: Iterable[str]) -> Graph:
    """The graph with every one of `names` that depends only on constants folded."""
    known = dict(graph.constants)
    for name in names:
        _fold(graph, name, known)
    if len(known) == len(graph.constants):
        return graph
    gone = known.keys() - graph.constants.keys()
    kept = tuple(node for node in graph.nodes if gone.isdisjoint(node.outputs))
    return graph.replace(nodes=kept, constants=known)


def _fold(graph: Graph, name: str, known: dict[str, Constant]) -> None:
    """Evaluate a value and its dependencies into `known`, where possible."""
    pending = [name]
    while pending:
        node = graph.producers.get(pending[-1])
        if pending[-1] in known or node is None or not _foldable(graph, node):
            if pending.pop() not in known:
                return
            continue
        missing = [given for given in node.given if given not in known]
        if missing:
            pending += missing
        elif not _made(graph, node, known):
            return


def _made(graph: Graph, node: Node, known: dict[str, Constant]) -> bool:
    values: Mapping[str, object] = {given: known[given].array for given in node.given}
    try:
        made = evaluate_node(graph, node, values, {})  # type: ignore[arg-type]
    except UserError:  # a constant index out of bounds: reported by the call
        return False
    known.update({name: Constant(array) for name, array in made.items()})
    return True


def _foldable(graph: Graph, node: Node) -> bool:
    """Whether a node has results of static sizes and is no region, routine or source."""
    record = OPERATORS.get(node.operator)
    if not node.given or node.region is not None or record is None or record.routine is not None:
        return False
    if any(name in graph.outputs for name in node.outputs):
        return False
    names = (*node.given, *node.outputs)
    sizes = [size.constant for name in names for size in graph.types[name].shape]
    if None in sizes:
        return False
    counts = [_count(graph, name) for name in node.outputs]
    return sum(counts) <= min(_MAX_ELEMENTS, 2 * sum(_count(graph, name) for name in node.given))


def _count(graph: Graph, name: str) -> int:
    count = 1
    for size in graph.types[name].shape:
        count *= size.constant or 0
    return count
