"""The text of a graph. `read_graph(print_graph(g), g.constants) == g` (see reader.py).

    graph "demo"
    dim n 0..128
    input x: float32[n, 4]
    constant w: float32[4, 8] = 0f3a...            (digest of the content)
    node h: float32[n, 8] = matmul(x, w) "demo.onnx: /MatMul"
    node y: float32[n, 8] = fused(h) "..."
      y[i: n, j: {8}] = exp(h(i, j))
    output y

Names that could be taken for something else stand in double quotes, as JSON strings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DType
from anydim.base.errors import GraphError
from anydim.graph.nodes import FUSED, Graph, Node
from anydim.graph.scan import RESERVED
from anydim.lang.functions import FUNCTIONS
from anydim.lang.tree import (
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    TensorType,
)  # fmt: skip
from anydim.sizes import Guard, Size

_BARE = re.compile(r"[A-Za-z_/][\w./$#@]*")
INFIX = {f.name: f.operator for f in FUNCTIONS.values() if f.operator and f.arity == 2}


def print_graph(graph: Graph) -> str:
    """The text of a graph."""
    types = graph.types
    lines = [f"graph {json.dumps(graph.name)}"]
    for dim in graph.box.dims:
        lines.append(f"dim {dim.name} {dim.lo}..{'' if dim.hi is None else dim.hi}")
    lines += [f"constraint {{{size}}}" for size in graph.box.constraints]
    lines += [f"input {_typed(name, types[name])}" for name in graph.inputs]
    for name, constant in graph.constants.items():
        lines.append(f"constant {_typed(name, types[name])} = {constant.digest}")
    for node in graph.nodes:
        lines += _node_lines(node, types)
    lines += [_guard(guard) for guard in graph.guards]
    lines += [f"output {_name(name)}" for name in graph.outputs]
    return "\n".join(lines) + "\n"


def _node_lines(node: Node, types: Mapping[str, TensorType]) -> list[str]:
    made = ", ".join(_typed(name, types[name]) for name in node.outputs)
    given = ", ".join("_" if name is None else _name(name) for name in node.inputs)
    shown = {name: value for name, value in node.attributes.items() if name != "group"}
    pairs = ", ".join(f"{_name(name)}: {_value(value)}" for name, value in shown.items())
    extra = f" {{{pairs}}}" if pairs else ""
    head = f"node {made} = {node.operator}({given}){extra} {json.dumps(node.source)}"
    return [head, *_group_lines(node.group, types)] if node.operator == FUSED else [head]


def _group_lines(group: Group, types: Mapping[str, TensorType]) -> list[str]:
    lines = []
    for word, tensors in (("in", group.inputs), ("out", group.outputs)):
        lines += [
            f"  {word} {_typed(tensor.name, tensor.type)}"
            for tensor in tensors
            if types.get(tensor.name) != tensor.type
        ]
    lines += [f"  temporary {_typed(t.name, t.type)}" for t in group.temporaries]
    lines += [f"  {_guard(guard)}" for guard in group.guards]
    return lines + [f"  {print_statement(statement)}" for statement in group.statements]


def print_statement(statement: Statement) -> str:
    """`y[i: n] add over [k: m] = (a(i, k) * b(k))`"""
    head = f"{_name(statement.target)}[{_axes(statement.axes)}]"
    if statement.combine:
        head += f" {statement.combine} over [{_axes(statement.reduced)}]"
    return f"{head} = {print_expr(statement.body)}"


def print_expr(expr: Expr) -> str:
    """A scalar expression, every infix operation in parentheses."""
    if isinstance(expr, Literal):
        return _number(expr.value) + (f":{expr.dtype}" if expr.dtype else "")
    if isinstance(expr, Index):
        return _name(expr.name)
    if isinstance(expr, SizeTerm):
        return f"{{{expr.size}}}"
    if isinstance(expr, Read):
        inner = ", ".join(map(print_expr, expr.indices))
        default = "" if expr.default is None else f" | {print_expr(expr.default)}"
        left, right = "[]" if expr.flat else "()"
        return f"{_name(expr.tensor)}{left}{inner}{default}{right}"
    if isinstance(expr, Cast):
        return f"{expr.dtype}({print_expr(expr.argument)})"
    arguments = [print_expr(argument) for argument in expr.arguments]
    if expr.function in INFIX:
        return f"({arguments[0]} {INFIX[expr.function]} {arguments[1]})"
    return f"{expr.function}({', '.join(arguments)})"


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{_name(axis.name)}: {{{axis.extent}}}" for axis in axes)


def _typed(name: str, kind: TensorType) -> str:
    return f"{_name(name)}: {kind}"


def _guard(guard: Guard) -> str:
    relation = f"{{{guard.left}}} {guard.relation} {{{guard.right}}}"
    return f"guard {relation} {json.dumps(guard.message)}"


def _name(name: str) -> str:
    plain = _BARE.fullmatch(name) and name not in RESERVED
    return name if plain else json.dumps(name)


def _number(value: int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (bool, int, float)):
        return _number(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Size):
        return f"{{{value}}}"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        return f"({''.join(f'{_value(item)}, ' for item in value).rstrip()})"
    raise GraphError(f"an attribute cannot hold {type(value).__name__}")
