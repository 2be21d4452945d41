"""Statements -> groups that become one kernel each.

Statements are visited in order; each joins the group of a value it reads if a kernel template
matches the enlarged group as a whole and fusion creates no cycle. Only the templates decide what
may be fused, so a new template widens fusion by itself.

After: each fused node is one group that some template (at least `pointwise`) lowers to one kernel;
axes of the same loop have the same name; values used only inside a group are temporaries.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template
from anydim.compiler.passes.clusters import Clusters
from anydim.compiler.passes.flow import Line, inputs_of, is_product, live, unpack, with_nodes

MAX_BETWEEN = 16  # statements from one product to the next, inclusive


@dataclass(frozen=True)
class Fuse:
    """Fuse statements as far as `templates` match the groups."""

    machine: Machine
    templates: tuple[Template, ...]

    def run(self, graph: Graph) -> Graph:
        lines = live(unpack(graph), graph.outputs)  # templates expect groups with results
        clusters = Clusters(lines, graph, self.machine, self.templates)
        for members in attention_candidates(lines, clusters):
            clusters.merge(members)
        for number in range(len(lines)):
            clusters.add(number)
        return with_nodes(graph, tuple(clusters.nodes()), graph.types)


def attention_candidates(lines: Sequence[Line], clusters: Clusters) -> list[list[int]]:
    """Ranges of statements from one contraction to the next that one template matches.

    The values between must have no other readers: then the score matrix is never stored.
    """
    products = [n for n, line in enumerate(lines) if is_product(line.statement)]
    taken: set[int] = set()
    found = []
    for last in products:
        for name in inputs_of(lines[last].statement):
            members = _between(name, last, lines, clusters)
            if members is None or taken & set(members):
                continue
            if clusters.template(members) is not None:
                taken |= set(members)
                found.append(members)
                break
    return found


def _between(name: str, last: int, lines: Sequence[Line], clusters: Clusters) -> list[int] | None:
    """The statements from the nearest contraction above `name` to statement `last`."""
    start: int | None = None
    inside = {last}
    pending = [name]
    while pending:
        writer = clusters.writer.get(pending.pop())
        if writer is None or writer in inside:
            continue
        if is_product(lines[writer].statement):
            if start not in (None, writer):
                return None
            start = writer
            continue
        inside.add(writer)
        pending += inputs_of(lines[writer].statement)
    if start is None:
        return None
    reached = {start}
    for number in sorted(inside):
        sources = {clusters.writer.get(n) for n in inputs_of(lines[number].statement)}
        if sources & reached:
            reached.add(number)
    if len(reached) > MAX_BETWEEN:
        return None
    for number in reached - {last}:
        value = lines[number].target
        if clusters.used_outside(value, reached):
            return None
    return sorted(reached) if last in reached else None
