"""Move factors of a product's operands behind the product, where the scaling takes a launch.

    q'(m,k) = q(m,k) * 0.5,  k'(k,n) = k(n,k) * 0.5,  s(m,n) +=! q'(m,k) * k'(k,n)
    t(m,n) +=! q(m,k) * k(n,k),  s(m,n) = t(m,n) * 0.25

Exporters scale queries and keys apart, so that no score overflows in float16. Products of float32
and float64 are scaled afterwards: the kernel does so without a launch. Results differ by a few
units in the last place.

After: no operand of such a product is a number times a value that is an input, or has other
readers, or lies in another order. Other factors stay: the kernels of these values multiply them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from anydim.base.dtypes import float32, float64
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import Line, inputs_of, is_product, live, pack, unique_name, unpack
from anydim.lang.tree import Apply, Expr, Index, Literal, Read, Statement, TensorType
from anydim.lang.tree.affine import body_at, rewrite
from anydim.lang.tree.bounds_checks import has_checks

_LARGEST = 1024.0  # a factor; others may keep sums of products within the range of the type


@dataclass(frozen=True)
class Scales:
    """Move the factors."""

    def run(self, graph: Graph) -> Graph:
        lines = unpack(graph)
        users = Counter(name for line in lines for name in inputs_of(line.statement))
        users.update(graph.outputs)
        types = dict(graph.types)
        writers: dict[str, Statement] = {}
        found: list[Line] = []
        for line in lines:
            found += _move_scales(line, graph, writers, users, types)
            writers[line.target] = line.statement
        return pack(graph, live(found, graph.outputs), types)


def _move_scales(
    line: Line, graph: Graph, writers: Mapping[str, Statement], users: Mapping[str, int],
    types: dict[str, TensorType],
) -> list[Line]:  # fmt: skip
    """The line, or the product without factors and its result with them."""
    statement = line.statement
    dtype = types[line.target].dtype
    if not is_product(statement) or dtype not in (float32, float64):
        return [line]
    factor = 1.0

    def change(expr: Expr) -> Expr | None:
        nonlocal factor
        scaled = _scaled_operand(expr, graph, writers, users)
        if scaled is None or types[scaled[0].tensor].dtype != dtype:
            return None
        factor *= scaled[1]
        return scaled[0]

    body = rewrite(statement.body, change)
    if factor == 1.0 or not 1 / _LARGEST <= abs(factor) <= _LARGEST:
        return [line]
    name = unique_name(f"{line.target} unscaled", types)
    types[name] = types[line.target]
    product = replace(statement, target=name, body=body)
    read = Read(name, tuple(Index(axis.name) for axis in statement.axes))
    scaled = Statement(line.target, statement.axes, Apply("mul", (read, Literal(factor, dtype))))
    return [Line(product, line.source), Line(scaled, line.source)]


def _scaled_operand(
    expr: Expr, graph: Graph, writers: Mapping[str, Statement], users: Mapping[str, int]
) -> tuple[Read, float] | None:
    """What an operand is: a value, read at the operand's indices, times a number."""
    if not isinstance(expr, Read) or expr.flat or expr.default is not None:
        return None
    writer = writers.get(expr.tensor)
    if writer is None or writer.combine or users[expr.tensor] != 1:
        return None
    body = writer.body
    if not isinstance(body, Apply) or body.function != "mul" or has_checks(body):
        return None
    parts = sorted(body.arguments, key=lambda part: isinstance(part, Literal))
    read, number = parts
    if not isinstance(read, Read) or not isinstance(number, Literal):
        return None
    if read.flat or read.default is not None or read.tensor in graph.constants:
        return None
    own = read.indices == tuple(Index(axis.name) for axis in writer.axes)
    if own and users[read.tensor] == 1 and read.tensor in writers:
        return None
    moved = body_at(replace(writer, body=read), expr.indices)
    return (moved, float(number.value)) if isinstance(moved, Read) else None
