"""A graph whose products of float32 have factors rounded to fewer bits, for the evaluator.

It shows what that rounding alone does to results. All products are rounded: more than kernels
round, which keep those of two values of the call.

    bfloat16    float(bfloat16(a(m,k)))
    int8        round(a(m,k) * (127 / top(m))) * (top(m) / 127), top(m) the largest abs(a(m,k))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anydim.base.dtypes import bfloat16, float32
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, REGION, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.inference import free_axes
from anydim.lang.tree import (
    Apply,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.typing import dtype_of


def round_products(graph: Graph, bytes_: bool = False) -> Graph:
    """Return the graph, nested graphs too, with rounded factors in all sums of products.

    To bfloat16, or to `bytes_`.
    """
    made = _Rounding(graph, bytes_)
    return graph.replace(nodes=tuple(map(made.node, graph.nodes)))


@dataclass(frozen=True)
class _Rounding:
    """Rounds the factors of one graph."""

    graph: Graph
    bytes_: bool

    def node(self, node: Node) -> Node:
        if node.region is not None:
            held = {n: round_products(inner, self.bytes_) for n, inner in node.region.held.items()}
            attributes = {**node.attributes, REGION: replace(node.region, **held)}  # type: ignore[arg-type]
            return replace(node, attributes=FrozenMapping(attributes)) if held else node
        if node.operator != FUSED and operator(node.operator).routine is not None:
            return node
        group = group_of(self.graph, node)
        tops: list[Tensor] = []
        made = [each for s in group.statements for each in self._round_factors(s, group, tops)]
        new = replace(group, statements=tuple(made), temporaries=(*group.temporaries, *tops))
        if new == group:
            return node
        attributes = FrozenMapping({"group": new})
        return replace(node, operator=FUSED, inputs=node.given, attributes=attributes)

    def _round_factors(
        self, statement: Statement, group: Group, tops: list[Tensor]
    ) -> Iterator[Statement]:
        """The statement with rounded factors, after statements that make the tops of rows."""
        types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
        body = statement.body
        if statement.combine != "add" or not isinstance(body, Apply) or body.function != "mul":
            yield statement
            return
        factors: list[Expr] = []
        for expr in body.arguments:
            if dtype_of(expr, types) == float32 and self.bytes_:
                rows = tuple(axis for axis in statement.axes if axis.name in free_axes(expr))
                top = Tensor(
                    f"{statement.target}/top{len(tops)}",
                    TensorType(float32, tuple(axis.extent for axis in rows)),
                )
                tops.append(top)
                magnitude = Apply("abs", (expr,))
                yield Statement(top.name, rows, magnitude, "max", statement.reduced)
                expr = _in_steps(expr, Read(top.name, tuple(Index(a.name) for a in rows)))
            elif dtype_of(expr, types) == float32:
                expr = Cast(float32, Cast(bfloat16, expr))
            factors.append(expr)
        yield statement.with_body(Apply("mul", tuple(factors)))


def _in_steps(value: Expr, top: Expr) -> Expr:
    """A value rounded to 127 steps of the largest of its row; a row of zeros stays."""
    most, least = Literal(127.0, float32), Literal(2.0**-100, float32)
    small = Apply("less_equal", (top, least))
    steps = Apply("round", (Apply("mul", (value, Apply("div", (most, top)))),))
    return Apply("select", (small, Literal(0.0, float32),
                            Apply("mul", (steps, Apply("div", (top, most))))))  # fmt: skip
