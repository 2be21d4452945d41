"""What no model changes of a contraction: compiled once per register tile and element type.

micro-kernels   a register tile, see `product/micro.py`
row             a row tile times a block of k, over all panels of a block of columns
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.product.micro import (
    Tile,
    give,
    micro_kernel,
    micro_name,
    side_by_side,
    strip_pointers,
    taken,
)
from anydim.kernels.write.arithmetic import (
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


def prefix_of(tile: Tile, dtype: DType) -> str:
    """What the names of a library's functions begin with: unlike for unlike tiles."""
    return f"product_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


@lru_cache(maxsize=16)
def contraction_libraries(tile: Tile, dtype: DType) -> tuple[ir.Library, ...]:
    """The libraries for the largest register tile of a machine and an element type.

    Two of about the same size, so that two threads share the compiling: tiles of all vectors with
    the loops around them, and narrower tiles.
    """
    prefix = prefix_of(tile, dtype)
    narrow = f"{prefix}_narrow"
    return (
        ir.Library(prefix, partial(_functions, tile, dtype, prefix), identity=prefix),
        ir.Library(narrow, partial(_narrow, tile, dtype, prefix), identity=narrow),
    )


def _functions(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    return (
        *(
            micro_kernel(tile, rows, tile.vectors, dtype, prefix, panels)
            for rows in range(1, tile.rows + 1)
            for panels in sorted({1, side_by_side(tile, rows)})
        ),
        _row(tile, dtype, prefix),
    )


def _narrow(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    return tuple(
        replace(micro_kernel(tile, rows, vectors, dtype, prefix), public=True)
        for rows in range(1, tile.rows + 1)
        for vectors in range(1, tile.vectors)
    )


def _row(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """c = init + a b for one row tile and the columns of one block.

    Panel by panel; few rows take several panels at a time as long as there are so many.
    """
    heights = range(1, tile.rows + 1)
    micro = {
        rows * (tile.vectors + 1) + vectors: micro_name(rows, vectors, prefix)
        for rows in heights
        for vectors in range(1, tile.vectors + 1)
    }
    wide: list[ir.Step] = []
    for rows in heights:
        panels = side_by_side(tile, rows)
        if panels == 1:
            continue
        step = panels * tile.width
        stop = times(quotient(variable("columns"), step), step)
        call = _call(micro_name(rows, tile.vectors, prefix, panels), "wide")
        several = _columns("wide", constant(0), stop, panels, step, call)
        wide.append(ir.If(compare("equal", variable("rows"), rows), several))
    left = minus(variable("columns"), variable("column"))
    vectors = quotient_up(variable("width"), tile.lanes)
    key = plus(times(variable("rows"), tile.vectors + 1), vectors)
    calls = tuple((at, (_call(name, "column"),)) for at, name in micro.items())
    return ir.Function(
        f"{prefix}_row",
        strip_pointers(dtype),
        (
            *(taken(name) for name in ("rows", "columns", "b_panel", "init_panel")),
            ir.Declare("b_at", constant(0)),
            ir.Declare("init_at", constant(0)),
            ir.Declare("done", constant(0)),
            *wide,
            *_columns(
                "column", register("done"), variable("columns"), 1, tile.width,
                ir.Let("width", least(left, tile.width)),
                give("width", variable("width")),
                ir.Switch(key, calls),
            ),
        ),
        public=True,
    )  # fmt: skip


def _call(name: str, column: str) -> ir.Call:
    """A micro-kernel for the columns from an index on."""
    arguments: tuple[ir.Value | ir.Address, ...] = (
        ir.Address("a", constant(0)),
        ir.Address("b", register("b_at")),
        ir.Address("init", register("init_at")),
        ir.Address("c", variable(column)),
        ir.Address("given", constant(0)),
    )
    return ir.Call(name, arguments)


def _columns(
    name: str, start: ir.Value, stop: ir.Value, panels: int, step: int, *body: ir.Step
) -> tuple[ir.Step, ...]:
    """A loop over columns, and over the panels they are in."""
    return (
        loop(
            name, start, stop, step, *body,
            ir.Assign("b_at", plus(register("b_at"), times(variable("b_panel"), panels))),
            ir.Assign("init_at", plus(register("init_at"), times(variable("init_panel"), panels))),
            ir.Assign("done", plus(register("done"), step)),
        ),
    )  # fmt: skip


def blocks_of_k() -> tuple[ir.Step, ...]:
    """`even`: the steps of k that are one sum, of blocks of at most `k_block`."""
    k = variable("k")
    blocks = greatest(quotient_up(k, variable("k_block")), 1)
    even = round_down(plus(quotient_up(k, variable("blocks")), 7), 8)
    return (
        ir.Let("blocks", blocks),
        ir.Let("even", either(compare("less_equal", variable("blocks"), 1), k, even)),
    )
