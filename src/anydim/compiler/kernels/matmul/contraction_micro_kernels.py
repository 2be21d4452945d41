"""Shape-independent micro-kernels of contractions, compiled once per tile and element type.

micro-kernels   a register tile, see `matmul/register_tile.py`
thin            the same for up to `THIN` k-steps, row by row in result order: bound by stores
row             a row tile times a block of k, over all panels of a block of columns
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import (
    first_lanes,
    quotient,
    quotient_up,
    round_down,
)
from anydim.compiler.kernels.codegen.vector_loops import store_prefetches
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, least, number, register, select
from anydim.compiler.kernels.matmul.accumulators import multiply_add
from anydim.compiler.kernels.matmul.matmul_kernel import shared_library
from anydim.compiler.kernels.matmul.register_tile import (
    PrefetchB,
    Tile,
    load_scalars,
    micro_kernel,
    micro_name,
    store_scalar,
    strip_pointers,
)

# They write more than they add: along whole rows of the result 1.08 to 1.4 -> 0.73 to 1.06.
THIN = 4  # maximum k-steps that run row by row


def prefix_of(tile: Tile, dtype: DType) -> str:
    """Return the prefix of a library's function names, unique per tile and element type."""
    return f"product_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


@lru_cache(maxsize=16)
def contraction_libraries(tile: Tile, dtype: DType) -> tuple[ir.Library, ...]:
    """Return the libraries for the largest register tile of a machine and an element type.

    Two libraries of about the same size, so that two threads compile them: the widest tiles
    of up to `tile.rows` rows with the loops around them, and narrower and higher tiles.
    """
    prefix = prefix_of(tile, dtype)
    return (
        shared_library(prefix, dtype, partial(_functions, tile, dtype, prefix)),
        shared_library(f"{prefix}_others", dtype, partial(_others, tile, dtype, prefix)),
    )


def _functions(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    rows = range(1, tile.rows + 1)
    widest = (micro_kernel(tile, each, tile.widest(each), dtype, prefix) for each in rows)
    shared = (
        micro_kernel(tile, each, tile.vectors, dtype, prefix, prefetch)
        for each in tile.shared
        for prefetch in (PrefetchB.NEXT, PrefetchB.NONE)
    )
    thin = (_thin(tile, dtype, k, prefix) for k in range(1, THIN + 1))
    return (*widest, *shared, *thin, _row(tile, dtype, prefix))


def _others(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    return tuple(
        replace(micro_kernel(tile, rows, vectors, dtype, prefix), public=True)
        for rows in range(1, tile.tall + 1)
        for vectors in tile.widths(rows)
        if rows > tile.rows or vectors < tile.widest(rows)
    )


def _row(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """c = init + a b for one row tile and the columns of one block, in the widest tiles."""
    heights, code = range(1, tile.tall + 1), Writer()
    stride = max(map(tile.widest, heights)) + 1
    k, rows, prefetch, columns, b_panel, init_step = load_scalars(
        code, "k", "rows", "asks", "columns", "b_panel", "init_step"
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

    def call_micro_kernel(height: int, vectors: int) -> ir.Step:
        names = {each: micro_name(height, vectors, prefix, each) for each in PrefetchB}
        if height not in tile.shared or vectors != tile.vectors:
            return ir.Call(names[PrefetchB.SOON], arguments)
        cases = ((int(each), (ir.Call(name, arguments),)) for each, name in names.items())
        return ir.Switch(prefetch, tuple(cases))

    cases = tuple(
        (height * stride + vectors, (call_micro_kernel(height, vectors),))
        for height in heights
        for vectors in tile.widths(height)
    )
    pointers = tuple(ir.Address(each.name, constant(0)) for each in strip_pointers(dtype))
    thin = ((k, (ir.Call(f"{prefix}_thin{k}", pointers),)) for k in range(1, THIN + 1))
    few = code.let(is_thin(k))
    with code.when(few):
        code.emit(ir.Switch(k, tuple(thin)))
    code.emit(ir.Declare(column.name, select(few, columns, 0)))
    with code.loop(lambda: column < columns):
        width = code.let(columns - column)
        code.emit(store_scalar("width", width))
        remaining = quotient_up(width, tile.lanes)
        vectors = code.let(select(remaining >= widest, widest, least(remaining, tile.vectors)))
        code.emit(ir.Switch(rows * stride + vectors, cases))
        code.emit(ir.Assign(column.name, column + vectors * tile.lanes))
    return ir.Function(f"{prefix}_row", strip_pointers(dtype), code.written, public=True)


def is_thin(k: ir.Value) -> ir.Value:
    """Whether `k` steps run row by row; k may be any number."""
    return (constant(0) < k) & (k <= THIN)


def _thin(tile: Tile, dtype: DType, k: int, prefix: str) -> ir.Function:
    """c = init + a b for `k` k-steps, summed in the order of a micro-kernel."""
    code, lanes, vector = Writer(), tile.lanes, ir.Type(dtype, tile.lanes)
    all_rows, columns, a_row, b_panel, init_row, init_step, c_row = load_scalars(
        code, "rows", "columns", "a_row", "b_panel", "init_row", "init_step", "c_row"
    )
    whole, b_column = code.let(round_down(columns, lanes)), code.let(quotient(b_panel, lanes))
    inside = code.let(first_lanes(columns - whole, lanes))

    def emit_rows(first: ir.Value, count: int) -> None:
        """Emit `count` rows, whose sums are computed vector by vector."""
        rows = [code.let(first + i) for i in range(count)]
        offsets = [(code.let(i * init_row), code.let(i * c_row)) for i in rows]
        a = [
            [code.let(ir.Load(ir.Type(dtype), "a", i * a_row + u)) for u in range(k)] for i in rows
        ]

        def vectors(at: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
            b = [code.let(ir.Load(vector, "b", at * b_column + u * lanes)) for u in range(k)]
            stores: list[ir.Step] = []
            for factors, (init, c) in zip(a, offsets):
                total: ir.Value = number(dtype, 0, lanes)
                for factor, each in zip(factors, b):
                    total = multiply_add(factor.spread(lanes), each, total)
                begin = ir.Load(vector, "init", init + at * init_step, mask)
                stores.append(ir.Store("c", c + at, total + begin, mask))
            return stores

        with code.range(0, whole, lanes) as at:
            stores = vectors(at, None)
            prefetches = [line for store in stores for line in store_prefetches([store])]
            code.take([*stores, *prefetches])
        with code.when(whole < columns):
            code.take(vectors(whole, inside))

    some = tile.thin(k)
    even = code.let(round_down(all_rows, some))
    for i, last in code.blocks(0, even, all_rows, some, 1):
        emit_rows(i, 1 if last else some)
    return ir.Function(f"{prefix}_thin{k}", strip_pointers(dtype), code.written)


def block_of_k(code: Writer, k: ir.Value, max_steps: ir.Value) -> ir.Value:
    """Return the k-steps of one sum, of even blocks of at most `max_steps`."""
    blocks = code.let(greatest(quotient_up(k, max_steps), 1))
    even = round_down(quotient_up(k, blocks) + 7, 8)
    return code.let(select(blocks <= 1, k, even))
