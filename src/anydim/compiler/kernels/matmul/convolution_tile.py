"""Register tiles of convolutions; `convolution_micro_kernels.py` documents what they compute.

Columns run along vectors in `Micro`; for few columns, the rows of several tiles do (`Tall`).
`LineBufferMicro` reads the positions of vectors from a table.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, round_down
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, operate, register, select, splat, variables
from anydim.compiler.kernels.matmul.accumulators import Accumulators, multiply_add
from anydim.compiler.kernels.matmul.register_tile import LINE, Tile

ADDS, FLOORS, CAPS = 1, 2, 4  # flags of `finish`
ENTRY = 6  # slots per vector of a tile at the start of a line buffer's table
_AHEAD = 256  # prefetch distance in elements of A


@dataclass(frozen=True)
class TileParameters:
    """The size parameters of a tile; `a_row` is that of a strip of tiles."""

    k: ir.Var
    span: ir.Var
    gap: ir.Var
    b_row: ir.Var
    c_row: ir.Var
    bias_step: ir.Var
    rows: ir.Var
    columns: ir.Var
    start: ir.Var
    finish: ir.Var
    a_row: ir.Var


GIVEN = variables(TileParameters)


class Micro:
    """A register tile of C; see the module's docstring."""

    kind = "windows"
    more: tuple[ir.Pointer, ...] = ()  # additional parameters

    def __init__(self, tile: Tile, rows: int, vectors: int, dtype: DType, lanes: int = 0) -> None:
        self.tile, self.rows, self.vectors, self.dtype = tile, rows, vectors, dtype
        self.lanes, self.unroll = lanes or tile.lanes, tile.unroll
        self.code, self.vector = Writer(), ir.Type(dtype, self.lanes)
        self.sums = Accumulators(self.code, self.vector, rows, vectors)

    def body(self) -> tuple[ir.Step, ...]:
        code = self.code
        self._columns()
        self._start()
        self._products()
        self._finish()
        self._store()
        return code.written

    def _store(self) -> None:
        for i, j in self.sums.indices:
            self.code.emit(ir.Store("c", self._at(i, j), self.sums[i, j], self._mask(j)))

    def _load(self, tensor: str, i: int, j: int) -> ir.Value:
        """Load elements of a tensor with the layout of C."""
        return ir.Load(self.vector, tensor, self._at(i, j), self._mask(j))

    def _columns(self) -> None:
        """Compute the values of columns that all k-steps share."""
        remaining = GIVEN.columns - (self.vectors - 1) * self.lanes
        self.mask = self.code.let(first_lanes(remaining, self.lanes))

    def _products(self) -> None:
        code, unroll, span = self.code, self.unroll, GIVEN.span
        whole = code.let(round_down(span, unroll))
        for name in ("a_at", "b_at"):
            code.emit(ir.Declare(name, constant(0)))
        with code.range(0, GIVEN.k, span):
            for _, last in code.blocks(0, whole, span, unroll, 1):
                self._steps(1 if last else unroll)
            self._move("a_at", GIVEN.gap)

    def _at(self, i: int, j: int) -> ir.Value:
        return GIVEN.c_row * i + j * self.lanes

    def _mask(self, j: int) -> ir.Value | None:
        return self.mask if j == self.vectors - 1 else None

    def _move(self, name: str, by: ir.Value | int) -> None:
        self.code.emit(ir.Assign(name, register(name) + by))

    def _start(self) -> None:
        code, sums = self.code, self.sums
        offsets = {index: self._at(*index) for index in sums.indices}
        sums.declare()
        with code.when(GIVEN.start.differs(0)):
            for at in offsets.values():
                code.emit(ir.Prefetch("more", at))
            for at in offsets.values():
                code.emit(ir.Prefetch("c", at, write=True))
            for i in range(self.rows):
                bias = ir.Load(ir.Type(self.dtype), "bias", GIVEN.bias_step * i)
                start = code.let(splat(bias, self.lanes))
                for j in range(self.vectors):
                    sums[i, j] = start
        with code.otherwise():
            for index in offsets:
                sums[index] = self._load("c", *index)

    def _steps(self, unroll: int) -> None:
        code, rows = self.code, self.tile.rows
        line = max(1, LINE // self.dtype.bytes)
        for offset in range(0, unroll * rows, line) if unroll > 1 else ():
            code.emit(ir.Prefetch("a", register("a_at") + (_AHEAD + offset)))
        for first in range(0, unroll * rows, rows):
            b = [code.let(each) for each in self._b()]
            self._move("b_at", GIVEN.b_row)
            offsets = [register("a_at") + (first + i) for i in range(self.rows)]
            self.sums.add([ir.Load(ir.Type(self.dtype), "a", at) for at in offsets], b)
        self._move("a_at", unroll * rows)

    def _b(self) -> list[ir.Value]:
        """Return the vectors of a row of B."""
        return [
            ir.Load(self.vector, "b", register("b_at") + j * self.lanes, self._mask(j))
            for j in range(self.vectors)
        ]

    def _finish(self) -> None:
        code, sums = self.code, self.sums

        def when(flag: int) -> AbstractContextManager[None]:
            return code.when((GIVEN.finish & flag).differs(0))

        with when(ADDS):
            for index in sums.indices:
                sums[index] = sums[index] + self._load("more", *index)
        for flag, function, name in ((FLOORS, "max", "low"), (CAPS, "min", "high")):
            with when(flag):
                limit = code.let(splat(ir.Var(ir.Type(self.dtype), name), self.lanes))
                for index in sums.indices:
                    sums[index] = operate(function, sums[index], limit)


class LineBufferMicro(Micro):
    """A tile whose vectors are addressed by a table: see `line_buffer.py`."""

    kind = "bands"
    more = (ir.Pointer("table", int64),)

    def _columns(self) -> None:
        code, lanes = self.code, self.lanes
        words = [
            [self._word(constant(j * ENTRY + n)) for n in range(ENTRY)] for j in range(self.vectors)
        ]
        self.begins, self.positions, counts, self.others, self.first, self.stop = zip(*words)
        self.masks = [code.let(first_lanes(count, lanes)) for count in counts]
        self.further = [
            code.let(first_lanes(stop, lanes) & ~first_lanes(first, lanes))
            for first, stop in zip(self.first, self.stop)
        ]

    def _load(self, tensor: str, i: int, j: int) -> ir.Value:
        at = GIVEN.c_row * i + self.others[j]
        more = ir.Load(self.vector, tensor, at, self.further[j])
        return select(self.further[j], more, super()._load(tensor, i, j))

    def _store(self) -> None:
        super()._store()
        for j in range(self.vectors):
            with self.code.when((self.first[j] < self.lanes) & (self.first[j] < self.stop[j])):
                for i in range(self.rows):
                    at = GIVEN.c_row * i + self.others[j]
                    self.code.emit(ir.Store("c", at, self.sums[i, j], self.further[j]))

    def _word(self, at: ir.Value) -> ir.Value:
        return self.code.let(ir.Load(ir.INDEX, "table", at))

    def _at(self, i: int, j: int) -> ir.Value:
        return GIVEN.c_row * i + self.positions[j]

    def _mask(self, j: int) -> ir.Value:
        return self.masks[j]

    def _b(self) -> list[ir.Value]:
        step = self._word(register("b_at") + ENTRY * self.tile.vectors)
        return [ir.Load(self.vector, "b", begin + step) for begin in self.begins]


class Tall(Micro):
    """Several full tiles of rows and few columns: vectors of A's rows times single elements of B.

    Each sum is over k in order, as in `Micro`; sums of several tiles hide the latency of one. The
    initial and the final sums pass through memory, `row` by row, between C and the vectors.
    """

    def __init__(self, tile: Tile, columns: int, tiles: int, dtype: DType) -> None:
        super().__init__(tile, tile.rows, columns, dtype, lanes=1)
        self.tiles, self.column = tiles, ir.Type(dtype, tile.rows)
        self.parts = Accumulators(self.code, self.column, columns, self.tiles, "s")

    def _mask(self, j: int) -> ir.Value | None:
        return None

    def body(self) -> tuple[ir.Step, ...]:
        code, parts = self.code, self.parts
        code.emit(ir.Stack("sums", self.dtype, self.vectors * self.tiles * self.rows))
        offsets = {(j, t): constant((j * self.tiles + t) * self.rows) for j, t in parts.indices}
        parts.declare()
        with code.range(0, self.tiles * self.rows) as row:
            bias = code.let(ir.Load(self.vector, "bias", row * GIVEN.bias_step))
            for at, offset in self._row(row):
                before = ir.Load(self.vector, "c", offset)
                first = select(GIVEN.start.differs(0), bias, before)
                code.emit(ir.Store("sums", at, first))
        for part, at in offsets.items():
            parts[part] = ir.Load(self.column, "sums", at)
        self._products()
        for part, at in offsets.items():
            code.emit(ir.Store("sums", at, parts[part]))
        with code.range(0, self.tiles * self.rows) as row:
            for at, offset in self._row(row):
                code.emit(ir.Store("c", offset, self._finish_element(at, offset)))
        return code.written

    def _row(self, row: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
        """Return the offsets of a row's sums in memory and in C."""
        rows, offset = self.tiles * self.rows, self.code.let(row * GIVEN.c_row)
        return [(row + j * rows, offset + j) for j in range(self.vectors)]

    def _finish_element(self, at: ir.Value, offset: ir.Value) -> ir.Value:
        code, scalar = self.code, self.vector
        found = code.let(ir.Load(scalar, "sums", at))
        more = found + ir.Load(scalar, "more", offset)
        for flag, changed in (
            (ADDS, lambda value: more),
            (FLOORS, lambda value: operate("max", value, ir.Var(scalar, "low"))),
            (CAPS, lambda value: operate("min", value, ir.Var(scalar, "high"))),
        ):
            enabled = (GIVEN.finish & flag).differs(0)
            found = code.let(select(enabled, changed(found), found))
        return found

    def _steps(self, unroll: int) -> None:
        code, rows = self.code, self.rows
        for u in range(unroll):
            further = (GIVEN.a_row * (t * rows) + u * rows for t in range(self.tiles))
            offsets = [register("a_at") + at for at in further]
            a = [code.let(ir.Load(self.column, "a", at)) for at in offsets]
            for j in range(self.vectors):
                b = code.let(splat(ir.Load(self.vector, "b", register("b_at") + j), rows))
                for t in range(self.tiles):
                    self.parts[j, t] = multiply_add(a[t], b, self.parts[j, t])
            self._move("b_at", GIVEN.b_row)
        self._move("a_at", unroll * rows)
