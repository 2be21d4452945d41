"""Comparison of sizes by coefficients: a test that needs no proof.

A polynomial in atoms that are never negative is <= another one whose coefficients are all at least
as large. Most sizes of tensors are such polynomials. Where coefficients of one monomial are too
small and those of another too large, the surplus compensates if its atoms are never smaller:

    x // c <= y // d    where    d*x <= c*(y + 1) - 1    for c, d > 0

So the size of an image after a stack of poolings is proved to be at most its initial size.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.sizes.atoms import Atom, Factor, Monomial, inside_out
from anydim.sizes.box import Box
from anydim.sizes.expression import Size

_DEEPEST = 24  # nested comparisons of quotients


class Covering:
    """Comparisons of sizes over a box; caches which products of atoms are never negative."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._known: dict[Factor, bool] = {}
        self._above: dict[Factor, Size | None] = {}
        self._ordered: dict[tuple[Factor, Factor], bool] = {}
        self._depth = 0

    def covers(self, upper: Size, lower: Size) -> bool:
        """Whether lower <= upper everywhere in the box; False if coefficients do not decide."""
        above, below = upper.coefficients, lower.coefficients
        spare: dict[Monomial, int] = {}
        lacking: dict[Monomial, int] = {}
        for monomial in dict.fromkeys((*below, *above)):
            more = above.get(monomial, 0) - below.get(monomial, 0)
            if more and not self._never_negative(monomial):
                return False
            if more > 0:
                spare[monomial] = more
            elif more < 0:
                lacking[monomial] = -more
        return all(self._made_up(monomial, need, spare) for monomial, need in lacking.items())

    def _made_up(self, monomial: Monomial, need: int, spare: dict[Monomial, int]) -> bool:
        """Whether other monomials, consumed from `spare`, compensate for a lacking one."""
        for other, left in spare.items():
            if left and len(other) == len(monomial) and self._product_above(other, monomial):
                taken = min(left, need)
                spare[other], need = left - taken, need - taken
                if not need:
                    return True
        return False

    def _product_above(self, upper: Monomial, lower: Monomial) -> bool:
        """Whether each atom of a product is matched by one in the other that is never smaller."""
        free, left = list(upper), []
        for atom in lower:
            if atom in free:
                free.remove(atom)
            else:
                left.append(atom)
        for atom in left:
            found = next((other for other in free if self._atom_above(other, atom)), None)
            if found is None:
                return False
            free.remove(found)
        return True

    def _atom_above(self, upper: Factor, lower: Factor) -> bool:
        key = upper, lower
        if key not in self._ordered:
            if self._depth >= _DEEPEST:
                return False
            self._depth += 1
            self._ordered[key] = self._compared(upper, lower)
            self._depth -= 1
        return self._ordered[key]

    def _compared(self, upper: Factor, lower: Factor) -> bool:
        if not isinstance(lower, Atom):
            return False
        whole = Size.of_atom(upper)
        if lower.function == "max":
            return all(self.covers(whole, part) for part in lower.arguments)
        if lower.function == "min":
            return any(self.covers(whole, part) for part in lower.arguments)
        if lower.function == "where":
            return all(self.covers(whole, part) for part in lower.arguments[1:])
        (above, over), (below, under) = _quotient(upper), _quotient(lower)
        return bool(over and under) and self.covers(under * (above + 1) - 1, over * below)

    def joined(self, left: Size, right: Size) -> Size | None:
        """The least size by coefficients that covers both; None if coefficients give none."""
        if self.covers(left, right):
            return left
        first, second = left.coefficients, right.coefficients
        merged = {}
        for monomial in dict.fromkeys((*first, *second)):
            one, two = first.get(monomial, 0), second.get(monomial, 0)
            if one != two and not self._never_negative(monomial):
                return None
            merged[monomial] = max(one, two)
        return Size({monomial: value for monomial, value in merged.items() if value})

    def without_rounding(self, size: Size, quotient: Factor) -> Size | None:
        """An upper bound of this size with one quotient by a constant removed.

        (3*n*m + 7) // 8, three bits per element rounded up to bytes, is at most n*m.
        """
        if quotient not in self._above:
            self._above[quotient] = _above_quotient(quotient, self._never_negative)
        above, whole = self._above[quotient], size
        if above is None:
            return None
        for monomial, coefficient in size.coefficients.items():
            if quotient in monomial:
                others = list(monomial)
                others.remove(quotient)
                if coefficient < 0 or quotient in others or not self._never_negative(monomial):
                    return None
                change = above * Size({tuple(others): 1}) - Size({monomial: 1})
                whole = whole + change * coefficient
        return whole

    def not_negative(self, size: Size) -> bool:
        """Whether 0 <= size everywhere in the box, as far as coefficients and atoms decide."""
        return all(
            coefficient > 0 and self._never_negative(monomial)
            for monomial, coefficient in size.coefficients.items()
        )

    def _never_negative(self, monomial: Monomial) -> bool:
        for atom in monomial:
            if atom not in self._known:
                for inner in inside_out(Size.of_atom(atom), self._known):
                    self._known[inner] = self._starts_at_zero(inner)
                if not isinstance(atom, Atom):
                    self._known[atom] = self._box.enclosure.of_atom(atom).low >= 0
            if not self._known[atom]:
                return False
        return True

    def _starts_at_zero(self, atom: Atom) -> bool:
        """Whether a compound atom is never negative; its inner atoms are known."""
        if atom.function in ("min", "max"):
            enough = all if atom.function == "min" else any
            if enough(self.not_negative(part) for part in atom.arguments):
                return True
        elif atom.function == "where":
            if all(self.not_negative(part) for part in atom.arguments[1:]):
                return True
        elif (atom.arguments[1].constant or 0) > 0:
            if atom.function == "mod" or self.not_negative(atom.arguments[0]):
                return True
        return self._box.enclosure.of_atom(atom).low >= 0


def _quotient(atom: Factor) -> tuple[Size, int]:
    """Dividend and divisor of a quotient; divisor 0 if it is not a constant > 0."""
    if not isinstance(atom, Atom):
        return Size.of_atom(atom), 1
    if atom.function != "floordiv":
        return Size.of_atom(atom), 1
    return atom.arguments[0], max(0, atom.arguments[1].constant or 0)


def _above_quotient(quotient: Factor, never_negative: Callable[[Monomial], bool]) -> Size | None:
    """A polynomial that covers a quotient by a constant, rounded up; None for other atoms."""
    if not isinstance(quotient, Atom) or quotient.function != "floordiv":
        return None
    under = quotient.arguments[1].constant
    if under is None or under < 1:
        return None
    terms = {}
    for monomial, coefficient in quotient.arguments[0].coefficients.items():
        if not monomial:
            coefficient -= under - 1  # the quotient is at most the rest's, rounded up
        if coefficient < 0 or not never_negative(monomial):
            return None
        terms[monomial] = -(-coefficient // under)
    return Size({monomial: value for monomial, value in terms.items() if value})
