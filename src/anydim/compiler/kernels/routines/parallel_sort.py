"""Parallel sort of few long rows: each is split into parts.

For each digit of the keys, one launch counts the digits of every part, and one moves the pairs of
every part to their positions by these counts (as in `radix.py`; also stable).
"""

from __future__ import annotations

from anydim.base.dtypes import DType, int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import constant, least, select
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import key_type
from anydim.compiler.kernels.routines.radix import (
    DIGIT,
    VALUES,
    Pairs,
    clear,
    digit_of,
    digits,
    next_position,
)
from anydim.compiler.kernels.routines.rows import Rows, fill_pairs
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import (
    Box,
    Condition,
    Size,
    at_least,
    at_most,
    ceil_div,
    minimum,
    settle,
    simplify,
)

LONG = 1 << 16  # elements of the shortest row that is split
MANY = 8  # rows that occupy the threads without splitting
PARTS = 16  # maximum parts of a row
PART = 1 << 15  # approximate minimum elements of a part
GROUP = 64  # keys compared at once, clamped to the longest vector
KEYS, INDICES, COUNTS, BEGINS = "keys", "indices", "counts", "begins"


@dataclass(frozen=True)
class ParallelSort:
    """The launches that sort the rows of x0, and their temporaries, where `wanted` holds.

    Afterwards the sorted pairs of row r are in KEYS and INDICES, from `begin` on.
    """

    name: str
    dtype: DType
    rows: Rows
    descending: bool
    box: Box
    machine: Machine

    @property
    def wanted(self) -> Condition:
        """Where rows are split into parts."""
        few = at_most(self.rows.count, MANY - 1)
        return settle(at_least(self.rows.length, LONG) & few, self.box)

    @property
    def parts(self) -> Size:
        return minimum(PARTS, 1 + self.rows.length // PART)

    @property
    def parallel(self) -> Size:
        return self.wanted.where(self.rows.count * self.parts, 0)

    @property
    def keys(self) -> DType:
        """The type of the keys."""
        return key_type(self.dtype)

    @property
    def passes(self) -> int:
        return digits(self.keys)

    def temporaries(self, always: bool = False) -> tuple[Tensor, ...]:
        """Empty if rows are not split, unless `always`."""
        rows = self.rows.count if always else self.wanted.where(self.rows.count, 0)
        elements = rows * self.rows.length * 2
        return tuple(
            Tensor(name, TensorType(dtype, (simplify(size, self.box),)))
            for name, dtype, size in (
                (KEYS, self.keys, elements),
                (INDICES, uint32, elements),
                (COUNTS, uint32, rows * self.parts * VALUES),
                (BEGINS, int64, rows * (self.passes + 1)),
            )
        )

    def launches(self) -> tuple[Launch, ...]:
        found = [self._fill()]
        for number in range(self.passes):
            if number:
                found.append(self._count(number))
            found.append(self._move(number))
        return tuple(found)

    # ---- parts ---------------------------------------------------------------------------------

    def part_of(self, code: Code, item: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Row and part of a parallel item, and the elements low ... high of the part."""
        parts, length = code.size(self.parts), code.size(self.rows.length)
        row, part = code.let(item // parts), code.let(item % parts)
        low = code.let(part * code.size(ceil_div(self.rows.length, self.parts)))
        high = code.let(least(low + code.size(ceil_div(self.rows.length, self.parts)), length))
        return row, part, low, high

    def pairs(self, code: Code, row: ir.Value, counts: Buffer | None = None) -> Pairs:
        """The pairs of a row, and counters: by default those of all parts."""
        counts = counts or code.output(COUNTS, uint32)
        keys, indices = code.output(KEYS, self.keys), code.output(INDICES, uint32)
        return Pairs(keys, indices, counts).part(code.let(row * code.size(2 * self.rows.length)))

    def begin(self, code: Code, row: ir.Value) -> ir.Value:
        """Position of the sorted pairs of a row."""
        return code.output(BEGINS, int64)[row * (self.passes + 1) + self.passes]

    # ---- launches ------------------------------------------------------------------------------

    def _code(self, step: str) -> Code:
        return Code(f"{self.name}_{step}", self.machine, self.box)

    def launch(self, code: Code, reason: str) -> Launch:
        """A launch over all parts of all rows."""
        work = self.wanted.where(self.rows.elements, 0)
        return code.launch(self.parallel, work, 1, reason)

    def _fill(self) -> Launch:
        """Keys and indices, and the counts of the first digit."""
        code = self._code("keys")
        x, begins = code.input("x0", self.dtype), code.output(BEGINS, int64)
        with code.range(code.start, code.stop) as item:
            row, part, low, high = self.part_of(code, item)
            pairs = self.pairs(code, row)
            source = x.part(self.rows.start(code, row))
            count = code.let(high - low)
            fill_pairs(code, source, self.rows.stride(code), low, count, pairs, self.descending)
            self._count_part(code, pairs, item, low, high, constant(0), 0)
            with code.when(part.equals(0)):
                begins[row * (self.passes + 1)] = 0
        return self.launch(code, "keys of the parts of long rows")

    def _count(self, number: int) -> Launch:
        """The counts of a digit."""
        code = self._code("count")
        begins = code.output(BEGINS, int64)
        with code.range(code.start, code.stop) as item:
            row, _, low, high = self.part_of(code, item)
            begin = begins[row * (self.passes + 1) + number]
            self._count_part(code, self.pairs(code, row), item, low, high, begin, number)
        return self.launch(code, "digit counts of each part")

    def _count_part(
        self, code: Code, pairs: Pairs, item: ir.Value, low: ir.Value, high: ir.Value,
        begin: ir.Value, number: int,
    ) -> None:  # fmt: skip
        """Count the digits of a part; a leading run of keys with equal digits is counted in
        vectors."""
        counts, keys = pairs.counts.part(code.let(item * VALUES)), pairs.keys.part(begin)
        clear(code, counts, VALUES)
        with code.when(low < high):
            key, lanes = keys[low], code.machine.at_most(GROUP)
            first, position = digit_of(key, number), code.variable(low)
            digit = constant((VALUES - 1) << (DIGIT * number), self.keys, lanes)

            def alike() -> ir.Value:
                whole = position() + lanes <= high
                found = keys.load(position(), lanes, whole.spread(lanes)) ^ key.spread(lanes)
                return whole & ~(found & digit).truth.any

            with code.loop(alike):
                position += lanes
            counts[first] = (position() - low).as_(uint32)
            with code.range(position(), high) as i:
                own = code.let(digit_of(keys[i], number))
                counts[own] = counts[own] + 1

    def _move(self, number: int) -> Launch:
        """Every part moves its pairs, unless all keys of the row have the same digit."""
        code = self._code("move")
        begins = code.output(BEGINS, int64)
        positions, totals = code.stack(uint32, VALUES), code.stack(uint32, VALUES)
        length = code.size(self.rows.length)
        with code.range(code.start, code.stop) as item:
            row, part, low, high = self.part_of(code, item)
            pairs = self.pairs(code, row)
            state = code.let(row * (self.passes + 1) + number)
            begin = begins[state]
            self._first_positions(code, pairs.counts, row, part, positions, totals)
            alike = self._alike(code, totals, length)
            target = code.let(select(alike, begin, length - begin))
            with code.when(~alike), code.range(low, high) as i:
                key = pairs.keys[begin + i]
                position = next_position(code, positions, digit_of(key, number))
                pairs.put(target + position, key, pairs.indices[begin + i])
            with code.when(part.equals(0)):
                begins[state + 1] = target
        return self.launch(code, "pairs moved to the positions of a digit")

    def _first_positions(
        self, code: Code, counts: Buffer, row: ir.Value, part: ir.Value, positions: Buffer,
        totals: Buffer,
    ) -> None:  # fmt: skip
        """The first position of each digit of a part, and its count in the whole row."""
        lanes = code.machine.lanes(uint32)
        none = constant(0, uint32, lanes)
        clear(code, positions, VALUES)
        clear(code, totals, VALUES)
        parts = code.size(self.parts)
        with code.range(0, parts) as other:
            own = counts.part(code.let((row * parts + other) * VALUES))
            with code.range(0, VALUES, lanes) as v:
                found = own.load(v, lanes)
                totals[v] = totals.load(v, lanes) + found
                positions[v] = positions.load(v, lanes) + select(other < part, found, none)
        before = code.variable(0, uint32)
        with code.range(0, VALUES) as v:
            positions[v] = positions[v] + before()
            before += totals[v]

    def _alike(self, code: Code, totals: Buffer, length: ir.Value) -> ir.Value:
        """Whether all keys have the same digit."""
        lanes = code.machine.lanes(uint32)
        most = code.variable(constant(0, uint32, lanes))
        with code.range(0, VALUES, lanes) as v:
            found = totals.load(v, lanes)
            most.set(select(found > most(), found, most()))
        return code.let(most().reduce_lanes("max").as_(int64).equals(length))
