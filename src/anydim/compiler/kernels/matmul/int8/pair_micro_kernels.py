"""Shape-independent micro-kernels of bfloat16 products: a tile of float32 sums in registers.

    c[i, j] = sum over words of a[i, word] . b[word, j]       i < rows, j < vectors

Every element is one sum over all words in order, by one instruction: a row has the same bits with
any other rows. On machines with tile registers all products use those, a single row too, because
they sum in another order than vectors ('dot_bfloat16' and `ir.TilePairs` define both).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.dtypes import float32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient_up, round_down
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, variable
from anydim.compiler.kernels.matmul.accumulators import Accumulators
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import (
    MICRO_SCALARS,
    micro_function,
    tile_function,
    tile_kernel,
)
from anydim.compiler.kernels.matmul.int8.word_types import PAIRS
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.register_tile import Tile


@lru_cache(maxsize=16)
def pair_library(tile: Tile, depth: int) -> ir.Library:
    """Return the library for a register tile, and the words per product."""
    by = f"x{depth}" if depth > 1 else ""
    prefix = f"pairs_{tile.rows}x{tile.vectors}x{tile.lanes}{by}_{tile.unroll}"
    return ir.Library(prefix, partial(_functions, tile, depth, prefix), identity=prefix)


def _functions(tile: Tile, depth: int, prefix: str) -> tuple[ir.Function, ...]:
    heights = range(depth, tile.rows + 1, depth)
    shapes = [(rows, vectors) for rows in heights for vectors in range(1, tile.vectors + 1)]
    made = partial(tile_kernel, dots=ir.TilePairs, word=PAIRS) if depth > 1 else _micro
    kernels = [made(tile, rows, vectors, prefix) for rows, vectors in shapes]
    cases = tuple(
        (rows * (tile.vectors + 1) + vectors, (call(kernel),))
        for (rows, vectors), kernel in zip(shapes, kernels)
    )
    vectors = quotient_up(variable("columns"), tile.lanes)
    rows = quotient_up(variable("rows"), depth) * depth
    body = (ir.Switch(rows * (tile.vectors + 1) + vectors, cases),)
    return (*kernels, replace(tile_function(prefix, PAIRS), body=body, public=True))


def _micro(tile: Tile, rows: int, vectors: int, prefix: str) -> ir.Function:
    code, lanes, vector = Writer(), tile.lanes, ir.Type(float32, tile.lanes)
    words, a_row = map(variable, MICRO_SCALARS)
    sums = Accumulators(code, vector, rows, vectors)
    sums.declare()
    whole = code.let(round_down(words, tile.unroll))
    for word, last in code.blocks(0, whole, words, tile.unroll, 1):
        for u in range(1 if last else tile.unroll):
            at = word + u
            columns = [at * tile.width + j * lanes for j in range(vectors)]
            b = [code.let(ir.Load(vector, "b", column)) for column in columns]
            a = [ir.Load(ir.Type(float32), "a", a_row * i + at) for i in range(rows)]
            sums.add(a, b, _dot)
    for i, j in sums.indices:
        code.emit(ir.Store("c", constant(i * tile.width + j * lanes), sums[i, j]))
    return micro_function(f"{prefix}_{rows}x{vectors}", code.written, *MICRO_SCALARS, word=PAIRS)


def _dot(a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    return ir.Op(total.type, "dot_bfloat16", (a, b, total))
