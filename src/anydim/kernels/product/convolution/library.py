"""What no model changes of a convolution: compiled once per register tile and element type.

    c[i, j] = start + sum over k of a[k, i] * b[k, j]     i < rows, j < columns

`tile` picks the micro-kernel for some rows and columns, `whole` for
all rows of a tile. A is packed: `tile.rows` elements for every
k, one k behind the other. Rows of B and C may have any stride. Sums start from a bias per row
(`start` 1) or go on from C (`start` 0). At the end (`finish` is a sum of flags) an element of
another tensor that lies like C is added, and results are kept above `low` and below `high`.
Nothing is read or written behind the last column.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.ir import constant, least, operate, register, select, splat, variable
from anydim.kernels.product.kernel import call, function_library
from anydim.kernels.product.micro import LINE, Tile
from anydim.kernels.product.sums import Sums, multiply_add
from anydim.kernels.write.arithmetic import first_lanes, quotient_up, round_down
from anydim.kernels.write.writer import Writer
from anydim.sizes import Size

_SCALARS = ("k", "b_row", "c_row", "bias_step", "rows", "columns", "start", "finish")
ADDS, FLOORS, CAPS, IN_ORDER = 1, 2, 4, 8  # flags of `finish`
_AHEAD = 256  # elements of A that are asked for ahead
NARROWEST = 6  # columns for which vectors along the rows of a tile are faster
STRIP = 4  # tiles of a strip
_TALL = {columns: 4 if columns <= 2 else 2 for columns in range(1, NARROWEST + 1)}  # tiles at once


def prefix_of(tile: Tile, dtype: DType) -> str:
    """What the names of a library's functions begin with: unlike for unlike tiles."""
    return f"windows_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


def called(tile: Tile, dtype: DType, rows: Size) -> tuple[str, tuple[ir.Library, ...]]:
    """What a kernel of so many rows calls for each tile, and the libraries that takes.

    Rows that are whole tiles, whatever sizes come, take a small part of all micro-kernels.
    """
    prefix, (whole, few) = prefix_of(tile, dtype), convolution_libraries(tile, dtype)
    if rows.constant is not None and rows.constant % tile.rows == 0:
        return f"{prefix}_whole", (whole,)
    return f"{prefix}_tile", (whole, few)


@lru_cache(maxsize=16)
def convolution_libraries(tile: Tile, dtype: DType) -> tuple[ir.Library, ir.Library]:
    """The libraries for the largest register tile of a machine and an element type.

    One has tiles of all rows, the other one those of fewer, and `tile`.
    """
    prefix = prefix_of(tile, dtype)
    few = f"{prefix}_few"
    return (
        ir.Library(prefix, partial(_whole, tile, dtype, prefix), identity=prefix),
        ir.Library(few, partial(_few, tile, dtype, prefix), identity=few),
    )


def _whole(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    return (
        *_micro_kernels(tile, dtype, prefix, tile.rows),
        *(_narrow(tile, dtype, prefix, columns) for columns in narrow_columns(tile)),
        *(_tall(tile, dtype, prefix, columns) for columns in narrow_columns(tile)),
        _of_all_rows(tile, dtype, prefix),
    )


def _few(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    rows = range(1, tile.rows)
    kernels = (_micro_kernels(tile, dtype, prefix, count) for count in rows)
    return (*chain.from_iterable(kernels), _tile(tile, dtype, prefix))


def _micro_kernels(tile: Tile, dtype: DType, prefix: str, rows: int) -> list[ir.Function]:
    """A micro-kernel for each number of vectors."""
    return [
        tile_function(
            f"{prefix}_{rows}x{vectors}", dtype, _Micro(tile, rows, vectors, dtype).body()
        )
        for vectors in range(1, tile.vectors + 1)
    ]


def _narrow(tile: Tile, dtype: DType, prefix: str, columns: int) -> ir.Function:
    return tile_function(f"{prefix}_narrow_{columns}", dtype, _Narrow(tile, columns, dtype).body())


def _tall(tile: Tile, dtype: DType, prefix: str, columns: int) -> ir.Function:
    body = _Tall(tile, columns, dtype).body()
    return strip_function(f"{prefix}_tall_{columns}", dtype, body, public=True)


def narrow_columns(tile: Tile) -> range:
    """The numbers of columns for which rows, not columns, go along vectors."""
    return range(1, NARROWEST + 1 if tile.rows in (4, 8, 16) and tile.lanes >= tile.rows else 1)


def tile_function(
    name: str, dtype: DType, body: tuple[ir.Step, ...] = (), public: bool = False
) -> ir.Function:
    """`tile`, `whole` or a micro-kernel: their parameters are alike. Callers need no body."""
    parameters: list[ir.Pointer | ir.Scalar] = [
        *(ir.Pointer(each, dtype) for each in ("a", "b")),
        *(ir.Pointer(each, dtype, alias=True) for each in ("c", "bias", "more")),
        *(ir.Scalar(each) for each in _SCALARS),
        *(ir.Scalar(each, ir.Type(dtype)) for each in ("low", "high")),
    ]
    return ir.Function(name, tuple(parameters), body, public=public)


def strip_function(
    name: str, dtype: DType, body: tuple[ir.Step, ...] = (), public: bool = False
) -> ir.Function:
    """As `tile_function`, of several tiles of rows: A has `a_row` elements for each row."""
    tile = tile_function(name, dtype, body, public)
    return replace(tile, parameters=(*tile.parameters, ir.Scalar("a_row")))


@lru_cache(maxsize=32)
def strips(tile: Tile, dtype: DType, one: str) -> ir.Library:
    """The library of `{one}_strip`: up to `STRIP` tiles of rows, each by the function `one`.

    Sums that are to be `IN_ORDER` are over k in order, with the same bits in any columns; several
    tiles of few columns take turns then, to hide the latency of a sum.
    """
    name = f"{one}_strip"

    def made() -> tuple[ir.Function, ...]:
        code, columns = Writer(), variable("columns")
        row = code.variable(0)
        ordered = code.let((variable("finish") & IN_ORDER).differs(0))
        with code.loop(lambda: row() < variable("rows")):
            at = row()
            left = code.let(variable("rows") - at)
            own = {
                "a": ir.Address("a", at * variable("a_row")),
                "bias": ir.Address("bias", at * variable("bias_step")),
                "c": ir.Address("c", at * variable("c_row")),
                "more": ir.Address("more", at * variable("c_row")),
            }
            rows = code.let(least(left, tile.rows))
            tiles = call(tile_function(one, dtype), **own, rows=rows)
            if narrow_columns(tile):
                few = columns <= NARROWEST
                many = select(columns <= 2, constant(_TALL[1]), constant(_TALL[NARROWEST]))
                taken = code.let(many * tile.rows)
                cases = tuple(
                    (n, (call(strip_function(f"{prefix_of(tile, dtype)}_tall_{n}", dtype), **own),))
                    for n in narrow_columns(tile)
                )
                with code.when(ordered & few & (left >= taken)):
                    code.emit(ir.Switch(columns, cases))
                    row += taken
                with code.otherwise():
                    code.emit(tiles)
                    row += rows
            else:
                code.emit(tiles)
                row += rows
        return (strip_function(name, dtype, code.written, public=True),)

    return ir.Library(name, made, identity=name)


@lru_cache(maxsize=16)
def images(dtype: DType, lanes: int, into: bool) -> ir.Library:
    """The library of a function that copies rows of sums to their images, or back `into` sums."""
    name = f"windows_{dtype}_{lanes}_images{'_in' * into}"
    pointers = (ir.Pointer(each, dtype, alias=True) for each in ("sums", "y"))
    scalars = map(ir.Scalar, ("rows", "c_row", "y_row", "images", "run", "y_image"))

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
            target, to, source, place = ("sums", sums, "y", y) if into else ("y", y, "sums", sums)
            found = ir.Load(ir.Type(dtype, lanes), source, place, mask)
            code.emit(ir.Store(target, to, found, mask))

    return function_library(name, (*pointers, *scalars), write)


def _of_all_rows(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """The micro-kernel for all rows of a tile and some columns."""
    vectors = quotient_up(variable("columns"), tile.lanes)
    every = {n: f"{prefix}_{tile.rows}x{n}" for n in range(1, tile.vectors + 1)}
    wide = ir.Switch(vectors, _cases(dtype, every))
    narrow = _cases(dtype, {n: f"{prefix}_narrow_{n}" for n in narrow_columns(tile)})
    body: ir.Step = wide
    if narrow:
        few = (variable("columns") <= len(narrow)) & (variable("finish") & IN_ORDER).equals(0)
        body = ir.If(few, (ir.Switch(variable("columns"), narrow),), (wide,))
    return tile_function(f"{prefix}_whole", dtype, (body,), public=True)


def _tile(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """The micro-kernel for `rows` x `columns`, at most a full tile."""
    vectors = quotient_up(variable("columns"), tile.lanes)
    key = variable("rows") * (tile.vectors + 1) + vectors
    names = {
        rows * (tile.vectors + 1) + count: f"{prefix}_{rows}x{count}"
        for rows in range(1, tile.rows)
        for count in range(1, tile.vectors + 1)
    }
    some = ir.Switch(key, _cases(dtype, names))
    all_rows = variable("rows").equals(tile.rows)
    whole = call(tile_function(f"{prefix}_whole", dtype))
    body = ir.If(all_rows, (whole,), (some,))
    return tile_function(f"{prefix}_tile", dtype, (body,), public=True)


def _cases(dtype: DType, names: Mapping[int, str]) -> tuple[tuple[int, tuple[ir.Step, ...]], ...]:
    """For each number the call of a micro-kernel."""
    return tuple((n, (call(tile_function(name, dtype)),)) for n, name in names.items())


class _Micro:
    """A register tile of C; see the module's docstring."""

    def __init__(self, tile: Tile, rows: int, vectors: int, dtype: DType, lanes: int = 0) -> None:
        self.tile, self.rows, self.vectors, self.dtype = tile, rows, vectors, dtype
        self.lanes, self.unroll = lanes or tile.lanes, tile.unroll
        self.code, self.vector = Writer(), ir.Type(dtype, self.lanes)
        self.sums = Sums(self.code, self.vector, rows, vectors)

    def body(self) -> tuple[ir.Step, ...]:
        code = self.code
        left = variable("columns") - (self.vectors - 1) * self.lanes
        self.mask = code.let(first_lanes(left, self.lanes))
        self._start()
        self._products()
        self._finish()
        for i, j in self.sums.places:
            code.emit(ir.Store("c", self._at(i, j), self.sums[i, j], self._mask(j)))
        return code.written

    def _products(self) -> None:
        code, unroll, k = self.code, self.unroll, variable("k")
        whole = code.let(round_down(k, unroll))
        for name in ("a_at", "b_at"):
            code.emit(ir.Declare(name, constant(0)))
        with code.range(0, whole, unroll):
            self._steps(unroll)
        with code.range(whole, k):
            self._steps(1)

    def _at(self, i: int, j: int) -> ir.Value:
        return variable("c_row") * i + j * self.lanes

    def _mask(self, j: int) -> ir.Value | None:
        return self.mask if j == self.vectors - 1 else None

    def _move(self, name: str, by: ir.Value | int) -> None:
        self.code.emit(ir.Assign(name, register(name) + by))

    def _start(self) -> None:
        code, sums = self.code, self.sums
        places = {place: self._at(*place) for place in sums.places}
        sums.declare()
        with code.when(variable("start").differs(0)):
            for at in places.values():
                code.emit(ir.Prefetch("more", at))
            for at in places.values():
                code.emit(ir.Prefetch("c", at, write=True))
            for i in range(self.rows):
                bias = ir.Load(ir.Type(self.dtype), "bias", variable("bias_step") * i)
                start = code.let(splat(bias, self.lanes))
                for j in range(self.vectors):
                    sums[i, j] = start
        with code.otherwise():
            for (i, j), at in places.items():
                sums[i, j] = ir.Load(self.vector, "c", at, self._mask(j))

    def _steps(self, unroll: int) -> None:
        code, rows = self.code, self.tile.rows
        line = max(1, LINE // self.dtype.bytes)
        for place in range(0, unroll * rows, line) if unroll > 1 else ():
            code.emit(ir.Prefetch("a", register("a_at") + (_AHEAD + place)))
        for first in range(0, unroll * rows, rows):
            columns = [
                (register("b_at") + j * self.lanes, self._mask(j)) for j in range(self.vectors)
            ]
            b = [code.let(ir.Load(self.vector, "b", at, mask)) for at, mask in columns]
            self._move("b_at", variable("b_row"))
            places = [register("a_at") + (first + i) for i in range(self.rows)]
            self.sums.add([ir.Load(ir.Type(self.dtype), "a", at) for at in places], b)
        self._move("a_at", unroll * rows)

    def _finish(self) -> None:
        code, sums = self.code, self.sums

        def when(flag: int) -> AbstractContextManager[None]:
            return code.when((variable("finish") & flag).differs(0))

        with when(ADDS):
            for i, j in sums.places:
                more = ir.Load(self.vector, "more", self._at(i, j), self._mask(j))
                sums[i, j] = sums[i, j] + more
        for flag, function, name in ((FLOORS, "max", "low"), (CAPS, "min", "high")):
            with when(flag):
                limit = code.let(splat(ir.Var(ir.Type(self.dtype), name), self.lanes))
                for place in sums.places:
                    sums[place] = operate(function, sums[place], limit)


class _Narrow(_Micro):
    """A full tile of rows and a few columns: vectors of A's rows times single elements of B.

    The finished sums go through memory to where each is a number of its own.
    """

    def __init__(self, tile: Tile, columns: int, dtype: DType) -> None:
        super().__init__(tile, tile.rows, columns, dtype, lanes=1)
        self.unroll, self.column = 4, ir.Type(dtype, tile.rows)
        self.sets = 4 if columns == 1 else 2 if columns < 6 else 1  # hide a sum's latency
        self.parts = Sums(self.code, self.column, columns, self.sets, "s")

    def _mask(self, j: int) -> ir.Value | None:
        return None

    def _products(self) -> None:
        code, parts, rows = self.code, self.parts, self.tile.rows
        code.emit(ir.Stack("sums", self.dtype, self.vectors * rows))
        parts.declare()
        super()._products()
        for j in range(self.vectors):
            for part in range(1, self.sets):
                parts[j, 0] = parts[j, 0] + parts[j, part]
            code.emit(ir.Store("sums", constant(j * rows), parts[j, 0]))
        for i, j in self.sums.places:
            found = ir.Load(self.vector, "sums", constant(j * rows + i))
            self.sums[i, j] = self.sums[i, j] + found

    def _steps(self, unroll: int) -> None:
        code, rows = self.code, self.tile.rows
        for u in range(unroll):
            a = code.let(ir.Load(self.column, "a", register("a_at") + u * rows))
            for j in range(self.vectors):
                b = splat(ir.Load(self.vector, "b", register("b_at") + j), rows)
                place = j, u % self.sets
                self.parts[place] = multiply_add(a, b, self.parts[place])
            self._move("b_at", variable("b_row"))
        self._move("a_at", unroll * rows)


class _Tall(_Micro):
    """Some full tiles of rows and a few columns, like `_Narrow`, with each sum over k in order.

    Sums of several tiles hide the latency of one. `row` goes through their rows before and behind.
    """

    def __init__(self, tile: Tile, columns: int, dtype: DType) -> None:
        super().__init__(tile, tile.rows, columns, dtype, lanes=1)
        self.tiles, self.column = _TALL[columns], ir.Type(dtype, tile.rows)
        self.parts = Sums(self.code, self.column, columns, self.tiles, "s")

    def _mask(self, j: int) -> ir.Value | None:
        return None

    def body(self) -> tuple[ir.Step, ...]:
        code, parts = self.code, self.parts
        code.emit(ir.Stack("sums", self.dtype, self.vectors * self.tiles * self.rows))
        places = {(j, t): constant((j * self.tiles + t) * self.rows) for j, t in parts.places}
        parts.declare()
        with code.range(0, self.tiles * self.rows) as row:
            bias = code.let(ir.Load(self.vector, "bias", row * variable("bias_step")))
            for at, place in self._row(row):
                before = ir.Load(self.vector, "c", place)
                first = select(variable("start").differs(0), bias, before)
                code.emit(ir.Store("sums", at, first))
        for part, at in places.items():
            parts[part] = ir.Load(self.column, "sums", at)
        self._products()
        for part, at in places.items():
            code.emit(ir.Store("sums", at, parts[part]))
        with code.range(0, self.tiles * self.rows) as row:
            for at, place in self._row(row):
                code.emit(ir.Store("c", place, self._finished(at, place)))
        return code.written

    def _row(self, row: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
        """Where the sums of a row are in memory and in C."""
        rows, place = self.tiles * self.rows, self.code.let(row * variable("c_row"))
        return [(row + j * rows, place + j) for j in range(self.vectors)]

    def _finished(self, at: ir.Value, place: ir.Value) -> ir.Value:
        code, scalar = self.code, self.vector
        found = code.let(ir.Load(scalar, "sums", at))
        more = found + ir.Load(scalar, "more", place)
        for flag, changed in (
            (ADDS, lambda value: more),
            (FLOORS, lambda value: operate("max", value, ir.Var(scalar, "low"))),
            (CAPS, lambda value: operate("min", value, ir.Var(scalar, "high"))),
        ):
            wanted = (variable("finish") & flag).differs(0)
            found = code.let(select(wanted, changed(found), found))
        return found

    def _steps(self, unroll: int) -> None:
        code, rows = self.code, self.rows
        for u in range(unroll):
            further = (variable("a_row") * (t * rows) + u * rows for t in range(self.tiles))
            places = [register("a_at") + at for at in further]
            a = [code.let(ir.Load(self.column, "a", at)) for at in places]
            for j in range(self.vectors):
                b = code.let(splat(ir.Load(self.vector, "b", register("b_at") + j), rows))
                for t in range(self.tiles):
                    self.parts[j, t] = multiply_add(a[t], b, self.parts[j, t])
            self._move("b_at", variable("b_row"))
        self._move("a_at", unroll * rows)
