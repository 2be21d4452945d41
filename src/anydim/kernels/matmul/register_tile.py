"""Micro-kernels of the contraction: a tile of C held in vector registers.

    c[i, j] = init[i, j] + sum over k of a[i, k] * b[k, j]     i < rows, j < columns

`rows` x `vectors` accumulators live in registers while k runs; each step loads one row of a panel
of B and broadcasts one element of every row of A. Rows of A, C and init may have any stride;
elements along k of A and along j of C and init are neighbours. A stride of 0 repeats a row, so
`init` may be a bias, C itself (to go on with a sum) or a row of zeros. It is added to the finished
sum of a block of k: sums that start from a large number would lose the last bits of every product.
It is asked for when the tile begins.

B is panels of one vector each, `b_panel` elements apart: vectors of k one behind the other, padded
to whole ones. Tiles of any width read the same panels. Fewer columns are masked in the last vector
of C. In every unrolled step a tile also prefetches lines of B (`Asks`): each line that is read
once, as processors do not bring the lines beside it. One that is asked for twice costs as much.
They come into the second cache, which waits for more lines of memory at once than the first one;
wide tiles, which have little to do with each line, ask for the first one.
Tiles of few vectors do little with each row of A: they ask for the rows behind their own.

There is a micro-kernel for every number of rows, and nothing but loads and multiply-adds between
two steps of k: whatever else a processor does there costs it multiply-adds (a Sapphire Rapids
lowers its clock for it, by 5 % for two branches in two steps). Scalars come in a block of int64,
`GIVEN`.

Every element is one sum over k in order, so a row has the same bits whatever rows it is with, in
whatever tile. Few rows of three vectors are too few sums to hide the latency of an FMA and of what
comes from the second cache: tiles of few rows are wider, those of many narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import first_lanes, round_down
from anydim.kernels.codegen.writer import Writer
from anydim.kernels.ir import constant, number, register, variable
from anydim.kernels.launch import Machine
from anydim.kernels.matmul.accumulators import Sums

LINE = 64  # bytes of a line of the caches
CHAINS = 8  # sums that depend on nothing but themselves: 4 cycles of latency, 2 FMAs a cycle
ROWS, PANELS = 4, 3  # of A and B that one register moves along
SOON, SOON_WIDE = 768, 192  # elements of a panel of B: how far a tile asks ahead, a wide one
_MASKED_BYTES = 64  # vectors this long have masks that cost nothing
MICRO_SCALARS = ("k", "a_row", "init_row", "c_row", "width", "ahead", "step", "b_panel")
GIVEN = (*MICRO_SCALARS, "rows", "asks", "init_step", "columns", "k_block")


@dataclass(frozen=True)
class Tile:
    """Rows and vectors of the largest register tile, and how often its k loop is unrolled."""

    rows: int
    vectors: int
    unroll: int
    lanes: int

    @property
    def options(self) -> tuple[int, int, int, int]:
        """What a schedule says of it."""
        return self.rows, self.vectors, self.lanes, self.unroll

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def tall(self) -> int:
        """The most rows of a tile of two vectors, as many registers as one of three fills."""
        return 13 if self.vectors == 3 else self.rows

    def thin(self, k: int) -> int:
        """Rows at a time for few steps of k, a power of two: their elements are in registers."""
        return 4 if self.vectors > 2 and k < 4 else 2

    @property
    def shared(self) -> range:
        """The rows of tiles that there are several of: none of the small tiles of devices."""
        return range(self.rows // 2 + 1 if self.rows > 4 else self.rows + 1, self.rows + 1)

    def widest(self, rows: int) -> int:
        """Vectors of the widest tile of some rows: enough sums to hide the latency of an FMA."""
        if rows > self.rows:
            return 2
        registers = 32 if self.vectors > 2 else 16
        pair = 2 if 2 * self.vectors * (rows + 1) < registers else 1
        return self.vectors * max(CHAINS // (rows * self.vectors), pair)

    def widths(self, rows: int) -> list[int]:
        """Vectors of all tiles of some rows."""
        return sorted({*range(1, min(self.vectors, self.widest(rows)) + 1), self.widest(rows)})


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
    12 x 2; 6 x 2 of 16 with AVX2. With Zen 4, 2 steps at a time are 3 % faster than 4. Compilers of
    devices have all tiles in each program: PoCL takes 100 s for those up to 8 x 3, 19 s up to
    6 x 2, 10 s up to 4 x 2, which are as fast, and a third less without those that ask for lines
    ahead.
    """
    lanes = machine.lanes(dtype)
    if machine.most_lanes:
        return Tile(4, 2, 2, lanes)
    if machine.registers >= 32:
        return Tile(8, 3, 2, lanes)
    return Tile(6, 2, 4, lanes)


class Asks(IntEnum):
    """Lines of B that a tile asks for: what it reads soon, where it is alone with its columns.

    Of tiles that read the same panels, some ask for a part each of what is read next, to be in the
    second cache then: `ahead` elements behind b, each further line `step` elements later.
    """

    SOON = 0
    NEXT = 1
    NOTHING = 2


def micro_name(rows: int, vectors: int, prefix: str, asks: Asks = Asks.SOON) -> str:
    """The name of a micro-kernel in its library."""
    return f"{prefix}_{rows}x{vectors}{'_' * asks}"


def micro_kernel(
    tile: Tile, rows: int, vectors: int, dtype: DType, prefix: str, asks: Asks = Asks.SOON
) -> ir.Function:
    """The micro-kernel for some rows and vectors; see the module's docstring."""
    return ir.Function(
        micro_name(rows, vectors, prefix, asks),
        strip_pointers(dtype),
        _Micro(tile, rows, vectors, dtype, asks).body(),
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


def taken(code: Writer, *names: str) -> list[ir.Value]:
    """Scalars out of the block of those that are given."""
    at = (constant(GIVEN.index(name)) for name in names)
    return [code.let(ir.Load(ir.INDEX, "given", each), name) for each, name in zip(at, names)]


def give(name: str, value: ir.Value) -> ir.Store:
    """A scalar into the block of those that are given."""
    return ir.Store("given", constant(GIVEN.index(name)), value)


def zeros_to_start(tile: Tile, dtype: DType) -> list[ir.Step]:
    """`zeros`, which sums of a tile of any width may start from."""
    most, zero = max(map(tile.widest, range(1, tile.rows + 1))), number(dtype, 0, tile.lanes)
    return [
        ir.Stack("zeros", dtype, most * tile.lanes),
        *(ir.Store("zeros", constant(j * tile.lanes), zero) for j in range(most)),
    ]


class _Micro:
    """Writes the body of a micro-kernel."""

    def __init__(self, tile: Tile, rows: int, vectors: int, dtype: DType, asks: Asks) -> None:
        self.tile, self.rows, self.vectors, self.dtype, self.asks = tile, rows, vectors, dtype, asks
        self.code, self.vector = Writer(), ir.Type(dtype, tile.lanes)
        self.sums = Sums(self.code, self.vector, rows, vectors)

    @property
    def prefetches(self) -> bool:
        """Whether there is time to ask for what is read next: one row waits for memory alone."""
        return self.rows > 1 and self.vectors == self.tile.widest(self.rows)

    def body(self) -> tuple[ir.Step, ...]:
        code, unroll, k = self.code, self.tile.unroll, variable("k")
        taken(code, *MICRO_SCALARS)
        if self.asks == Asks.NEXT:
            code.emit(ir.Declare("ahead_at", variable("ahead")))
        for name, at, _ in self._moving():
            code.emit(ir.Declare(name, at))
        self.sums.declare()
        for i, j in self.sums.places if self.prefetches else []:
            code.emit(ir.Prefetch("init", self._begin(i, j)))
        whole = code.let(round_down(k, unroll))
        with code.range(0, whole, unroll) as at:
            self._steps(unroll, self._ask(at))
        with code.range(whole, k):
            self._steps(1)
        self._finish()
        return code.written

    def _begin(self, i: int, j: int) -> ir.Value:
        return variable("init_row") * i + j * self.tile.lanes

    def _moving(self) -> list[tuple[str, ir.Value, int]]:
        """Registers of where some rows of A and some panels of B are, and how far a step of k is.

        Each with a place for every one of its rows or panels: so all are in registers.
        """
        rows, panels = range(0, self.rows, ROWS), range(0, self.vectors, PANELS)
        return [
            *((f"a{i}_at", variable("a_row") * i, 1) for i in rows),
            *((f"b{j}_at", variable("b_panel") * j, self.tile.lanes) for j in panels),
        ]

    def _panel(self, j: int) -> ir.Value:
        return variable("b_panel") * j

    def _b(self, j: int, further: int) -> ir.Value:
        """A place in a panel of B."""
        return register(f"b{j - j % PANELS}_at") + self._panel(j % PANELS) + further

    def _ask(self, k: ir.Value) -> list[ir.Step]:
        """Ask for lines of B that are read later; with little to do for each row of A, for A."""
        if self.vectors < self.tile.vectors and self.rows in self.tile.shared:
            behind = variable("a_row") * self.rows + k * self.rows
            return [ir.Prefetch("a", behind)]
        if not self.prefetches or self.asks == Asks.NOTHING:
            return []
        if self.asks == Asks.SOON:
            wide = self.vectors > self.tile.vectors
            soon = SOON_WIDE if wide else SOON
            line = max(LINE // self.dtype.bytes, self.tile.lanes)
            lines = range(soon, soon + self.tile.unroll * self.tile.lanes, line)
            places = [self._b(j, at) for j in range(self.vectors) for at in lines]
            return [ir.Prefetch("b", at, far=not wide) for at in places]
        ahead = register("ahead_at")
        places = [ahead + self._panel(j) for j in range(self.vectors)]
        asked = [ir.Prefetch("b", at, far=True) for at in places]
        return [*asked, ir.Assign("ahead_at", ahead + variable("step"))]

    def _steps(self, count: int, between: Sequence[ir.Step] = ()) -> None:
        """Some steps of k, without a question between them: it would cost 5 % of the time.

        What is asked for stands between them: LLVM loads too much ahead of steps that are alone.
        """
        for u in range(count):
            self._step(u)
            self.code.take(between if u == 0 else ())
        for name, _, by in self._moving():
            self.code.emit(ir.Assign(name, register(name) + count * by))

    def _step(self, u: int) -> None:
        """One step of k."""
        code, lanes = self.code, self.tile.lanes
        places = [self._b(j, u * lanes) for j in range(self.vectors)]
        b = [code.let(ir.Load(self.vector, "b", at)) for at in places]
        rows = [
            variable("a_row") * (i % ROWS) + register(f"a{i - i % ROWS}_at") + u
            for i in range(self.rows)
        ]
        self.sums.add([ir.Load(ir.Type(self.dtype), "a", at) for at in rows], b)

    def _finish(self) -> None:
        """Sums into C; of the last vectors as many columns as there are."""
        code, lanes = self.code, self.tile.lanes
        left = variable("width") - (self.vectors - 1) * lanes

        def store(last: ir.Value | None) -> None:
            for i, j in self.sums.places:
                mask = last if j == self.vectors - 1 else None
                begin = ir.Load(self.vector, "init", self._begin(i, j), mask)
                at = variable("c_row") * i + j * lanes
                code.emit(ir.Store("c", at, self.sums[i, j] + begin, mask))

        if lanes * self.dtype.bytes >= _MASKED_BYTES:
            store(code.let(first_lanes(left, lanes)))
            return
        with code.when(left >= lanes):
            store(None)
        with code.otherwise():
            store(code.let(first_lanes(left, lanes)))
