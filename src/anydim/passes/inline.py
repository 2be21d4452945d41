"""Write a pointwise value that one reduction reads, element for element, into its body.

A mean of squares then needs no squares in between. Products of two tensors stay as they are: a
contraction takes its operands from memory.

After: no reduction but a contraction reads a pointwise value that nobody else needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anydim.graph.nodes import Graph
from anydim.lang.affine import rewrite
from anydim.lang.tree import Expr, Index, Read, Statement
from anydim.passes.flow import Line, inputs_of, is_product, pack, unpack
from anydim.passes.views import is_view


@dataclass(frozen=True)
class Inline:
    """Replace a reduction's reads of such values by their bodies."""

    def run(self, graph: Graph) -> Graph:
        return pack(graph, _inlined(unpack(graph), graph), graph.types)


def _inlined(lines: list[Line], graph: Graph) -> list[Line]:
    users: dict[str, int] = {}
    for line in lines:
        for name in inputs_of(line.statement):
            users[name] = users.get(name, 0) + 1
    bodies: dict[str, Statement] = {}
    result: dict[str, Line] = {}
    for line in lines:
        statement = line.statement
        if statement.combine and not is_product(statement):
            for name in inputs_of(statement):
                producer = bodies.get(name)
                if producer is None or users[name] != 1 or name in graph.outputs:
                    continue
                inlined = _inline(statement, producer)
                if inlined is not None:
                    statement = inlined
                    del result[name]
            line = replace(line, statement=statement)
        elif not statement.combine and not is_view(statement, graph.types):
            bodies[line.target] = statement
        result[line.target] = line
    return list(result.values())


def _inline(statement: Statement, producer: Statement) -> Statement | None:
    """`statement` with the producer's body in place of its value, if it reads each element once."""
    names = {axis.name for axis in (*statement.axes, *statement.reduced)}
    found: list[Read] = []

    def collect(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor == producer.target:
            found.append(expr)
        return None

    rewrite(statement.body, collect)
    for read in found:
        indices = [index.name for index in read.indices if isinstance(index, Index)]
        if read.flat or read.default is not None or sorted(indices) != sorted(names):
            return None
    if len(found) != 1:
        return None

    def replace_read(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Read) and expr.tensor == producer.target):
            return None
        places = dict(zip((axis.name for axis in producer.axes), expr.indices))
        return rewrite(
            producer.body, lambda e: places.get(e.name) if isinstance(e, Index) else None
        )

    return statement.with_body(rewrite(statement.body, replace_read))
