"""The best scores in order, a batch at a time: scores that are never needed are never sorted.

Scores are converted to keys once. The bound of the next batch is found by bisection, counting the
keys below it a vector at a time; the batch is gathered and sorted.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import constant, greatest, iota, least, select
from anydim.compiler.kernels.routines import radix
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import key_type, order_key
from anydim.compiler.kernels.routines.radix import Pairs
from anydim.sizes import Size

BLOCK = 64  # keys compared at once


@dataclass(frozen=True)
class PartialSort:
    """The remaining scores: `remaining` of them, keys at or above `low`; the next batch has about
    `wanted`."""

    code: Code
    keys: Buffer
    pairs: Pairs
    remaining: Variable
    low: Variable
    end: Variable
    wanted: Variable

    @staticmethod
    def scratch(code: Code, dtype: DType, most: Size) -> PartialSort:
        """Scratch memory of a thread for `most` scores."""
        kind = key_type(dtype)
        keys, pairs = code.scratch(kind, most + BLOCK), Pairs.scratch(code, kind, most)
        low, end = code.variable(0, kind), code.variable(0, kind)
        return PartialSort(code, keys, pairs, code.variable(0), low, end, code.variable(0))

    @property
    def _lanes(self) -> int:
        return self.code.machine.at_most(BLOCK)

    def fill(
        self, scores: Buffer, count: ir.Value, threshold: ir.Value | None, most: ir.Value
    ) -> None:
        """Load the scores above the threshold, of which slightly more than `most` may be needed."""
        code, lanes, kind = self.code, self._lanes, self.keys.dtype
        none = constant(-1 % (1 << kind.bits), kind, lanes)  # not the key of any score
        lowest, highest = code.variable(none), code.variable(constant(0, kind, lanes))
        self.remaining.set(0)

        def take(i: ir.Value, where: ir.Value | None) -> None:
            score = scores.load(i, lanes, where)
            above = iota(lanes) >= 0 if where is None else where
            if threshold is not None:
                above = above & (score > threshold)
            above, key = code.let(above), code.let(order_key(score, descending=True))
            self.keys[i] = select(above, key, none)
            lowest.set(select(above, least(lowest(), key), lowest()))
            highest.set(select(above, greatest(highest(), key), highest()))
            self.remaining.set(self.remaining() + above.flags.ones.as_(int64))

        code.sweep(0, count, lanes, take)
        self.low.set(lowest().reduce_lanes("min"))
        self.end.set(highest().reduce_lanes("max") + 1)
        self.wanted.set(greatest(most + (most >> 3), radix.FEW // 2))

    def following(self, count: ir.Value) -> tuple[Pairs, ir.Value]:
        """The next batch of sorted pairs, and its size: about `wanted`, at least one."""
        code, wanted = self.code, self.wanted()
        enough = code.let(wanted + (wanted >> 2))
        some, end, below = (code.variable(v()) for v in (self.remaining, self.end, self.low))
        with code.loop(lambda: (some() > enough) & (end() - below() > 1)):
            middle = code.let(below() + ((end() - below()) >> 1))
            before = self._before(count, middle)
            with code.when(before < wanted):
                below.set(middle)
            with code.otherwise():
                end.set(middle)
                some.set(before)
        self._gather(count, end())
        found = some()
        self.low.set(end())
        self.remaining.set(self.remaining() - found)
        self.wanted.set(wanted * 2)
        return self.pairs.part(radix.sort(code, self.pairs, found)), found

    def _before(self, count: ir.Value, end: ir.Value) -> ir.Value:
        """The number of remaining keys below a bound."""
        total = self.code.variable(0)
        with self.code.range(0, count, self._lanes) as i:
            total += self._remaining_mask(i, end).flags.ones.as_(int64)
        return total()

    def _gather(self, count: ir.Value, end: ir.Value) -> None:
        """Gather the remaining keys below a bound, as pairs."""
        code, number = self.code, self.code.variable(0)
        lanes = self._lanes
        with code.range(0, count, lanes) as i, code.each(self._remaining_mask(i, end)) as lane:
            index = code.let(i + lane)
            self.pairs.put(number(), self.keys[index], index.as_(uint32))
            number += 1

    def _remaining_mask(self, i: ir.Value, end: ir.Value) -> ir.Value:
        """A mask of the keys from i on that remain and are below a bound."""
        keys = self.keys.load(i, self._lanes)
        return (keys >= self.low()) & (keys < end)
