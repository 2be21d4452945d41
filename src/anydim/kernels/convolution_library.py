"""What no model changes of a convolution: compiled once per register tile and element type.

    c[i, j] = start + sum over k of a[k, i] * b[k, j]     i < rows, j < columns

`tile` picks the micro-kernel for some rows and columns. A is packed: `tile.rows` elements for every
k, one k behind the other. Rows of B and C may have any stride. Sums start from a bias per row
(`start` 1) or go on from C (`start` 0). At the end (`finish` is a sum of flags) an element of
another tensor that lies like C is added, and results are kept above `low` and below `high`.
Nothing is read or written behind the last column.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
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
from anydim.kernels.micro import Tile, multiply_add
from anydim.kernels.values import number, operate, splat

TILE_SCALARS = ("k", "b_row", "c_row", "bias_step", "rows", "columns", "start", "finish")
ADDS, FLOORS, CAPS = 1, 2, 4  # flags of `finish`


def prefix_of(tile: Tile, dtype: DType) -> str:
    """What the names of a library's functions begin with: unlike for unlike tiles."""
    return f"windows_{dtype}_{tile.rows}x{tile.vectors}x{tile.lanes}_{tile.unroll}"


@lru_cache(maxsize=16)
def convolution_library(tile: Tile, dtype: DType) -> ir.Library:
    """The library for the largest register tile of a machine and an element type."""
    prefix = prefix_of(tile, dtype)
    return ir.Library(prefix, partial(_functions, tile, dtype, prefix), identity=prefix)


def _functions(tile: Tile, dtype: DType, prefix: str) -> tuple[ir.Function, ...]:
    sizes = [
        (rows, vectors)
        for rows in range(1, tile.rows + 1)
        for vectors in range(1, tile.vectors + 1)
    ]
    kernels = (
        ir.Function(
            f"{prefix}_{rows}x{vectors}",
            parameters(dtype),
            _Micro(tile, rows, vectors, dtype).body(),
        )
        for rows, vectors in sizes
    )
    return (*kernels, _tile(tile, dtype, prefix, sizes))


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


def _tile(
    tile: Tile, dtype: DType, prefix: str, sizes: list[tuple[int, int]]
) -> ir.Function:
    """The micro-kernel for `rows` x `columns`, at most a full tile."""
    given = parameters(dtype)
    arguments = tuple(
        ir.Address(p.name, constant(0)) if isinstance(p, ir.Pointer) else ir.Var(p.type, p.name)
        for p in given
    )
    vectors = quotient_up(variable("columns"), tile.lanes)
    key = plus(times(variable("rows"), tile.vectors + 1), vectors)
    cases = tuple(
        (rows * (tile.vectors + 1) + count, (ir.Call(f"{prefix}_{rows}x{count}", arguments),))
        for rows, count in sizes
    )
    return ir.Function(f"{prefix}_tile", given, (ir.Switch(key, cases),), public=True)


class _Micro:
    """A register tile of C; see the module's docstring."""

    def __init__(self, tile: Tile, rows: int, vectors: int, dtype: DType) -> None:
        self.tile, self.rows, self.vectors, self.dtype = tile, rows, vectors, dtype
        self.vector = ir.Type(dtype, tile.lanes)
        self.mask = ir.Var(ir.Type(ir.FLAG.dtype, tile.lanes), "inside")
        self.places = [(i, j) for i in range(rows) for j in range(vectors)]

    def body(self) -> tuple[ir.Step, ...]:
        unroll = self.tile.unroll
        left = minus(variable("columns"), constant((self.vectors - 1) * self.tile.lanes))
        return (
            ir.Let("inside", first_lanes(left, self.tile.lanes)),
            ir.Let("whole", round_down(variable("k"), unroll)),
            *self._start(),
            ir.Declare("a_at", constant(0)),
            ir.Declare("b_at", constant(0)),
            loop("k0", 0, variable("whole"), unroll, *self._steps("k0", unroll)),
            loop("k1", variable("whole"), variable("k"), 1, *self._steps("k1", 1)),
            *self._finish(),
            *(
                ir.Store("c", self._at(i, j), self._sum(i, j), self._mask(j))
                for i, j in self.places
            ),
        )

    def _sum(self, i: int, j: int) -> ir.Get:
        return ir.Get(self.vector, f"c{i}_{j}")

    def _at(self, i: int, j: int) -> ir.Value:
        return plus(times(variable("c_row"), i), j * self.tile.lanes)

    def _mask(self, j: int) -> ir.Value | None:
        return self.mask if j == self.vectors - 1 else None

    def _start(self) -> list[ir.Step]:
        zero = number(self.dtype, 0, self.tile.lanes)
        scalar = ir.Type(self.dtype)
        fresh: list[ir.Step] = []
        going: list[ir.Step] = []
        for i, j in self.places:
            bias = ir.Load(scalar, "bias", times(variable("bias_step"), i))
            fresh += [ir.Let(f"bias{i}", splat(bias, self.tile.lanes))] if j == 0 else []
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
            value = splat(ir.Var(ir.Type(self.dtype), other), self.tile.lanes)
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
