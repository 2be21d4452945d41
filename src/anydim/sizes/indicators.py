"""Algebra of indicators: min(n, 1) is 1 for a nonempty dim, and 0 for an empty one.

Broadcasts of sizes that may be 0 introduce such factors, and chains of broadcasts nest them. Over a
box where the operands are never negative:

    min(n, 1) * n = n               min(n, 1) * max(n, 1) = n
    min(2*n*m, 1) = min(n, m, 1)    min(min(n, 1)*m, 1) = min(n, m, 1)
    min(n, 1) * min(m, 1) = min(n, m, 1)
"""

from __future__ import annotations

from anydim.sizes.atoms import Atom, Factor, Monomial
from anydim.sizes.box import Box
from anydim.sizes.derived import product
from anydim.sizes.expression import Size
from anydim.sizes.extremes import maximum, minimum

_ONE = Size.constant_of(1)


def without_needless(size: Size, box: Box) -> Size:
    """The size with at most one indicator in each product, and none that the rest implies."""
    if not any(_smallest_with_one(atom) for m in size.coefficients for atom in m):
        return size
    total = Size.constant_of(0)
    for monomial, coefficient in size.coefficients.items():
        total = total + _simpler(monomial, box) * coefficient
    return total


def _smallest_with_one(atom: Factor) -> bool:
    return isinstance(atom, Atom) and atom.function == "min" and _ONE in atom.arguments


def _present(atom: Factor, box: Box) -> list[Size] | None:
    """The sizes that are all positive exactly where an indicator is 1; None for other atoms."""
    if not isinstance(atom, Atom) or not _smallest_with_one(atom):
        return None
    found: list[Size] = []
    for part in atom.arguments:
        factors = _factors(part, box)
        if factors is None:
            return None
        found += factors
    return found


def _factors(size: Size, box: Box) -> list[Size] | None:
    """The sizes that are all positive exactly where `size` is; None if it may be negative."""
    items = size.coefficients.items()
    if not all(c > 0 and all(_never_negative(a, box) for a in m) for m, c in items):
        return None
    if len(items) != 1:
        return [size]
    ((monomial, _),) = items
    found: list[Size] = []
    for atom in dict.fromkeys(monomial):
        inner = _present(atom, box)
        found += [Size.of_atom(atom)] if inner is None else inner
    return [each for each in found if box.interval(each).low < 1]


def _never_negative(atom: Factor, box: Box) -> bool:
    return box.enclosure.of_atom(atom).low >= 0


def _simpler(monomial: Monomial, box: Box) -> Size:
    factors: dict[Size, None] = {}
    rest: list[Factor] = []
    for atom in monomial:
        inner = _present(atom, box)
        if inner is None:
            rest.append(atom)
        else:
            factors.update(dict.fromkeys(inner))
    known = {*factors, *(Size.of_atom(atom) for atom in rest if _never_negative(atom, box))}
    values = [_where_present(atom, known) for atom in rest]
    needed = [factor for factor in factors if factor not in values]
    return product(values) * (minimum(*needed, 1) if needed else _ONE)


def _where_present(atom: Factor, known: set[Size]) -> Size:
    """The atom where the known sizes are positive: their maximum with 1 is just the maximum."""
    if isinstance(atom, Atom) and atom.function == "max":
        kept = [a for a in atom.arguments if a.constant is None or a.constant > 1]
        if len(kept) < len(atom.arguments) and any(a in known for a in kept):
            return maximum(*kept)
    return Size.of_atom(atom)
