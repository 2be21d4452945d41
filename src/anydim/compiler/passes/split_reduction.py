"""Split a full reduction to a scalar into pieces that threads share.

    before  y() +=! x(i)                where i in 0:N
    after   part(p) +=! x(p*L + i)      where p in 0:N//L, i in 0:L
            rest()  +=! x(N//L*L + i)   where i in 0:N - N//L*L
            whole() +=! part(p)
            y()       = whole() + rest()

Pieces have a fixed length, so the bits of the result do not depend on the number of threads. A
reduction shorter than a piece is all rest, in the original order.

After: no full reduction of a tensor that may be long has one loop, unless other statements read its
result per element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anydim.base.dtypes import bfloat16, boolean, float16, float32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.flatten import flatten
from anydim.compiler.passes.flow import Line, group_of, inputs_of, pack, unique_name, unpack
from anydim.lang.tree import Apply, Axis, Cast, Expr, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import Affine, rewrite, to_expr
from anydim.sizes import Box, Size, as_size, bounds

PIECE = 1 << 15  # elements


@dataclass(frozen=True)
class Pieces:
    """Split reductions of whole tensors."""

    def run(self, graph: Graph) -> Graph:
        lines = unpack(graph)
        wanted = {
            name for line in lines if line.statement.axes for name in inputs_of(line.statement)
        }
        types, made = dict(graph.types), list[Line]()
        for line in lines:
            statement = None if line.target in wanted else _flat(line.statement, types, graph.box)
            cut = [line.statement] if statement is None else _cut(statement, types)
            made += [Line(each, line.source) for each in cut]
        return pack(graph, made, types) if len(made) > len(lines) else graph


def _flat(statement: Statement, types: dict[str, TensorType], box: Box) -> Statement | None:
    """The statement with one loop, if it is a full reduction that may be long; else None."""
    if statement.axes or not statement.reduced or types[statement.target].dtype == boolean:
        return None
    found = flatten(group_of([statement], types, [statement.target])).statements[0]
    if len(found.reduced) != 1 or bounds(found.reduced[0].extent, box).high <= 2 * PIECE:
        return None
    return found


def _cut(statement: Statement, types: dict[str, TensorType]) -> Iterator[Statement]:
    """The four statements; adds the types of their values."""
    (axis,), combine, dtype = statement.reduced, statement.combine, types[statement.target].dtype
    narrow = dtype in (float16, bfloat16) and combine in ("add", "mul")
    kind = float32 if narrow else dtype
    body = Cast(float32, statement.body) if narrow else statement.body
    count = axis.extent // PIECE
    piece = Axis(axis.name + " piece", count)

    def named(suffix: str, *shape: Size) -> str:
        name = unique_name(f"{statement.target}/{suffix}", types)
        types[name] = TensorType(kind, shape)
        return name

    def from_on(terms: dict[str, Size], constant: Size) -> Expr:
        start = to_expr(Affine.of(constant, {**terms, axis.name: as_size(1)}))
        return rewrite(body, lambda e: start if e == Index(axis.name) else None)

    part, rest, whole = named("pieces", count), named("rest"), named("whole")
    along = Axis(axis.name, as_size(PIECE))
    yield Statement(
        part, (piece,), from_on({piece.name: as_size(PIECE)}, as_size(0)), combine, (along,)
    )
    left = Axis(axis.name, axis.extent - count * PIECE)
    yield Statement(rest, (), from_on({}, count * PIECE), combine, (left,))
    yield Statement(whole, (), Read(part, (Index(piece.name),)), combine, (piece,))
    both: Expr = Apply(combine, (Read(whole, ()), Read(rest, ())))
    both = Cast(dtype, both) if narrow else both
    yield replace(statement, body=both, combine="", reduced=())
