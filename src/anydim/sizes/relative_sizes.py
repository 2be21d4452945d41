"""Sizes expressed relative to each other, so that equal computations at different sizes are equal.

The 40th of 1,000 poolings reads (h + 2**40 - 1)//2**40 rows and writes half of them, as the first
one did with h. With a name for its input size, both are s -> (s + 1)//2, and results computed for
one of them are valid for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from anydim.base.records import dataclass
from anydim.sizes.atoms import Atom, Factor
from anydim.sizes.box import Box, Dim
from anydim.sizes.expression import Size, apply
from anydim.sizes.extremes import is_clip, maximum


@dataclass(frozen=True, eq=False)
class RelativeSizes:
    """Names for some sizes, and others expressed in terms of them.

    `box` bounds the names; `sizes` maps them to the original sizes. What holds over `box` holds for
    these sizes; no relation between the sizes is lost.
    """

    box: Box
    sizes: Mapping[str, Size]
    atoms: Mapping[Factor, Size]

    def own(self, size: Size) -> Size:
        """Express a size in terms of the names."""
        found = self._own.get(size)
        if found is None:
            found = self._own[size] = size.replace_atoms(self.atoms.__getitem__)
        return found

    def back(self, size: Size) -> Size:
        """The original size of an expression over the names."""
        found = self._back.get(size)
        if found is None:
            found = self._back[size] = size.substitute(self.sizes, self._atoms_back)
        return found

    @cached_property
    def _own(self) -> dict[Size, Size]:
        """Cache of sizes in terms of the names."""
        return {}

    @cached_property
    def _back(self) -> dict[Size, Size]:
        """Cache of original sizes: launches of a group share most of them."""
        return {}

    @cached_property
    def _atoms_back(self) -> dict[Factor, Size]:
        """Cache of the original sizes of atoms."""
        return {}


def own_sizes(sizes: Iterable[Size], box: Box) -> RelativeSizes | None:
    """Names for the atoms of these sizes, the first ones first.

    None where no compound atom needs a name: all are functions of dims among them. None also where
    information would be lost: constraints, or a relation that is not recognised.
    """
    atoms: dict[Factor, None] = dict.fromkeys(
        atom for size in sizes for monomial in size.coefficients for atom in monomial
    )
    plain: list[Factor] = [atom for atom in atoms if not isinstance(atom, Atom)]
    expressed: dict[Factor, Size] = {}
    named: dict[Factor, str] = {}  # atom -> its name
    owned = set(plain)  # the symbols of named atoms
    for atom in sorted(atoms, key=lambda atom: isinstance(atom, Atom)):
        found = _expressed(atom, expressed, named) if isinstance(atom, Atom) else None
        if found is None:
            if isinstance(atom, Atom):
                if not owned.isdisjoint(atom.symbols):
                    return None
                owned |= atom.symbols
            named[atom] = f"size{len(named)}"
            found = Size.symbol(named[atom])
        expressed[atom] = found
    if len(named) == len(plain) or any(not owned.isdisjoint(c.symbols) for c in box.constraints):
        return None
    dims = [_dim(name, Size.of_atom(atom), box) for atom, name in named.items()]
    known = [dim for dim in dims if dim is not None]
    if len(known) < len(dims):
        return None
    originals = {name: Size.of_atom(atom) for atom, name in named.items()}
    return RelativeSizes(Box.of(*known), originals, expressed)


def _dim(name: str, size: Size, box: Box) -> Dim | None:
    """A dim with the bounds of a size; None if it may be negative."""
    range = box.enclosure.roughly(size)
    return None if range.lo is None or range.lo < 0 else Dim(name, range.lo, range.hi)


def _expressed(
    atom: Atom, expressed: Mapping[Factor, Size], named: Mapping[Factor, str]
) -> Size | None:
    """Express an atom in terms of named ones; None if that fails."""
    inner = [a for part in atom.arguments for monomial in part.coefficients for a in monomial]
    if all(each in expressed for each in inner):
        parts = (part.replace_atoms(expressed.__getitem__) for part in atom.arguments)
        return apply(atom.function, tuple(parts))
    for other, name in named.items():
        if isinstance(other, Atom) and other.symbols == atom.symbols:
            size = _from(other, Size.symbol(name), atom)
            if size is not None and size.substitute({name: Size.of_atom(other)}).atom == atom:
                return size
    return None


def _from(other: Atom, name: Size, atom: Atom) -> Size | None:
    """Guess an atom as (name + r)//m, clipped as it is, where `name` stands for another atom."""
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
    """Dividend and divisor of an optionally clipped atom; divisor 0 if it is not constant."""
    clipped = is_clip(atom) and atom.function == "max"
    size = atom.arguments[0] if clipped else Size.of_atom(atom)
    whole = size.coefficients.get((), 0)
    inner = (size - whole).atom
    if not isinstance(inner, Atom) or inner.function != "floordiv":
        return size, 1
    by = max(0, inner.arguments[1].constant or 0)
    return inner.arguments[0] + whole * by, by
