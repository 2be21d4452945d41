"""Shape-independent micro-kernels of convolutions, compiled once per tile and element type.

    c[i, j] = start + sum over k of a[k, i] * b[k, j]     i < rows, j < columns

`tile` dispatches to the micro-kernel of its rows and columns, `whole` for all rows of a tile. A is
packed: `tile.rows` elements for every k, consecutive k adjacent, and `gap` elements after every
`span` of them. Rows of B and C may have any stride. Sums start from a bias per row (`start` 1) or
continue from C (`start` 0). At the end (`finish` is a sum of flags) an element of another tensor
with the layout of C is added, and results are clamped to `low` and `high`.
Nothing is read or written after the last column.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient_up
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import least, variable
from anydim.compiler.kernels.matmul.convolution_tile import (
    GIVEN,
    LineBufferMicro,
    Micro,
    Tall,
    TileParameters,
)
from anydim.compiler.kernels.matmul.matmul_kernel import call, function_library, shared_library
from anydim.compiler.kernels.matmul.register_tile import Tile
from anydim.sizes import Size

STRIP = 4  # tiles per strip
_INTERLEAVED = {4: 2, 2: 6}  # the first entry that fits is used


def prefix_of(tile: Tile, dtype: DType, kind: type[Micro] = Micro) -> str:
    """Return the prefix of a library's function names, unique per tile and element type."""
    return f"{kind.kind}_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


def choose_micro_kernel(tile: Tile, dtype: DType, rows: Size) -> tuple[str, tuple[ir.Library, ...]]:
    """Return the tile function that a kernel of `rows` rows calls, and the libraries it needs.

    Row counts that are always whole tiles need a small part of all micro-kernels.
    """
    prefix, (whole, few) = prefix_of(tile, dtype), convolution_libraries(tile, dtype)
    if rows.constant is not None and rows.constant % tile.rows == 0:
        return f"{prefix}_whole", (whole,)
    return f"{prefix}_tile", (whole, few)


@lru_cache(maxsize=16)
def convolution_libraries(tile: Tile, dtype: DType) -> tuple[ir.Library, ir.Library]:
    """Return the libraries for the largest register tile of a machine and an element type.

    The first has tiles of all rows, the second tiles of fewer rows, and `tile`.
    """
    prefix = prefix_of(tile, dtype)
    return (
        shared_library(prefix, dtype, partial(_whole, tile, dtype, prefix)),
        shared_library(f"{prefix}_few", dtype, partial(_few, tile, dtype, prefix)),
    )


@lru_cache(maxsize=16)
def line_buffer_libraries(tile: Tile, dtype: DType) -> tuple[ir.Library, ...]:
    """Return full-height tiles that read a line buffer, and strips of them (last library)."""
    prefix = prefix_of(tile, dtype, LineBufferMicro)
    one = shared_library(prefix, dtype, partial(_tiles, tile, dtype, prefix, LineBufferMicro))
    return one, strips(tile, dtype, f"{prefix}_whole", LineBufferMicro)


def _whole(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    return (
        *_tiles(tile, dtype, prefix),
        *(
            _tall(tile, dtype, columns, tiles)
            for tiles, max_columns in interleaved_tiles(tile).items()
            for columns in range(1, max_columns + 1)
        ),
    )


def _few(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    rows = range(1, tile.rows)
    kernels = (_micro_kernels(tile, dtype, prefix, count) for count in rows)
    return (*chain.from_iterable(kernels), _tile(tile, dtype, prefix))


def _micro_kernels(
    tile: Tile, dtype: DType, prefix: str, rows: int, kind: type[Micro] = Micro
) -> list[ir.Function]:
    """Return a micro-kernel for each number of vectors."""
    return [
        tile_function(
            f"{prefix}_{rows}x{vectors}", dtype, kind(tile, rows, vectors, dtype).body(), kind=kind
        )
        for vectors in range(1, tile.vectors + 1)
    ]


def _tiles(
    tile: Tile, dtype: DType, prefix: str, kind: type[Micro] = Micro
) -> tuple[ir.Function, ...]:
    """Return the micro-kernels of all rows, and `whole`, which dispatches by columns."""
    vectors = quotient_up(GIVEN.columns, tile.lanes)
    every = {n: f"{prefix}_{tile.rows}x{n}" for n in range(1, tile.vectors + 1)}
    body = ir.Switch(vectors, _cases(dtype, every, kind))
    return (
        *_micro_kernels(tile, dtype, prefix, tile.rows, kind),
        tile_function(f"{prefix}_whole", dtype, (body,), True, kind),
    )


def interleaved_tiles(tile: Tile) -> Mapping[int, int]:
    """Return counts of interleaved row tiles, with their maximum columns (rows along vectors)."""
    return _INTERLEAVED if tile.rows in (4, 8, 16) and tile.lanes >= tile.rows else {}


def tall_name(tile: Tile, dtype: DType, columns: int, tiles: int) -> str:
    return f"{prefix_of(tile, dtype)}_tall_{tiles}x{columns}"


def _tall(tile: Tile, dtype: DType, columns: int, tiles: int) -> ir.Function:
    body = Tall(tile, columns, tiles, dtype).body()
    return strip_function(tall_name(tile, dtype, columns, tiles), dtype, body, public=True)


def tile_function(
    name: str, dtype: DType, body: tuple[ir.Step, ...] = (), public: bool = False,
    kind: type[Micro] = Micro,
) -> ir.Function:  # fmt: skip
    """Return `tile`, `whole` or a micro-kernel, with equal parameters; a callee needs no body."""
    parameters: list[ir.Pointer | ir.Scalar] = [
        *(ir.Pointer(each, dtype) for each in ("a", "b")),
        *(ir.Pointer(each, dtype, alias=True) for each in ("c", "bias", "more")),
        *kind.more,
        *(ir.Scalar(each) for each in TileParameters.__annotations__ if each != GIVEN.a_row.name),
        *(ir.Scalar(each, ir.Type(dtype)) for each in ("low", "high")),
    ]
    return ir.Function(name, tuple(parameters), body, public=public)


def strip_function(
    name: str, dtype: DType, body: tuple[ir.Step, ...] = (), public: bool = False,
    kind: type[Micro] = Micro,
) -> ir.Function:  # fmt: skip
    """Return a `tile_function` of several tiles of rows: A has `a_row` elements for each row."""
    tile = tile_function(name, dtype, body, public, kind)
    return replace(tile, parameters=(*tile.parameters, ir.Scalar(GIVEN.a_row.name)))


@lru_cache(maxsize=32)
def strips(tile: Tile, dtype: DType, one: str, kind: type[Micro] = Micro) -> ir.Library:
    """Return the library of `{one}_strip`: up to `STRIP` tiles of rows, each by the function `one`.

    Sums are over k in order, with the same bits in any columns; several tiles of few columns are
    interleaved, to hide the latency of a sum.
    """
    name = f"{one}_strip"

    def make_functions() -> tuple[ir.Function, ...]:
        code, columns = Writer(), GIVEN.columns
        row = code.variable(0)
        with code.loop(lambda: row() < GIVEN.rows):
            at = row()
            remaining = code.let(GIVEN.rows - at)
            own = {
                "a": ir.Address("a", at * GIVEN.a_row),
                "bias": ir.Address("bias", at * GIVEN.bias_step),
                "c": ir.Address("c", at * GIVEN.c_row),
                "more": ir.Address("more", at * GIVEN.c_row),
            }
            rows = code.let(least(remaining, tile.rows))
            tiles = call(tile_function(one, dtype, kind=kind), **own, rows=rows)
            interleaved = interleaved_tiles(tile) if kind is Micro else {}
            with ExitStack() as otherwise:
                for count, max_columns in interleaved.items():
                    with code.when((columns <= max_columns) & (remaining >= count * tile.rows)):
                        names = {
                            n: tall_name(tile, dtype, n, count) for n in range(1, max_columns + 1)
                        }
                        cases = {n: call(strip_function(own_name, dtype), **own)
                                 for n, own_name in names.items()}  # fmt: skip
                        code.emit(ir.Switch(columns, tuple((n, (c,)) for n, c in cases.items())))
                        row += count * tile.rows
                    otherwise.enter_context(code.otherwise())
                code.emit(tiles)
                row += rows
        return (strip_function(name, dtype, code.written, True, kind),)

    return shared_library(name, dtype, make_functions)


@lru_cache(maxsize=16)
def images(dtype: DType, lanes: int, into: bool) -> ir.Library:
    """Return the library that copies rows of sums to their images, or back with `into`."""
    name = f"windows_{dtype}_{lanes}_images{'_in' * into}"
    pointers = (ir.Pointer(each, dtype, alias=True) for each in ("sums", "y"))
    scalars = ("rows", "c_row", "y_row", "images", "run", "y_image")

    def write(code: Writer) -> None:
        run = variable("run")
        with (
            code.range(0, variable("images")) as image,
            code.range(0, variable("rows")) as row,
            code.range(0, run, lanes) as at,
        ):
            mask = code.let(first_lanes(run - at, lanes))
            sums = code.let(row * variable("c_row") + image * run + at)
            y = code.let(image * variable("y_image") + row * variable("y_row") + at)
            target, to, source, offset = ("sums", sums, "y", y) if into else ("y", y, "sums", sums)
            found = ir.Load(ir.Type(dtype, lanes), source, offset, mask)
            code.emit(ir.Store(target, to, found, mask))

    return function_library(name, pointers, write, dtype, scalars)


def _tile(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """Return the function for `rows` x `columns`, at most a full tile."""
    vectors = quotient_up(GIVEN.columns, tile.lanes)
    key = GIVEN.rows * (tile.vectors + 1) + vectors
    names = {
        rows * (tile.vectors + 1) + count: f"{prefix}_{rows}x{count}"
        for rows in range(1, tile.rows)
        for count in range(1, tile.vectors + 1)
    }
    some = ir.Switch(key, _cases(dtype, names))
    all_rows = GIVEN.rows.equals(tile.rows)
    whole = call(tile_function(f"{prefix}_whole", dtype))
    body = ir.If(all_rows, (whole,), (some,))
    return tile_function(f"{prefix}_tile", dtype, (body,), public=True)


def _cases(
    dtype: DType, names: Mapping[int, str], kind: type[Micro] = Micro
) -> tuple[tuple[int, tuple[ir.Step, ...]], ...]:
    """Return the call of a micro-kernel for each number."""
    return tuple((n, (call(tile_function(name, dtype, kind=kind)),)) for n, name in names.items())
