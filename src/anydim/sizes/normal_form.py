"""The normal form of a size expression: its terms, its text, its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Generic, TypeVar

from anydim.base.errors import DimError
from anydim.sizes.atoms import Atom, Monomial, inside_out
from anydim.sizes.printing import size_text

T = TypeVar("T")
_DEEP = 16  # nesting depth from which atoms are visited from the inside, without recursion


class Form:
    """A sum of integer coefficients times products of atoms: the read-only part of `Size`."""

    __slots__ = ("_hash", "_ordered", "_symbols", "_terms", "_text")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        """Takes ownership of `terms`: monomials as in `Monomial`, no zero coefficients."""
        self._terms = terms
        self._hash: int | None = None
        self._text: str | None = None
        self._symbols: frozenset[str] | None = None
        self._ordered: tuple[tuple[Monomial, int], ...] | None = None

    # ---- terms ----------------------------------------------------------------------------------

    @property
    def constant(self) -> int | None:
        """The value if it is the same for all sizes, else None."""
        terms = self._terms
        if len(terms) > 1:
            return None
        return terms.get(()) if terms else 0

    @property
    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        if self._symbols is None:
            names: set[str] = set()
            for monomial in self._terms:
                for atom in monomial:
                    if isinstance(atom, Atom):
                        names |= atom.symbols
                    else:
                        names.add(atom)
            self._symbols = frozenset(names)
        return self._symbols

    @property
    def depth(self) -> int:
        """Nesting depth of its atoms."""
        depth = 0
        for monomial in self._terms:
            for atom in monomial:
                if isinstance(atom, Atom) and atom.depth > depth:
                    depth = atom.depth
        return depth

    @property
    def monomials(self) -> tuple[tuple[Monomial, int], ...]:
        """(monomial, coefficient) pairs, highest degree first, then by name; the constant last."""
        if self._ordered is None:
            items = self._terms.items()
            self._ordered = tuple(sorted(items, key=lambda item: (-len(item[0]), item[0])))
        return self._ordered

    @property
    def coefficients(self) -> Mapping[Monomial, int]:
        """Monomial -> coefficient, unordered; no coefficient is 0."""
        return self._terms

    def terms(self) -> Iterator[tuple[int, tuple[tuple[str, int], ...]]]:
        """Yield (coefficient, ((atom, power), ...)) of every term."""
        for monomial, coefficient in self.monomials:
            yield coefficient, tuple((a, len(list(same))) for a, same in groupby(monomial))

    @property
    def atom(self) -> str | None:
        """The symbol or `Atom` that this size consists of, else None."""
        if len(self._terms) != 1:
            return None
        ((monomial, coefficient),) = self._terms.items()
        return monomial[0] if coefficient == 1 and len(monomial) == 1 else None

    def __str__(self) -> str:
        if self._text is None:
            self._text = size_text(self)
        return self._text

    # ---- values --------------------------------------------------------------------------------

    def evaluate(self, env: Mapping[str, int], known: dict[str, int] | None = None) -> int:
        """The value for the symbol values in `env`.

        `known` caches the values of atoms at `env`. Raises DimError for a symbol without a value
        and for a divisor of 0.
        """
        known = {} if known is None else known
        for inner in inside_out(self, known):
            known[inner] = _evaluate_atom(inner, env, known)
        return self._value(env, known)

    def _value(self, env: Mapping[str, int], known: Mapping[str, int]) -> int:
        """The value, given the value of each `Atom`."""
        total = 0
        for monomial, value in self._terms.items():
            for atom in monomial:
                if isinstance(atom, Atom):
                    value *= known[atom]
                elif atom in env:
                    value *= env[atom]
                else:
                    raise DimError(f"size {self}: '{atom}' has no value", "give every dim a size")
            total += value
        return total

    def fold(
        self,
        constant: Callable[[int], T],
        symbol: Callable[[str], T],
        apply: Callable[[str, tuple[T, ...]], T],
        known: dict[str, T] | None = None,
    ) -> T:
        """Rebuild in another notation, bottom up and always in the same order.

        `apply` gets 'add', 'mul', 'floordiv', 'mod', 'min' or 'max' and two operands, or 'where'
        and three: the second one if the first is >= 0, else the third. The result for a repeated
        atom is made once; `known` caches these results.
        """
        fold = _Fold(constant, symbol, apply, {} if known is None else known)
        if self.depth > _DEEP:
            for inner in inside_out(self, fold.known):
                fold.of_atom(inner)
        return fold.of_size(self)


class _Fold(Generic[T]):
    """The functions of a `fold` in progress; an object, since closures that call each other are
    garbage that only a collection finds."""

    def __init__(
        self,
        constant: Callable[[int], T],
        symbol: Callable[[str], T],
        apply: Callable[[str, tuple[T, ...]], T],
        known: dict[str, T],
    ) -> None:
        self.constant, self.symbol, self.apply, self.known = constant, symbol, apply, known

    def of_atom(self, atom: str) -> T:
        known = self.known
        if atom not in known:
            if isinstance(atom, Atom):
                known[atom] = self.applied(atom.function, [self.of_size(a) for a in atom.arguments])
            else:
                known[atom] = self.symbol(atom)
        return known[atom]

    def applied(self, function: str, parts: list[T]) -> T:
        whole = function == "where"
        return self.apply(function, tuple(parts)) if whole else self.chain(function, parts)

    def chain(self, function: str, parts: list[T]) -> T:
        result = parts[0]
        for part in parts[1:]:
            result = self.apply(function, (result, part))
        return result

    def of_size(self, size: Form) -> T:
        sums: list[T] = []
        for monomial, coefficient in size.monomials:
            factors = [self.of_atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(self.constant(coefficient))
            sums.append(self.chain("mul", factors))
        return self.chain("add", sums) if sums else self.constant(0)


def _evaluate_atom(atom: Atom, env: Mapping[str, int], known: Mapping[str, int]) -> int:
    values = [argument._value(env, known) for argument in atom.arguments]
    if atom.function == "min":
        return min(values)
    if atom.function == "max":
        return max(values)
    if atom.function == "where":
        return values[1] if values[0] >= 0 else values[2]
    if values[1] == 0:
        at = ", ".join(f"{n} = {env[n]}" for n in sorted(atom.arguments[1].symbols))
        raise DimError(f"size {atom}: the divisor {atom.arguments[1]} is 0 at {at}")
    return values[0] // values[1] if atom.function == "floordiv" else values[0] % values[1]
