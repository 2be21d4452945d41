"""Nodes that need more precision than a rung has: `precision="auto"`, node by node.

Errors of single roundings are independent, so squares of errors add: groups of nodes are measured
one by one, all others without rounding, and those with the largest errors are raised until the root
of the sum of the others keeps the tolerance. What is found is measured as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anydim.base.records import dataclass
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.passes.device_placement.rules import all_nodes, names_of
from anydim.compiler.passes.flow import is_product
from anydim.compiler.passes.options import FAST

if TYPE_CHECKING:
    from anydim.api.model import Model

ALL = "*"  # the pattern of all nodes
_GROUPS = 16  # of nodes that are measured at first: each is a compilation
_TRIES = 6  # whole models that are measured
_MOST = 0.5  # of the nodes are raised at most: more would hardly be faster
_HOPELESS = 0.75  # of the nodes in raised groups: no single nodes are to blame


def product_nodes(graph: Graph) -> list[str]:
    """Patterns of the nodes with products of constants, in order; equal sources come once."""
    found: dict[str, str] = {}
    known = set(graph.constants)
    for node in all_nodes(graph):
        if node.inputs and known.issuperset(node.inputs):
            known.update(node.outputs)
        elif not known.isdisjoint(node.inputs) and _has_product(graph, node):
            name = names_of(node)[0]
            found.setdefault(node.source, re.sub(r"([*?\[])", r"[\1]", name))
    return list(found.values())


def _has_product(graph: Graph, node: Node) -> bool:
    """Whether a node of the graph itself is a sum of products."""
    plain = node.region is None and all(name in graph.types for name in node.inputs)
    if not plain or operator(node.operator).routine is not None:
        return False
    return any(is_product(statement) for statement in group_of(graph, node).statements)


@dataclass(frozen=True)
class NodeSearch:
    """Finds the nodes to raise from `precision` to `raised`, so that errors are at most `limit`."""

    compile_: Callable[[Any], Model]
    error_of: Callable[[Model], float]
    precision: str
    raised: str
    limit: float

    def run(self, nodes: Sequence[str]) -> tuple[Mapping[str, str], Model] | None:
        """The raised nodes with the model; None if too many would have to be."""
        if len(nodes) < 2:
            return None
        size = -(-len(nodes) // _GROUPS)
        errors = self._errors([nodes[at : at + size] for at in range(0, len(nodes), size)])
        if size > 1:  # groups that may be raised are measured node by node
            raised = self._largest(errors, 1.0)
            if sum(map(len, raised)) > _HOPELESS * len(nodes):
                return None
            apart = self._errors([(name,) for group in raised for name in group])
            errors = {**{g: e for g, e in errors.items() if g not in raised}, **apart}
        share = 1.0
        for _ in range(_TRIES):
            names = [name for group in self._largest(errors, share) for name in group]
            if len(names) > _MOST * len(nodes):
                return None
            if names:
                found = {name: self.raised for name in nodes if name in names}
                model = self.compile_({**found, ALL: self.precision})
                if self.error_of(model) <= self.limit:
                    return found, model
            share *= 0.8
        return None

    def _errors(self, groups: Sequence[Sequence[str]]) -> dict[tuple[str, ...], float]:
        """The error of each group of nodes, where it alone is rounded."""
        found = {}
        for group in groups:
            model = self.compile_({**dict.fromkeys(group, self.precision), ALL: FAST})
            found[tuple(group)] = self.error_of(model)
        return found

    def _largest(
        self, errors: Mapping[tuple[str, ...], float], share: float
    ) -> list[tuple[str, ...]]:  # fmt: skip
        """The groups to raise so that the others make `share` of the limit."""
        ordered = sorted(errors, key=lambda group: -errors[group])
        rest = sum(error**2 for error in errors.values())
        taken: list[tuple[str, ...]] = []
        for group in ordered:
            if rest <= (share * self.limit) ** 2:
                break
            taken.append(group)
            rest -= errors[group] ** 2
        return taken
