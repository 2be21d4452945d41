"""The normal form of a size expression: its terms, its text, its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from anydim.base.errors import DimError
from anydim.sizes.atoms import Atom, Factor, Monomial, inside_out
from anydim.sizes.interned import new_number, unique
from anydim.sizes.printing import size_text

T = TypeVar("T")
Own = TypeVar("Own", bound="Form")
_FORMS = WeakValueDictionary[frozenset[tuple[Monomial, int]], Any]()
_DEEP = 16  # nesting depth from which atoms are visited from the inside, without recursion


class Form:
    """A sum of integer coefficients times products of atoms: the read-only part of `Size`."""

    __slots__ = (
        "__weakref__", "_hash", "_symbols", "_text", "atom", "coefficients", "constant", "depth",
        "monomials", "number",
    )  # fmt: skip
    number: int  # no other size ever has it
    monomials: tuple[tuple[Monomial, int], ...]  # highest degree first, then by name, constant last
    coefficients: dict[Monomial, int]  # the same; never changed, no coefficient is 0
    constant: int | None  # the value if it is the same for all sizes, else None
    atom: Factor | None  # the symbol or `Atom` that this size consists of, else None
    depth: int  # nesting depth of its atoms
    _hash: int
    _symbols: frozenset[str] | None  # None until they are needed
    _text: str  # empty until it is needed

    def __new__(cls: type[Own], terms: Mapping[Monomial, int]) -> Own:
        """The size with these terms: monomials as in `Monomial`, no coefficient 0."""
        key = frozenset(terms.items())
        found: Own | None = _FORMS.get(key)
        if found is not None:
            return found
        self = super().__new__(cls)
        self.number = new_number()
        # sorted, as the order of equal sizes must not depend on which one was made first
        self.monomials = tuple(sorted(terms.items(), key=_place))
        self.coefficients = dict(self.monomials)
        self.constant = self.atom = None
        if len(terms) < 2:
            self.constant = terms.get(()) if terms else 0
            monomial, coefficient = self.monomials[0] if terms else ((), 0)
            self.atom = monomial[0] if coefficient == 1 and len(monomial) == 1 else None
        compound = [atom.depth for m in terms for atom in m if isinstance(atom, Atom)]
        self.depth = max(compound, default=0)
        self._hash = hash(key if self.constant is None else self.constant)
        self._symbols = None
        self._text = ""
        return unique(_FORMS, key, self)

    def __reduce__(self) -> tuple[type[Form], tuple[dict[Monomial, int]]]:
        return type(self), (self.coefficients,)

    # ---- terms ----------------------------------------------------------------------------------

    @property
    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        if self._symbols is None:
            names: set[str] = set()
            for monomial in self.coefficients:
                for atom in monomial:
                    names |= atom.symbols if isinstance(atom, Atom) else {atom}
            self._symbols = frozenset(names)
        return self._symbols

    def terms(self) -> Iterator[tuple[int, tuple[tuple[Factor, int], ...]]]:
        """Yield (coefficient, ((atom, power), ...)) of every term."""
        for monomial, coefficient in self.monomials:
            yield coefficient, tuple((a, len(list(same))) for a, same in groupby(monomial))

    def __str__(self) -> str:
        if not self._text:
            self._text = size_text(self)
        return self._text

    # ---- values --------------------------------------------------------------------------------

    def evaluate(self, env: Mapping[str, int], known: dict[Factor, int] | None = None) -> int:
        """The value for the symbol values in `env`.

        `known` caches the values of atoms at `env`. Raises DimError for a symbol without a value
        and for a divisor of 0.
        """
        known = {} if known is None else known
        for inner in inside_out(self, known):
            known[inner] = _evaluate_atom(inner, env, known)
        return self._value(env, known)

    def _value(self, env: Mapping[str, int], known: Mapping[Factor, int]) -> int:
        """The value, given the value of each `Atom`."""
        total = 0
        for monomial, value in self.coefficients.items():
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
        known: dict[Factor, T] | None = None,
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
        known: dict[Factor, T],
    ) -> None:
        self.constant, self.symbol, self.apply, self.known = constant, symbol, apply, known

    def of_atom(self, atom: Factor) -> T:
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


def _evaluate_atom(atom: Atom, env: Mapping[str, int], known: Mapping[Factor, int]) -> int:
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


def _place(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    """What terms are sorted by: highest degree first, then by name."""
    return -len(term[0]), term[0]
