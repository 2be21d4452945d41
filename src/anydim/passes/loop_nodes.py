"""Ordered loops around matrix products become `loop` nodes: their iterations run kernels of their
own.

A node whose comprehensions run in the order of a loop is one kernel, unless its loop holds a matrix
product: then packing, tiles and threads of a contraction are worth a launch in every iteration.
What does not depend on the iterations goes before the loop (`hoist.py`).

After: no ordered loop around a matrix product is left, but those that `iterations.py` cannot take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.base.records import dataclass
from anydim.graph.nodes import FUSED, Graph, Node
from anydim.graph.operator import OPERATORS, Operator
from anydim.kernels.launch import Machine
from anydim.lang.tree import Branch, Group, Loop, OrderedStep, Statement, Write
from anydim.lang.tree.stepping import writes
from anydim.passes.constant_nodes import with_known
from anydim.passes.flow import is_product, is_product_of_bytes
from anydim.passes.iterations import Unsuitable, expanded
from anydim.sizes import joined


@dataclass(frozen=True)
class Recur:
    """Turn nodes with ordered loops into `loop` nodes where that pays."""

    machine: Machine

    def run(self, graph: Graph) -> Graph:
        graph = with_known(graph, _read_in_loops(graph))
        types = dict(graph.types)
        nodes: list[Node] = []
        guards = list(graph.guards)
        for node in graph.nodes:
            group = _group(node, graph)
            if group is None or not pays(group.steps):
                nodes.append(node)
                continue
            try:
                made = expanded(node, group, graph, types, self.machine)
            except Unsuitable:
                nodes.append(node)
                continue
            nodes += made
            guards = joined(guards, group.guards, node.source.removeprefix(f"{graph.name}: "))
        return graph.replace(nodes=tuple(nodes), types=types, guards=tuple(guards))


def pays(steps: Iterable[OrderedStep]) -> bool:
    """Whether iterations of these steps are worth launches of their own."""
    return any(_loops_with_products(steps))


def _read_in_loops(graph: Graph) -> Iterator[str]:
    """What nodes read that hold graphs or multiply matrices in an ordered loop."""
    for node in graph.nodes:
        group = _group(node, graph) if node.region is None else None
        if node.region is not None or (group and pays(group.steps)):
            yield from (name for name in node.given if name in graph.producers)


def _group(node: Node, graph: Graph) -> Group | None:
    """The comprehensions of a node; None for one that has none."""
    if node.operator == FUSED:
        return node.group
    record: Operator | None = OPERATORS.get(node.operator)
    if record is None or record.routine is not None:
        return None
    given = [graph.types[name] for name in node.given]
    return record.instantiate(given, node.attributes, graph.box)


def _loops_with_products(steps: Iterable[OrderedStep]) -> Iterator[Loop]:
    for step in steps:
        if isinstance(step, Loop):
            if any(map(_is_product, writes(step.body))):
                yield step
        elif isinstance(step, Branch):
            yield from _loops_with_products((*step.then, *step.otherwise))


def _is_product(step: Statement | Write) -> bool:
    statement = Statement("", (), step.body, step.combine)
    return bool(step.reduced) and (is_product(statement) or is_product_of_bytes(statement))
