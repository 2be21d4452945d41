"""Libraries that the kernels of a program will call, found before its kernels are generated.

Micro-kernels of matrix products take longest to compile, and they depend on little: the machine,
the element type and the kind of product. So they are compiled concurrently with the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.ir import Library
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import group_of, unpack
from anydim.compiler.passes.options import EXACT
from anydim.compiler.passes.round_factors import Rounding
from anydim.lang.tree import Statement

_MAX_KINDS = 4  # of products that are examined: each takes some milliseconds
_WORTH_LOOKING = 32  # nodes: for smaller graphs the passes take less time than this search
_TILE = 8  # rows of the largest tile: full and partial tiles use different libraries


def begin_libraries(
    graphs: Sequence[Graph], machine: Machine, templates: tuple[Template, ...],
    begun: Callable[[Library], None], precision: str = EXACT,
) -> None:  # fmt: skip
    """Start compiling the libraries that products of the largest graph will call."""
    largest = max(graphs, key=lambda graph: len(graph.nodes), default=None)
    if largest is not None and len(largest.nodes) >= _WORTH_LOOKING:
        for library in libraries_ahead(largest, machine, templates, precision):
            begun(library)


def libraries_ahead(
    graph: Graph, machine: Machine, templates: tuple[Template, ...], precision: str = EXACT
) -> Iterator[Library]:
    """The libraries of the first product of each kind, lowered without fusion.

    Of products that will have rounded factors, with such a precision.
    """
    seen: set[Hashable] = set()
    rounding = Rounding(graph, machine, templates)
    for line in unpack(graph):
        kind = _kind(line.statement, graph)
        if kind is None or kind in seen:
            continue
        seen.add(kind)
        made = rounding.round_product(line, precision)
        constants = frozenset(rounding.constants)
        group = group_of([made.statement], rounding.types, [made.target])
        found = first_match(templates, group, graph.box, machine, constants)
        if found is not None:
            template, schedule = found
            kernel = template.lower(group, schedule, graph.box, machine, constants).kernel
            yield from kernel.libraries
        if len(seen) == _MAX_KINDS:
            return


def _kind(statement: Statement, graph: Graph) -> Hashable | None:
    """A key shared by products that call the same libraries; None for other statements.

    None for windows of images, too: layouts are chosen later, and decide what they call.
    """
    if statement.combine != "add" or getattr(statement.body, "function", "") != "mul":
        return None
    if len(statement.reduced) > 1:
        return None
    channels = statement.axes[1].extent.constant if len(statement.axes) > 1 else None
    whole = channels is not None and channels % _TILE == 0
    return graph.types[statement.target].dtype, len(statement.axes), len(statement.reduced), whole
