"""The size that sizes have together when they broadcast: the largest of them, or 0 where one is 0.

It is right wherever all are 1 or one size. Such a size that meets others gives way to what it was
made of, so that chains of broadcasts do not nest.
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.sizes.atoms import Atom
from anydim.sizes.box import Box
from anydim.sizes.expression import Size
from anydim.sizes.extremes import maximum, minimum
from anydim.sizes.proofs import Truth, prove, simplify


def broadcast_size(sizes: Iterable[Size], box: Box) -> Size:
    """max(a, b, ...) * min(1, a, b, ...) for sizes from 0 up."""
    parts = list(dict.fromkeys(part for size in sizes for part in _parts(size, box)))
    return simplify(maximum(*parts) * minimum(1, *parts), box)


def _parts(size: Size, box: Box) -> tuple[Size, ...]:
    """The sizes that met in a size.

    The minimum may lack those of them that are never 0.
    """
    whole = (size,)
    if len(size.monomials) != 1:
        return whole
    ((monomial, coefficient),) = size.monomials
    atoms = {atom.function: atom for atom in monomial if isinstance(atom, Atom)}
    if coefficient != 1 or len(monomial) != 2 or set(atoms) != {"min", "max"}:
        return whole
    largest, least = atoms["max"].arguments, atoms["min"].arguments
    if any(part != 1 and part not in largest for part in least):
        return whole
    lowest = {part: 0 if part in least else 1 for part in largest}
    if any(prove(part, ">=", low, box) is not Truth.PROVED for part, low in lowest.items()):
        return whole
    return largest
