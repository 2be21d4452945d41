"""Accumulate sums of products of 16-bit floats in float32.

Kernels accumulate in float32 in any case; this pass only moves the conversions to the factors, so
that the matmul templates match. Constant factors are converted at compile time.

After: no sum of products of two reads has a 16-bit float type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anydim.base.dtypes import bfloat16, float16, float32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import Line, pack, unique_name, unpack
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Index,
    Literal,
    Read,
    Statement,
    TensorType,
)

_NARROW = (float16, bfloat16)


@dataclass(frozen=True)
class Accumulate:
    """Convert the factors of such sums to float32 and the sums back.

    `inside`: convert inside the product, for kernels that read 16 bits; else convert whole tensors.
    """

    inside: bool = False

    def run(self, graph: Graph) -> Graph:
        types = dict(graph.types)
        known: dict[str, str] = {}
        lines: list[Line] = []
        for line in unpack(graph):
            factors = _factors(line.statement, types)
            lines += self._widen_sum(line, factors, types, known) if factors else [line]
        return pack(graph, lines, types)

    def _widen_sum(
        self, line: Line, reads: tuple[Read, ...], types: dict[str, TensorType],
        known: dict[str, str],
    ) -> list[Line]:  # fmt: skip
        """Missing conversions of the factors, the sum in float32, and its conversion back."""
        statement = line.statement
        lines: list[Line] = []
        factors: list[Expr] = []
        for read in reads:
            if types[read.tensor].dtype == float32:
                factors.append(read)
            elif self.inside:
                factors.append(Cast(float32, read))
            else:
                factors.append(_read_wide(read, line, types, known, lines))
        body = Apply("mul", tuple(factors))
        if types[line.target].dtype == float32:
            return [*lines, Line(statement.with_body(body), line.source)]
        total = unique_name(f"{line.target}/wide", types)
        types[total] = TensorType(float32, types[line.target].shape)
        lines.append(Line(replace(statement, target=total, body=body), line.source))
        indices = tuple(Index(axis.name) for axis in statement.axes)
        back = Cast(types[line.target].dtype, Read(total, indices))
        return [*lines, Line(Statement(line.target, statement.axes, back), line.source)]


def _factors(statement: Statement, types: Mapping[str, TensorType]) -> tuple[Read, ...]:
    """Factors of a sum of products of which one has 16 bits; else empty."""
    body = statement.body
    if statement.combine != "add" or not isinstance(body, Apply) or body.function != "mul":
        return ()
    reads = tuple(_read_of(argument) for argument in body.arguments)
    plain = tuple(read for read in reads if read is not None)
    kinds = {types[read.tensor].dtype for read in plain}
    right = len(plain) == len(reads) and kinds <= {*_NARROW, float32} and kinds != {float32}
    return plain if right else ()


def _read_of(factor: Expr) -> Read | None:
    """The read of a factor, which may be converted to float32; else None."""
    if isinstance(factor, Cast) and factor.dtype == float32:
        factor = factor.argument
    return factor if isinstance(factor, Read) else None


def _read_wide(
    read: Read, line: Line, types: dict[str, TensorType], known: dict[str, str], lines: list[Line]
) -> Read:
    """Read of a tensor's float32 copy; adds the conversion on first use."""
    if read.tensor not in known:
        made = _convert_tensor(read.tensor, types)
        known[read.tensor] = made.target
        lines.append(Line(made, line.source))
    default = read.default
    if isinstance(default, Literal):
        default = Literal(default.value, float32)
    elif default is not None:
        default = Cast(float32, default)
    return replace(read, tensor=known[read.tensor], default=default)


def _convert_tensor(name: str, types: dict[str, TensorType]) -> Statement:
    """The statement that converts a tensor to float32."""
    kind = types[name]
    target = unique_name(f"{name}/wide", types)
    types[target] = TensorType(float32, kind.shape)
    axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(kind.shape))
    read = Read(name, tuple(Index(axis.name) for axis in axes))
    return Statement(target, axes, Cast(float32, read))
