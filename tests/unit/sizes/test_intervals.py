"""Promise: operators on intervals hold every value and no more, as trying all numbers says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product

import pytest

from anydim.sizes.interval import Interval, greater, hull, interval, lesser

FAR = 1000  # what stands for an end that is not there; no result of the finite ends is near it
ENDS = [
    Interval(low, high)
    for low, high in product((None, *range(-3, 4)), (*range(-3, 4), None))
    if low is None or high is None or low <= high
]


def members(where: Interval) -> list[int]:
    """The integers of an interval near 0, and some far out where it has no end."""
    found = [n for n in range(-9, 10) if n in where]
    found += [-FAR - n for n in range(4)] if where.lo is None else []
    return found + ([FAR + n for n in range(4)] if where.hi is None else [])


def span(values: list[int]) -> Interval:
    """The interval of some values, without ends where they go far out."""
    low, high = min(values), max(values)
    return Interval(None if low < -FAR / 9 else low, None if high > FAR / 9 else high)


@pytest.mark.parametrize("function", [operator.add, operator.mul, operator.floordiv])
def test_what_two_give(function: Callable) -> None:
    for left, right in product(ENDS, repeat=2):
        divisors = [y for y in members(right) if y or function is not operator.floordiv]
        if not divisors:
            assert function(left, right) == Interval()
            continue
        values = [function(x, y) for x in members(left) for y in divisors]
        assert function(left, right) == span(values), f"{function.__name__}: {left} with {right}"


def test_remainders() -> None:
    """Values lie inside, below the divisor, and are the dividend's own where that is smaller."""
    for left, right in product(ENDS, repeat=2):
        divisors = [y for y in members(right) if y]
        where = left % right
        if not divisors:
            assert where == Interval()
            continue
        assert all(x % y in where for x in members(left) for y in divisors), f"{left} % {right}"
        below, above = span(divisors).low, span(divisors).high
        assert where.low >= min(0, below + 1) and where.high <= max(0, above - 1)
        if below > 0 and left.low >= 0:
            assert where.high <= left.high
            assert where == left or left.high >= below
        if above < 0 and left.high <= 0:
            assert where.low >= left.low
            assert where == left or left.low <= above


@pytest.mark.parametrize("exponent", range(5))
def test_powers(exponent: int) -> None:
    for where in ENDS:
        values = [x**exponent for x in members(where)]
        assert where**exponent == span(values), f"{where} ** {exponent}"


def test_what_one_gives() -> None:
    for where in ENDS:
        values = members(where)
        assert -where == span([-x for x in values])
        assert where.value == (values[0] if len(values) == 1 else None)
        assert [n in where for n in range(-9, 10)] == [n in values for n in range(-9, 10)]


def test_what_several_give() -> None:
    for parts in product(ENDS, repeat=2):
        values = [members(part) for part in parts]
        assert hull(parts) == span([*values[0], *values[1]])
        assert lesser(parts) == span([min(pair) for pair in product(*values)])
        assert greater(parts) == span([max(pair) for pair in product(*values)])
        both = [n for n in values[0] if n in values[1]]
        if both:
            assert parts[0] & parts[1] == span(both)
    assert hull([]) == Interval()


def test_ends_that_are_not_there() -> None:
    assert interval(float("-inf"), float("inf")) == Interval(None, None)
    assert interval(-2, 5) == Interval(-2, 5)
    assert [str(where) for where in (Interval(), Interval(1), Interval(None, 3), Interval(2, 4))] \
        == ["..", "1..", "..3", "2..4"]  # fmt: skip
