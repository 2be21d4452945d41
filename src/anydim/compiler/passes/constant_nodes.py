"""Constant folding of nodes between steps, and constants of nested graphs.

`simplify` folds constants inside a straight-line part. A loop is between parts: its operands are
folded here, and constant ones become constants of its body, or its weights would be packed again in
every call or iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from anydim.base.errors import UserError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.derivations import Evaluated
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.operator import OPERATORS
from anydim.compiler.graph.regions import REGION, BranchRegion, LoopRegion

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


def with_inner_constants(graph: Graph) -> Graph:
    """The graph with constants that loops and branches only read as constants of their bodies."""
    return graph.replace(nodes=tuple(_sink_constants(graph, node) for node in graph.nodes))


def _sink_constants(graph: Graph, node: Node) -> Node:
    region = node.region
    if not isinstance(region, (BranchRegion, LoopRegion)):
        return node
    bodies = list(region.held.values())
    count = len(bodies[0].inputs)
    if isinstance(region, LoopRegion):
        count -= region.carried + region.histories
    first = len(node.inputs) - count  # of the operands that each body only reads
    moved = {
        position: graph.constants[name] for position, name in enumerate(node.inputs[first:], -count)
        if name and name in graph.constants and all(_is_static(b, position) for b in bodies)
    }  # fmt: skip
    if not moved:
        return node
    changed: dict[str, Any] = {
        key: _with_constants(body, moved) for key, body in region.held.items()
    }
    gone = {len(node.inputs) + position for position in moved}
    inputs = tuple(name for number, name in enumerate(node.inputs) if number not in gone)
    attributes = {**node.attributes, REGION: replace(region, **changed)}
    return replace(node, inputs=inputs, attributes=FrozenMapping(attributes))


def _is_static(body: Graph, position: int) -> bool:
    """Whether an input of a body determines no dim and is no result."""
    name = body.inputs[position]
    sizes = [size.constant for size in body.types[name].shape]
    return None not in sizes and name not in body.outputs


def _with_constants(body: Graph, held: Mapping[int, Constant]) -> Graph:
    """A body with constants for inputs at these positions, from the last one."""
    names = {body.inputs[position]: constant for position, constant in held.items()}
    inputs = tuple(name for name in body.inputs if name not in names)
    return body.replace(inputs=inputs, constants={**body.constants, **names})


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
        elif not _fold_node(graph, node, known):
            return


def _fold_node(graph: Graph, node: Node, known: dict[str, Constant]) -> bool:
    inputs = [known[given] for given in node.given]
    group = group_of(graph, node)
    try:
        made = [Constant.derive(Evaluated(group, each.type.dtype, output=number), *inputs)
                for number, each in enumerate(group.outputs)]  # fmt: skip
    except UserError:  # a constant index out of bounds: reported by the call
        for each in inputs:
            each.mark_read()
        return False
    known.update(zip(node.outputs, made))
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
