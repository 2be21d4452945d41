"""Copies that bring operands of a contraction into place: as they lie, or transposed."""

from __future__ import annotations

from anydim.base.dtypes import DType, int64
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    greatest,
    loop,
    minus,
    plus,
    round_down,
    times,
    variable,
)
from anydim.kernels.elements import operate
from anydim.kernels.micro import Tile
from anydim.kernels.squares import transposed


def _copy_parameters(dtype: DType) -> tuple[ir.Pointer | ir.Scalar, ...]:
    return (
        ir.Pointer("src", dtype),
        ir.Pointer("dst", dtype),
        *(ir.Scalar(name) for name in ("src_row", "dst_row", "rows", "columns", "width")),
    )


def gather_function(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """dst[r, c] = src[r, c] for r < rows, c < columns; 0 from there to `width` (whole vectors)."""
    vector = ir.Type(dtype, tile.lanes)
    mask = ir.Var(ir.Type(ir.FLAG.dtype, tile.lanes), "inside")

    def copy(column: str, mask: ir.Value | None) -> ir.Store:
        value = ir.Load(vector, "src", plus(variable("src_at"), variable(column)), mask)
        return ir.Store("dst", plus(variable("dst_at"), variable(column)), value)

    left = greatest(minus(variable("columns"), variable("c1")), 0)
    whole = round_down(variable("columns"), tile.lanes)
    return ir.Function(
        f"{prefix}_gather",
        _copy_parameters(dtype),
        (
            ir.Let("whole", whole),
            loop(
                "r", 0, variable("rows"), 1,
                ir.Let("src_at", times(variable("r"), variable("src_row"))),
                ir.Let("dst_at", times(variable("r"), variable("dst_row"))),
                loop("c0", 0, variable("whole"), tile.lanes, copy("c0", None)),
                loop(
                    "c1", variable("whole"), variable("width"), tile.lanes,
                    ir.Let("inside", first_lanes(left, tile.lanes)),
                    copy("c1", mask),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip


def transpose_function(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """dst[c, r] = src[r, c] for r < rows, c < columns; 0 for rows up to `width` (whole vectors).

    Square blocks go through registers; what is left at the edges is gathered.
    """
    lanes = tile.lanes
    vector, wide = ir.Type(dtype, lanes), ir.Type(int64, lanes)
    left = minus(variable("rows"), variable("r"))
    is_whole = compare("greater_equal", variable("left"), lanes)
    rows_on = first_lanes(greatest(variable("left"), 0), lanes)
    stride = ir.Splat(wide, variable("src_row"))
    start = ir.Splat(wide, plus(variable("src_at"), variable("c1")))
    offsets = operate("add", start, operate("mul", stride, ir.Iota(wide)))
    inside = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")
    gathered = ir.Gather(vector, "src", offsets, inside)
    target = plus(times(variable("c1"), variable("dst_row")), variable("r"))
    return ir.Function(
        f"{prefix}_transpose",
        _copy_parameters(dtype),
        (
            loop(
                "r", 0, variable("width"), lanes,
                ir.Let("left", left),
                ir.Let("src_at", times(variable("r"), variable("src_row"))),
                ir.Let("inside", rows_on),
                ir.Let(
                    "whole",
                    either(is_whole, round_down(variable("columns"), lanes), constant(0)),
                ),
                loop("c0", 0, variable("whole"), lanes, *_square(vector)),
                loop(
                    "c1", variable("whole"), variable("columns"), 1,
                    ir.Store("dst", target, gathered),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip


def _square(vector: ir.Type) -> list[ir.Step]:
    """One square block of a transpose."""
    rows = [
        ir.Load(vector, "src", plus(variable("src_at"), times(variable("src_row"), i),
                                    variable("c0")))
        for i in range(vector.lanes)
    ]  # fmt: skip
    steps, columns = transposed(vector, rows, "x")
    for i, column in enumerate(columns):
        at = plus(times(plus(variable("c0"), i), variable("dst_row")), variable("r"))
        steps.append(ir.Store("dst", at, column))
    return steps
