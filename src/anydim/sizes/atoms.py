"""Atoms of size expressions: the factors of products other than plain symbols.

An atom is `a // b`, `a % b`, `min(...)`, `max(...)` or `(a if condition else b)` of sizes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from anydim.base.errors import DimError
from anydim.sizes.interned import unique
from anydim.sizes.printing import LONGEST_TEXT, atom_text

if TYPE_CHECKING:  # a size is made of atoms
    from anydim.sizes.expression import Size
    from anydim.sizes.normal_form import Form

DEEPEST = 1024  # maximum nesting depth of atoms
MOST_FACTORS = 1 << 10  # of a product of atoms


class Atom:
    """`a // b`, `a % b`, `min(...)`, `max(...)` or `(a if condition else b)`.

    The arguments of the last one are the size that is >= 0 where the condition holds, a and b.

    Equal atoms are one object. They are ordered by their texts, among plain symbols, too.
    """

    __slots__ = ("__weakref__", "_text", "arguments", "depth", "function", "length", "symbols")
    function: str  # 'floordiv', 'mod', 'min', 'max', 'where'
    arguments: tuple[Size, ...]
    depth: int  # nesting depth of atoms, this one included
    length: int  # of its text, or somewhat more
    symbols: frozenset[str]  # the names it depends on
    _text: str  # empty until it is needed

    def __new__(cls, function: str, arguments: tuple[Size, ...]) -> Atom:
        """Raises DimError for an atom beyond the limits of length or depth.

        Sizes share parts, so texts, and bounds of products, may be exponentially longer than what
        they describe.
        """
        key: tuple[str | int, ...] = (function, *[argument.number for argument in arguments])
        found = _ATOMS.get(key)
        if found is not None:
            return found
        self = super().__new__(cls)
        self.function = function
        self.arguments = arguments
        self.depth = 1 + max(argument.depth for argument in arguments)
        self.symbols = frozenset().union(*(argument.symbols for argument in arguments))
        self._text = ""
        self.length = len(function) + sum(_length(argument) for argument in arguments)
        if self.length > LONGEST_TEXT or self.depth > DEEPEST:
            raise DimError(
                f"a size of {', '.join(sorted(self.symbols)[:5])} has {self.length} characters and"
                f" is nested {self.depth} deep, above the limits {LONGEST_TEXT} and {DEEPEST}",
                "give the dims it depends on a value, or split the model",
            )
        return unique(_ATOMS, key, self)

    def __str__(self) -> str:
        if not self._text:
            for inner in _from_inside([self], _Printed()):
                inner._text = atom_text(inner.function, inner.arguments)
        return self._text

    __repr__ = __str__

    def __lt__(self, other: Factor) -> bool:
        return str(self) < str(other)

    def __le__(self, other: Factor) -> bool:
        return str(self) <= str(other)

    def __gt__(self, other: Factor) -> bool:
        return str(self) > str(other)

    def __ge__(self, other: Factor) -> bool:
        return str(self) >= str(other)

    def __reduce__(self) -> tuple[type[Atom], tuple[str, tuple[Size, ...]]]:
        return Atom, (self.function, self.arguments)


Factor = str | Atom  # a plain symbol is its name
Monomial = tuple[Factor, ...]  # sorted, factors repeated by power; () is the constant
_ATOMS = WeakValueDictionary[tuple[str | int, ...], Atom]()


def _length(size: Form) -> int:
    """The characters of a size's text, or somewhat more; the text is not made."""
    return sum(
        4 + coefficient.bit_length() // 3
        + sum(3 + (len(at) if isinstance(at, str) else at.length) for at in monomial)
        for monomial, coefficient in size.monomials
    )  # fmt: skip


def inside_out(size: Form, known: Container[Factor]) -> Iterator[Atom]:
    """The unknown atoms of a size, inner ones first.

    The caller makes an atom known before it requests the next one. Without recursion, and each atom
    once: sizes may be deep and contain an atom many times.
    """
    return _from_inside([atom for monomial in size.coefficients for atom in monomial], known)


def _from_inside(pending: list[Factor], known: Container[Factor]) -> Iterator[Atom]:
    while pending:
        atom = pending[-1]
        if not isinstance(atom, Atom) or atom in known:
            pending.pop()
            continue
        inner = [
            other
            for argument in atom.arguments
            for monomial in argument.coefficients
            for other in monomial
            if isinstance(other, Atom) and other not in known
        ]
        if inner:
            pending += inner
        else:
            yield atom


class _Printed:
    """The atoms that have a text."""

    def __contains__(self, atom: object) -> bool:
        return not isinstance(atom, Atom) or bool(atom._text)


def too_large(what: str, count: int, things: str, most: int) -> DimError:
    """The error of a size that grows beyond a limit, before it fills the memory."""
    return DimError(
        f"sizes with {what} of {count} {things}, above the limit {most}",
        "give the dims they depend on a value, or split the model",
    )


def merged(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    if not left or not right:
        return left or right
    if len(left) + len(right) > MOST_FACTORS:
        raise too_large("a product", len(left) + len(right), "factors", MOST_FACTORS)
    if left[-1] <= right[0]:
        return left + right
    return tuple(sorted(left + right))


def without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """The monomial divided by another; None if it is not divisible."""
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
