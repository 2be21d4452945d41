"""The broadcast size of several sizes: the maximum, or 0 where one of them is 0.

It is right wherever all sizes are 1 or equal. A broadcast size that is broadcast again is replaced
by its operands, so that chains of broadcasts do not nest.
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.sizes.atoms import Atom
from anydim.sizes.box import Box
from anydim.sizes.expression import Size
from anydim.sizes.extremes import maximum, minimum
from anydim.sizes.proofs import Truth, prove, simplify


def broadcast_size(sizes: Iterable[Size], box: Box) -> Size:
    """max(a, b, ...) * min(1, a, b, ...) for sizes >= 0."""
    parts = list(dict.fromkeys(part for size in sizes for part in _parts(size, box)))
    return simplify(maximum(*parts) * minimum(1, *parts), box)


def broadcast_distance(left: Size, right: Size, box: Box) -> Size:
    """0 where two sizes >= 0 are equal or one is 1.

    A minimum of distances: their product would not fit 64 bits for sizes of some millions.
    """
    odd = left - right
    narrow = [size for size in (left, right) if prove(size, "==", 1, box) is not Truth.REFUTED]
    if not narrow:
        return odd
    return minimum(*(maximum(size, -size) for size in (odd, *(each - 1 for each in narrow))))


def _parts(size: Size, box: Box) -> tuple[Size, ...]:
    """The operands of a broadcast size.

    The minimum may omit operands that are never 0.
    """
    whole = (size,)
    if len(size.monomials) != 1:
        return whole
    ((monomial, coefficient),) = size.monomials
    atoms = {atom.function: atom for atom in monomial if isinstance(atom, Atom)}
    if coefficient != 1 or len(monomial) != 2 or set(atoms) != {"min", "max"}:
        return whole
    largest, smallest = atoms["max"].arguments, atoms["min"].arguments
    if any(part != 1 and part not in largest for part in smallest):
        return whole
    lowest = {part: 0 if part in smallest else 1 for part in largest}
    if any(prove(part, ">=", low, box) is not Truth.PROVED for part, low in lowest.items()):
        return whole
    return largest
