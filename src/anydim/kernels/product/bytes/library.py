"""What no model changes of a product of bytes: a tile of sums held in vector registers.

    c[i, j] = sum over words of a[i, word] . b[word, j]       i < rows, j < vectors

`rows` x `vectors` accumulators live in registers; each word loads one row of a panel and a word of
every row of a, for all columns. Where the tile is small, several sums per element hide latency.

On machines with registers for tiles (`ir.Tiles`) they are up to 2 x 2 of those, sums of 16 x 16,
and rows are computed 16 at a time, whether all of them are there or not.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import int32
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.micro import Tile
from anydim.kernels.write.arithmetic import (
    compare,
    loop,
    plus,
    quotient_up,
    round_down,
    times,
    variable,
)
from anydim.kernels.write.values import number, operate

TILE_SCALARS = ("words", "a_row", "rows", "columns")
MOST_TILES = 2  # of rows and of columns: eight hold them and their sums
FEW_ROWS = 4  # with tiles: so few are faster with vectors
_MICRO_SCALARS = ("words", "a_row")


def dot(unsigned: ir.Value, signed: ir.Value, total: ir.Value) -> ir.Value:
    """total + the products of four unsigned and four signed bytes in each lane."""
    return ir.Op(total.type, "dot_bytes", (unsigned, signed, total))


def bytes_prefix(tile: Tile, a_unsigned: bool, depth: int) -> str:
    """What the names of a library's functions begin with: unlike for unlike tiles."""
    sign = "u" if a_unsigned else "s"
    by = f"x{depth}" if depth > 1 else ""
    return f"bytes_{sign}_{tile.rows}x{tile.vectors}x{tile.lanes}{by}_{tile.unroll}"


def tiles_of_words(machine: Machine) -> Tile | None:
    """The tile of a machine that has registers for tiles: four of them hold sums."""
    return Tile(MOST_TILES * ir.TILE, MOST_TILES, 2, ir.TILE) if machine.tiles else None


@lru_cache(maxsize=16)
def bytes_library(tile: Tile, a_unsigned: bool, depth: int) -> ir.Library:
    """The library for a register tile, the sign of a, and the words that it takes at once."""
    prefix = bytes_prefix(tile, a_unsigned, depth)
    return ir.Library(prefix, partial(_functions, tile, a_unsigned, depth, prefix), identity=prefix)


def _functions(tile: Tile, a_unsigned: bool, depth: int, prefix: str) -> tuple[ir.Function, ...]:
    few = FEW_ROWS if depth > 1 else tile.rows
    columns = range(1, tile.vectors + 1)
    shapes = [(rows, vectors) for rows in range(1, few + 1) for vectors in columns]
    kernels = [_micro(tile, rows, vectors, a_unsigned, prefix) for rows, vectors in shapes]
    whole = [(rows, vectors) for rows in range(depth, tile.rows + 1, depth) for vectors in columns]
    if depth > 1:
        shapes += whole
        kernels += [_tiles(tile, rows, vectors, a_unsigned, prefix) for rows, vectors in whole]
    arguments: tuple[ir.Value | ir.Address, ...] = (
        *(ir.Address(name, plus(0)) for name in "abc"),
        *(variable(name) for name in _MICRO_SCALARS),
    )
    cases = tuple(
        (rows * (tile.vectors + 1) + vectors, (ir.Call(f"{prefix}_{rows}x{vectors}", arguments),))
        for rows, vectors in shapes
    )
    vectors = quotient_up(variable("columns"), tile.lanes)
    rows: ir.Value = variable("rows")
    if depth > 1:
        is_few = compare("less_equal", rows, few)
        rows = operate("select", is_few, rows, times(quotient_up(rows, depth), depth))
    key = plus(times(rows, tile.vectors + 1), vectors)
    dispatch = ir.Function(
        f"{prefix}_tile",
        (*_pointers(), *(ir.Scalar(name) for name in TILE_SCALARS)),
        (ir.Switch(key, cases),),
        public=True,
    )
    return (*kernels, dispatch)


def _pointers() -> tuple[ir.Pointer, ...]:
    return (ir.Pointer("a", int32), ir.Pointer("b", int32), ir.Pointer("c", int32))


def _sets(rows: int, vectors: int) -> int:
    """Independent sums per element of C: a small tile alone cannot hide the latency of a dot."""
    accumulators = rows * vectors
    return 4 if accumulators <= 3 else 2 if accumulators <= 6 else 1


def _tiles(tile: Tile, rows: int, vectors: int, a_unsigned: bool, prefix: str) -> ir.Function:
    """Sums in tiles 0 to 3, two of a behind them, two of b last."""
    a_tiles, b_tiles = range(rows // ir.TILE), range(vectors)
    a_row, width = variable("a_row"), plus(tile.width)

    def memory(number: int, buffer: str, *at: ir.Value, row: ir.Value) -> ir.TileMemory:
        return ir.TileMemory(number, buffer, plus(*at), row, buffer == "c")

    word = variable("word")
    steps: list[ir.Step] = [
        memory(6 + j, "b", times(word, width), plus(j * ir.TILE), row=width) for j in b_tiles
    ]
    for i in a_tiles:
        steps.append(memory(4 + i, "a", times(a_row, i * ir.TILE), word, row=a_row))
        steps += [ir.TileDots(2 * i + j, 4 + i, 6 + j, a_unsigned) for j in b_tiles]
    places = [(i, j) for i in a_tiles for j in b_tiles]
    ends = {(i, j): plus(i * ir.TILE * tile.width + j * ir.TILE) for i, j in places}
    body: tuple[ir.Step, ...] = (
        *(ir.TileZero(2 * i + j) for i, j in places),
        loop("word", 0, variable("words"), ir.TILE, *steps),
        *(memory(2 * i + j, "c", ends[i, j], row=width) for i, j in places),
    )
    scalars = (ir.Scalar(name) for name in _MICRO_SCALARS)
    return ir.Function(f"{prefix}_{rows}x{vectors}", (*_pointers(), *scalars), body)


def _micro(tile: Tile, rows: int, vectors: int, a_unsigned: bool, prefix: str) -> ir.Function:
    vector = ir.Type(int32, tile.lanes)
    sets = _sets(rows, vectors)
    places = [(i, j) for i in range(rows) for j in range(vectors)]

    def name(i: int, j: int, part: int = 0) -> str:
        return f"c{i}_{j}_{part}"

    def step(word: str, u: int) -> list[ir.Step]:
        at = plus(variable(word), u)
        steps: list[ir.Step] = []
        for j in range(vectors):
            place = plus(times(at, tile.width), j * tile.lanes)
            steps.append(ir.Let(f"{word}b{u}_{j}", ir.Load(vector, "b", place)))
        for i in range(rows):
            scalar = ir.Load(ir.Type(int32), "a", plus(times(variable("a_row"), i), at))
            steps.append(ir.Let(f"{word}a{u}_{i}", ir.Splat(vector, scalar)))
            for j in range(vectors):
                a = ir.Var(vector, f"{word}a{u}_{i}")
                b = ir.Var(vector, f"{word}b{u}_{j}")
                register = name(i, j, u % sets)
                left, right = (a, b) if a_unsigned else (b, a)
                total = dot(left, right, ir.Get(vector, register))
                steps.append(ir.Assign(register, total))
        return steps

    unroll = tile.unroll
    whole = round_down(variable("words"), unroll)
    unrolled = [each for u in range(unroll) for each in step("w0", u)]
    zero = number(int32, 0, tile.lanes)
    joined: list[ir.Step] = []
    for part in range(1, sets):
        for i, j in places:
            both = (ir.Get(vector, name(i, j)), ir.Get(vector, name(i, j, part)))
            joined.append(ir.Assign(name(i, j), operate("add", *both)))
    body = (
        ir.Let("whole", whole),
        *(ir.Declare(name(i, j, part), zero) for part in range(sets) for i, j in places),
        loop("w0", 0, variable("whole"), unroll, *unrolled),
        loop("w1", variable("whole"), variable("words"), 1, *step("w1", 0)),
        *joined,
        *(
            ir.Store("c", plus(i * tile.width + j * tile.lanes), ir.Get(vector, name(i, j)))
            for i, j in places
        ),
    )
    scalars = (ir.Scalar(name) for name in _MICRO_SCALARS)
    return ir.Function(f"{prefix}_{rows}x{vectors}", (*_pointers(), *scalars), body)
