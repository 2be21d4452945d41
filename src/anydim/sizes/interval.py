"""Intervals of integers, with the operators of size expressions."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from anydim.base.records import dataclass

LARGEST = 2**63 - 1  # sizes are 64-bit numbers in native code
Number = int | float  # an int, or plus or minus infinity


@dataclass(frozen=True)
class Interval:
    """All integers from `lo` to `hi`, inclusive; None: unbounded."""

    lo: int | None = None
    hi: int | None = None

    @property
    def low(self) -> Number:
        """`lo`, or minus infinity."""
        return -inf if self.lo is None else self.lo

    @property
    def high(self) -> Number:
        """`hi`, or infinity."""
        return inf if self.hi is None else self.hi

    @property
    def value(self) -> int | None:
        """The single integer in it, else None."""
        return self.lo if self.lo == self.hi else None

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{'' if self.lo is None else self.lo}..{'' if self.hi is None else self.hi}"

    def __add__(self, other: Interval) -> Interval:
        return interval(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Interval:
        return interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        ends = [times(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return interval(min(ends), max(ends))

    def __pow__(self, exponent: int) -> Interval:
        if exponent % 2 == 0 and self.low < 0:
            self = interval(0 if self.high >= 0 else -self.high, max(-self.low, self.high))
        return interval(self.low**exponent, self.high**exponent)

    def __floordiv__(self, other: Interval) -> Interval:
        """A divisor of 0 has no value, so it is excluded from `other`."""
        parts = []
        for divisor in _nonzero_parts(other):
            ends = [_over(a, b) for a in (self.low, self.high) for b in (divisor.low, divisor.high)]
            parts.append(interval(min(ends), max(ends)))
        return hull(parts)

    def __mod__(self, other: Interval) -> Interval:
        """A divisor of 0 has no value, so it is excluded from `other`."""
        parts = []
        for divisor in _nonzero_parts(other):
            if divisor.low < 0:
                parts.append(-(-self % -divisor))
            elif self.low >= 0 and self.high < divisor.low:
                parts.append(self)
            else:
                top = min(divisor.high - 1, self.high if self.low >= 0 else inf)
                parts.append(interval(0, top))
        return hull(parts)

    def __and__(self, other: Interval) -> Interval:
        return interval(max(self.low, other.low), min(self.high, other.high))


def interval(low: Number, high: Number) -> Interval:
    """The interval between two numbers that may be infinite."""
    return Interval(None if low == -inf else int(low), None if high == inf else int(high))


def hull(parts: Iterable[Interval]) -> Interval:
    """The smallest interval that contains all given ones; unbounded if there are none."""
    parts = list(parts)
    if not parts:
        return Interval()
    return interval(min(part.low for part in parts), max(part.high for part in parts))


def lesser(parts: Iterable[Interval]) -> Interval:
    """Interval of the minimum of one number from each interval."""
    parts = list(parts)
    return interval(min(part.low for part in parts), min(part.high for part in parts))


def greater(parts: Iterable[Interval]) -> Interval:
    """Interval of the maximum of one number from each interval."""
    parts = list(parts)
    return interval(max(part.low for part in parts), max(part.high for part in parts))


def times(left: Number, right: Number) -> Number:
    """The product of two bounds, where 0 times infinity is 0."""
    if left == 0 or right == 0:
        return 0
    if abs(left) == inf or abs(right) == inf:
        return inf if (left > 0) == (right > 0) else -inf
    return left * right


def _over(left: Number, right: Number) -> Number:
    """left // right; an infinite divisor stands for one that grows without bound."""
    if abs(left) == inf:
        return left if right > 0 else -left
    if abs(right) == inf:
        return 0 if left == 0 or (left > 0) == (right > 0) else -1
    return left // right


def _nonzero_parts(divisor: Interval) -> list[Interval]:
    parts = []
    if divisor.low < 0:
        parts.append(interval(divisor.low, min(divisor.high, -1)))
    if divisor.high > 0:
        parts.append(interval(max(divisor.low, 1), divisor.high))
    return parts
