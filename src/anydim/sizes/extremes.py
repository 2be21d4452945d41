"""Normal form of minima and maxima."""

from __future__ import annotations

from anydim.sizes.atoms import Atom
from anydim.sizes.expression import NORMAL_FORMS, Size, as_constant, compound
from anydim.sizes.interned import Results


def minimum(*sizes: Size | int) -> Size:
    """The minimum of one or more sizes."""
    return _kept("min", sizes)


def maximum(*sizes: Size | int) -> Size:
    """The maximum of one or more sizes."""
    return _kept("max", sizes)


def _kept(function: str, sizes: tuple[Size | int, ...]) -> Size:
    operands = tuple(map(as_constant, sizes))
    key = function, *[operand.number for operand in operands]
    found = _RESULTS.get(key)
    return _RESULTS.keep(key, _extreme(function, operands)) if found is None else found


_RESULTS: Results[Size] = Results()


def _extreme(function: str, sizes: tuple[Size, ...]) -> Size:
    """Flattened; of operands whose difference is constant, only the one that can win is kept."""
    if len(set(sizes)) == 1:  # as it is: min(s, 2) - 1 would become min(s - 1, 1)
        return sizes[0]
    kept: list[Size] = []
    for operand in sizes:
        for part in _operands(function, operand):
            for position, other in enumerate(kept):
                ahead = part.constant_difference(other)
                if ahead is not None:
                    if (ahead < 0) == (function == "min"):
                        kept[position] = part
                    break
            else:
                kept.append(part)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=lambda size: (size.constant is not None, str(size)))
    return compound(function, *kept)


def _operands(function: str, size: Size) -> tuple[Size, ...]:
    """The operands of an extreme: max(a, b) has a and b, max(a, 0) - 2 has a - 2 and -2."""
    atom = size.atom
    if isinstance(atom, Atom) and atom.function == function:
        return atom.arguments
    constant = size.coefficients.get((), 0)
    if len(size.coefficients) == 2 and constant:
        atom = (size - constant).atom
        if isinstance(atom, Atom) and atom.function == function and is_clip(atom):
            return tuple(part + constant for part in atom.arguments)
    return (size,)


def is_clip(atom: Atom) -> bool:
    """Whether an atom is the minimum or the maximum of one size and a number."""
    if atom.function not in ("min", "max") or len(atom.arguments) != 2:
        return False
    return atom.arguments[1].constant is not None  # numbers come last


NORMAL_FORMS["min"] = minimum
NORMAL_FORMS["max"] = maximum
