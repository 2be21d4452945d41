"""What no model changes of a contraction: compiled once per register tile and element type.

    micro-kernels   a register tile, see `micro.py`
    row             a row tile times a block of k, over all panels of a block of columns
    strip           a row tile times all of k: `row` for each block of k
    transpose       dst[c, r] = src[r, c]
    gather          dst[r, c] = src[r, c]; both pad with zeros to whole vectors
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
    compare,
    constant,
    either,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient,
    quotient_up,
    register,
    round_down,
    times,
    variable,
)
from anydim.kernels.contraction_copies import gather_function, transpose_function
from anydim.kernels.micro import Tile, micro_kernel, micro_name

ROW_SCALARS = (
    "k", "a_row", "b_panel", "init_row", "init_panel", "c_row", "rows", "columns",
    "ahead", "step",
)  # fmt: skip
STRIP_SCALARS = ("k_block", *ROW_SCALARS)


def prefix_of(tile: Tile, dtype: DType) -> str:
    """What the names of a library's functions begin with: unlike for unlike tiles."""
    return f"product_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


@lru_cache(maxsize=16)
def contraction_library(tile: Tile, dtype: DType) -> ir.Library:
    """The library for the largest register tile of a machine and an element type."""
    prefix = prefix_of(tile, dtype)
    return ir.Library(prefix, partial(_functions, tile, dtype, prefix), identity=prefix)


def _functions(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    kernels = (
        micro_kernel(tile, rows, vectors, dtype, prefix)
        for rows in range(1, tile.rows + 1)
        for vectors in range(1, tile.vectors + 1)
    )
    return (
        *kernels,
        _row(tile, dtype, prefix),
        _strip(tile, dtype, prefix),
        transpose_function(tile, dtype, prefix),
        gather_function(tile, dtype, prefix),
    )


def _pointers(dtype: DType) -> tuple[ir.Pointer, ...]:
    return (
        ir.Pointer("a", dtype),
        ir.Pointer("b", dtype),
        ir.Pointer("init", dtype, alias=True),
        ir.Pointer("c", dtype, alias=True),
    )


def _scalars(names: tuple[str, ...]) -> tuple[ir.Scalar, ...]:
    return tuple(ir.Scalar(name) for name in names)


def _row(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """c = init + a b for one row tile and the columns of one block, panel by panel."""
    at = variable("column")
    arguments: tuple[ir.Value | ir.Address, ...] = (
        ir.Address("a", constant(0)),
        ir.Address("b", register("b_at")),
        ir.Address("init", register("init_at")),
        ir.Address("c", at),
        *(variable(name) for name in ("k", "a_row", "init_row", "c_row")),
        variable("width"),
        variable("ahead"),
        variable("step"),
    )
    cases = tuple(
        (
            rows * (tile.vectors + 1) + vectors,
            (ir.Call(micro_name(rows, vectors, prefix), arguments),),
        )
        for rows in range(1, tile.rows + 1)
        for vectors in range(1, tile.vectors + 1)
    )
    vectors = quotient_up(variable("width"), tile.lanes)
    key = plus(times(variable("rows"), tile.vectors + 1), vectors)
    return ir.Function(
        f"{prefix}_row",
        (*_pointers(dtype), *_scalars(ROW_SCALARS)),
        (
            ir.Declare("b_at", constant(0)),
            ir.Declare("init_at", constant(0)),
            loop(
                "column", 0, variable("columns"), tile.width,
                ir.Let("width", least(minus(variable("columns"), at), tile.width)),
                ir.Switch(key, cases),
                ir.Assign("b_at", plus(register("b_at"), variable("b_panel"))),
                ir.Assign("init_at", plus(register("init_at"), variable("init_panel"))),
            ),
        ),
    )  # fmt: skip


def _strip(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """c = init + a b for one row tile: blocks of k of even length, at most `k_block`.

    The first block starts from `init`, the others go on from c. Without any k, c = init.
    """
    k, at = variable("k"), variable("k0")
    blocks = greatest(quotient_up(k, variable("k_block")), 1)
    even = round_down(plus(quotient_up(k, variable("blocks")), 7), 8)
    prefetched = times(quotient(at, tile.unroll), variable("step"))
    ahead = minus(plus(variable("ahead"), prefetched), times(at, tile.width))
    names = ROW_SCALARS[1:]

    def row(start: str, row_stride: str, panel_stride: ir.Value) -> ir.Call:
        changed = {"init_row": variable(row_stride), "init_panel": panel_stride, "ahead": ahead}
        return ir.Call(
            f"{prefix}_row",
            (
                ir.Address("a", at),
                ir.Address("b", times(at, tile.width)),
                ir.Address(start, constant(0)),
                ir.Address("c", constant(0)),
                variable("length"),
                *(changed.get(name, variable(name)) for name in names),
            ),
        )

    return ir.Function(
        f"{prefix}_strip",
        (*_pointers(dtype), *_scalars(STRIP_SCALARS)),
        (
            ir.Let("blocks", blocks),
            ir.Let("even", either(compare("less_equal", variable("blocks"), 1), k, even)),
            loop(
                "k0", 0, greatest(k, 1), greatest(variable("even"), 1),
                ir.Let("length", least(minus(k, at), variable("even"))),
                ir.If(
                    compare("equal", at, 0),
                    (row("init", "init_row", variable("init_panel")),),
                    (row("c", "c_row", constant(tile.width)),),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip
