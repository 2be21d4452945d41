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
behind b, each further one `step` elements later; processors bring the lines beside it. Tiles of 3
rows up to half of all ask for two. Smaller tiles read B as fast as it comes, and processors see
one stream coming by themselves.

There is a micro-kernel for every number of rows, and nothing but loads and multiply-adds between
two steps of k: whatever else a processor does there costs it multiply-adds (a Sapphire Rapids
lowers its clock for it, by 5 % for two branches in two steps). Scalars come in a block of int64,
`GIVEN`.

Every element is one sum over k in order, so a row has the same bits whatever rows it is with. Few
rows of a panel are too few sums to hide the latency of an FMA and of what comes from the second
cache: two panels and more are summed side by side, as long as there are so many.
"""

from __future__ import annotations

from collections.abc import Callable

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
    round_down,
    times,
    variable,
)
from anydim.kernels.write.values import number, operate

LINE = 64  # bytes of a line of the caches
CHAINS = 8  # sums that depend on nothing but themselves: 4 cycles of latency, 2 FMAs a cycle
_MASKED_BYTES = 64  # vectors this long have masks that cost nothing
MICRO_SCALARS = ("k", "a_row", "init_row", "c_row", "width", "ahead", "step")
GIVEN = (*MICRO_SCALARS, "rows", "b_panel", "init_panel", "columns", "k_block")


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


def side_by_side(tile: Tile, rows: int) -> int:
    """How many panels a micro-kernel sums at once: enough sums to hide the latency of an FMA.

    Two, if their sums and a row of B fill no more registers than there are.
    """
    registers = 32 if tile.vectors > 2 else 16
    pair = 2 if 2 * tile.vectors * (rows + 1) < registers else 1
    return max(CHAINS // (rows * tile.vectors), pair)


def micro_name(rows: int, vectors: int, prefix: str, panels: int = 1) -> str:
    """The name of a micro-kernel in its library."""
    name = f"{prefix}_{rows}x{vectors}"
    return name if panels == 1 else f"{name}x{panels}"


def micro_kernel(
    tile: Tile, rows: int, vectors: int, dtype: DType, prefix: str, panels: int = 1
) -> ir.Function:
    """The micro-kernel for some rows and vectors; see the module's docstring.

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
    """Writes the body of a micro-kernel."""

    tile: Tile
    rows: int
    vectors: int
    dtype: DType
    panels: int

    @property
    def vector(self) -> ir.Type:
        return ir.Type(self.dtype, self.tile.lanes)

    @property
    def prefetches(self) -> bool:
        """Whether there is time to ask for what is read next: one row waits for memory alone."""
        return self.rows > 1 and self.vectors == self.tile.vectors

    @property
    def columns(self) -> list[tuple[int, int]]:
        """(panel, vector) of every vector of columns."""
        return [(p, j) for p in range(self.panels) for j in range(self.vectors)]

    def body(self) -> tuple[ir.Step, ...]:
        unroll = self.tile.unroll
        names = MICRO_SCALARS if self.panels == 1 else (*MICRO_SCALARS, "b_panel", "init_panel")
        return (
            *map(taken, names),
            ir.Declare("b_at", plus(0)),
            *([ir.Declare("ahead_at", variable("ahead"))] if self.prefetches else []),
            *self._start(),
            ir.Let("whole", round_down(variable("k"), unroll)),
            loop("k0", 0, variable("whole"), unroll, *self._steps("k0", unroll)),
            loop("k1", variable("whole"), variable("k"), 1, *self._steps("k1", 1)),
            *self._finish(),
        )

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

    def _steps(self, k: str, count: int) -> list[ir.Step]:
        """Some steps of k, without a question between them: it would cost 5 % of the time."""
        steps = [step for u in range(count) for step in self._step(k, u)]
        steps.append(ir.Assign("b_at", plus(register("b_at"), count * self.tile.width)))
        if not self.prefetches or count < self.tile.unroll:
            return steps
        lines = (0, LINE // self.dtype.bytes) if 2 < self.rows <= self.tile.rows // 2 else (0,)
        asked = [ir.Prefetch("b", plus(register("ahead_at"), line)) for line in lines]
        further = plus(register("ahead_at"), variable("step"))
        return [*asked, *steps, ir.Assign("ahead_at", further)]

    def _step(self, k: str, u: int) -> list[ir.Step]:
        """One step of k."""
        steps: list[ir.Step] = []
        for panel, j in self.columns:
            at = plus(register("b_at"), u * self.tile.width + j * self.tile.lanes)
            if panel:
                at = plus(at, times(variable("b_panel"), panel))
            steps.append(ir.Let(f"b{u}_{panel}_{j}", ir.Load(self.vector, "b", at)))
        for i in range(self.rows):
            at = plus(times(variable("a_row"), i), variable(k), u)
            scalar = ir.Load(ir.Type(self.dtype), "a", at)
            a = ir.Var(self.vector, f"a{u}_{i}")
            steps.append(ir.Let(a.name, ir.Splat(self.vector, scalar)))
            for panel, j in self.columns:
                name = self._sum(i, panel, j)
                b = ir.Var(self.vector, f"b{u}_{panel}_{j}")
                steps.append(ir.Assign(name, multiply_add(a, b, ir.Get(self.vector, name))))
        return steps

    def _finish(self) -> list[ir.Step]:
        *whole, last = self.columns

        def store(i: int, panel: int, j: int, mask: ir.Value | None = None) -> ir.Step:
            column = panel * self.tile.width + j * self.tile.lanes
            begin = ir.Load(self.vector, "init", self._begin(i, panel, j), mask)
            total = operate("add", ir.Get(self.vector, self._sum(i, panel, j)), begin)
            return ir.Store("c", plus(times(variable("c_row"), i), column), total, mask)

        def stored(mask: ir.Value | None) -> list[ir.Step]:
            return [
                step
                for i in range(self.rows)
                for step in (*(store(i, *column) for column in whole), store(i, *last, mask))
            ]

        return self._last_vector(stored)


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused for floats."""
    if a.type.dtype.is_float:
        return operate("fma", a, b, c)
    return operate("add", operate("mul", a, b), c)
