"""A graph whose products of float32 have factors rounded to bfloat16, for the evaluator.

It shows what that rounding alone does to results. All products are rounded: more than kernels
round, which keep those of two values of the call.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import bfloat16, float32
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, REGION, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.lang.tree import Apply, Cast, Expr, Group, Statement
from anydim.lang.tree.typing import dtype_of


def round_products(graph: Graph) -> Graph:
    """Return the graph, nested graphs too, with rounded factors in all sums of products."""
    return graph.replace(nodes=tuple(_round_node(graph, node) for node in graph.nodes))


def _round_node(graph: Graph, node: Node) -> Node:
    if node.region is not None:
        held = {name: round_products(inner) for name, inner in node.region.held.items()}
        attributes = {**node.attributes, REGION: replace(node.region, **held)}  # type: ignore[arg-type]
        return replace(node, attributes=FrozenMapping(attributes)) if held else node
    if node.operator != FUSED and operator(node.operator).routine is not None:
        return node
    group = group_of(graph, node)
    made = replace(group, statements=tuple(_round_factors(s, group) for s in group.statements))
    if made == group:
        return node
    attributes = FrozenMapping({"group": made})
    return replace(node, operator=FUSED, inputs=node.given, attributes=attributes)


def _round_factors(statement: Statement, group: Group) -> Statement:
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    body = statement.body
    if statement.combine != "add" or not isinstance(body, Apply) or body.function != "mul":
        return statement

    def factor(expr: Expr) -> Expr:
        return Cast(float32, Cast(bfloat16, expr)) if dtype_of(expr, types) == float32 else expr

    return statement.with_body(Apply("mul", tuple(map(factor, body.arguments))))
