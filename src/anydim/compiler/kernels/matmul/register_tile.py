"""Micro-kernels of the contraction: a tile of C held in vector registers.

c[i, j] = init[i, j] + sum over k of a[i, k] * b[k, j]     i < rows, j < columns

`rows` x `vectors` accumulators stay in registers over k; each step loads one row of a panel of B
and broadcasts one element of every row of A. Rows of A, C and init may have any stride; elements
along k of A and along j of C and init are contiguous. A stride of 0 repeats a row, so `init` may
be a bias, C itself (to continue a sum) or a row of zeros. It is added to the finished sum of a
block of k: sums that start from a large number would lose the last bits of every product.
It is prefetched when the tile begins.

B consists of panels of one vector each, `b_panel` elements apart: the vectors of consecutive k,
padded to whole vectors. Tiles of any width read the same panels. Excess columns are masked in the
last vector of C. Every unrolled step also prefetches lines of B (`PrefetchB`), each line that is
read once, because processors do not fetch the adjacent lines. A line requested twice costs twice.
Prefetches go to the second-level cache, which has more outstanding misses than the first;
wide tiles, which do little work per line, prefetch into the first level.
Tiles of few vectors do little work per row of A: they prefetch the rows after their own.

There is a micro-kernel for every number of rows, with only loads and multiply-adds between
two k-steps: any other work there displaces multiply-adds (a Sapphire Rapids lowers its clock,
by 5 % for two branches in two steps). Scalars are passed in a block of int64, `GIVEN`.

Every element is one sum over k in order, so a row has the same bits with any other rows, in any
tile. Few rows of three vectors are too few sums to hide the latency of an FMA and of the
second-level cache: tiles of few rows are wider, tiles of many rows narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, round_down
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, number, register, variable
from anydim.compiler.kernels.knobs import between, power_of_two
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.accumulators import Accumulators

LINE = 64  # bytes of a cache line
CHAINS = 8  # independent sums: 4 cycles of latency, 2 FMAs a cycle
ROWS, PANELS = 4, 3  # of A and B addressed from one register
# 48 and 12 k-steps: 24 reach 0.7 to 0.95 of that speed, 72 to 192 0.7 to 1.03, none 0.7 to 0.9.
SOON, SOON_WIDE = 768, 192  # prefetch distance in elements of a panel of B, and of a wide tile
_MASKED_BYTES = 64  # vectors of this length have masks at no cost
MICRO_SCALARS = ("k", "a_row", "init_row", "c_row", "width", "ahead", "step", "b_panel")
GIVEN = (*MICRO_SCALARS, "rows", "asks", "init_step", "columns", "k_block")


@dataclass(frozen=True)
class Tile:
    """Rows and vectors of the largest register tile, and the unroll factor of its k loop."""

    rows: int
    vectors: int
    unroll: int
    lanes: int

    @property
    def options(self) -> tuple[int, int, int, int]:
        """The values of the tile in a schedule."""
        return self.rows, self.vectors, self.lanes, self.unroll

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def tall(self) -> int:
        """The maximum rows of a tile of two vectors with the registers of a tile of three."""
        return 13 if self.vectors == 3 else self.rows

    def thin(self, k: int) -> int:
        """Return the rows at a time for few k-steps, a power of two that fits registers."""
        return 4 if self.vectors > 2 and k < 4 else 2

    @property
    def in_order(self) -> bool:
        """Whether it is WebAssembly's (`tile_of`): engines keep the order of steps."""
        return self.rows == 5

    @property
    def shared(self) -> range:
        """Row counts that have several tiles: more than half; none for small tiles of devices."""
        return range(self.rows // 2 + 1 if self.rows > 5 else self.rows + 1, self.rows + 1)

    def widest(self, rows: int) -> int:
        """Return the vectors of the widest tile of `rows` rows: enough sums to hide FMA latency."""
        if rows > self.rows:
            return 2
        if self.in_order and rows == 3:
            return 3
        registers = 32 if self.vectors > 2 else 16
        pair = 2 if 2 * self.vectors * (rows + 1) < registers else 1
        return self.vectors * max(CHAINS // (rows * self.vectors), pair)

    def widths(self, rows: int) -> list[int]:
        """Return the vector counts of all tiles of `rows` rows."""
        return sorted({*range(1, min(self.vectors, self.widest(rows)) + 1), self.widest(rows)})


@dataclass(frozen=True)
class TileSchedule:
    """The register tile of a product: the first fields of its schedules."""

    rows: int
    vectors: int
    lanes: int
    unroll: int

    @property
    def tile(self) -> Tile:
        return Tile(self.rows, self.vectors, self.unroll, self.lanes)


TILE_KNOBS = {
    "rows": between(1, 16),
    "vectors": between(1, 6),
    "lanes": power_of_two(32, 2),
    "unroll": power_of_two(8),
}


def tile_of(machine: Machine, dtype: DType) -> Tile:
    """Return the tile for a machine: accumulators, one row of B and a broadcast fill its registers.

    With AVX-512 (32 registers) 8 x 3 was the fastest measured, ahead of 9 x 3, 6 x 4, 14 x 2 and
    12 x 2; with AVX2 (16 registers) 6 x 2. On Zen 4, an unroll of 2 is 3 % faster than 4. Device
    compilers have all tiles in each program: PoCL takes 100 s for tiles up to 8 x 3, 19 s up to
    6 x 2, 10 s up to 4 x 2, which are as fast, and a third less without tiles that prefetch ahead.

    In WebAssembly 5 x 2, 4 steps in order, takes 0.93 to 0.98 of the time of 4 x 2, and fills 14 of
    V8's 15 registers, as a step is a product and a sum: 6 x 2 spills (1.5), but takes 0.97 with
    relaxed SIMD. V8 before 13 (node 22) loads all operands of a body first and spills (1.4 to 1.6).
    Products of integers have more intermediate values.
    """
    lanes = machine.lanes(dtype)
    if machine.max_lanes:
        return Tile(4, 2, 2, lanes)
    if machine.registers >= 32:
        return Tile(8, 3, 2, lanes)
    if machine.touches and dtype.is_float:
        return Tile(5, 2, 4, lanes)
    if machine.registers < 16:
        return Tile(4, 2, 2, lanes)
    return Tile(6, 2, 4, lanes)


class PrefetchB(IntEnum):
    """Prefetch policy for B.

    SOON: a tile prefetches its own next lines, where no other tile reads the same panels. NEXT:
    tiles that read the same panels each prefetch a part of the next block into the second-level
    cache: `ahead` elements past b, each further line `step` elements later.
    """

    SOON = 0
    NEXT = 1
    NONE = 2


def micro_name(rows: int, vectors: int, prefix: str, prefetch: PrefetchB = PrefetchB.SOON) -> str:
    """Return the name of a micro-kernel in its library."""
    return f"{prefix}_{rows}x{vectors}{'_' * prefetch}"


def micro_kernel(
    tile: Tile, rows: int, vectors: int, dtype: DType, prefix: str,
    prefetch: PrefetchB = PrefetchB.SOON,
) -> ir.Function:  # fmt: skip
    """Return the micro-kernel for some rows and vectors; see the module's docstring."""
    return ir.Function(
        micro_name(rows, vectors, prefix, prefetch),
        strip_pointers(dtype),
        _Micro(tile, rows, vectors, dtype, prefetch).body(),
    )


def strip_pointers(dtype: DType) -> tuple[ir.Pointer, ...]:
    """Return the parameters of a micro-kernel: operands, and the block of its scalars."""
    return (
        ir.Pointer("a", dtype),
        ir.Pointer("b", dtype),
        ir.Pointer("init", dtype, alias=True),
        ir.Pointer("c", dtype, alias=True),
        ir.Pointer("given", int64),
    )


def load_scalars(code: Writer, *names: str) -> list[ir.Value]:
    """Load scalars from the block `given`."""
    at = (constant(GIVEN.index(name)) for name in names)
    return [code.let(ir.Load(ir.INDEX, "given", each), name) for each, name in zip(at, names)]


def store_scalar(name: str, value: ir.Value) -> ir.Store:
    """Return the store of a scalar into the block `given`."""
    return ir.Store("given", constant(GIVEN.index(name)), value)


def zeros_to_start(tile: Tile, dtype: DType) -> list[ir.Step]:
    """Return steps that declare `zeros`, an `init` for tiles of any width."""
    vectors, zero = max(map(tile.widest, range(1, tile.rows + 1))), number(dtype, 0, tile.lanes)
    return [
        ir.Stack("zeros", dtype, vectors * tile.lanes),
        *(ir.Store("zeros", constant(j * tile.lanes), zero) for j in range(vectors)),
    ]


class _Micro:
    """Writes the body of a micro-kernel."""

    def __init__(
        self, tile: Tile, rows: int, vectors: int, dtype: DType, prefetch: PrefetchB
    ) -> None:
        self.tile, self.rows, self.vectors = tile, rows, vectors
        self.dtype, self.prefetch = dtype, prefetch
        self.code, self.vector = Writer(), ir.Type(dtype, tile.lanes)
        self.sums = Accumulators(self.code, self.vector, rows, vectors)

    @property
    def prefetches(self) -> bool:
        """Whether the tile prefetches B: a tile of one row is bound by memory already."""
        return self.rows > 1 and self.vectors == self.tile.widest(self.rows)

    def body(self) -> tuple[ir.Step, ...]:
        code, unroll, k = self.code, self.tile.unroll, variable("k")
        load_scalars(code, *MICRO_SCALARS)
        if self.prefetch == PrefetchB.NEXT:
            code.emit(ir.Declare("ahead_at", variable("ahead")))
        for name, at, _ in self._moving():
            code.emit(ir.Declare(name, at))
        self.sums.declare()
        for i, j in self.sums.indices if self.prefetches else []:
            code.emit(ir.Prefetch("init", self._begin(i, j)))
        whole = code.let(round_down(k, unroll))
        for at, last in code.blocks(0, whole, k, unroll, 1):
            self._steps(*((1,) if last else (unroll, self._prefetch_steps(at))))
        self._finish()
        return code.written

    def _begin(self, i: int, j: int) -> ir.Value:
        return variable("init_row") * i + j * self.tile.lanes

    def _moving(self) -> list[tuple[str, ir.Value, int]]:
        """Return address registers of rows of A and panels of B, and their increments per k-step.

        One register addresses ROWS rows or PANELS panels, so that all addresses stay in registers.
        """
        rows, panels = range(0, self.rows, ROWS), range(0, self.vectors, PANELS)
        return [
            *((f"a{i}_at", variable("a_row") * i, 1) for i in rows),
            *((f"b{j}_at", variable("b_panel") * j, self.tile.lanes) for j in panels),
        ]

    def _panel(self, j: int) -> ir.Value:
        return variable("b_panel") * j

    def _b(self, j: int, further: int) -> ir.Value:
        """Return the address of an element of panel j of B."""
        return register(f"b{j - j % PANELS}_at") + self._panel(j % PANELS) + further

    def _prefetch_steps(self, k: ir.Value) -> list[ir.Step]:
        """Return prefetches of later lines of B; of A for tiles with little work per row of A."""
        if self.vectors < self.tile.vectors and self.rows in self.tile.shared:
            next_rows = variable("a_row") * self.rows + k * self.rows
            return [ir.Prefetch("a", next_rows)]
        if not self.prefetches or self.prefetch == PrefetchB.NONE:
            return []
        if self.prefetch == PrefetchB.SOON:
            wide = self.vectors > self.tile.vectors
            soon = SOON_WIDE if wide else SOON
            line = max(LINE // self.dtype.bytes, self.tile.lanes)
            lines = range(soon, soon + self.tile.unroll * self.tile.lanes, line)
            offsets = [self._b(j, at) for j in range(self.vectors) for at in lines]
            return [ir.Prefetch("b", at, far=not wide) for at in offsets]
        ahead = register("ahead_at")
        offsets = [ahead + self._panel(j) for j in range(self.vectors)]
        prefetches = [ir.Prefetch("b", at, far=True) for at in offsets]
        return [*prefetches, ir.Assign("ahead_at", ahead + variable("step"))]

    def _steps(self, count: int, between: Sequence[ir.Step] = ()) -> None:
        """Emit `count` unrolled k-steps with no branch between them: one costs 5 % of the time.

        The prefetches follow the first step: LLVM hoists too many loads out of steps without them.
        """
        for u in range(count):
            self._step(u)
            self.code.take(between if u == 0 else ())
        for name, _, by in self._moving():
            self.code.emit(ir.Assign(name, register(name) + count * by))

    def _step(self, u: int) -> None:
        """Emit one k-step."""
        code, lanes = self.code, self.tile.lanes
        rows = [
            variable("a_row") * (i % ROWS) + register(f"a{i - i % ROWS}_at") + u
            for i in range(self.rows)
        ]
        a = [ir.Load(ir.Type(self.dtype), "a", at) for at in rows]
        b = [ir.Load(self.vector, "b", self._b(j, u * lanes)) for j in range(self.vectors)]
        if self.tile.in_order and self.rows < self.vectors:
            self.sums.add_by_columns(a, b)
            return
        self.sums.add(a, [code.let(each) for each in b])

    def _finish(self) -> None:
        """Store the sums to C; masks the excess columns of the last vectors."""
        code, lanes = self.code, self.tile.lanes
        remaining = variable("width") - (self.vectors - 1) * lanes

        def store(last: ir.Value | None) -> None:
            for i, j in self.sums.indices:
                mask = last if j == self.vectors - 1 else None
                begin = ir.Load(self.vector, "init", self._begin(i, j), mask)
                at = variable("c_row") * i + j * lanes
                code.emit(ir.Store("c", at, self.sums[i, j] + begin, mask))

        if lanes * self.dtype.bytes >= _MASKED_BYTES:
            store(code.let(first_lanes(remaining, lanes)))
            return
        with code.when(remaining >= lanes):
            store(None)
        with code.otherwise():
            store(code.let(first_lanes(remaining, lanes)))
