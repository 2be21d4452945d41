"""Atoms of size expressions: the factors of products other than plain symbols.

An atom is `a // b`, `a % b`, `min(...)`, `max(...)` or `(a if condition else b)` of sizes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from anydim.base.errors import DimError
from anydim.sizes.printing import atom_text

if TYPE_CHECKING:  # a size is made of atoms
    from anydim.sizes.expression import Size
    from anydim.sizes.normal_form import Form

Monomial = tuple[str, ...]  # sorted, atoms repeated by power; () is the constant
MAX_CHARACTERS = 1 << 16  # maximum length of the text of a size
DEEPEST = 1024  # maximum nesting depth of atoms


class Atom(str):
    """`a // b`, `a % b`, `min(...)`, `max(...)` or `(a if condition else b)`.

    The arguments of the last one are the size that is >= 0 where the condition holds, a and b.

    An atom is its own canonical text, so that products of atoms sort, hash and compare at the
    speed of strings. Symbols are plain strings; their names cannot look like an atom's text.
    """

    __slots__ = ("arguments", "depth", "function", "symbols")
    function: str  # 'floordiv', 'mod', 'min', 'max', 'where'
    arguments: tuple[Size, ...]
    depth: int  # nesting depth of atoms, this one included
    symbols: frozenset[str]  # the names it depends on

    def __new__(cls, function: str, arguments: tuple[Size, ...]) -> Atom:
        """Raises DimError for an atom beyond the limits of length or depth."""
        self = super().__new__(cls, atom_text(function, arguments))
        self.function = function
        self.arguments = arguments
        self.depth = 1 + max(argument.depth for argument in arguments)
        self.symbols = frozenset().union(*(argument.symbols for argument in arguments))
        if len(self) > MAX_CHARACTERS or self.depth > DEEPEST:
            raise DimError(
                f"size {self[:100]}... has {len(self)} characters and is nested {self.depth} deep,"
                f" above the limits {MAX_CHARACTERS} and {DEEPEST}",
                "give the dims it depends on a value, or split the model",
            )
        return self

    def __getnewargs__(self) -> tuple[str, tuple[Size, ...]]:  # type: ignore[override]
        return self.function, self.arguments


def inside_out(size: Form, known: Container[str]) -> Iterator[Atom]:
    """The unknown atoms of a size, inner ones first.

    The caller makes an atom known before it requests the next one. Without recursion, and each atom
    once: sizes may be deep and contain an atom many times.
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
    """The monomial divided by another; None if it is not divisible."""
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
