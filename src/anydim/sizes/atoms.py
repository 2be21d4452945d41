"""Atoms of size expressions: what stands in a product beside plain symbols.

An atom is `a // b`, `a % b`, `min(...)` or `max(...)` of sizes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from anydim.base.errors import DimError
from anydim.sizes.printing import atom_text

if TYPE_CHECKING:  # a size is made of atoms
    from anydim.sizes.expression import Size
    from anydim.sizes.normal_form import Form

Monomial = tuple[str, ...]  # sorted, an atom repeats for its power; () belongs to the constant
MOST_CHARACTERS = 1 << 16  # of the text of a size
DEEPEST = 1024  # quotients, remainders, minima and maxima inside each other


class Atom(str):
    """`a // b`, `a % b`, `min(...)` or `max(...)`.

    An atom is its own canonical text, so that products of atoms sort, hash and compare at the
    speed of strings. Symbols are plain strings; their names cannot look like an atom's text.
    """

    __slots__ = ("arguments", "depth", "function", "symbols")
    function: str  # 'floordiv', 'mod', 'min', 'max'
    arguments: tuple[Size, ...]
    depth: int  # how many of them stand inside each other, this one included
    symbols: frozenset[str]  # the names it depends on

    def __new__(cls, function: str, arguments: tuple[Size, ...]) -> Atom:
        """Raises DimError for one that is longer or deeper than any size may be."""
        self = super().__new__(cls, atom_text(function, arguments))
        self.function = function
        self.arguments = arguments
        self.depth = 1 + max(argument.depth for argument in arguments)
        self.symbols = frozenset().union(*(argument.symbols for argument in arguments))
        if len(self) > MOST_CHARACTERS or self.depth > DEEPEST:
            raise DimError(
                f"size {self[:100]}... has {len(self)} characters and is nested {self.depth} deep,"
                f" above the limits {MOST_CHARACTERS} and {DEEPEST}",
                "give the dims it depends on a value, or cut the model in two",
            )
        return self

    def __getnewargs__(self) -> tuple[str, tuple[Size, ...]]:  # type: ignore[override]
        return self.function, self.arguments


def inside_out(size: Form, known: Container[str]) -> Iterator[Atom]:
    """The atoms of a size that are not known, each after those inside it.

    The caller makes an atom known before it asks for the next one. No recursion, and each atom
    once: sizes may be deep, and hold an atom in many places.
    """
    pending = [atom for monomial in size.coefficients for atom in monomial]
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


def merged(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    if not left or not right:
        return left or right
    if left[-1] <= right[0]:
        return left + right
    return tuple(sorted(left + right))


def without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """The monomial divided by another; None when that does not divide it."""
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
