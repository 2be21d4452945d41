"""Micro-kernels of the contraction: a tile of C held in vector registers.

    c[i, j] = init[i, j] + sum over k of a[i, k] * b[k, j]     i < rows, j < columns

`rows` x `vectors` accumulators live in registers while k runs; each step loads one row of a panel
of B and broadcasts one element of every row of A. Rows of A, C and init may have any stride;
elements along k of A and along j of C and init are neighbours. A stride of 0 repeats a row, so
`init` may be a bias, C itself (to go on with a sum) or a row of zeros. It is added to the finished
sum of a block of k: sums that start from a large number would lose the last bits of every product.
It is asked for when the tile begins.

B is a panel: rows of the full tile's width, one behind the other, padded to whole vectors. (With
a run-time stride LLVM spilled accumulators.) Fewer columns are masked in the last vector of C.
Every unrolled step of a tile of many rows also prefetches a line of B: the first `ahead` elements
behind b, each further one `step` elements later; processors bring the lines beside it. Smaller
tiles read B as fast as it comes, and processors see one stream coming by themselves.

A micro-kernel serves a group of row numbers (`GROUPS`). What a machine waits for is its multiply
units, so from four rows on a branch before every row that may be missing costs nothing, and LLVM
compiles one function instead of four. All rows of a tile have one of their own: the branches take
turns with multiply-adds there, 5 % of the time on a Sapphire Rapids. Scalars come in a block of
int64, `GIVEN`.

Every element is one sum over k in order, so a row has the same bits whatever rows it is with. One
to three rows of a panel are too few sums to hide the latency of an FMA: as many panels as that
takes are summed side by side, as long as there are so many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    loop,
    minus,
    plus,
    register,
    times,
    variable,
)
from anydim.kernels.write.elements import number, operate

LINE = 64  # bytes of a line of the caches
GROUPS = (1, 2, 4)  # numbers of rows at which another micro-kernel begins
CHAINS = 8  # sums that depend on nothing but themselves: 4 cycles of latency, 2 FMAs a cycle
_MASKED_BYTES = 64  # vectors this long have masks that cost nothing
MICRO_SCALARS = ("k", "a_row", "init_row", "c_row", "rows", "width", "ahead", "step")
GIVEN = (*MICRO_SCALARS, "b_panel", "init_panel", "columns", "k_block")


@dataclass(frozen=True)
class Tile:
    """Rows and vectors of the largest register tile, and how often its k loop is unrolled."""

    rows: int
    vectors: int
    unroll: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns of the tile: the width of a panel of B."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class TileSchedule:
    """The register tile of a product, as schedules begin."""

    rows: int
    vectors: int
    lanes: int
    unroll: int

    @property
    def tile(self) -> Tile:
        return Tile(self.rows, self.vectors, self.unroll, self.lanes)


def tile_of(machine: Machine, dtype: DType) -> Tile:
    """The tile for a machine: accumulators, one row of B and a broadcast fill its registers.

    8 x 3 of 32 registers was the fastest measured with AVX-512, before 9 x 3, 6 x 4, 14 x 2 and
    12 x 2; 6 x 2 of 16 with AVX2. With Zen 4, 2 steps at a time are 3 % faster than 4.
    """
    lanes = machine.lanes(dtype)
    if machine.registers >= 32:
        return Tile(8, 3, 2, lanes)
    return Tile(6, 2, 4, lanes)


def side_by_side(tile: Tile, rows: range) -> int:
    """How many panels a micro-kernel sums at once: enough sums to hide the latency of an FMA."""
    return max(1, CHAINS // (rows[0] * tile.vectors))


def row_groups(tile: Tile) -> tuple[range, ...]:
    """Numbers of rows that share a micro-kernel."""
    firsts = [*(first for first in GROUPS if first < tile.rows), tile.rows]
    ends = [*firsts[1:], tile.rows + 1]
    return tuple(range(first, end) for first, end in zip(firsts, ends))


def micro_name(rows: range, vectors: int, prefix: str, panels: int = 1) -> str:
    """The name of a micro-kernel in its library."""
    name = f"{prefix}_{rows[0]}to{rows[-1]}x{vectors}"
    return name if panels == 1 else f"{name}x{panels}"


def micro_kernel(
    tile: Tile, rows: range, vectors: int, dtype: DType, prefix: str, panels: int = 1
) -> ir.Function:
    """The micro-kernel for a group of row numbers and some vectors; see the module's docstring.

    Of several panels all are full.
    """
    return ir.Function(
        micro_name(rows, vectors, prefix, panels),
        strip_pointers(dtype),
        _Micro(tile, rows, vectors, dtype, panels).body(),
    )


def strip_pointers(dtype: DType) -> tuple[ir.Pointer, ...]:
    """The parameters of a micro-kernel: operands, and the block of its scalars."""
    return (
        ir.Pointer("a", dtype),
        ir.Pointer("b", dtype),
        ir.Pointer("init", dtype, alias=True),
        ir.Pointer("c", dtype, alias=True),
        ir.Pointer("given", int64),
    )


def taken(name: str) -> ir.Let:
    """A scalar out of the block of those that are given."""
    at = constant(GIVEN.index(name))
    return ir.Let(name, ir.Load(ir.INDEX, "given", at))


def give(name: str, value: ir.Value) -> ir.Store:
    """A scalar into the block of those that are given."""
    return ir.Store("given", constant(GIVEN.index(name)), value)


@dataclass(frozen=True)
class _Micro:
    """Writes the body of the micro-kernel for `heights` rows."""

    tile: Tile
    heights: range
    vectors: int
    dtype: DType
    panels: int

    @property
    def vector(self) -> ir.Type:
        return ir.Type(self.dtype, self.tile.lanes)

    @property
    def rows(self) -> int:
        """The most rows there may be."""
        return self.heights[-1]

    @property
    def prefetches(self) -> bool:
        """Whether there is time to ask for what other tiles will read."""
        return 2 * self.heights[0] >= self.tile.rows and self.vectors == self.tile.vectors

    @property
    def columns(self) -> list[tuple[int, int]]:
        """(panel, vector) of every vector of columns."""
        return [(p, j) for p in range(self.panels) for j in range(self.vectors)]

    def body(self) -> tuple[ir.Step, ...]:
        names = MICRO_SCALARS if self.panels == 1 else (*MICRO_SCALARS, "b_panel", "init_panel")
        return (
            *map(taken, names),
            ir.Declare("b_at", plus(0)),
            *([ir.Declare("ahead_at", variable("ahead"))] if self.prefetches else []),
            *self._start(),
            loop("k0", 0, variable("k"), self.tile.unroll, *self._steps()),
            *self._finish(),
        )

    def _each_row(self, part: Callable[[int], Sequence[ir.Step]]) -> list[ir.Step]:
        """What to do with every row that there is."""
        steps: list[ir.Step] = []
        for i in reversed(range(self.heights[0], self.rows)):
            there = compare("greater", variable("rows"), i)
            steps = [ir.If(there, (*part(i), *steps))]
        return [*(step for i in range(self.heights[0]) for step in part(i)), *steps]

    def _sum(self, i: int, panel: int, j: int) -> str:
        return f"c{i}_{panel}_{j}"

    def _last_vector(self, cut: Callable[[ir.Value | None], list[ir.Step]]) -> list[ir.Step]:
        """What to do with the last vectors of C, whole or masked."""
        if self.panels > 1:
            return cut(None)
        left = minus(variable("width"), plus((self.vectors - 1) * self.tile.lanes))
        is_full = compare("greater_equal", left, self.tile.lanes)
        mask = ir.Var(ir.Type(ir.FLAG.dtype, self.tile.lanes), "mask")
        named = ir.Let("mask", first_lanes(left, self.tile.lanes))
        if self.vector.lanes * self.dtype.bytes >= _MASKED_BYTES:
            return [named, *cut(mask)]
        return [ir.If(is_full, tuple(cut(None)), (named, *cut(mask)))]

    def _start(self) -> list[ir.Step]:
        zero = number(self.dtype, 0, self.tile.lanes)
        places = [(i, *column) for i in range(self.rows) for column in self.columns]
        ahead = places if self.prefetches else []
        return [
            *(ir.Declare(self._sum(*place), zero) for place in places),
            *(ir.Prefetch("init", self._begin(*place)) for place in ahead),
        ]

    def _begin(self, i: int, panel: int, j: int) -> ir.Value:
        of_row = times(variable("init_row"), i)
        of_panel = times(variable("init_panel"), panel) if panel else constant(0)
        return plus(of_row, of_panel, j * self.tile.lanes)

    def _steps(self) -> list[ir.Step]:
        """Steps of k from the value of `k0` on, as far as there are any."""
        width, unroll = self.tile.width, self.tile.unroll
        steps: list[ir.Step] = []
        for u in reversed(range(unroll)):
            steps = [*self._step(u), *steps]
            if u:
                there = compare("less", plus(variable("k0"), u), variable("k"))
                steps = [ir.If(there, tuple(steps))]
        steps.append(ir.Assign("b_at", plus(register("b_at"), unroll * width)))
        if not self.prefetches:
            return steps
        further = plus(register("ahead_at"), variable("step"))
        return [
            ir.Prefetch("b", register("ahead_at")),
            *steps,
            ir.Assign("ahead_at", further),
        ]

    def _step(self, u: int) -> list[ir.Step]:
        """One step of k."""
        loads: list[ir.Step] = []
        for panel, j in self.columns:
            at = plus(register("b_at"), u * self.tile.width + j * self.tile.lanes)
            if panel:
                at = plus(at, times(variable("b_panel"), panel))
            loads.append(ir.Let(f"b{u}_{panel}_{j}", ir.Load(self.vector, "b", at)))

        def row(i: int) -> list[ir.Step]:
            at = plus(times(variable("a_row"), i), variable("k0"), u)
            scalar = ir.Load(ir.Type(self.dtype), "a", at)
            a = ir.Var(self.vector, f"a{u}_{i}")
            steps: list[ir.Step] = [ir.Let(a.name, ir.Splat(self.vector, scalar))]
            for panel, j in self.columns:
                name = self._sum(i, panel, j)
                b = ir.Var(self.vector, f"b{u}_{panel}_{j}")
                steps.append(ir.Assign(name, multiply_add(a, b, ir.Get(self.vector, name))))
            return steps

        return [*loads, *self._each_row(row)]

    def _finish(self) -> list[ir.Step]:
        *whole, last = self.columns

        def store(i: int, panel: int, j: int, mask: ir.Value | None = None) -> ir.Step:
            column = panel * self.tile.width + j * self.tile.lanes
            begin = ir.Load(self.vector, "init", self._begin(i, panel, j), mask)
            total = operate("add", ir.Get(self.vector, self._sum(i, panel, j)), begin)
            return ir.Store("c", plus(times(variable("c_row"), i), column), total, mask)

        def stored(mask: ir.Value | None) -> list[ir.Step]:
            return self._each_row(
                lambda i: [*(store(i, *column) for column in whole), store(i, *last, mask)]
            )

        return self._last_vector(stored)


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused for floats."""
    if a.type.dtype.is_float:
        return operate("fma", a, b, c)
    return operate("add", operate("mul", a, b), c)
