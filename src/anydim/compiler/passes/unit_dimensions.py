"""Remove unit dimensions of values between statements.

Inputs, constants and results keep their shapes (a result gets a statement that aliases its bytes).
A sum over one element, as in a product by a single row, becomes that element. A tensor with a
guarded or checked read keeps its dimensions, too: there an index can be out of bounds.

After: no value made by one statement and read by another has a dimension of constant size 1, and no
statement reduces over one.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import Line, pack, unique_name, unpack
from anydim.lang.tree import Expr, Index, Read, SizeTerm, Statement, TensorType
from anydim.lang.tree.affine import Affine, reads, rewrite, row_major_strides, to_expr
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class UnitDimensions:
    """Drop unit dimensions of intermediate values."""

    def run(self, graph: Graph) -> Graph:
        lines = unpack(graph)
        guarded = {
            read.tensor
            for line in lines
            for read in reads(line.statement.body)
            if read.default is not None or _checked_at_one(read, graph.types[read.tensor])
        }
        kept = {
            line.target: _kept_dimensions(line.statement.shape)
            for line in lines
            if line.target not in guarded
        }
        kept = {name: flags for name, flags in kept.items() if not all(flags)}
        types = dict(graph.types)
        moved = {
            name: unique_name(f"{name}/squeezed", types) for name in graph.outputs if name in kept
        }
        result: list[Line] = []
        for line in lines:
            statement = line.statement.with_body(_reading(line.statement, kept))
            flags = kept.get(statement.target, (True,) * len(statement.axes))
            squeezed = _squeeze(statement, flags)
            if statement.target not in kept:
                result.append(replace(line, statement=squeezed))
                continue
            name = statement.target
            if name in moved:
                squeezed = replace(squeezed, target=moved[name])
                types[squeezed.target] = TensorType(types[name].dtype, squeezed.shape)
                result.append(replace(line, statement=squeezed))
                result.append(replace(line, statement=_renaming(statement, squeezed.target)))
            else:
                types[name] = TensorType(types[name].dtype, squeezed.shape)
                result.append(replace(line, statement=squeezed))
        return pack(graph, _redirect_readers(result, moved), types)


def _checked_at_one(read: Read, kind: TensorType) -> bool:
    """Whether an index is checked against a size of 1."""
    return not read.flat and any(
        size.constant == 1 and has_checks(index) for size, index in zip(kind.shape, read.indices)
    )


def _kept_dimensions(shape: tuple[Size, ...]) -> tuple[bool, ...]:
    return tuple(size.constant != 1 for size in shape)


def _reading(statement: Statement, kept: dict[str, tuple[bool, ...]]) -> Expr:
    """The body without indices of dropped dimensions, and with 0 for unit axes."""
    ones = {
        axis.name for axis in (*statement.axes, *statement.reduced) if axis.extent.constant == 1
    }

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Index) and expr.name in ones:
            return SizeTerm(as_size(0))
        if isinstance(expr, Read) and expr.tensor in kept and not expr.flat:
            flags = kept[expr.tensor]
            return replace(expr, indices=tuple(i for i, k in zip(expr.indices, flags) if k))
        return None

    return rewrite(statement.body, change)


def _squeeze(statement: Statement, kept: tuple[bool, ...]) -> Statement:
    axes = tuple(axis for axis, keep in zip(statement.axes, kept) if keep)
    reduced = tuple(axis for axis in statement.reduced if axis.extent.constant != 1)
    combine = statement.combine if reduced or not statement.reduced else ""
    return replace(statement, axes=axes, reduced=reduced, combine=combine)


def _renaming(statement: Statement, source: str) -> Statement:
    """target(axes...) = source[the same row-major offset]."""
    strides = row_major_strides(statement.shape)
    terms = {
        axis.name: stride
        for axis, stride in zip(statement.axes, strides)
        if axis.extent.constant != 1
    }
    offset = to_expr(Affine.of(as_size(0), terms))
    return Statement(statement.target, statement.axes, Read(source, (offset,), flat=True))


def _redirect_readers(lines: list[Line], moved: dict[str, str]) -> list[Line]:
    """Readers of a squeezed result read the squeezed value."""
    if not moved:
        return lines

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in moved:
            return replace(expr, tensor=moved[expr.tensor])
        return None

    return [
        Line(line.statement.with_body(rewrite(line.statement.body, change)), line.source)
        for line in lines
    ]
