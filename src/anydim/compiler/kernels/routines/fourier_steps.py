"""The two steps of a Fourier transform of A * B elements, for two assignments of lanes.

    step 1: for each column b:  A-point transform of x[b], x[b + B], ...; its result k, times the
            power b k of the root of unity of order A B, becomes t[k B + b]
    step 2: for each row k:     B-point transform of t[k B], t[k B + 1], ...; its result j is
            number k + A j of the whole

`WithinTransform` assigns lanes to the columns, then the rows, of one transform, `AcrossTransforms`
to the same column of several transforms. Both compute each number by the same operations, so
results are identical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import Like, constant, iota, least
from anydim.compiler.kernels.routines.fourier_plan import Plan
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.stockham import Complex, library, passes, product

Read = Callable[[ir.Value], Complex]
Write = Callable[[ir.Value, Complex], None]
Columns = tuple[ir.Value, ir.Value, ir.Value]  # the first one, one per lane, remaining count
Keep = Callable[[ir.Value, Complex, ir.Value], None]  # (first, numbers, count of valid lanes)


class Numbers:
    """Complex numbers in memory: real parts, then imaginary parts `count` elements later."""

    def __init__(self, memory: Buffer, count: ir.Value) -> None:
        self.real = memory
        self.imaginary = memory.part(count)

    def both(self) -> tuple[Buffer, Buffer]:
        return self.real, self.imaginary


class WithinTransform:
    """Lanes are adjacent in one transform. `cut` selects a part of all columns."""

    cut: tuple[ir.Value, ir.Value] | None = None

    def __init__(self, code: Code, plan: Plan, lanes: int) -> None:
        self.code, self.plan, self.lanes = code, plan, lanes
        self.dtype: DType = plan.dtype
        half = plan.sizes.part * (2 * lanes)
        self.work = code.scratch(plan.dtype, half * 2)
        self.half = code.size(half)

    def transform(self, part: int, length: ir.Value, read: Read, write: Write) -> None:
        """Transform one column per lane."""
        code, plan, lanes = self.code, self.plan, self.lanes
        count = plan.counts[part]
        begin = self.work.part(self.half * (count & 1))
        with code.range(0, length) as i:
            real, imaginary = read(i)
            begin.store(i * (2 * lanes), real)
            begin.store(i * (2 * lanes) + lanes, imaginary)
        code.call(
            library(self.dtype, lanes), passes(self.dtype, lanes), self.work.address(0),
            plan.tables.address(plan.roots[part]), plan.numbers.address(plan.factors(part)),
            self.half, length, count,
        )  # fmt: skip
        with code.range(0, length) as i:
            offset = code.let(i * (2 * lanes))
            write(i, (self.work.load(offset, lanes), self.work.load(offset + lanes, lanes)))

    def first_step(self, read: Read, t: Numbers) -> None:
        """`read(e)` returns numbers e, e + 1, ... of the input."""
        plan = self.plan
        with self.columns(plan.second) as (first, columns, valid):

            def put(k: ir.Value, value: Complex) -> None:
                self.store(
                    t, k * plan.second + first, product(value, plan.twiddle(columns * k)), valid
                )

            self.transform(0, plan.first, lambda a: read(a * plan.second + first), put)

    def second_step(self, t: Numbers, write: Keep) -> None:
        """`write` stores numbers f, f + 1, ... of the result."""
        plan, code = self.plan, self.code
        with self.columns(plan.first) as (first, rows, valid):
            starts = code.let(rows * plan.second)
            self.transform(
                1, plan.second, lambda b: self.row(t, starts + b),
                lambda j, value: write(code.let(first + plan.first * j), value, valid),
            )  # fmt: skip

    # ---- lane assignment -----------------------------------------------------------------------

    @contextmanager
    def columns(self, count: ir.Value) -> Iterator[Columns]:
        """A loop over columns; lanes past the last one repeat it."""
        code, lanes = self.code, self.lanes
        low: Like = 0
        high = count
        if self.cut is not None:
            part, parts = self.cut
            blocks = code.let((count + (lanes - 1)) // lanes)
            low = code.let(part * blocks // parts * lanes)
            high = code.let(least((part + 1) * blocks // parts * lanes, count))
        with code.range(low, high, lanes) as first:
            numbers = code.let(least(iota(lanes) + first, count - 1))
            yield first, numbers, code.let(count - first)

    def row(self, memory: Numbers, positions: ir.Value) -> Complex:
        """One number per lane."""
        return memory.real.gather(positions), memory.imaginary.gather(positions)

    def load(self, memory: Numbers, first: ir.Value) -> Complex:
        """Numbers first, first + 1, ... up to the working length."""
        where = self.code.let(iota(self.lanes) < self.code.let(self.plan.worked - first))
        real, imaginary = (buffer.load(first, self.lanes, where) for buffer in memory.both())
        return real, imaginary

    def store(self, memory: Numbers, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        """Numbers first, first + 1, ..., `valid` of them."""
        for buffer, part in zip(memory.both(), value):
            buffer.store(first, part, iota(self.lanes) < valid)

    def pairs(self, table: Buffer, first: ir.Value, count: ir.Value) -> Complex:
        """Pairs first, first + 1, ... of a table of `count`; past the end, the last one."""
        return self.plan.pair(table, least(iota(self.lanes) + first, count - 1))


class AcrossTransforms(WithinTransform):
    """Lanes are independent transforms; memory holds a vector for each number.

    Where `WithinTransform` accesses adjacent numbers e, e + 1, ..., this accesses number e of each
    transform.
    """

    @contextmanager
    def columns(self, count: ir.Value) -> Iterator[Columns]:
        with self.code.range(0, count) as number:
            yield number, number, constant(self.lanes)

    def load(self, memory: Numbers, first: ir.Value) -> Complex:
        offset = self.code.let(first * self.lanes)
        real, imaginary = (buffer.load(offset, self.lanes) for buffer in memory.both())
        return real, imaginary

    def row(self, memory: Numbers, positions: ir.Value) -> Complex:
        return self.load(memory, positions)

    def store(self, memory: Numbers, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        for buffer, part in zip(memory.both(), value):
            buffer.store(first * self.lanes, part)

    def pairs(self, table: Buffer, first: ir.Value, count: ir.Value) -> Complex:
        real, imaginary = self.plan.pair(table, least(first, count - 1))
        return real.spread(self.lanes), imaginary.spread(self.lanes)
