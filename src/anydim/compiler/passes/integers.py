"""Convert sums of products of dequantised values to sums of products of their integers.

    sum over k of (a[k] - za) sa * (b[k] - zb) sb  =  sa sb * sum over k of (a[k] - za) (b[k] - zb)

This applies where the scales are constant along k. The integer sum is exact, so the result is at
least as accurate. Padding with 0 becomes padding with the zero point. Sums that are requantised
are then expressed in units of their scale (`requantise.py`).

After: no sum of products reads two dequantised values whose scales could be factored out, unless
the sum might overflow int32.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import float32, int32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.passes.flow import Line, live, pack, unique_name, unpack
from anydim.compiler.passes.requantise import counted_in_steps
from anydim.compiler.passes.rules import simplify_expression
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, Statement, TensorType
from anydim.lang.tree.affine import body_at, reads, rewrite
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Box, Truth, product, prove

_DEEPEST = 8  # data movements between a dequantisation and the sum
_MAX = 2**31 - 1


@dataclass(frozen=True)
class Scaled:
    """A number as an integer times a scale, and the largest magnitude of the integer."""

    whole: Expr
    scale: Expr
    largest: int


@dataclass(frozen=True)
class Integers:
    """Factor scales out of sums of products."""

    def run(self, graph: Graph) -> Graph:
        types = dict(graph.types)
        bodies: dict[str, Statement] = {}
        lines: list[Line] = []
        for line in unpack(graph):
            made = _split(line, bodies, types, graph.box)
            lines += made
            for part in made:
                if not part.statement.combine:
                    bodies[part.target] = part.statement
        lines = counted_in_steps(lines, graph, types)
        return pack(graph, live(lines, graph.outputs), types)


def _split(
    line: Line, bodies: dict[str, Statement], types: dict[str, TensorType], box: Box
) -> list[Line]:
    """The line unchanged, or an integer sum and the statement that scales it."""
    statement = line.statement
    body = simplify_expression(statement.body)
    if statement.combine != "add" or types[line.target].dtype != float32:
        return [line]
    if not (isinstance(body, Apply) and body.function == "mul"):
        return [line]
    reduced = frozenset(axis.name for axis in statement.reduced)
    factors = [_dequantise(part, bodies, types, reduced) for part in body.arguments]
    left, right = factors
    if left is None or right is None or not _fits(statement, left, right, box):
        return [line]
    target = unique_name(f"{line.target}/integers", types)
    types[target] = TensorType(int32, types[line.target].shape)
    total = replace(statement, target=target, body=Apply("mul", (left.whole, right.whole)))
    indices = tuple(Index(axis.name) for axis in statement.axes)
    value: Expr = Cast(float32, Read(target, indices))
    scale = Apply("mul", (left.scale, right.scale))
    scaled = Statement(line.target, statement.axes, Apply("mul", (value, scale)))
    return [Line(total, line.source), Line(scaled, line.source)]


def _fits(statement: Statement, left: Scaled, right: Scaled, box: Box) -> bool:
    """Whether the sum of such products provably fits int32."""
    count = product(axis.extent for axis in statement.reduced)
    return prove(count * left.largest * right.largest, "<=", _MAX, box) is Truth.PROVED


def find_dequantisation(
    expr: Expr, bodies: dict[str, Statement], types: dict[str, TensorType]
) -> Scaled | None:
    """A factor as an integer times a scale, which may vary along any axis; else None."""
    return _dequantise(expr, bodies, types, frozenset())


def _dequantise(
    expr: Expr, bodies: dict[str, Statement], types: dict[str, TensorType],
    reduced: frozenset[str],
) -> Scaled | None:  # fmt: skip
    """A factor as an integer times a scale constant along the reduced axes; else None."""
    for _ in range(_DEEPEST):
        if not isinstance(expr, Read):
            break
        if expr.flat or expr.tensor not in bodies or any(map(has_checks, expr.indices)):
            return None
        moved = _value_at(expr, bodies[expr.tensor], types)
        if moved is None:
            return None
        expr = moved
    if not (isinstance(expr, Apply) and expr.function == "mul"):
        return None
    for whole, scale in (expr.arguments, expr.arguments[::-1]):
        found = _integer(whole, types)
        if found is not None and dtype_of(scale, types) == float32:
            same = not free_axes(scale) & reduced and not _zero_axes(found) & reduced
            return Scaled(found, scale, _largest(found, types)) if same else None
    return None


def _value_at(read: Read, producer: Statement, types: dict[str, TensorType]) -> Expr | None:
    """The expression of a pointwise statement's value at the indices of a read.

    With a default of 0, an out-of-bounds read is a read of the zero point.
    """
    body = body_at(producer.with_body(simplify_expression(producer.body)), read.indices)
    if read.default is None:
        return body
    if not (isinstance(read.default, Literal) and read.default.value == 0):
        return None
    inner = [part for part in reads(body) if free_axes(part)]
    whole = len(inner) == 1 and inner[0].default is None and inner[0].indices == read.indices
    if not whole or types[inner[0].tensor].shape != types[read.tensor].shape:
        return None
    return _pad_with_zero_point(body, inner[0])


def _pad_with_zero_point(body: Expr, bytes_: Read) -> Expr | None:
    """A dequantisation whose integer read defaults to the zero point out of bounds."""
    zeros: list[Expr] = []

    def look(expr: Expr) -> Expr | None:
        if isinstance(expr, Apply) and expr.function == "sub":
            zeros.append(expr.arguments[1])
        return None

    rewrite(body, look)
    default: Expr | None = None
    if not zeros:
        default = Literal(0)
    elif isinstance(zeros[0], Cast):
        default = zeros[0].argument
    elif isinstance(zeros[0], Literal):
        default = Literal(zeros[0].value)
    if default is None or len(zeros) > 1:
        return None
    guarded = replace(bytes_, default=default)
    return rewrite(body, lambda e: guarded if e == bytes_ else None)


def _integer(expr: Expr, types: dict[str, TensorType]) -> Expr | None:
    """The int32 form of an 8-bit read, optionally minus a zero point; else None."""
    if not (isinstance(expr, Cast) and expr.dtype == float32):
        return None
    inner = expr.argument
    if isinstance(inner, Read):
        inner = Cast(int32, inner)
    whole = inner.arguments[0] if isinstance(inner, Apply) and inner.function == "sub" else inner
    if not (isinstance(whole, Cast) and whole.dtype == int32 and isinstance(whole.argument, Read)):
        return None
    read = whole.argument
    dtype = types[read.tensor].dtype
    if not dtype.is_integer or dtype.bits > 8:
        return None
    if read.default is not None and isinstance(read.default, Literal):
        typed = replace(read, default=Literal(read.default.value, dtype))
        inner = rewrite(inner, lambda e: typed if e == read else None)
    return inner


def _zero_axes(whole: Expr) -> frozenset[str]:
    """The axes along which a zero point varies."""
    if isinstance(whole, Apply):
        return free_axes(whole.arguments[1])
    return frozenset()


def _largest(whole: Expr, types: dict[str, TensorType]) -> int:
    """Upper bound of the magnitude of an 8-bit integer minus its zero point."""
    read = reads(whole)[0]
    low, high = types[read.tensor].dtype.range
    return high - low if isinstance(whole, Apply) else max(-low, high)
