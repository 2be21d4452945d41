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
from functools import lru_cache, partial
from itertools import chain

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.product.micro import LINE, Tile, multiply_add
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    loop,
    minus,
    plus,
    quotient_up,
    register,
    round_down,
    times,
    variable,
)
from anydim.kernels.write.values import number, operate, splat
from anydim.sizes import Size

TILE_SCALARS = ("k", "b_row", "c_row", "bias_step", "rows", "columns", "start", "finish")
ADDS, FLOORS, CAPS = 1, 2, 4  # flags of `finish`
_AHEAD = 256  # elements of A that are asked for ahead
NARROWEST = 6  # columns for which vectors along the rows of a tile are faster


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
        *(
            ir.Function(
                f"{prefix}_narrow_{columns}",
                parameters(dtype),
                _Narrow(tile, columns, dtype).body(),
            )
            for columns in narrow_columns(tile)
        ),
        _of_all_rows(tile, dtype, prefix),
    )


def _few(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    rows = range(1, tile.rows)
    kernels = (_micro_kernels(tile, dtype, prefix, count) for count in rows)
    return (*chain.from_iterable(kernels), _tile(tile, dtype, prefix))


def _micro_kernels(tile: Tile, dtype: DType, prefix: str, rows: int) -> list[ir.Function]:
    """A micro-kernel for each number of vectors."""
    return [
        ir.Function(
            f"{prefix}_{rows}x{vectors}",
            parameters(dtype),
            _Micro(tile, rows, vectors, dtype).body(),
        )
        for vectors in range(1, tile.vectors + 1)
    ]


def _narrow(tile: Tile, dtype: DType, prefix: str, columns: int) -> ir.Function:
    body = _Narrow(tile, columns, dtype).body()
    return ir.Function(f"{prefix}_narrow_{columns}", parameters(dtype), body)


def narrow_columns(tile: Tile) -> range:
    """The numbers of columns for which rows, not columns, go along vectors."""
    return range(1, NARROWEST + 1 if tile.rows in (4, 8, 16) and tile.lanes >= tile.rows else 1)


def parameters(dtype: DType) -> tuple[ir.Pointer | ir.Scalar, ...]:
    """The parameters of `tile` and of every micro-kernel."""
    return (
        ir.Pointer("a", dtype),
        ir.Pointer("b", dtype),
        ir.Pointer("c", dtype, alias=True),
        ir.Pointer("bias", dtype, alias=True),
        ir.Pointer("more", dtype, alias=True),
        *(ir.Scalar(name) for name in TILE_SCALARS),
        ir.Scalar("low", ir.Type(dtype)),
        ir.Scalar("high", ir.Type(dtype)),
    )


def _of_all_rows(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """The micro-kernel for all rows of a tile and some columns."""
    vectors = quotient_up(variable("columns"), tile.lanes)
    wide = ir.Switch(
        vectors, _cases(dtype, {n: f"{tile.rows}x{n}" for n in range(1, tile.vectors + 1)}, prefix)
    )
    narrow = _cases(dtype, {n: f"narrow_{n}" for n in narrow_columns(tile)}, prefix)
    body: ir.Step = wide
    if narrow:
        few = compare("less_equal", variable("columns"), len(narrow))
        body = ir.If(few, (ir.Switch(variable("columns"), narrow),), (wide,))
    return ir.Function(f"{prefix}_whole", parameters(dtype), (body,), public=True)


def _tile(tile: Tile, dtype: DType, prefix: str) -> ir.Function:
    """The micro-kernel for `rows` x `columns`, at most a full tile."""
    vectors = quotient_up(variable("columns"), tile.lanes)
    key = plus(times(variable("rows"), tile.vectors + 1), vectors)
    names = {
        rows * (tile.vectors + 1) + count: f"{rows}x{count}"
        for rows in range(1, tile.rows)
        for count in range(1, tile.vectors + 1)
    }
    some = ir.Switch(key, _cases(dtype, names, prefix))
    all_rows = compare("equal", variable("rows"), tile.rows)
    whole = ir.Call(f"{prefix}_whole", _passed_on(dtype))
    body = ir.If(all_rows, (whole,), (some,))
    return ir.Function(f"{prefix}_tile", parameters(dtype), (body,), public=True)


def _cases(
    dtype: DType, names: Mapping[int, str], prefix: str
) -> tuple[tuple[int, tuple[ir.Step, ...]], ...]:
    """For each number the call of a micro-kernel."""
    arguments = _passed_on(dtype)
    return tuple((n, (ir.Call(f"{prefix}_{name}", arguments),)) for n, name in names.items())


def _passed_on(dtype: DType) -> tuple[ir.Value, ...]:
    """The parameters as arguments."""
    return tuple(
        ir.Address(p.name, constant(0)) if isinstance(p, ir.Pointer) else ir.Var(p.type, p.name)
        for p in parameters(dtype)
    )


class _Micro:
    """A register tile of C; see the module's docstring."""

    def __init__(self, tile: Tile, rows: int, vectors: int, dtype: DType) -> None:
        self.tile, self.rows, self.vectors, self.dtype = tile, rows, vectors, dtype
        self.lanes, self.unroll = tile.lanes, tile.unroll
        self.vector = ir.Type(dtype, tile.lanes)
        self.mask = ir.Var(ir.Type(ir.FLAG.dtype, tile.lanes), "inside")
        self.places = [(i, j) for i in range(rows) for j in range(vectors)]

    def body(self) -> tuple[ir.Step, ...]:
        left = minus(variable("columns"), constant((self.vectors - 1) * self.lanes))
        return (
            ir.Let("inside", first_lanes(left, self.lanes)),
            *self._start(),
            *self._products(),
            *self._finish(),
            *(
                ir.Store("c", self._at(i, j), self._sum(i, j), self._mask(j))
                for i, j in self.places
            ),
        )

    def _products(self) -> list[ir.Step]:
        unroll = self.unroll
        return [
            ir.Let("whole", round_down(variable("k"), unroll)),
            ir.Declare("a_at", constant(0)),
            ir.Declare("b_at", constant(0)),
            loop("k0", 0, variable("whole"), unroll, *self._steps("k0", unroll)),
            loop("k1", variable("whole"), variable("k"), 1, *self._steps("k1", 1)),
        ]

    def _sum(self, i: int, j: int) -> ir.Get:
        return ir.Get(self.vector, f"c{i}_{j}")

    def _at(self, i: int, j: int) -> ir.Value:
        return plus(times(variable("c_row"), i), j * self.lanes)

    def _mask(self, j: int) -> ir.Value | None:
        return self.mask if j == self.vectors - 1 else None

    def _start(self) -> list[ir.Step]:
        zero = number(self.dtype, 0, self.lanes)
        scalar = ir.Type(self.dtype)
        ahead = [self._at(i, j) for i, j in self.places]
        fresh: list[ir.Step] = [ir.Prefetch("more", at) for at in ahead]
        fresh += [ir.Prefetch("c", at, write=True) for at in ahead]
        going: list[ir.Step] = []
        for i, j in self.places:
            bias = ir.Load(scalar, "bias", times(variable("bias_step"), i))
            fresh += [ir.Let(f"bias{i}", splat(bias, self.lanes))] if j == 0 else []
            fresh.append(ir.Assign(f"c{i}_{j}", ir.Var(self.vector, f"bias{i}")))
            old = ir.Load(self.vector, "c", self._at(i, j), self._mask(j))
            going.append(ir.Assign(f"c{i}_{j}", old))
        first = compare("not_equal", variable("start"), 0)
        return [
            *(ir.Declare(f"c{i}_{j}", zero) for i, j in self.places),
            ir.If(first, tuple(fresh), tuple(going)),
        ]

    def _steps(self, k: str, unroll: int) -> list[ir.Step]:
        steps: list[ir.Step] = []
        if unroll > 1:
            line = max(1, LINE // self.dtype.bytes)
            for place in range(0, unroll * self.tile.rows, line):
                steps.append(ir.Prefetch("a", plus(register("a_at"), _AHEAD + place)))
        for u in range(unroll):
            for j in range(self.vectors):
                at = plus(register("b_at"), j * self.tile.lanes)
                load = ir.Load(self.vector, "b", at, self._mask(j))
                steps.append(ir.Let(f"{k}b{u}_{j}", load))
            steps.append(ir.Assign("b_at", plus(register("b_at"), variable("b_row"))))
            for i in range(self.rows):
                at = plus(register("a_at"), u * self.tile.rows + i)
                a = splat(ir.Load(ir.Type(self.dtype), "a", at), self.tile.lanes)
                steps.append(ir.Let(f"{k}a{u}_{i}", a))
                for j in range(self.vectors):
                    a, b = (ir.Var(self.vector, f"{k}{n}") for n in (f"a{u}_{i}", f"b{u}_{j}"))
                    steps.append(ir.Assign(f"c{i}_{j}", multiply_add(a, b, self._sum(i, j))))
        steps.append(ir.Assign("a_at", plus(register("a_at"), unroll * self.tile.rows)))
        return steps

    def _finish(self) -> list[ir.Step]:
        def when(flag: int, *steps: ir.Step) -> ir.If:
            on = ir.Op(ir.INDEX, "bit_and", (variable("finish"), constant(flag)))
            return ir.If(compare("not_equal", on, 0), steps)

        def each(function: str, other: str) -> list[ir.Step]:
            value = splat(ir.Var(ir.Type(self.dtype), other), self.lanes)
            return [
                ir.Let(f"wide_{other}", value),
                *(
                    ir.Assign(
                        f"c{i}_{j}",
                        operate(function, self._sum(i, j), ir.Var(self.vector, f"wide_{other}")),
                    )
                    for i, j in self.places
                ),
            ]

        more = [
            ir.Assign(
                f"c{i}_{j}",
                operate(
                    "add",
                    self._sum(i, j),
                    ir.Load(self.vector, "more", self._at(i, j), self._mask(j)),
                ),
            )
            for i, j in self.places
        ]
        return [
            when(ADDS, *more),
            when(FLOORS, *each("max", "low")),
            when(CAPS, *each("min", "high")),
        ]


class _Narrow(_Micro):
    """A full tile of rows and a few columns: vectors of A's rows times single elements of B.

    The finished sums go through memory to where each is a number of its own.
    """

    def __init__(self, tile: Tile, columns: int, dtype: DType) -> None:
        super().__init__(tile, tile.rows, columns, dtype)
        self.lanes, self.unroll, self.vector = 1, 4, ir.Type(dtype)
        self.column = ir.Type(dtype, tile.rows)
        self.sets = 4 if columns == 1 else 2 if columns < 6 else 1  # hide a sum's latency

    def _mask(self, j: int) -> ir.Value | None:
        return None

    def _products(self) -> list[ir.Step]:
        zero = number(self.dtype, 0, self.tile.rows)
        parts = [(j, part) for j in range(self.vectors) for part in range(self.sets)]
        joined: list[ir.Step] = []
        for j in range(self.vectors):
            for part in range(1, self.sets):
                both = (self._part(j, 0), self._part(j, part))
                joined.append(ir.Assign(f"s{j}_0", operate("add", *both)))
            at = constant(j * self.tile.rows)
            joined.append(ir.Store("sums", at, self._part(j, 0)))
        added = [
            ir.Assign(
                f"c{i}_{j}",
                operate(
                    "add",
                    self._sum(i, j),
                    ir.Load(self.vector, "sums", constant(j * self.tile.rows + i)),
                ),
            )
            for i, j in self.places
        ]
        return [
            ir.Stack("sums", self.dtype, self.vectors * self.tile.rows),
            *(ir.Declare(f"s{j}_{part}", zero) for j, part in parts),
            *super()._products(),
            *joined,
            *added,
        ]

    def _part(self, j: int, part: int) -> ir.Get:
        return ir.Get(self.column, f"s{j}_{part}")

    def _steps(self, k: str, unroll: int) -> list[ir.Step]:
        steps: list[ir.Step] = []
        for u in range(unroll):
            at = plus(register("a_at"), u * self.tile.rows)
            steps.append(ir.Let(f"{k}a{u}", ir.Load(self.column, "a", at)))
            for j in range(self.vectors):
                element = ir.Load(ir.Type(self.dtype), "b", plus(register("b_at"), j))
                a, b = ir.Var(self.column, f"{k}a{u}"), splat(element, self.tile.rows)
                part = u % self.sets
                total = multiply_add(a, b, self._part(j, part))
                steps.append(ir.Assign(f"s{j}_{part}", total))
            steps.append(ir.Assign("b_at", plus(register("b_at"), variable("b_row"))))
        steps.append(ir.Assign("a_at", plus(register("a_at"), unroll * self.tile.rows)))
        return steps
