"""One size above others by its coefficients: a test that needs no proof.

A polynomial in atoms that are never negative is not above another one whose coefficients are all
at least as large. Most sizes of tensors are such polynomials.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.sizes.atoms import Atom, Monomial
from anydim.sizes.box import Box
from anydim.sizes.expression import Size


class Covering:
    """Comparisons of sizes over a box; it remembers which products of atoms are never negative."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._known: dict[str, bool] = {}
        self._above: dict[str, Size | None] = {}

    def covers(self, upper: Size, lower: Size) -> bool:
        """Whether lower <= upper everywhere in the box; False where coefficients do not tell."""
        above, below = upper.coefficients, lower.coefficients
        for monomial, coefficient in below.items():
            more = above.get(monomial, 0) - coefficient
            if more and (more < 0 or not self._never_negative(monomial)):
                return False
        return all(
            monomial in below or (coefficient > 0 and self._never_negative(monomial))
            for monomial, coefficient in above.items()
        )

    def joined(self, left: Size, right: Size) -> Size | None:
        """The least size by coefficients that covers both; None where they tell of none."""
        first, second = left.coefficients, right.coefficients
        merged = {}
        for monomial in dict.fromkeys((*first, *second)):
            one, two = first.get(monomial, 0), second.get(monomial, 0)
            if one != two and not self._never_negative(monomial):
                return None
            merged[monomial] = max(one, two)
        return Size({monomial: value for monomial, value in merged.items() if value})

    def without_rounding(self, size: Size, quotient: str) -> Size | None:
        """A size that covers this one and has one quotient by a constant less.

        (3*n*m + 7) // 8, three bytes an element rounded up, is not above n*m.
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
        """Whether 0 <= size everywhere in the box, as far as coefficients and atoms tell."""
        return all(
            coefficient > 0 and self._never_negative(monomial)
            for monomial, coefficient in size.coefficients.items()
        )

    def _never_negative(self, monomial: Monomial) -> bool:
        for atom in monomial:
            if atom not in self._known:
                self._known[atom] = self._box.enclosure.of_atom(atom).low >= 0
            if not self._known[atom]:
                return False
        return True


def _above_quotient(quotient: str, never_negative: Callable[[Monomial], bool]) -> Size | None:
    """A polynomial that covers a quotient by a constant, rounded up; None for anything else."""
    if not isinstance(quotient, Atom) or quotient.function != "floordiv":
        return None
    under = quotient.arguments[1].constant
    if under is None or under < 1:
        return None
    terms = {}
    for monomial, coefficient in quotient.arguments[0].coefficients.items():
        if not monomial:
            coefficient -= under - 1  # the quotient is not above that of the rest, rounded up
        if coefficient < 0 or not never_negative(monomial):
            return None
        terms[monomial] = -(-coefficient // under)
    return Size({monomial: value for monomial, value in terms.items() if value})
