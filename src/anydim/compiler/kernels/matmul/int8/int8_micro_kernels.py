"""Shape-independent micro-kernels of int8 products: a tile of sums held in vector registers.

    c[i, j] = sum over words of a[i, word] . b[word, j]       i < rows, j < vectors

`rows` x `vectors` accumulators stay in registers; each word loads one row of a panel and one word
of every row of a, for all columns. Small tiles have several sums per element, to hide latency.

On machines with tile registers (`ir.Tiles`) the kernel uses up to 2 x 2 of them, with sums of
16 x 16, and computes 16 rows at a time, even if some are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.dtypes import int32, int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, loop, quotient_up, round_down
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, iota, number, select, splat, variable
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.accumulators import Accumulators
from anydim.compiler.kernels.matmul.int8.word_types import BYTES, WordType
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.register_tile import Tile

MAX_TILES = 2  # of rows and of columns: eight registers hold them and their sums
NARROW = 2  # divisor of a register's lanes for the narrow variant, `vectors` 0, in half the time
# Few columns: 1.5 to 2.2 -> 0.7 to 1.4.
MAX_ALONG, MIN_ALONG = 2, 32  # maximum columns and minimum words for sums along the words
FEW_ROWS = 4  # with tile registers: up to this many rows are faster with vectors
MICRO_SCALARS = ("words", "a_row")
# Of bfloat16: runs of words, words between them; where to prefetch b, by which step.
RUN_SCALARS = ("runs", "a_run", "b_run", "ahead", "step")


def dot(unsigned: ir.Value, signed: ir.Value, total: ir.Value) -> ir.Value:
    """Return total + the products of four unsigned and four signed bytes in each lane."""
    return ir.Op(total.type, "dot_bytes", (unsigned, signed, total))


def bytes_prefix(tile: Tile, a_unsigned: bool, depth: int) -> str:
    """Return the prefix of a library's function names, unique per tile, sign and depth."""
    sign = "u" if a_unsigned else "s"
    by = f"x{depth}" if depth > 1 else ""
    return f"bytes_{sign}_{tile.rows}x{tile.vectors}x{tile.lanes}{by}_{tile.unroll}"


def tiles_of_words(machine: Machine, word: WordType = BYTES) -> Tile | None:
    """Return the tile of a machine with tile registers: four of them hold sums; else None."""
    has_tiles = machine.tiles if word == BYTES else machine.pair_tiles
    return Tile(MAX_TILES * ir.TILE, MAX_TILES, 2, ir.TILE) if has_tiles else None


@lru_cache(maxsize=16)
def bytes_library(tile: Tile, a_unsigned: bool, depth: int) -> ir.Library:
    """Return the library for a register tile, the sign of a, and the words per product."""
    prefix = bytes_prefix(tile, a_unsigned, depth)
    vectors = depth == 1
    made = partial(_functions, tile, a_unsigned, depth, prefix)
    return ir.Library(prefix, made, prefix, portable=vectors, dots=vectors)


def _functions(tile: Tile, a_unsigned: bool, depth: int, prefix: str) -> tuple[ir.Function, ...]:
    few = FEW_ROWS if depth > 1 else tile.rows
    columns = range(1, tile.vectors + 1)
    narrow = tile.lanes // NARROW if tile.lanes >= 4 * NARROW and depth == 1 else 0
    shapes = [
        (rows, vectors)
        for rows in range(1, few + 1)
        for vectors in ((0, *columns) if narrow else columns)
    ]
    kernels = [_micro(tile, rows, vectors, a_unsigned, prefix) for rows, vectors in shapes]
    whole = [(rows, vectors) for rows in range(depth, tile.rows + 1, depth) for vectors in columns]
    if depth > 1:
        shapes += whole
        dots = partial(ir.TileDots, unsigned=a_unsigned)
        kernels += [tile_kernel(tile, rows, vectors, prefix, dots) for rows, vectors in whole]
    cases = tuple(
        (rows * (tile.vectors + 1) + vectors, (call(kernel),))
        for (rows, vectors), kernel in zip(shapes, kernels)
    )
    vectors = quotient_up(variable("columns"), tile.lanes)
    if narrow:
        vectors = select(variable("columns") <= narrow, 0, vectors)
    rows: ir.Value = variable("rows")
    if depth > 1:
        is_few = rows <= few
        rows = select(is_few, rows, quotient_up(rows, depth) * depth)
    body: tuple[ir.Step, ...] = (ir.Switch(rows * (tile.vectors + 1) + vectors, cases),)
    if narrow:
        kernels.append(_along(tile, a_unsigned, prefix))
        few_long = (variable("columns") <= MAX_ALONG) & (variable("words") >= MIN_ALONG)
        body = (ir.If(few_long & rows.equals(tile.rows), (call(kernels[-1]),), body),)
    return (*kernels, replace(tile_function(prefix), body=body, public=True))


def tile_function(prefix: str, word: WordType = BYTES) -> ir.Function:
    """Return the declaration of the function for a tile of any size, for its callers."""
    return micro_function(f"{prefix}_tile", (), *scalars_of(word), "rows", "columns", word=word)


def scalars_of(word: WordType) -> tuple[str, ...]:
    """Return the scalars of a kernel."""
    return MICRO_SCALARS if word == BYTES else (*MICRO_SCALARS, *RUN_SCALARS)


def micro_function(
    name: str, body: tuple[ir.Step, ...], *scalars: str, word: WordType = BYTES
) -> ir.Function:
    """Return a function of words of a and b, and of sums c."""
    pointers = (ir.Pointer(each, word.total) for each in "abc")
    return ir.Function(name, (*pointers, *(ir.Scalar(each) for each in scalars)), body)


def _sets(rows: int, vectors: int) -> int:
    """Return the independent sums per element of C, which hide the latency of a dot product."""
    accumulators = rows * (vectors or 0.5)
    return 4 if accumulators <= 3 else 2 if accumulators <= 6 else 1


def tile_kernel(
    tile: Tile, rows: int, vectors: int, prefix: str,
    dots: Callable[[int, int, int], ir.Step], word: WordType = BYTES,
    parts: Sequence[tuple[int, int]] = ((0, 0),),
) -> ir.Function:  # fmt: skip
    """Return a kernel with sums in tile registers 0 to 3, a in 4 and 5, and b in 6 and 7.

    `parts` are the parts of a and b that are multiplied, `words` words from each other.
    """
    a_tiles, b_tiles = range(rows // ir.TILE), range(vectors)
    a_row, width = variable("a_row"), constant(tile.width)

    def memory(number: int, buffer: str, *at: ir.Value, row: ir.Value) -> ir.TileMemory:
        return ir.TileMemory(number, buffer, index_sum(*at), row, buffer == "c")

    def word_of(part: int) -> ir.Value:
        return variable("word") + variable("words") * part if part else variable("word")

    steps: list[ir.Step] = []
    for (left, right), (old, before) in zip(parts, ((-1, -1), *parts)):
        if right != before:
            at = word_of(right) * width
            steps += [memory(6 + j, "b", at, constant(j * ir.TILE), row=width) for j in b_tiles]
        for i in a_tiles:
            if left != old:
                at = word_of(left)
                steps.append(memory(4 + i, "a", a_row * (i * ir.TILE), at, row=a_row))
            steps += [dots(2 * i + j, 4 + i, 6 + j) for j in b_tiles]
    indices = [(i, j) for i in a_tiles for j in b_tiles]
    ends = {(i, j): constant(i * ir.TILE * tile.width + j * ir.TILE) for i, j in indices}
    body: tuple[ir.Step, ...] = (
        *(ir.TileZero(2 * i + j) for i, j in indices),
        loop("word", 0, variable("words"), ir.TILE, *steps),
        *(memory(2 * i + j, "c", ends[i, j], row=width) for i, j in indices),
    )
    return micro_function(f"{prefix}_{rows}x{vectors}", body, *scalars_of(word), word=word)


def _micro(tile: Tile, rows: int, vectors: int, a_unsigned: bool, prefix: str) -> ir.Function:
    code, lanes = Writer(), tile.lanes if vectors else tile.lanes // NARROW
    parts, name = range(_sets(rows, vectors)), f"{prefix}_{rows}x{vectors}"
    vectors, vector = max(vectors, 1), ir.Type(int32, lanes)
    words, a_row = map(variable, MICRO_SCALARS)
    sets = [Accumulators(code, vector, rows, vectors, f"c{part}_") for part in parts]

    def multiply_add(a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        return dot(a, b, total) if a_unsigned else dot(b, a, total)

    def step(at: ir.Value, sums: Accumulators) -> None:
        columns = [at * tile.width + j * lanes for j in range(vectors)]
        b = [code.let(ir.Load(vector, "b", column)) for column in columns]
        sums.add(
            [ir.Load(ir.Type(int32), "a", a_row * i + at) for i in range(rows)], b, multiply_add
        )

    whole = code.let(round_down(words, tile.unroll))
    for each in sets:
        each.declare()
    for word, last in code.blocks(0, whole, words, tile.unroll, 1):
        for u in range(1 if last else tile.unroll):
            step(word + u, sets[u % len(sets)])
    sums, *others = sets
    for other in others:
        for index in sums.indices:
            sums[index] = sums[index] + other[index]
    for i, j in sums.indices:
        code.emit(ir.Store("c", constant(i * tile.width + j * lanes), sums[i, j]))
    return micro_function(name, code.written, *MICRO_SCALARS)


def _along(tile: Tile, a_unsigned: bool, prefix: str) -> ir.Function:
    """Return full tiles by a few columns, one by one: vectors along words, reduced at the end."""
    code, lanes, width = Writer(), tile.lanes, tile.width
    vector, words = ir.Type(int32, lanes), variable("words")
    lane_offsets = code.let(iota(lanes) * number(int64, width, lanes))
    with code.range(0, variable("columns")) as j:
        sums = [code.variable(number(int32, 0, lanes)) for _ in range(tile.rows)]

        def step(at: ir.Value, mask: ir.Value | None) -> None:
            offsets = lane_offsets + splat(at * width + j, lanes)
            b = code.let(ir.Gather(vector, "b", offsets, mask))
            for i, total in enumerate(sums):
                a = ir.Load(vector, "a", variable("a_row") * i + at, mask)
                total.set(dot(a, b, total()) if a_unsigned else dot(b, a, total()))

        code.sweep(0, words, lanes, step)
        for i, total in enumerate(sums):
            code.emit(ir.Store("c", j + i * width, total().reduce_lanes("add")))
    return micro_function(f"{prefix}_along", code.written, *MICRO_SCALARS, "columns")
