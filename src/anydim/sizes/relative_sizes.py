"""Sizes said in terms of each other: what is alike but for the sizes around it looks alike.

The 40th of 1,000 poolings takes (h + 2**40 - 1)//2**40 rows and leaves half of them, as the first
one did of h. Said with a name for what it takes, both are s -> (s + 1)//2, and what was found out
for one of them holds for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from anydim.base.records import dataclass
from anydim.sizes.atoms import Atom
from anydim.sizes.box import Box, Dim
from anydim.sizes.expression import Size, apply
from anydim.sizes.extremes import is_clip, maximum


@dataclass(frozen=True, eq=False)
class OwnSizes:
    """Names for some sizes, and others said with them.

    `box` bounds the names; `sizes` is what they stand for. What holds over `box` holds for these
    sizes; of what the sizes have to do with each other nothing is lost.
    """

    box: Box
    sizes: Mapping[str, Size]
    atoms: Mapping[str, Size]

    def own(self, size: Size) -> Size:
        """A size said with the names."""
        return size.replace_atoms(self.atoms.__getitem__)

    def back(self, size: Size) -> Size:
        """What a size over the names stands for."""
        found = self._back.get(size)
        if found is None:
            found = self._back[size] = size.substitute(self.sizes, self._atoms_back)
        return found

    @cached_property
    def _back(self) -> dict[Size, Size]:
        """Sizes over the names -> what they stand for: launches of a group share most of them."""
        return {}

    @cached_property
    def _atoms_back(self) -> dict[str, Size]:
        """Atoms over the names -> what they stand for."""
        return {}


def own_sizes(sizes: Iterable[Size], box: Box) -> OwnSizes | None:
    """Names for what these sizes are made of, the first ones first.

    None where no compound one needs a name: all follow from dims that are among them. None also
    where something would be lost: constraints, or a relation that is not seen here.
    """
    atoms = dict.fromkeys(
        atom for size in sizes for monomial in size.coefficients for atom in monomial
    )
    plain = [atom for atom in atoms if not isinstance(atom, Atom)]
    said: dict[str, Size] = {}
    named: dict[str, str] = {}  # what has a name -> that name
    owned = set(plain)  # the symbols of what has a name
    for atom in (*plain, *(atom for atom in atoms if isinstance(atom, Atom))):
        found = _said(atom, said, named) if isinstance(atom, Atom) else None
        if found is None:
            if isinstance(atom, Atom):
                if not owned.isdisjoint(atom.symbols):
                    return None
                owned |= atom.symbols
            named[atom] = f"size{len(named)}"
            found = Size.symbol(named[atom])
        said[atom] = found
    if len(named) == len(plain) or any(not owned.isdisjoint(c.symbols) for c in box.constraints):
        return None
    dims = [_dim(name, Size({(atom,): 1}), box) for atom, name in named.items()]
    known = [dim for dim in dims if dim is not None]
    if len(known) < len(dims):
        return None
    stood_for = {name: Size({(atom,): 1}) for atom, name in named.items()}
    return OwnSizes(Box.of(*known), stood_for, said)


def _dim(name: str, size: Size, box: Box) -> Dim | None:
    """A dim with the bounds of a size; None for one that may be negative."""
    range = box.enclosure.roughly(size)
    return None if range.lo is None or range.lo < 0 else Dim(name, range.lo, range.hi)


def _said(atom: Atom, said: Mapping[str, Size], named: Mapping[str, str]) -> Size | None:
    """An atom by what is named already; None where that is not seen."""
    inner = [a for part in atom.arguments for monomial in part.coefficients for a in monomial]
    if all(each in said for each in inner):
        parts = (part.replace_atoms(said.__getitem__) for part in atom.arguments)
        return apply(atom.function, tuple(parts))
    for other, name in named.items():
        if isinstance(other, Atom) and other.symbols == atom.symbols:
            size = _from(other, Size.symbol(name), atom)
            if size is not None and size.substitute({name: Size({(other,): 1})}).atom == atom:
                return size
    return None


def _from(other: Atom, name: Size, atom: Atom) -> Size | None:
    """A guess: the atom as (name + r)//m, clipped as it is, where the name is for another one."""
    clip = atom.arguments[1] if is_clip(atom) and atom.function == "max" else None
    (above, by), (under, over) = _quotient(atom), _quotient(other)
    if not (by and over) or by % over:
        return None
    shift = (above - under).constant
    if shift is None or shift % over:
        return None
    found = (name + shift // over) // (by // over)
    return found if clip is None else maximum(found, clip)


def _quotient(atom: Atom) -> tuple[Size, int]:
    """Dividend and divisor of what is clipped or not; divisor 0 where that is no constant."""
    clipped = is_clip(atom) and atom.function == "max"
    size = atom.arguments[0] if clipped else Size({(atom,): 1})
    whole = size.coefficients.get((), 0)
    inner = (size - whole).atom
    if not isinstance(inner, Atom) or inner.function != "floordiv":
        return size, 1
    by = max(0, inner.arguments[1].constant or 0)
    return inner.arguments[0] + whole * by, by
