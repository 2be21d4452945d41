"""Stable sorting of (key, index) pairs, in linear time.

LSD radix sort, one byte per pass (D. Knuth, The Art of Computer Programming 3, 5.2.5). A digit that
is the same in all keys is skipped. Few keys are sorted by counting smaller ones.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import Like, constant, iota, least
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.sizes import Size

# The 2,048 output streams of 11-bit digits would leave the first-level cache.
DIGIT = 8  # bits
VALUES = 1 << DIGIT  # values of a digit
FEW = 128  # up to this many keys, comparing each with all is faster


@dataclass(frozen=True)
class Pairs:
    """Keys with their indices, in buffers of twice the number of pairs, and counters.

    Indices are uint32: a row has less than 2^32 elements.
    """

    keys: Buffer
    indices: Buffer
    counts: Buffer

    @staticmethod
    def scratch(code: Code, dtype: DType, most: Size) -> Pairs:
        """Scratch memory of a thread for `most` pairs."""
        return Pairs(
            code.scratch(dtype, 2 * most), code.scratch(uint32, 2 * most), counters(code, dtype)
        )

    def part(self, start: Like) -> Pairs:
        """The pairs from another start; the counters are the same."""
        return Pairs(self.keys.part(start), self.indices.part(start), self.counts)

    def put(
        self, position: Like, key: ir.Value, index: ir.Value, where: ir.Value | None = None
    ) -> None:
        """Store a pair."""
        self.keys.store(position, key, where)
        self.indices.store(position, index, where)

    def move(self, source: Like, target: Like) -> None:
        """Copy a pair from one position to another."""
        self.put(target, self.keys[source], self.indices[source])


def counters(code: Code, dtype: DType) -> Buffer:
    """A counter for each value of each digit of keys of this type."""
    return code.scratch(uint32, VALUES * digits(dtype))


def digits(dtype: DType) -> int:
    """The number of digits of a key."""
    return max(1, dtype.bits // DIGIT)


def digit_of(key: ir.Value, number: int) -> ir.Value:
    """A digit of a key, as an index; 0 is the least significant."""
    shifted = key >> (DIGIT * number) if number else key
    return (shifted & (VALUES - 1)).as_(uint32).as_(int64)


def sort(code: Code, pairs: Pairs, count: ir.Value) -> ir.Value:
    """Stably sort the first `count` pairs by key; returns the position of the first sorted pair.

    Positions count ... 2 * count are used too: the sorted pairs start at 0 or at `count`.
    """
    begin = code.variable(0)
    # 16 keys: 60 ns by ranks, 185 by insertion, which mispredicts its branches.
    with code.when(count <= FEW):
        _sort_by_ranks(code, pairs, count)
        begin.set(count)
    with code.otherwise():
        _count_digits(code, pairs, count)
        for number in range(digits(pairs.keys.dtype)):
            _pass(code, pairs, count, number, begin)
    return begin()


def _sort_by_ranks(code: Code, pairs: Pairs, count: ir.Value) -> None:
    """Sort by rank, without data-dependent branches: the number of keys that are smaller, or equal
    and earlier. The sorted pairs start at `count`."""
    lanes = max(8, code.machine.lanes(pairs.keys.dtype))
    number = iota(lanes)

    def rank(i: ir.Value, where: ir.Value | None) -> None:
        keys, ranks = pairs.keys.load(i, lanes, where), code.variable(constant(0, uint32, lanes))
        end = code.let(least(i + lanes, count))
        for low, high in ((constant(0), i), (i, end), (end, count)):
            with code.range(low, high) as j:
                other = pairs.keys[j].spread(lanes)
                first = other <= keys if high is i else other < keys
                if high is end:
                    first = first | ((number > code.let(j - i)) & other.equals(keys))
                ranks += first.as_(uint32)
        pairs.counts.store(i, ranks(), where)

    code.sweep(0, count, lanes, rank)
    with code.range(0, count) as i:
        pairs.move(i, count + pairs.counts[i].as_(int64))


def insert(code: Code, pairs: Pairs, end: ir.Value, key: ir.Value, index: ir.Value) -> None:
    """Insert a pair into the sorted pairs before `end`, after equal ones, shifting the larger
    ones."""
    hole = code.variable(end)

    def larger_before() -> ir.Value:
        some = hole() > 0
        return some & (pairs.keys.load(hole() - 1, where=some) > key)

    with code.loop(larger_before):
        pairs.move(hole() - 1, hole())
        hole.set(hole() - 1)
    pairs.put(hole(), key, index)


def _count_digits(code: Code, pairs: Pairs, count: ir.Value) -> None:
    """Histogram of every digit."""
    passes = digits(pairs.keys.dtype)
    clear(code, pairs.counts, passes * VALUES)
    with code.range(0, count) as i:
        key = pairs.keys[i]
        for number in range(passes):
            counter = code.let(digit_of(key, number) + number * VALUES)
            pairs.counts[counter] = pairs.counts[counter] + 1


def clear(code: Code, counts: Buffer, length: int) -> None:
    """Zero the first `length` counters, a multiple of VALUES."""
    lanes = code.machine.lanes(counts.dtype)
    with code.range(0, length, lanes) as i:
        counts[i] = constant(0, counts.dtype, lanes)


def _pass(code: Code, pairs: Pairs, count: ir.Value, number: int, begin: Variable) -> None:
    """Sort by one digit, unless all keys have the same."""
    counts = pairs.counts.part(number * VALUES)
    first = digit_of(pairs.keys[begin()], number)
    # Small integers share their high bytes (Unique of int64 below 7: 1.19 -> 0.36).
    with code.when(counts[first].as_(int64).differs(count)):
        running_totals(code, counts)
        source = begin()
        target = code.let(count - source)
        with code.range(0, count) as i:
            key = pairs.keys[source + i]
            position = next_position(code, counts, digit_of(key, number))
            pairs.put(target + position, key, pairs.indices[source + i])
        begin.set(target)


def running_totals(code: Code, counts: Buffer) -> None:
    """Exclusive prefix sum of VALUES counters, in place."""
    total = code.variable(0, counts.dtype)
    with code.range(0, VALUES) as value:
        own = counts[value]
        counts[value] = total()
        total += own


def next_position(code: Code, counts: Buffer, digit: ir.Value) -> ir.Value:
    """The next position of a digit; advances its counter."""
    digit = code.let(digit)
    position = counts[digit]
    counts[digit] = position + 1
    return position.as_(int64)
