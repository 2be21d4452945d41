"""Copies of operands of a contraction, in order or transposed.

Each is a library of its own, compiled only for kernels that call it.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import first_lanes, round_down
from anydim.kernels.codegen.register_transpose import transposed_block
from anydim.kernels.codegen.writer import Writer
from anydim.kernels.ir import greatest, iota, least, number, select, variable
from anydim.kernels.matmul.matmul_kernel import function_library

_SCALARS = ("src_row", "dst_row", "dst_column", "rows", "columns", "width")


def _library(name: str, write: partial[None], dtype: DType) -> ir.Library:
    pointers = (ir.Pointer(each, dtype) for each in ("src", "dst"))
    parameters: tuple[ir.Pointer | ir.Scalar, ...] = (*pointers, *map(ir.Scalar, _SCALARS))
    return function_library(name, parameters, write, dtype in ir.PORTABLE)


@lru_cache(maxsize=16)
def gather_library(lanes: int, dtype: DType) -> ir.Library:
    """Return the function dst[r, c] = src[r, c] for r < rows, c < columns; 0 for c up to `width`.

    Vectors of columns are `dst_column` vectors apart in dst: 1, or the length of panels.
    """
    return _library(f"gather_{dtype}_x{lanes}", partial(_gather, ir.Type(dtype, lanes)), dtype)


@lru_cache(maxsize=16)
def transpose_library(lanes: int, dtype: DType) -> ir.Library:
    """Return the function dst[c, r] = src[r, c] for r < rows, c < columns; 0 for r up to `width`.

    Vectors of rows are `dst_column` vectors apart in dst.
    """
    name = f"transpose_{dtype}_x{lanes}"
    return _library(name, partial(_transpose, ir.Type(dtype, lanes)), dtype)


@lru_cache(maxsize=16)
def strided_library(lanes: int, dtype: DType) -> ir.Library:
    """Return the function dst[r, c] = src[r, c] for r < rows, c < columns, for any column stride.

    Columns of src are `dst_column` apart, and `width` equals `columns`.
    """
    return _library(
        f"apart_{dtype}_x{lanes}", partial(_gather_columns, ir.Type(dtype, lanes)), dtype
    )


def _gather_columns(vector: ir.Type, code: Writer) -> None:
    lanes, columns = vector.lanes, variable("columns")
    steps = code.let(variable("dst_column").spread(lanes) * iota(lanes))
    with code.range(0, columns, lanes) as c, code.range(0, variable("rows")) as r:
        inside = code.let(first_lanes(columns - c, lanes))
        start = r * variable("src_row") + c * variable("dst_column")
        found = ir.Gather(vector, "src", start.spread(lanes) + steps, inside)
        code.emit(ir.Store("dst", r * variable("dst_row") + c, found, inside))


def _gather(vector: ir.Type, code: Writer) -> None:
    """Copy rows; `width` is a number of whole vectors."""
    lanes, columns = vector.lanes, variable("columns")
    whole = code.let(round_down(columns, lanes))
    with code.range(0, variable("rows")) as r:
        source = code.let(r * variable("src_row"))
        target = code.let(r * variable("dst_row"))

        def copy(column: ir.Value, mask: ir.Value | None) -> None:
            value = ir.Load(vector, "src", source + column, mask)
            code.emit(ir.Store("dst", target + column * variable("dst_column"), value))

        with code.range(0, whole, lanes) as c:
            copy(c, None)
        with code.range(whole, variable("width"), lanes) as c:
            copy(c, code.let(first_lanes(greatest(columns - c, 0), lanes)))


def _transpose(vector: ir.Type, code: Writer) -> None:
    """Transpose square blocks in registers, and gather the remaining columns.

    Excess rows are read as the last row, and stored as zeros.
    """
    lanes, zero = vector.lanes, number(vector.dtype, 0, vector.lanes)
    rows, columns, row = (variable(name) for name in ("rows", "columns", "src_row"))
    last = code.let(greatest(rows, 1) - 1)
    whole = code.let(round_down(columns, lanes))
    with code.range(0, variable("width"), lanes) as r:
        inside = code.let(first_lanes(greatest(rows - r, 0), lanes))
        target = code.let(r * variable("dst_column"))
        sources = [code.let(least(r + i, last) * row) for i in range(lanes)]
        with code.range(0, whole, lanes) as c:
            loads = [ir.Load(vector, "src", source + c) for source in sources]
            for i, column in enumerate(transposed_block(vector, loads, code.let)):
                at = (c + i) * variable("dst_row") + target
                code.emit(ir.Store("dst", at, select(inside, column, zero)))
        with code.range(whole, columns) as c:
            offsets = (r * row + c).spread(lanes) + row.spread(lanes) * iota(lanes)
            gathered = ir.Gather(vector, "src", offsets, inside)
            code.emit(ir.Store("dst", c * variable("dst_row") + target, gathered))
