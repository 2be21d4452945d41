"""Cumulative sums and products along an axis, in linear time.

A row longer than a piece is processed piece by piece, by any number of threads:

    total(p) = x(p*PIECE) + ... + x(p*PIECE + PIECE - 1)     in a fixed order
    start(0) = 0,  start(p + 1) = start(p) + total(p)
    y(p*PIECE + i) = start(p) + x(p*PIECE) + ... + x(p*PIECE + i)

One pass computes this, totals included. Where there are few long rows, threads share the pieces:
each takes the next one, computes its total, waits for its start, publishes the start of the next
piece, and only then writes its sums (Merrill and Garland, Single-pass parallel prefix scan with
decoupled look-back, 2016). A thread that waits too long, because the other thread has lost its
core, computes the missing total itself. A single thread takes the serial path. float16 and bfloat16
accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy

from anydim.base.dtypes import DType, convert_array, float32, from_numpy, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import iota
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.arguments import axis_of, expect_ordered
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.compiler.kernels.routines.rows import LANES, Rows
from anydim.compiler.kernels.routines.scans import (
    FIRST,
    STARTS,
    STATE,
    Columns,
    PieceQueue,
    Row,
    Spec,
)
from anydim.compiler.kernels.routines.short_scans import FEW, short_rows
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import (
    NEVER,
    Box,
    Condition,
    Size,
    as_size,
    at_least,
    at_most,
    bounds,
    ceil_div,
    maximum,
    settle,
    simplify,
)

PIECE = 1 << 12  # elements of a row
ROWS = 1 << 9  # elements of a column
LONG = 16  # pieces of the shortest row that threads share
MANY = 16  # rows, or blocks of columns, that occupy the threads without sharing
PART = 4  # pieces worth a thread


@dataclass(frozen=True)
class CumulativeOperator:
    """`function` is 'add' or 'mul', `identity` its neutral element."""

    name: str
    function: str
    identity: int
    ufuncs: tuple[numpy.ufunc, numpy.ufunc]  # of numbers, of flags

    def routine(self) -> Routine:
        return Routine((1, 1), self.infer, self.evaluate, self.lower)

    def infer(self, types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
        expect_ordered(self.name, types[0])
        axis_of(self.name, attributes["axis"], types[0].rank)
        return (types[0],)

    def evaluate(self, arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
        x, axis = arrays[0], attributes["axis"]
        wide = x.astype(numpy.float32) if _is_narrow(x) else x
        wide = numpy.flip(wide, axis) if attributes["reverse"] else wide
        if attributes["exclusive"] and x.shape[axis]:
            first = numpy.full_like(wide.take([0], axis), self.identity)
            wide = numpy.concatenate([first, wide.take(range(x.shape[axis] - 1), axis)], axis)
        sums = self.ufuncs[x.dtype == bool].accumulate(wide, axis)
        sums = numpy.flip(sums, axis) if attributes["reverse"] else sums
        return (convert_array(sums, x.dtype) if _is_narrow(x) else sums.astype(x.dtype),)

    def lower(self, types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
        rows = Rows.of(self.name, types, attributes)
        wide = _wide(types[0].dtype)
        piece = PIECE if rows.contiguous else ROWS
        full = simplify(maximum(rows.length - 1, 0) // piece, box)
        exclusive, reverse = bool(attributes["exclusive"]), bool(attributes["reverse"])
        kinds = types[0].dtype, wide
        spec = Spec(self.function, self.identity, *kinds, rows, piece, full, exclusive, reverse)
        scan = _Scan(self.name, spec, machine, box)
        return Steps(tuple(scan.launches()), scan.temporaries())


def _is_narrow(x: numpy.ndarray) -> bool:
    return x.dtype != object and _wide(from_numpy(x.dtype)) != from_numpy(x.dtype)


def _wide(dtype: DType) -> DType:
    """The type that sums accumulate in."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


@dataclass(frozen=True)
class _Scan:
    """The launches; a unit is a row, or a block of adjacent columns."""

    name: str
    spec: Spec
    machine: Machine
    box: Box

    @property
    def rows(self) -> Rows:
        return self.spec.rows

    @property
    def lanes(self) -> int:
        return LANES if self.rows.contiguous else self.machine.lanes(self.spec.wide)

    @property
    def width(self) -> int:
        """Columns of a unit."""
        vectors = 8 if self.machine.registers >= 32 else 2
        return 1 if self.rows.contiguous else vectors * self.lanes

    @property
    def blocks(self) -> Size:
        return ceil_div(self.rows.inner, self.width)

    @property
    def units(self) -> Size:
        return self.rows.outer * self.blocks

    @property
    def columns(self) -> Size:
        """All columns, including those that pad blocks; lanes for a row."""
        return self.units * (self.lanes if self.rows.contiguous else self.width)

    @property
    def shared(self) -> Condition:
        """Where threads share pieces."""
        least = LONG * self.spec.piece
        accelerator = self.machine.max_lanes > 0  # whose work-groups need not run concurrently
        if accelerator or bounds(self.rows.length, self.box).high < least:
            return NEVER
        return settle(at_least(self.rows.length, least) & at_most(self.units, MANY - 1), self.box)

    def temporaries(self) -> tuple[Tensor, ...]:
        if self.shared == NEVER:
            return ()
        elements = self.shared.where(self.columns * (self.spec.full + 1), 0)
        elements = simplify(elements, self.box)
        words = as_size(FIRST + self.most)
        kinds = (STARTS, self.spec.wide, elements), (STATE, int64, words)
        return tuple(Tensor(name, TensorType(dtype, (size,))) for name, dtype, size in kinds)

    @property
    def most(self) -> int:
        """Maximum number of column vectors where threads share pieces."""
        return MANY * max(1, self.width // self.lanes)

    def launches(self) -> Iterator[Launch]:
        if self.shared != NEVER:
            yield self._begin()
        yield self._scan_launch()

    def _begin(self) -> Launch:
        """The launch that resets the shared state of the scan."""
        code = Code(f"{self.name}_begin", self.machine, self.box)
        state = code.output(STATE, int64)
        with code.range(0, FIRST + self.most) as word:
            state[word] = 0
        return code.launch(self.shared.flag, FIRST + self.most, 1, "reset of the scan state")

    def _scan_launch(self) -> Launch:
        """The scan; its parallel range counts pieces if threads share them, else units."""
        code = Code(self.name, self.machine, self.box)
        shared, full = self.shared, self.spec.full
        how = "each row in one pass" if self.rows.contiguous else "adjacent columns at once"

        def each() -> None:
            with code.range(code.start, code.stop) as unit:
                self._columns(code, unit, Columns.sweep)

        def whole() -> None:
            if not self.rows.contiguous or bounds(self.rows.length, self.box).low > FEW:
                each()
                return
            with code.when(code.size(self.rows.length) <= FEW):
                short_rows(self.spec, code)
            with code.otherwise():
                each()

        if shared == NEVER:
            whole()
            return code.launch(self.units, self.rows.elements, 1, how)
        with code.when(~code.holds(shared)):
            whole()
        with code.otherwise():
            pieces = code.size(full + 1)
            taken = PieceQueue(code, code.let(code.size(self.units) * pieces))
            with taken.each() as item:
                piece, alone = code.let(item % pieces), taken.alone
                take = partial(Columns.take, piece=piece, alone=alone)
                self._columns(code, code.let(item // pieces), take)
        grain = simplify(shared.where(PART, 1), self.box)
        positions = simplify(shared.where(1 + full, 1), self.box)
        return code.launch(self.units * positions, self.rows.elements, grain, how)

    def _columns(self, code: Code, unit: ir.Value, do: Callable[[Columns], None]) -> None:
        """Apply `do` to all columns of a unit, or to its row."""
        if self.rows.contiguous:
            start, first_column = self.rows.start(code, unit), unit * self.lanes
            do(Row(self.spec, code, start, self.lanes, 1, first_column, self.columns))
            return
        inner, blocks = code.size(self.rows.inner), code.size(self.blocks)
        block = code.size(self.rows.length * self.rows.inner)
        base, column = code.let(unit // blocks * block), code.let(unit % blocks * self.width)
        own, lanes = (self.spec, code), self.lanes
        with code.when(column + self.width <= inner):
            first_column, vectors = unit * self.width, self.width // lanes
            do(Columns(*own, base + column, lanes, vectors, first_column, self.columns))
        with code.otherwise(), code.range(column, inner, lanes) as c:
            there = iota(lanes) < code.let(inner - c)
            first_column = unit * self.width + (c - column)
            do(Columns(*own, base + c, lanes, 1, first_column, self.columns, there))


CUM_SUM = CumulativeOperator("cum_sum", "add", 0, (numpy.add, numpy.logical_or)).routine()
CUM_PROD = CumulativeOperator("cum_prod", "mul", 1, (numpy.multiply, numpy.logical_and)).routine()
