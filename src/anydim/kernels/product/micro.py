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
Every unrolled step of a tile of many rows also prefetches as much of B as it reads: the first from
`ahead` elements behind b on, each further one from `step` elements later. Smaller tiles read B as
fast as it comes, and processors see one stream coming by themselves.

A micro-kernel serves a group of row numbers (`GROUPS`). What a machine waits for is its multiply
units, so from four rows on a branch before every row that may be missing costs nothing, and LLVM
compiles one function instead of five. Its scalars come in a block of int64, `GIVEN`.
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
    round_down,
    times,
    variable,
)
from anydim.kernels.write.elements import number, operate

LINE = 64  # bytes that one prefetch brings
GROUPS = (1, 2, 4)  # numbers of rows at which another micro-kernel begins
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


def tile_of(machine: Machine, dtype: DType) -> Tile:
    """The tile for a machine: accumulators, one row of B and a broadcast fill its registers.

    8 x 3 of 32 registers was the fastest measured with AVX-512, before 9 x 3, 6 x 4, 14 x 2 and
    12 x 2; 6 x 2 of 16 with AVX2. With Zen 4, 2 steps at a time are 3 % faster than 4.
    """
    lanes = machine.lanes(dtype)
    if machine.registers >= 32:
        return Tile(8, 3, 2, lanes)
    return Tile(6, 2, 4, lanes)


def accumulator_sets(rows: int, vectors: int) -> int:
    """Independent sums per element of C: a small tile alone cannot hide the latency of an FMA."""
    accumulators = rows * vectors
    return 4 if accumulators <= 3 else 2 if accumulators <= 6 else 1


def row_groups(tile: Tile) -> tuple[range, ...]:
    """Numbers of rows that share a micro-kernel."""
    firsts = [first for first in GROUPS if first <= tile.rows]
    ends = [*firsts[1:], tile.rows + 1]
    return tuple(range(first, end) for first, end in zip(firsts, ends))


def micro_name(rows: range, vectors: int, prefix: str) -> str:
    """The name of a micro-kernel in its library."""
    return f"{prefix}_{rows[0]}to{rows[-1]}x{vectors}"


def micro_kernel(tile: Tile, rows: range, vectors: int, dtype: DType, prefix: str) -> ir.Function:
    """The micro-kernel for a group of row numbers and some vectors; see the module's docstring."""
    return ir.Function(
        micro_name(rows, vectors, prefix),
        strip_pointers(dtype),
        _Micro(tile, rows, vectors, dtype).body(),
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

    @property
    def vector(self) -> ir.Type:
        return ir.Type(self.dtype, self.tile.lanes)

    @property
    def rows(self) -> int:
        """The most rows there may be."""
        return self.heights[-1]

    @property
    def sets(self) -> int:
        return accumulator_sets(self.heights[0], self.vectors)

    @property
    def prefetches(self) -> bool:
        """Whether there is time to ask for what other tiles will read."""
        return 2 * self.heights[0] >= self.tile.rows and self.vectors == self.tile.vectors

    @property
    def unroll(self) -> int:
        """Steps of k at a time: those of the tile, more where every set of sums has its own."""
        return max(self.tile.unroll, self.sets)

    def body(self) -> tuple[ir.Step, ...]:
        return (
            *map(taken, MICRO_SCALARS),
            ir.Declare("b_at", plus(0)),
            *([ir.Declare("ahead_at", variable("ahead"))] if self.prefetches else []),
            *self._start(),
            *self._sum_up(),
            *self._finish(),
        )

    def _each_row(self, part: Callable[[int], Sequence[ir.Step]]) -> list[ir.Step]:
        """What to do with every row that there is."""
        steps: list[ir.Step] = []
        for i in reversed(range(self.heights[0], self.rows)):
            there = compare("greater", variable("rows"), i)
            steps = [ir.If(there, (*part(i), *steps))]
        return [*(step for i in range(self.heights[0]) for step in part(i)), *steps]

    def _accumulators(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.rows) for j in range(self.vectors)]

    def _sum(self, i: int, j: int, part: int = 0) -> str:
        return f"c{i}_{j}_{part}"

    def _last_vector(self, cut: Callable[[ir.Value | None], list[ir.Step]]) -> list[ir.Step]:
        """What to do with the last vectors of C, whole or masked."""
        left = minus(variable("width"), plus((self.vectors - 1) * self.tile.lanes))
        is_full = compare("greater_equal", left, self.tile.lanes)
        mask = ir.Var(ir.Type(ir.FLAG.dtype, self.tile.lanes), "mask")
        named = ir.Let("mask", first_lanes(left, self.tile.lanes))
        if self.vector.lanes * self.dtype.bytes >= _MASKED_BYTES:
            return [named, *cut(mask)]
        return [ir.If(is_full, tuple(cut(None)), (named, *cut(mask)))]

    def _start(self) -> list[ir.Step]:
        zero = number(self.dtype, 0, self.tile.lanes)
        ahead = self._accumulators() if self.prefetches else []
        return [
            *(
                ir.Declare(self._sum(i, j, part), zero)
                for part in range(self.sets)
                for i, j in self._accumulators()
            ),
            *(ir.Prefetch("init", self._begin(i, j)) for i, j in ahead),
        ]

    def _begin(self, i: int, j: int) -> ir.Value:
        return plus(times(variable("init_row"), i), j * self.tile.lanes)

    def _sum_up(self) -> list[ir.Step]:
        """The loop over k: its last steps are left out, or in a loop of their own."""
        k, unroll = variable("k"), self.unroll
        if self.sets == 1:
            return [loop("k0", 0, k, unroll, *self._steps("k0", unroll, partly=True))]
        return [
            ir.Let("whole", round_down(k, unroll)),
            loop("k0", 0, variable("whole"), unroll, *self._steps("k0", unroll)),
            *self._join(),
            loop("k1", variable("whole"), k, 1, *self._steps("k1", 1)),
        ]

    def _steps(self, k: str, unroll: int, partly: bool = False) -> list[ir.Step]:
        """Steps of k from the value of `k` on; `partly`, as far as there are any."""
        width = self.tile.width
        steps: list[ir.Step] = []
        for u in reversed(range(unroll)):
            ahead = self._prefetches(u) if unroll > 1 and self.prefetches else []
            steps = [*ahead, *self._step(k, u), *steps]
            if u and partly:
                there = compare("less", plus(variable(k), u), variable("k"))
                steps = [ir.If(there, tuple(steps))]
        steps.append(ir.Assign("b_at", plus(register("b_at"), unroll * width)))
        if unroll > 1 and self.prefetches:
            step = times(variable("step"), unroll // self.tile.unroll)
            steps.append(ir.Assign("ahead_at", plus(register("ahead_at"), step)))
        return steps

    def _prefetches(self, u: int) -> list[ir.Step]:
        width, line = self.tile.width, max(1, LINE // self.dtype.bytes)
        places = range(-(-u * width // line) * line, (u + 1) * width, line)
        return [ir.Prefetch("b", plus(register("ahead_at"), place)) for place in places]

    def _step(self, k: str, u: int) -> list[ir.Step]:
        """One step of k."""
        loads: list[ir.Step] = []
        for j in range(self.vectors):
            at = plus(register("b_at"), u * self.tile.width + j * self.tile.lanes)
            loads.append(ir.Let(f"{k}b{u}_{j}", ir.Load(self.vector, "b", at)))

        def row(i: int) -> list[ir.Step]:
            at = plus(times(variable("a_row"), i), variable(k), u)
            scalar = ir.Load(ir.Type(self.dtype), "a", at)
            a = ir.Var(self.vector, f"{k}a{u}_{i}")
            steps: list[ir.Step] = [ir.Let(a.name, ir.Splat(self.vector, scalar))]
            for j in range(self.vectors):
                name = self._sum(i, j, u % self.sets)
                b = ir.Var(self.vector, f"{k}b{u}_{j}")
                steps.append(ir.Assign(name, multiply_add(a, b, ir.Get(self.vector, name))))
            return steps

        return [*loads, *self._each_row(row)]

    def _join(self) -> list[ir.Step]:
        """All sets of accumulators added into the first."""
        steps: list[ir.Step] = []
        for part in range(1, self.sets):
            for i, j in self._accumulators():
                name = self._sum(i, j)
                both = (ir.Get(self.vector, name), ir.Get(self.vector, self._sum(i, j, part)))
                steps.append(ir.Assign(name, operate("add", *both)))
        return steps

    def _finish(self) -> list[ir.Step]:
        last = self.vectors - 1

        def store(i: int, j: int, mask: ir.Value | None = None) -> ir.Step:
            column = j * self.tile.lanes
            begin = ir.Load(self.vector, "init", self._begin(i, j), mask)
            total = operate("add", ir.Get(self.vector, self._sum(i, j)), begin)
            return ir.Store("c", plus(times(variable("c_row"), i), column), total, mask)

        def stored(mask: ir.Value | None) -> list[ir.Step]:
            return self._each_row(
                lambda i: [*(store(i, j) for j in range(last)), store(i, last, mask)]
            )

        return self._last_vector(stored)


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused for floats."""
    if a.type.dtype.is_float:
        return operate("fma", a, b, c)
    return operate("add", operate("mul", a, b), c)
