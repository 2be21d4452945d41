"""Copies of operands of a contraction, in order or transposed.

Each is a library of its own, compiled only for kernels that call it.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, round_down
from anydim.compiler.kernels.codegen.register_transpose import transposed_block
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import greatest, iota, least, number, select, variables
from anydim.compiler.kernels.matmul.matmul_kernel import function_library


@dataclass(frozen=True)
class CopyShape:
    """The scalars of a copy of `rows` rows; `dst_column` is the distance of vectors in dst.

    Elements from `columns` up to `width` are 0 (`rows` up to `width` where it transposes).
    """

    src_row: ir.Value
    dst_row: ir.Value
    dst_column: ir.Value
    rows: ir.Value
    columns: ir.Value
    width: ir.Value

    @property
    def arguments(self) -> tuple[ir.Value, ...]:
        return tuple(getattr(self, name) for name in _SCALARS)


_SCALARS = tuple(CopyShape.__annotations__)
GIVEN = variables(CopyShape)


@lru_cache(maxsize=48)
def copy_library(kind: str, lanes: int, dtype: DType) -> ir.Library:
    """Return the function of a copy of src[r, c] for r < rows, c < columns.

    gather      dst[r, c], 0 for c up to `width`; vectors of columns are `dst_column` vectors
                apart in dst: 1, or the length of panels
    transpose   dst[c, r], 0 for r up to `width`; vectors of rows are `dst_column` apart in dst
    apart       dst[r, c], for any column stride `dst_column` of src; `width` equals `columns`
    """
    write = {"gather": _gather, "transpose": _transpose, "apart": _gather_columns}[kind]
    pointers = (ir.Pointer(each, dtype) for each in ("src", "dst"))
    made = partial(write, ir.Type(dtype, lanes))
    return function_library(f"{kind}_{dtype}_x{lanes}", pointers, made, dtype, _SCALARS)


def _gather_columns(vector: ir.Type, code: Writer) -> None:
    lanes, columns = vector.lanes, GIVEN.columns
    steps = code.let(GIVEN.dst_column.spread(lanes) * iota(lanes))
    with code.range(0, columns, lanes) as c, code.range(0, GIVEN.rows) as r:
        inside = code.let(first_lanes(columns - c, lanes))
        start = r * GIVEN.src_row + c * GIVEN.dst_column
        found = ir.Gather(vector, "src", start.spread(lanes) + steps, inside)
        code.emit(ir.Store("dst", r * GIVEN.dst_row + c, found, inside))


def _gather(vector: ir.Type, code: Writer) -> None:
    """Copy rows; `width` is a number of whole vectors."""
    lanes, columns = vector.lanes, GIVEN.columns
    whole = code.let(round_down(columns, lanes))
    with code.range(0, GIVEN.rows) as r:
        source = code.let(r * GIVEN.src_row)
        target = code.let(r * GIVEN.dst_row)
        for c, last in code.blocks(0, whole, GIVEN.width, lanes):
            mask = code.let(first_lanes(greatest(columns - c, 0), lanes)) if last else None
            value = ir.Load(vector, "src", source + c, mask)
            code.emit(ir.Store("dst", target + c * GIVEN.dst_column, value))


def _transpose(vector: ir.Type, code: Writer) -> None:
    """Transpose square blocks in registers, and gather the remaining columns.

    Excess rows are read as the last row, and stored as zeros.
    """
    lanes, zero = vector.lanes, number(vector.dtype, 0, vector.lanes)
    rows, columns, row = GIVEN.rows, GIVEN.columns, GIVEN.src_row
    last = code.let(greatest(rows, 1) - 1)
    whole = code.let(round_down(columns, lanes))
    with code.range(0, GIVEN.width, lanes) as r:
        inside = code.let(first_lanes(greatest(rows - r, 0), lanes))
        target = code.let(r * GIVEN.dst_column)
        sources = [code.let(least(r + i, last) * row) for i in range(lanes)]
        with code.range(0, whole, lanes) as c:
            loads = [ir.Load(vector, "src", source + c) for source in sources]
            for i, column in enumerate(transposed_block(vector, loads, code.let)):
                at = (c + i) * GIVEN.dst_row + target
                code.emit(ir.Store("dst", at, select(inside, column, zero)))
        with code.range(whole, columns) as c:
            offsets = (r * row + c).spread(lanes) + row.spread(lanes) * iota(lanes)
            gathered = ir.Gather(vector, "src", offsets, inside)
            code.emit(ir.Store("dst", c * GIVEN.dst_row + target, gathered))
