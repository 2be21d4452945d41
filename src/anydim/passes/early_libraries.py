"""Libraries that the kernels of a program will call, known before the kernels are.

Micro-kernels of products take longest to compile, and they depend on little: the machine, the type
of the elements, what kind of product it is. So they are compiled beside the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from anydim.graph.nodes import Graph
from anydim.kernels.ir import Library
from anydim.kernels.knobs import first_match
from anydim.kernels.launch import Machine
from anydim.kernels.template import Template
from anydim.lang.tree import Statement
from anydim.passes.flow import group_of, unpack

_MOST_KINDS = 4  # of products that are looked at: each takes some milliseconds
_WORTH_LOOKING = 32  # nodes: the passes over fewer take less time than a look at their products
_TILE = 8  # rows of the largest tile: whole tiles and others have unlike libraries


def begin_libraries(
    graphs: Sequence[Graph], machine: Machine, templates: tuple[Template, ...],
    begun: Callable[[Library], None],
) -> None:  # fmt: skip
    """Have the libraries compiled that the products of the largest graph will call."""
    largest = max(graphs, key=lambda graph: len(graph.nodes), default=None)
    if largest is not None and len(largest.nodes) >= _WORTH_LOOKING:
        for library in libraries_ahead(largest, machine, templates):
            begun(library)


def libraries_ahead(
    graph: Graph, machine: Machine, templates: tuple[Template, ...]
) -> Iterator[Library]:
    """The libraries of the first product of each kind, as it would be alone."""
    seen: set[Hashable] = set()
    constants = frozenset(graph.constants)
    for line in unpack(graph):
        statement = line.statement
        kind = _kind(statement, graph)
        if kind is None or kind in seen:
            continue
        seen.add(kind)
        group = group_of([statement], graph.types, [statement.target])
        found = first_match(templates, group, graph.box, machine, constants)
        if found is not None:
            template, schedule = found
            kernel = template.lower(group, schedule, graph.box, machine, constants).kernel
            yield from kernel.libraries
        if len(seen) == _MOST_KINDS:
            return


def _kind(statement: Statement, graph: Graph) -> Hashable | None:
    """What products have alike that call the same libraries; None for what is no product."""
    if statement.combine != "add" or getattr(statement.body, "function", "") != "mul":
        return None
    channels = statement.axes[1].extent.constant if len(statement.axes) > 1 else None
    whole = channels is not None and channels % _TILE == 0
    return graph.types[statement.target].dtype, len(statement.axes), len(statement.reduced), whole
