"""Micro-kernels of the contraction: a tile of C held in vector registers.

    c[i, j] = init[i, j] + sum over k of a[i, k] * b[k, j]     i < rows, j < columns

`rows` x `vectors` accumulators live in registers while k runs; each step loads one row of a panel
of B and broadcasts one element of every row of A. Rows of A, C and init may have any stride;
elements along k of A and along j of C and init are neighbours. A stride of 0 repeats a row, so
`init` may be a bias, C itself (to go on with a sum) or a row of zeros.

B is a panel: rows of the full tile's width, one behind the other, padded to whole vectors. (With
a run-time stride LLVM spilled accumulators.) Fewer columns are masked in the last vector of C.
Every unrolled step of a tile of many rows also prefetches as much of B as it reads: the first from
`ahead` elements behind b on, each further one from `step` elements later. Smaller tiles read B as
fast as it comes, and processors see one stream coming by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
    compare,
    first_lanes,
    loop,
    minus,
    plus,
    register,
    round_down,
    times,
    variable,
)
from anydim.kernels.elements import number, operate
from anydim.kernels.launch import Machine

LINE = 64  # bytes that one prefetch brings
MICRO_SCALARS = ("k", "a_row", "init_row", "c_row", "columns", "ahead", "step")


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


def micro_name(rows: int, vectors: int, prefix: str) -> str:
    """The name of a micro-kernel in its library."""
    return f"{prefix}_{rows}x{vectors}"


def micro_kernel(tile: Tile, rows: int, vectors: int, dtype: DType, prefix: str) -> ir.Function:
    """The micro-kernel for some rows and vectors; see the module's docstring."""
    return ir.Function(
        micro_name(rows, vectors, prefix),
        (
            ir.Pointer("a", dtype),
            ir.Pointer("b", dtype),
            ir.Pointer("init", dtype, alias=True),
            ir.Pointer("c", dtype, alias=True),
            *(ir.Scalar(name) for name in MICRO_SCALARS),
        ),
        _Micro(tile, rows, vectors, dtype).body(),
    )


@dataclass(frozen=True)
class _Micro:
    tile: Tile
    rows: int
    vectors: int
    dtype: DType

    @property
    def vector(self) -> ir.Type:
        return ir.Type(self.dtype, self.tile.lanes)

    @property
    def prefetches(self) -> bool:
        """Whether there is time to ask for what other tiles will read."""
        return 2 * self.rows >= self.tile.rows and self.vectors == self.tile.vectors

    @property
    def unroll(self) -> int:
        """Steps of k at a time: those of the tile, more where every set of sums has its own."""
        return max(self.tile.unroll, accumulator_sets(self.rows, self.vectors))

    def body(self) -> tuple[ir.Step, ...]:
        unroll = self.unroll
        whole = round_down(variable("k"), unroll)
        main = loop("k0", 0, variable("whole"), unroll, *self._steps("k0", unroll))
        rest = loop("k1", variable("whole"), variable("k"), 1, *self._steps("k1", 1))
        return (
            ir.Let("whole", whole),
            *(ir.Let(f"a{i}", times(variable("a_row"), i)) for i in range(self.rows)),
            ir.Declare("b_at", plus(0)),
            *([ir.Declare("ahead_at", variable("ahead"))] if self.prefetches else []),
            *self._start(),
            main,
            *self._join(),
            rest,
            *self._finish(),
        )

    def _accumulators(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.rows) for j in range(self.vectors)]

    def _sum(self, i: int, j: int, part: int = 0) -> str:
        return f"c{i}_{j}_{part}"

    def _last_vector(
        self, full: list[ir.Step], cut: list[ir.Step], mask: ir.Var
    ) -> list[ir.Step]:
        """What to do with the last vectors of C, whole or masked."""
        left = minus(variable("columns"), plus((self.vectors - 1) * self.tile.lanes))
        is_full = compare("greater_equal", left, self.tile.lanes)
        named = ir.Let(mask.name, first_lanes(left, self.tile.lanes))
        return [ir.If(is_full, tuple(full), (named, *cut))]

    def _mask(self, name: str) -> ir.Var:
        return ir.Var(ir.Type(ir.FLAG.dtype, self.tile.lanes), name)

    def _start(self) -> list[ir.Step]:
        zero = number(self.dtype, 0, self.tile.lanes)
        mask = self._mask("mask_of_init")
        steps: list[ir.Step] = []
        full: list[ir.Step] = []
        cut: list[ir.Step] = []
        for part in range(accumulator_sets(self.rows, self.vectors)):
            for i, j in self._accumulators():
                at = plus(times(variable("init_row"), i), j * self.tile.lanes)
                load = ir.Load(self.vector, "init", at)
                early = part == 0 and j < self.vectors - 1
                steps.append(ir.Declare(self._sum(i, j, part), load if early else zero))
                if part == 0 and not early:
                    full.append(ir.Assign(self._sum(i, j), load))
                    masked = ir.Load(self.vector, "init", at, mask)
                    cut.append(ir.Assign(self._sum(i, j), masked))
        return [*steps, *self._last_vector(full, cut, mask)]

    def _steps(self, k: str, unroll: int) -> list[ir.Step]:
        """`unroll` steps of k from the value of loop variable `k` on."""
        steps: list[ir.Step] = []
        sets = accumulator_sets(self.rows, self.vectors)
        width, line = self.tile.width, max(1, LINE // self.dtype.bytes)
        for u in range(unroll):
            if unroll > 1 and self.prefetches:
                places = range(-(-u * width // line) * line, (u + 1) * width, line)
                ahead = [plus(register("ahead_at"), place) for place in places]
                steps += [ir.Prefetch("b", at) for at in ahead]
            steps += self._step(k, u, u % sets)
        steps.append(ir.Assign("b_at", plus(register("b_at"), unroll * width)))
        if unroll > 1 and self.prefetches:
            step = times(variable("step"), unroll // self.tile.unroll)
            steps.append(ir.Assign("ahead_at", plus(register("ahead_at"), step)))
        return steps

    def _step(self, k: str, u: int, part: int) -> list[ir.Step]:
        """One step of k."""
        steps: list[ir.Step] = []
        for j in range(self.vectors):
            at = plus(register("b_at"), u * self.tile.width + j * self.tile.lanes)
            steps.append(ir.Let(f"{k}b{u}_{j}", ir.Load(self.vector, "b", at)))
        for i in range(self.rows):
            at = plus(variable(f"a{i}"), variable(k), u) if i else plus(variable(k), u)
            scalar = ir.Load(ir.Type(self.dtype), "a", at)
            steps.append(ir.Let(f"{k}a{u}_{i}", ir.Splat(self.vector, scalar)))
            for j in range(self.vectors):
                a = ir.Var(self.vector, f"{k}a{u}_{i}")
                b = ir.Var(self.vector, f"{k}b{u}_{j}")
                name = self._sum(i, j, part)
                steps.append(ir.Assign(name, multiply_add(a, b, ir.Get(self.vector, name))))
        return steps

    def _join(self) -> list[ir.Step]:
        """All sets of accumulators added into the first."""
        steps: list[ir.Step] = []
        for part in range(1, accumulator_sets(self.rows, self.vectors)):
            for i, j in self._accumulators():
                name = self._sum(i, j)
                both = (ir.Get(self.vector, name), ir.Get(self.vector, self._sum(i, j, part)))
                steps.append(ir.Assign(name, operate("add", *both)))
        return steps

    def _finish(self) -> list[ir.Step]:
        mask = self._mask("mask_of_c")
        steps: list[ir.Step] = []
        full: list[ir.Step] = []
        cut: list[ir.Step] = []
        for i, j in self._accumulators():
            at = plus(times(variable("c_row"), i), j * self.tile.lanes)
            value = ir.Get(self.vector, self._sum(i, j))
            if j < self.vectors - 1:
                steps.append(ir.Store("c", at, value))
            else:
                full.append(ir.Store("c", at, value))
                cut.append(ir.Store("c", at, value, mask))
        return [*steps, *self._last_vector(full, cut, mask)]


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused for floats."""
    if a.type.dtype.is_float:
        return operate("fma", a, b, c)
    return operate("add", operate("mul", a, b), c)
