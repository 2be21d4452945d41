"""Shape-independent micro-kernels of bfloat16 products: a tile of float32 sums in registers.

    c[i, j] = sum over words of a[i, word] . b[word, j]       i < rows, j < vectors

Every element is one sum over all words in order, by one instruction: a row has the same bits with
any other rows. On machines with tile registers all products use those, a single row too, because
they sum in another order than vectors ('dot_bfloat16' and `ir.TilePairs` define both).

An unrolled step prefetches a line of b at `ahead`, then `step` elements further: tiles of several
rows prefetch the next panel, part by part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.dtypes import float32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient_up, round_down
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, dot_pairs, select, variable
from anydim.compiler.kernels.matmul.accumulators import Accumulators
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import (
    MICRO_SCALARS,
    RUN_SCALARS,
    micro_function,
    scalars_of,
    tile_function,
    tile_kernel,
)
from anydim.compiler.kernels.matmul.int8.word_types import PAIRS
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.register_tile import Tile

MAX_NARROW = 8  # columns of products by panels of rows
# The products of parts of a and b, by the number of parts: small ones first, and each one has a
# part of the one before, which stays in its registers.
PRODUCTS: Mapping[int, tuple[tuple[int, int], ...]] = {
    1: ((0, 0),),
    2: ((0, 1), (0, 0), (1, 0)),
    3: ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)),
}


@lru_cache(maxsize=16)
def pair_library(tile: Tile, depth: int, height: int, parts: int = 1) -> ir.Library:
    """Return the library for a register tile, the words per product, the rows of a panel and the
    parts of a factor."""
    by = f"x{depth}" if depth > 1 else f"p{height}" if height > 1 else ""
    prefix = f"pairs_{tile.rows}x{tile.vectors}x{tile.lanes}{by}_{tile.unroll}"
    prefix += f"_{parts}" if parts > 1 else ""
    made = partial(_functions, tile, depth, height, parts, prefix)
    return ir.Library(prefix, made, identity=prefix)


def _functions(
    tile: Tile, depth: int, height: int, parts: int, prefix: str
) -> tuple[ir.Function, ...]:
    heights = range(depth, tile.rows + 1, depth)
    shapes = [(rows, vectors) for rows in heights for vectors in range(1, tile.vectors + 1)]
    whole = partial(tile_kernel, dots=ir.TilePairs, word=PAIRS, parts=PRODUCTS[parts])
    made = whole if depth > 1 else partial(_micro, height=height)
    kernels = [made(tile, rows, vectors, prefix) for rows, vectors in shapes]
    cases = tuple(
        (rows * (tile.vectors + 1) + vectors, (call(kernel),))
        for (rows, vectors), kernel in zip(shapes, kernels)
    )
    vectors = quotient_up(variable("columns"), tile.lanes)
    rows = quotient_up(variable("rows"), depth) * depth
    body = (ir.Switch(rows * (tile.vectors + 1) + vectors, cases),)
    narrow = _narrow(tile, height, prefix) if height > 1 else ()
    return (*kernels, replace(tile_function(prefix, PAIRS), body=body, public=True), *narrow)


def _micro(tile: Tile, rows: int, vectors: int, prefix: str, height: int) -> ir.Function:
    code, lanes, vector = Writer(), tile.lanes, ir.Type(float32, tile.lanes)
    words, a_row = map(variable, MICRO_SCALARS)
    sums = Accumulators(code, vector, rows, vectors)
    sums.declare()
    runs, a_run, b_run, ahead, step = map(variable, RUN_SCALARS)
    ahead_at = code.variable(ahead)
    whole = code.let(round_down(words, tile.unroll))
    with code.range(0, runs) as run:
        a_at, b_at = code.let(run * a_run), code.let(run * b_run * tile.width)
        for word, last in code.blocks(0, whole, words, tile.unroll, 1):
            for u in range(1 if last else tile.unroll):
                at = word + u
                columns = [b_at + at * tile.width + j * lanes for j in range(vectors)]
                b = [code.let(ir.Load(vector, "b", column)) for column in columns]
                own = [(a_at + at) * height + i if height > 1 else a_row * i + a_at + at
                       for i in range(rows)]  # fmt: skip
                a = [ir.Load(ir.Type(float32), "a", each) for each in own]
                sums.add(a, b, dot_pairs)
                if u == 0 and not last:
                    code.emit(ir.Prefetch("b", ahead_at(), far=True))
                    ahead_at += step
    for i, j in sums.indices:
        code.emit(ir.Store("c", constant(i * tile.width + j * lanes), sums[i, j]))
    return micro_function(
        f"{prefix}_{rows}x{vectors}", code.written, *scalars_of(PAIRS), word=PAIRS
    )


def prefetch_part(
    tile: Tile, number: ir.Value, words: ir.Value, panel: ir.Value
) -> dict[str, ir.Value]:
    """Return the scalars of tile `number` of a block, `panel` elements before the next panel.

    The first tiles prefetch a part of it each, a line in an unrolled step.
    """
    own = number < tile.vectors * tile.unroll
    further = panel + number * (words * (tile.lanes // tile.unroll))
    return {"ahead": select(own, further, 0), "step": select(own, constant(tile.lanes), 0)}


def narrow_function(prefix: str) -> ir.Function:
    """Return the declaration of the function for a panel of rows by up to MAX_NARROW columns."""
    return micro_function(f"{prefix}_narrow", (), *scalars_of(PAIRS), "columns", word=PAIRS)


def _narrow(tile: Tile, height: int, prefix: str) -> tuple[ir.Function, ...]:
    kernels = [_along_rows(tile, height, count, prefix) for count in range(1, MAX_NARROW + 1)]
    cases = tuple((count, (call(kernel),)) for count, kernel in enumerate(kernels, 1))
    body = (ir.Switch(variable("columns"), cases),)
    return (*kernels, replace(narrow_function(prefix), body=body, public=True))


def _along_rows(tile: Tile, height: int, columns: int, prefix: str) -> ir.Function:
    """Return the sums of a panel of rows by a few columns: vectors run along rows.

    The terms of an element are those of `_micro`, in the same order.
    """
    code, lanes, vector = Writer(), tile.lanes, ir.Type(float32, tile.lanes)
    words, _, runs, a_run, b_run, *_ = map(variable, scalars_of(PAIRS))
    sums = Accumulators(code, vector, columns, height // lanes)
    sums.declare()
    with code.range(0, runs) as run:
        a_at, b_at = code.let(run * a_run), code.let(run * b_run)
        with code.range(0, words) as word:
            at = code.let((a_at + word) * height)
            parts = [code.let(ir.Load(vector, "a", at + j)) for j in range(0, height, lanes)]
            to = code.let((b_at + word) * tile.width)
            b = [ir.Load(ir.Type(float32), "b", to + i) for i in range(columns)]
            sums.add(b, parts, dot_pairs)
    code.emit(ir.Stack("turned", float32, columns * height))
    for i, j in sums.indices:
        code.emit(ir.Store("turned", constant(i * height + j * lanes), sums[i, j]))
    with code.range(0, height) as row:
        for i in range(columns):
            value = ir.Load(ir.Type(float32), "turned", row + i * height)
            code.emit(ir.Store("c", row * tile.width + i, value))
    return micro_function(f"{prefix}_along{columns}", code.written, *scalars_of(PAIRS), word=PAIRS)
