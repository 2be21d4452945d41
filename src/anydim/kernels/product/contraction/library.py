"""What no model changes of a contraction: compiled once per register tile and element type.

micro-kernels   a register tile, see `product/micro.py`
row             a row tile times a block of k, over all panels of a block of columns
strip           a row tile times all of k: `row` for each block of k
"""

from __future__ import annotations

from collections.abc import Mapping
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
        _strip(tile, dtype, prefix),
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
    several = {rows: panels for rows in heights if (panels := side_by_side(tile, rows)) > 1}
    together: ir.Value = constant(1)
    for rows, panels in several.items():
        together = either(compare("equal", variable("rows"), rows), constant(panels), together)
    narrow = {
        rows * (tile.vectors + 1) + vectors: micro_name(rows, vectors, prefix)
        for rows in heights
        for vectors in range(1, tile.vectors + 1)
    }
    wide = {
        rows: micro_name(rows, tile.vectors, prefix, panels) for rows, panels in several.items()
    }
    vectors = quotient_up(variable("width"), tile.lanes)
    key = plus(times(variable("rows"), tile.vectors + 1), vectors)
    step = times(variable("together"), tile.width)
    whole = times(quotient(variable("columns"), variable("step")), variable("step"))
    is_several = compare("greater", variable("together"), 1)
    return ir.Function(
        f"{prefix}_row",
        strip_pointers(dtype),
        (
            *(taken(name) for name in ("rows", "columns", "b_panel", "init_panel")),
            ir.Let("together", together),
            ir.Let("step", step),
            ir.Let("whole", either(is_several, whole, constant(0))),
            ir.Declare("b_at", constant(0)),
            ir.Declare("init_at", constant(0)),
            *_columns(
                "wide", constant(0), variable("whole"), variable("step"),
                variable("together"), _switch(variable("rows"), wide, "wide"),
            ),
            *_columns(
                "column", variable("whole"), variable("columns"), constant(tile.width),
                constant(1),
                ir.Let("width", least(minus(variable("columns"), variable("column")), tile.width)),
                give("width", variable("width")),
                _switch(key, narrow, "column"),
            ),
        ),
    )  # fmt: skip


def _switch(key: ir.Value, names: Mapping[int, str], column: str) -> ir.Switch:
    """The micro-kernel of each key, for the columns from that register on."""
    arguments: tuple[ir.Value | ir.Address, ...] = (
        ir.Address("a", constant(0)),
        ir.Address("b", register("b_at")),
        ir.Address("init", register("init_at")),
        ir.Address("c", variable(column)),
        ir.Address("given", constant(0)),
    )
    return ir.Switch(key, tuple((at, (ir.Call(name, arguments),)) for at, name in names.items()))


def _columns(
    name: str, start: ir.Value, stop: ir.Value, step: ir.Value, panels: ir.Value, *body: ir.Step
) -> tuple[ir.Step, ...]:
    """A loop over columns, and over the panels they are in."""
    return (
        loop(
            name, start, stop, step, *body,
            ir.Assign("b_at", plus(register("b_at"), times(variable("b_panel"), panels))),
            ir.Assign("init_at", plus(register("init_at"), times(variable("init_panel"), panels))),
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


def _strip(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """c = init + a b for one row tile: blocks of k of even length, at most `k_block`.

    The first block starts from `init`, the others go on from c. Without any k, c = init.
    """
    k, at = variable("k"), variable("k0")
    prefetched = times(quotient(at, tile.unroll), variable("step"))
    ahead = minus(plus(variable("ahead"), prefetched), times(at, tile.width))

    def row(start: str, row_stride: ir.Value, panel_stride: ir.Value) -> tuple[ir.Step, ...]:
        return (
            give("init_row", row_stride),
            give("init_panel", panel_stride),
            ir.Call(
                f"{prefix}_row",
                (
                    ir.Address("a", at),
                    ir.Address("b", times(at, tile.width)),
                    ir.Address(start, constant(0)),
                    ir.Address("c", constant(0)),
                    ir.Address("given", constant(0)),
                ),
            ),
        )

    return ir.Function(
        f"{prefix}_strip",
        strip_pointers(dtype),
        (
            *(taken(name) for name in ("k", "k_block", "init_row", "init_panel", "c_row")),
            *(taken(name) for name in ("ahead", "step")),
            *blocks_of_k(),
            loop(
                "k0", 0, greatest(k, 1), greatest(variable("even"), 1),
                give("k", least(minus(k, at), variable("even"))),
                give("ahead", ahead),
                ir.If(
                    compare("equal", at, 0),
                    row("init", variable("init_row"), variable("init_panel")),
                    row("c", variable("c_row"), constant(tile.width)),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip
