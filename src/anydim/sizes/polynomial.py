"""The range of a polynomial whose variables are in given intervals, independent of each other.

Interval arithmetic treats every term on its own, so it is loose where a variable occurs in terms
of both signs. Here a variable in which the polynomial is monotone is set to its end first, and one
of degree 1 is tried at both ends; polynomials of degree 1 in each variable are bounded exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from math import inf

from anydim.sizes.atoms import Factor, Monomial
from anydim.sizes.interval import Interval, Number, interval, times

Terms = Mapping[Monomial, int]
Ranges = Mapping[Factor, Interval]
_MAX_BRANCHES = 6


def polynomial_range(terms: Terms, ranges: Ranges) -> Interval:
    """A sound enclosure over all real values of the variables; `ranges` has every variable."""
    rough = term_by_term(terms, ranges)
    if len(terms) < 2 or rough.value is not None:
        return rough
    low = _lowest(dict(terms), ranges, _MAX_BRANCHES)
    high = -_lowest({monomial: -c for monomial, c in terms.items()}, ranges, _MAX_BRANCHES)
    return rough & interval(low, high)


def term_by_term(terms: Terms, ranges: Ranges) -> Interval:
    """Plain interval arithmetic."""
    low: Number = 0
    high: Number = 0
    for monomial, coefficient in terms.items():
        smallest, largest = _product(monomial, ranges)
        if coefficient < 0:
            smallest, largest = largest, smallest
        low += coefficient if smallest == 1 else times(coefficient, smallest)
        high += coefficient if largest == 1 else times(coefficient, largest)
    return interval(low, high)


def _product(monomial: Monomial, ranges: Ranges) -> tuple[Number, Number]:
    """Bounds of a product of variables; fast where they are not negative."""
    low: Number = 1
    high: Number = 1
    for atom in monomial:
        lo, hi = ranges[atom].lo, ranges[atom].hi
        if lo is None or lo < 0:
            break
        low = low * lo
        high = times(high, inf if hi is None else hi)
    else:
        return low, high
    total = Interval(1, 1)
    for atom, same in groupby(monomial):
        total = total * ranges[atom] ** len(list(same))
    return total.low, total.high


def slope(terms: Terms, atom: Factor) -> dict[Monomial, int]:
    """The derivative with respect to a variable."""
    result: dict[Monomial, int] = {}
    for monomial, coefficient in terms.items():
        power = monomial.count(atom)
        if power:
            at = monomial.index(atom)
            result[monomial[:at] + monomial[at + 1 :]] = coefficient * power
    return result


def _lowest(terms: dict[Monomial, int], ranges: Ranges, branches: int) -> Number:
    """A lower bound of the polynomial; its minimum where that is found."""
    terms = _at_monotone_ends(terms, ranges)
    powers = {atom: 0 for monomial in terms for atom in monomial}
    for monomial in terms:
        for atom in monomial:
            powers[atom] = max(powers[atom], monomial.count(atom))
    for atom in sorted(powers):
        ends = (ranges[atom].lo, ranges[atom].hi)
        if branches and powers[atom] == 1 and None not in ends:
            return min(_lowest(_fix(terms, atom, end), ranges, branches - 1) for end in ends)
    return term_by_term(terms, ranges).low


def _at_monotone_ends(terms: dict[Monomial, int], ranges: Ranges) -> dict[Monomial, int]:
    """Set every variable in which the polynomial is monotone to the minimising end."""
    changed = True
    while changed:
        changed = False
        for atom in sorted({atom for monomial in terms for atom in monomial}):
            rise = term_by_term(slope(terms, atom), ranges)
            end = ranges[atom].low if rise.low >= 0 else ranges[atom].high
            if (rise.low >= 0 or rise.high <= 0) and abs(end) != inf:
                terms = _fix(terms, atom, int(end))
                changed = True
    return terms


def _fix(terms: Terms, atom: Factor, value: int | None) -> dict[Monomial, int]:
    """The polynomial with a variable set to a value."""
    assert value is not None
    result: dict[Monomial, int] = {}
    for monomial, coefficient in terms.items():
        power = monomial.count(atom)
        if power:
            monomial = tuple(other for other in monomial if other != atom)
            coefficient *= value**power
        result[monomial] = result.get(monomial, 0) + coefficient
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}
