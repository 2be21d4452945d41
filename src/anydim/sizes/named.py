"""Names for sizes that are printed more than once: `s1 = (h + 1)//2`, `s2 = 64*s1*w`.

names = SizeNames([size, other, condition.test, ...])    all that is printed
names.text(size)                                         its text, by names
names.lines()                                            the definitions, inner ones first

A part with a longer text that is printed twice gets a name: a quotient, a remainder, a choice, a
product, a sum. Names are numbers in the order of the definitions, the same in every process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator

from anydim.sizes.atoms import Atom, inside_out
from anydim.sizes.conditions import Condition
from anydim.sizes.expression import Size, as_constant, compound

LONGEST = 12  # characters of a text that needs no name
_LETTERS = "szqkvxyp"
_DEEP = 16  # nesting depth from which atoms are visited from the inside, without recursion


class SizeNames:
    """Names of the parts of sizes and conditions; `used` are all that are printed, in order."""

    def __init__(self, used: Iterable[Size | Condition]) -> None:
        printed = list(used)
        self._uses: Counter[Size] = Counter()
        self._names: dict[Size, Size] = {}
        self._inner: dict[Size, Size] = {}  # the same with names for what they consist of
        self._definitions: dict[str, Size] = {}
        self._letter = _free_letter(frozenset().union(*(each.symbols for each in printed)))
        for each in printed:
            self._count([each] if isinstance(each, Size) else _sides(each.test))
        for each in printed:
            self.text(each)

    def __len__(self) -> int:
        return len(self._definitions)

    def text(self, printed: Size | Condition) -> str:
        """The text of a size or condition, with names for its parts."""
        if not self._uses:
            return str(printed)
        size = printed if isinstance(printed, Size) else printed.test
        if size.depth > _DEEP:
            for atom in inside_out(size, _Done(self._inner)):
                self._short(Size.of_atom(atom))
        if isinstance(printed, Size):
            return str(self._short(printed))
        return str(Condition(self._relation(size)))

    def lines(self) -> Iterator[str]:
        """Yield the definitions, parts first."""
        yield from (f"{name} = {size}" for name, size in self._definitions.items())

    def _count(self, pending: list[Size]) -> None:
        """Count the uses of sizes and of their parts; parts of an equal size count once."""
        while pending:
            part = pending.pop()
            self._uses[part] += 1
            if self._uses[part] == 1:
                pending += _parts(part)

    def _short(self, size: Size) -> Size:
        """The size as a name, or with names for what it consists of."""
        if size in self._names or isinstance(size.atom, str):
            return self._names.get(size, size)
        if size not in self._inner:
            self._inner[size] = self._rebuild(size)
        made = self._inner[size]
        if self._uses[size] > 1 and len(str(made)) > LONGEST:
            name = f"{self._letter}{len(self._definitions) + 1}"
            self._definitions[name] = made
            self._names[size] = made = Size.of_atom(name)
        return made

    def _rebuild(self, size: Size) -> Size:
        atom = size.atom
        if isinstance(atom, Atom):
            test, *others = atom.arguments
            first = self._relation(test) if atom.function == "where" else self._short(test)
            return compound(atom.function, first, *map(self._short, others))
        if _is_product(size):
            made = as_constant(1)
            for factor in size.monomials[0][0]:
                made = made * self._short(Size.of_atom(factor))
            return made
        return self._sum(size)

    def _sum(self, size: Size) -> Size:
        total = as_constant(size.coefficients.get((), 0))
        for monomial, coefficient in size.monomials:
            if monomial:
                total = total + coefficient * self._short(Size({monomial: 1}))
        return total

    def _relation(self, test: Size) -> Size:
        """The test of a condition; relations stay relations, which are printed as such."""
        if _joins(test):
            assert isinstance(test.atom, Atom)
            return compound(test.atom.function, *map(self._relation, test.atom.arguments))
        return self._sum(test)


class _Done:
    """The atoms that are in a table of sizes."""

    def __init__(self, sizes: Container[Size]) -> None:
        self._sizes = sizes

    def __contains__(self, atom: object) -> bool:
        return not isinstance(atom, Atom) or Size.of_atom(atom) in self._sizes


def _is_product(size: Size) -> bool:
    return len(size.monomials) == 1 and size.monomials[0][1] == 1 and size.constant is None


def _parts(size: Size) -> list[Size]:
    """What a size is printed from."""
    atom = size.atom
    if isinstance(atom, Atom):
        test, *others = atom.arguments
        return [*(_sides(test) if atom.function == "where" else [test]), *others]
    if _is_product(size):
        return [Size.of_atom(each) for each in size.monomials[0][0] if isinstance(each, Atom)]
    return [Size({monomial: 1}) for monomial, _ in size.monomials if monomial]


def _sides(test: Size) -> list[Size]:
    """The products in the relations of a test."""
    if _joins(test):
        assert isinstance(test.atom, Atom)
        return [side for argument in test.atom.arguments for side in _sides(argument)]
    return [Size({monomial: 1}) for monomial, _ in test.monomials if monomial]


def _joins(test: Size) -> bool:
    """Whether a test is that of several relations."""
    return isinstance(test.atom, Atom) and test.atom.function in ("min", "max")


def _free_letter(symbols: frozenset[str]) -> str:
    """The first letter of names that no dim has."""
    for letter in _LETTERS:
        if not any(re.fullmatch(rf"{letter}\d+", symbol) for symbol in symbols):
            return letter
    return "size_"
