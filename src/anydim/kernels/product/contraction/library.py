"""What no model changes of a contraction: compiled once per register tile and element type.

micro-kernels   a register tile, see `product/micro.py`
row             a row tile times a block of k, over all panels of a block of columns
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.ir import constant, greatest, least, register, select
from anydim.kernels.product.micro import (
    Asks,
    Tile,
    give,
    micro_kernel,
    micro_name,
    strip_pointers,
    taken,
)
from anydim.kernels.write.arithmetic import quotient, quotient_up, round_down
from anydim.kernels.write.writer import Writer


def prefix_of(tile: Tile, dtype: DType) -> str:
    """What the names of a library's functions begin with: unlike for unlike tiles."""
    return f"product_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


@lru_cache(maxsize=16)
def contraction_libraries(tile: Tile, dtype: DType) -> tuple[ir.Library, ...]:
    """The libraries for the largest register tile of a machine and an element type.

    Two of about the same size, so that two threads share the compiling: the widest tiles of rows up
    to those of the largest one with the loops around them, and narrower and higher tiles.
    """
    prefix = prefix_of(tile, dtype)
    others = f"{prefix}_others"
    return (
        ir.Library(prefix, partial(_functions, tile, dtype, prefix), identity=prefix),
        ir.Library(others, partial(_others, tile, dtype, prefix), identity=others),
    )


def _functions(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    rows = range(1, tile.rows + 1)
    widest = (micro_kernel(tile, each, tile.widest(each), dtype, prefix) for each in rows)
    shared = (
        micro_kernel(tile, each, tile.vectors, dtype, prefix, asks)
        for each in tile.shared
        for asks in (Asks.NEXT, Asks.NOTHING)
    )
    return (*widest, *shared, _row(tile, dtype, prefix))


def _others(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    return tuple(
        replace(micro_kernel(tile, rows, vectors, dtype, prefix), public=True)
        for rows in range(1, tile.tall + 1)
        for vectors in tile.widths(rows)
        if rows > tile.rows or vectors < tile.widest(rows)
    )


def _row(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """c = init + a b for one row tile and the columns of one block, by tiles as wide as may be."""
    heights, code = range(1, tile.tall + 1), Writer()
    most = max(map(tile.widest, heights)) + 1
    rows, asks, columns, b_panel, init_step = taken(
        code, "rows", "asks", "columns", "b_panel", "init_step"
    )
    widest: ir.Value = constant(tile.widest(tile.tall))
    for height in reversed(heights):
        if tile.widest(height) != tile.widest(min(height + 1, tile.tall)):
            widest = select(rows <= height, constant(tile.widest(height)), widest)
    widest, column = code.let(widest), register("column")
    arguments = (
        ir.Address("a", constant(0)),
        ir.Address("b", quotient(column, tile.lanes) * b_panel),
        ir.Address("init", column * init_step),
        ir.Address("c", column),
        ir.Address("given", constant(0)),
    )

    def called(height: int, vectors: int) -> ir.Step:
        names = {each: micro_name(height, vectors, prefix, each) for each in Asks}
        if height not in tile.shared or vectors != tile.vectors:
            return ir.Call(names[Asks.SOON], arguments)
        cases = ((int(each), (ir.Call(name, arguments),)) for each, name in names.items())
        return ir.Switch(asks, tuple(cases))

    cases = tuple(
        (height * most + vectors, (called(height, vectors),))
        for height in heights
        for vectors in tile.widths(height)
    )
    code.emit(ir.Declare(column.name, constant(0)))
    with code.loop(lambda: column < columns):
        width = code.let(columns - column)
        code.emit(give("width", width))
        left = quotient_up(width, tile.lanes)
        vectors = code.let(select(left >= widest, widest, least(left, tile.vectors)))
        code.emit(ir.Switch(rows * most + vectors, cases))
        code.emit(ir.Assign(column.name, column + vectors * tile.lanes))
    return ir.Function(f"{prefix}_row", strip_pointers(dtype), code.written, public=True)


def block_of_k(code: Writer, k: ir.Value, most: ir.Value) -> ir.Value:
    """The steps of k that are one sum, of even blocks of at most so many."""
    blocks = code.let(greatest(quotient_up(k, most), 1))
    even = round_down(quotient_up(k, blocks) + 7, 8)
    return code.let(select(blocks <= 1, k, even))
