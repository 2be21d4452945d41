"""Copies that bring operands of a contraction into place: as they lie, or transposed.

Each is a library of its own, compiled where a kernel calls it.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType, int64
from anydim.kernels import ir
from anydim.kernels.write.arithmetic import (
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    minus_one,
    plus,
    round_down,
    times,
    variable,
)
from anydim.kernels.write.squares import transposed
from anydim.kernels.write.values import number, operate


def _copy_parameters(dtype: DType) -> tuple[ir.Pointer | ir.Scalar, ...]:
    return (
        ir.Pointer("src", dtype),
        ir.Pointer("dst", dtype),
        *(ir.Scalar(name) for name in ("src_row", "dst_row", "rows", "columns", "width")),
    )


@lru_cache(maxsize=16)
def gather_library(lanes: int, dtype: DType) -> ir.Library:
    """One function: dst[r, c] = src[r, c] for r < rows, c < columns; 0 from there to `width`."""
    name = f"gather_{dtype}_x{lanes}"
    return ir.Library(name, partial(_gather, name, lanes, dtype), identity=name)


@lru_cache(maxsize=16)
def transpose_library(lanes: int, dtype: DType) -> ir.Library:
    """One function: dst[c, r] = src[r, c] for r < rows, c < columns; 0 for rows up to `width`."""
    name = f"transpose_{dtype}_x{lanes}"
    return ir.Library(name, partial(_transpose, name, lanes, dtype), identity=name)


def _gather(name: str, lanes: int, dtype: DType) -> tuple[ir.Function, ...]:
    """`width` counts whole vectors."""
    vector = ir.Type(dtype, lanes)
    mask = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")

    def copy(column: str, mask: ir.Value | None) -> ir.Store:
        value = ir.Load(vector, "src", plus(variable("src_at"), variable(column)), mask)
        return ir.Store("dst", plus(variable("dst_at"), variable(column)), value)

    left = greatest(minus(variable("columns"), variable("c1")), 0)
    whole = round_down(variable("columns"), lanes)
    function = ir.Function(
        name,
        _copy_parameters(dtype),
        (
            ir.Let("whole", whole),
            loop(
                "r", 0, variable("rows"), 1,
                ir.Let("src_at", times(variable("r"), variable("src_row"))),
                ir.Let("dst_at", times(variable("r"), variable("dst_row"))),
                loop("c0", 0, variable("whole"), lanes, copy("c0", None)),
                loop(
                    "c1", variable("whole"), variable("width"), lanes,
                    ir.Let("inside", first_lanes(left, lanes)),
                    copy("c1", mask),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip
    return (function,)


def _transpose(name: str, lanes: int, dtype: DType) -> tuple[ir.Function, ...]:
    """Square blocks go through registers; what is left of columns is gathered.

    Of the last rows, those that there are not are read as the last one, and zeros are stored.
    """
    vector, wide = ir.Type(dtype, lanes), ir.Type(int64, lanes)
    last = minus_one(greatest(variable("rows"), 1))
    rows_on = first_lanes(greatest(minus(variable("rows"), variable("r")), 0), lanes)
    stride = ir.Splat(wide, variable("src_row"))
    start = plus(times(variable("r"), variable("src_row")), variable("c1"))
    offsets = operate("add", ir.Splat(wide, start), operate("mul", stride, ir.Iota(wide)))
    inside = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")
    gathered = ir.Gather(vector, "src", offsets, inside)
    target = plus(times(variable("c1"), variable("dst_row")), variable("r"))

    def row(i: int) -> ir.Let:
        number = least(plus(variable("r"), i), variable("last"))
        return ir.Let(f"src{i}", times(number, variable("src_row")))

    function = ir.Function(
        name,
        _copy_parameters(dtype),
        (
            ir.Let("last", last),
            ir.Let("whole", round_down(variable("columns"), lanes)),
            loop(
                "r", 0, variable("width"), lanes,
                ir.Let("inside", rows_on),
                *(row(i) for i in range(lanes)),
                loop("c0", 0, variable("whole"), lanes, *_square(vector, inside)),
                loop(
                    "c1", variable("whole"), variable("columns"), 1,
                    ir.Store("dst", target, gathered),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip
    return (function,)


def _square(vector: ir.Type, inside: ir.Value) -> list[ir.Step]:
    """One square block of a transpose."""
    rows = [
        ir.Load(vector, "src", plus(variable(f"src{i}"), variable("c0")))
        for i in range(vector.lanes)
    ]
    steps, columns = transposed(vector, rows, "x")
    zero = number(vector.dtype, 0, vector.lanes)
    for i, column in enumerate(columns):
        at = plus(times(plus(variable("c0"), i), variable("dst_row")), variable("r"))
        steps.append(ir.Store("dst", at, operate("select", inside, column, zero)))
    return steps
