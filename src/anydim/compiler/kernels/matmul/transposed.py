"""A library function that transposes a matrix of any size by register-sized squares."""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.register_transpose import (
    PIECE,
    block_columns,
    transposed_block,
)
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import least, shuffle, variable
from anydim.compiler.kernels.matmul.matmul_kernel import function_library


@lru_cache(maxsize=16)
def matrix_transpose_library(lanes: int, dtype: DType) -> ir.Library:
    """Return a library of one function: dst[c, r] = src[r, c] for r < rows, c < columns."""
    pointers = (ir.Pointer(each, dtype) for each in ("src", "dst"))
    scalars = ("src_row", "dst_row", "rows", "columns")
    write = partial(_transpose, ir.Type(dtype, lanes))
    return function_library(f"turned_{dtype}_x{lanes}", pointers, write, dtype, scalars)


def _transpose(vector: ir.Type, code: Writer) -> None:
    """Emit transposes of squares, the last ones overlapping; narrower pieces for small matrices."""
    lanes, rows, columns = vector.lanes, variable("rows"), variable("columns")
    source, target = variable("src_row"), variable("dst_row")
    with code.when(columns < lanes):
        _transpose_few_columns(vector, code)
    with code.otherwise():
        with code.when(rows < lanes):
            _transpose_few_rows(vector, code)
        with (
            code.otherwise(),
            code.overlapping(0, rows, lanes) as r,
            code.overlapping(0, columns, lanes) as c,
        ):
            loads = [ir.Load(vector, "src", (r + n) * source + c) for n in range(lanes)]
            for index, each in enumerate(transposed_block(vector, loads, code.let)):
                code.emit(ir.Store("dst", (c + index) * target + r, each))


def _transpose_few_columns(vector: ir.Type, code: Writer) -> None:
    """Emit pieces of fewer columns than lanes; excess stores are overwritten by valid ones."""
    lanes, rows, columns = vector.lanes, variable("rows"), variable("columns")
    few = ir.Type(vector.dtype, min(lanes, PIECE // vector.dtype.bytes))
    with code.range(0, rows, lanes) as r, code.range(0, columns, few.lanes) as c:
        below, right = first_lanes(rows - r, lanes), first_lanes(columns - c, few.lanes)
        below, right = code.let(below), code.let(right)

        def piece(index: int) -> ir.Value:
            at = least(r + index, rows - 1) * variable("src_row") + c
            return ir.Load(few, "src", at, right)

        made = [code.let(each) for each in block_columns(vector, lanes, piece, code.let)]
        for index in reversed(range(few.lanes)):
            at = least(c + index, columns - 1) * variable("dst_row") + r
            code.emit(ir.Store("dst", at, made[index], below))


def _transpose_few_rows(vector: ir.Type, code: Writer) -> None:
    """Emit pieces of fewer rows than lanes."""
    lanes, rows, columns = vector.lanes, variable("rows"), variable("columns")
    few = ir.Type(vector.dtype, min(lanes, PIECE // vector.dtype.bytes))
    with code.range(0, rows, few.lanes) as r, code.overlapping(0, columns, lanes) as c:
        below = code.let(first_lanes(rows - r, few.lanes))
        offsets = (least(r + index, rows - 1) * variable("src_row") for index in range(few.lanes))
        made = transposed_block(
            vector, [ir.Load(vector, "src", at + c) for at in offsets], code.let
        )
        for index in range(lanes):
            start = index // few.lanes * few.lanes
            own, lanes_of_row = made[index % few.lanes], tuple(range(start, start + few.lanes))
            at = (c + index) * variable("dst_row") + r
            code.emit(ir.Store("dst", at, shuffle(own, own, lanes_of_row), below))
