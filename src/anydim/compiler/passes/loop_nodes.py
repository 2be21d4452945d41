"""Convert ordered loops around matrix products to `loop` nodes, whose iterations launch kernels.

A node with an ordered loop is one kernel, unless the loop contains a matrix product: then packing,
tiling and threading of a contraction outweigh a launch in every iteration. Loop invariants are
moved before the loop (`hoist.py`).

After: no ordered loop around a matrix product remains, except those `iterations.py` rejects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import OPERATORS, Operator
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.passes.constant_nodes import with_inner_constants, with_known
from anydim.compiler.passes.flow import is_product, is_product_of_bytes
from anydim.compiler.passes.iterations import Unsuitable, expand_node
from anydim.lang.tree import Branch, Group, Loop, OrderedStep, Statement, Write
from anydim.lang.tree.stepping import writes
from anydim.sizes import merged_guards


@dataclass(frozen=True)
class Recur:
    """Convert nodes with ordered loops to `loop` nodes where profitable."""

    machine: Machine

    def run(self, graph: Graph) -> Graph:
        graph = with_inner_constants(with_known(graph, _read_in_loops(graph)))
        types = dict(graph.types)
        nodes: list[Node] = []
        guards = list(graph.guards)
        for node in graph.nodes:
            group = _group(node, graph)
            if group is None or not pays(group.steps):
                nodes.append(node)
                continue
            try:
                made = expand_node(node, group, graph, types, self.machine)
            except Unsuitable:
                nodes.append(node)
                continue
            nodes += made
            guards = merged_guards(
                guards, group.guards, node.source.removeprefix(f"{graph.name}: ")
            )
        return graph.replace(nodes=tuple(nodes), types=types, guards=tuple(guards))


def pays(steps: Iterable[OrderedStep]) -> bool:
    """Whether separate launches per iteration are profitable for these steps."""
    return any(_loops_with_products(steps))


def _read_in_loops(graph: Graph) -> Iterator[str]:
    """Operands of nodes with nested graphs or with products in an ordered loop."""
    for node in graph.nodes:
        group = _group(node, graph) if node.region is None else None
        if node.region is not None or (group and pays(group.steps)):
            yield from (name for name in node.given if name in graph.producers)


def _group(node: Node, graph: Graph) -> Group | None:
    """The comprehensions of a node; None for routines and regions."""
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
