"""The best scores in order, some at a time: those that are never asked for are never sorted.

Scores become keys once. How far the next ones go is found by counting the keys below a bound that
is halved towards it, a vector at a time; they are gathered and sorted.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, int64, uint32
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.writer import Buffer, Variable
from anydim.kernels.ir import constant, greatest, iota, least, select
from anydim.kernels.routines import radix
from anydim.kernels.routines.ir_builder import Code
from anydim.kernels.routines.keys import key_type, order_key
from anydim.kernels.routines.radix import Pairs
from anydim.sizes import Size

BLOCK = 64  # keys that are looked at together


@dataclass(frozen=True)
class PartialSort:
    """Scores that are yet to come: `left` of them, keys `low` and above, `wanted` the next time."""

    code: Code
    keys: Buffer
    pairs: Pairs
    left: Variable
    low: Variable
    end: Variable
    wanted: Variable

    @staticmethod
    def scratch(code: Code, dtype: DType, most: Size) -> PartialSort:
        """Room for `most` scores in the memory of a thread."""
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
        """Take the scores above the threshold, of which some more than `most` may be asked for."""
        code, lanes, kind = self.code, self._lanes, self.keys.dtype
        none = constant(-1 % (1 << kind.bits), kind, lanes)  # no score has this key
        lowest, highest = code.variable(none), code.variable(constant(0, kind, lanes))
        self.left.set(0)

        def take(i: ir.Value, where: ir.Value | None) -> None:
            score = scores.load(i, lanes, where)
            above = iota(lanes) >= 0 if where is None else where
            if threshold is not None:
                above = above & (score > threshold)
            above, key = code.let(above), code.let(order_key(score, descending=True))
            self.keys[i] = select(above, key, none)
            lowest.set(select(above, least(lowest(), key), lowest()))
            highest.set(select(above, greatest(highest(), key), highest()))
            self.left.set(self.left() + above.flags.ones.as_(int64))

        code.sweep(0, count, lanes, take)
        self.low.set(lowest().combined("min"))
        self.end.set(highest().combined("max") + 1)
        self.wanted.set(greatest(most + (most >> 3), radix.FEW // 2))

    def following(self, count: ir.Value) -> tuple[Pairs, ir.Value]:
        """The next pairs in order, and their number: about as many as are wanted, some at least."""
        code, wanted = self.code, self.wanted()
        enough = code.let(wanted + (wanted >> 2))
        some, end, below = (code.variable(v()) for v in (self.left, self.end, self.low))
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
        self.left.set(self.left() - found)
        self.wanted.set(wanted * 2)
        return self.pairs.part(radix.sort(code, self.pairs, found)), found

    def _before(self, count: ir.Value, end: ir.Value) -> ir.Value:
        """How many keys that are left lie before a bound."""
        total = self.code.variable(0)
        with self.code.range(0, count, self._lanes) as i:
            total += self._left(i, end).flags.ones.as_(int64)
        return total()

    def _gather(self, count: ir.Value, end: ir.Value) -> None:
        """Those that are left and lie before a bound, as pairs."""
        code, number = self.code, self.code.variable(0)
        lanes = self._lanes
        with code.range(0, count, lanes) as i, code.each(self._left(i, end)) as lane:
            place = code.let(i + lane)
            self.pairs.put(number(), self.keys[place], place.as_(uint32))
            number += 1

    def _left(self, i: ir.Value, end: ir.Value) -> ir.Value:
        """Which of the keys from i on are left and lie before a bound."""
        keys = self.keys.load(i, self._lanes)
        return (keys >= self.low()) & (keys < end)
