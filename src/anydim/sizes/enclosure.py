"""Where the values of a size expression lie when its symbols lie in given ranges."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.sizes.expression import Atom, Size
from anydim.sizes.interval import Interval, greater, lesser

Ranges = Mapping[str, Interval]


def enclose(size: Size, ranges: Ranges) -> Interval:
    """A sound enclosure; a symbol without a range may be any integer."""
    total = Interval(0, 0)
    for coefficient, powers in size.terms():
        term = Interval(coefficient, coefficient)
        for atom, power in powers:
            term = term * atom_range(atom, ranges) ** power
        total = total + term
    return total


def atom_range(atom: str, ranges: Ranges) -> Interval:
    """Where the values of a symbol or a quotient, remainder, minimum or maximum lie."""
    if not isinstance(atom, Atom):
        return ranges.get(atom, Interval())
    parts = [enclose(argument, ranges) for argument in atom.arguments]
    if atom.function == "min":
        return lesser(parts)
    if atom.function == "max":
        return greater(parts)
    return parts[0] // parts[1] if atom.function == "floordiv" else parts[0] % parts[1]
