"""Operators -> comprehensions: every node becomes the statements of its operator's record.

After: all nodes are 'fused' with one statement each; operator temporaries are ordinary values;
constants of one element are literals in the bodies that read them; an index check carries the
number of its node; dims that a guard fixes to a number are fixed in the box.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.passes.flow import Line, live, pack, unique_name
from anydim.lang.tree import Expr, Group, Literal, Read, Statement, TensorType
from anydim.lang.tree.affine import rewrite
from anydim.lang.tree.bounds_checks import has_checks, renumber_checks
from anydim.sizes import Box, Dim, Guard, merged_guards


@dataclass(frozen=True)
class Lower:
    """Replace operators by the comprehensions of their records."""

    def run(self, graph: Graph) -> Graph:
        types = dict(graph.types)
        literals = _scalar_constants(graph)
        guards: list[Guard] = list(graph.guards)
        lines: list[Line] = []
        for number, node in enumerate(graph.nodes):
            group = _group(node, graph)
            guards = merged_guards(
                guards, group.guards, node.source.removeprefix(f"{graph.name}: ")
            )
            for statement in _use_graph_names(node, group, types):
                body = renumber_checks(statement.body, partial(_number, number))
                body = rewrite(body, lambda expr: _literal(expr, literals))
                lines.append(Line(statement.with_body(body), node.source))
        lowered = replace(graph, guards=tuple(guards), box=pin_dims(graph.box, guards))
        return pack(lowered, live(lines, graph.outputs), types)


def pin_dims(box: Box, guards: Iterable[Guard]) -> Box:
    """The box with dims fixed to the number that a guard requires.

    Weights determine the channels of an input that a file leaves open; kernels need static ones.
    """
    only: dict[str, int] = {}
    for guard in guards:
        for name, number in ((guard.left, guard.right), (guard.right, guard.left)):
            if guard.relation == "==" and number.constant is not None:
                only[str(name)] = number.constant

    def narrowed(dim: Dim) -> Dim:
        number = only.get(dim.name, -1)
        inside = dim.lo <= number and (dim.hi is None or number <= dim.hi)
        return replace(dim, lo=number, hi=number) if inside else dim

    return replace(box, dims=tuple(map(narrowed, box.dims)))


def _group(node: Node, graph: Graph) -> Group:
    if node.operator == FUSED:
        return node.group
    given = [graph.types[name] for name in node.given]
    return operator(node.operator).instantiate(given, node.attributes, graph.box)


def _use_graph_names(node: Node, group: Group, types: dict[str, TensorType]) -> list[Statement]:
    """The group's statements with the graph's value names; records the types of temporaries."""
    names: dict[str, str] = {}
    names.update(zip((tensor.name for tensor in group.inputs), node.given))
    names.update(zip((tensor.name for tensor in group.outputs), node.outputs))
    for tensor in group.temporaries:
        name = unique_name(f"{node.outputs[0]}/{tensor.name}", types)
        names[tensor.name] = name
        types[name] = tensor.type

    def rename(expr: Expr) -> Expr | None:
        if isinstance(expr, Read):
            return replace(expr, tensor=names[expr.tensor])
        return None

    return [
        replace(s, target=names[s.target], body=rewrite(s.body, rename)) for s in group.statements
    ]


def _scalar_constants(graph: Graph) -> dict[str, Literal]:
    literals = {}
    for name, constant in graph.constants.items():
        kind = graph.types[name]
        if all(size.constant == 1 for size in kind.shape):
            literals[name] = Literal(constant.array.reshape(()).item(), kind.dtype)
    return literals


def _number(node: int, check: Expr) -> int:
    return node


def _literal(expr: Expr, literals: dict[str, Literal]) -> Expr | None:
    """The literal of a read of a one-element constant, unless the read may be out of bounds."""
    if not isinstance(expr, Read) or expr.default is not None or has_checks(expr):
        return None
    return literals.get(expr.tensor)
