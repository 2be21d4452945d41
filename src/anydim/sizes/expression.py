"""Size expressions: integer expressions over named sizes, kept in a normal form.

A `Size` is a sum of integer coefficients times products of atoms. An atom is a symbol or one of
`a // b`, `a % b`, `min(...)`, `max(...)` of sizes. Floor division and modulo have Python's meaning.

Two sizes that compare equal are equal for every value of their symbols. Two that compare unequal
may still be equal: use `prove`. The normal form has the value of the original expression wherever
that is defined (no divisor is 0).

Atoms are in `atoms.py`, the terms of a size and its values in `normal_form.py`, the normal form of
quotients and remainders in `quotients.py`, that of minima and maxima in `extremes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import NoReturn, cast

from anydim.base.errors import OptionError
from anydim.sizes.atoms import Atom, Factor, Monomial, inside_out, merged, too_large, without
from anydim.sizes.interned import Results
from anydim.sizes.normal_form import Form

MOST_PAIRS = 1 << 14  # of terms of two factors
NAME = r"[^\W\d](?:[\w$@#]|\.(?=\w))*|[$@#](?:[\w$@#]|\.(?=\w))+"


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a size."""
    plain = text.isascii() and text.isidentifier()  # the common case, without a regular expression
    return plain or re.fullmatch(NAME, text) is not None


def _operator(compute: Callable[[Size, Size], Size]) -> Callable[[Size, Size | int], Size]:
    """An operator of sizes; its results are kept by the numbers of the operands."""
    results: Results[Size] = Results()

    def operate(left: Size, right: Size | int) -> Size:
        if not isinstance(right, Size):
            try:
                right = _CONSTANTS[index(right)]
            except TypeError:
                return cast(Size, NotImplemented)
        key = left.number, right.number
        found = results.get(key)
        return results.keep(key, compute(left, right)) if found is None else found

    return operate


def _sum(left: Size, right: Size, sign: int = 1) -> Size:
    terms = left.coefficients.copy()
    for monomial, coefficient in right.monomials:
        terms[monomial] = terms.get(monomial, 0) + sign * coefficient
    return Size({monomial: c for monomial, c in terms.items() if c})


def _product(left: Size, right: Size) -> Size:
    pairs = len(left.monomials) * len(right.monomials)
    if pairs > MOST_PAIRS:
        raise too_large("a product of sums", pairs, "pairs of terms", MOST_PAIRS)
    terms: dict[Monomial, int] = {}
    for one, factor in left.monomials:
        for other, coefficient in right.monomials:
            both = merged(one, other)
            terms[both] = terms.get(both, 0) + factor * coefficient
    return Size({monomial: c for monomial, c in terms.items() if c})


class Size(Form):
    """An immutable size expression in normal form; made by operators, `as_size` and `parse`.

    Equality and hash are those of the normal form; a constant equals (and hashes as) its int.
    Sizes have no order and no truth value: use `prove`.
    """

    __slots__ = ()
    __array_ufunc__ = None  # numpy integers leave mixed arithmetic to Size

    @staticmethod
    def constant_of(value: int) -> Size:
        """The size that is always `value`."""
        return _CONSTANTS[index(value)]

    @staticmethod
    def symbol(name: str) -> Size:
        """The size with the name `name`; raises OptionError for a name that cannot be parsed."""
        if not is_name(name):
            raise OptionError(
                f"{name!r} is not a valid name of a size",
                "names start with a letter or '_' and continue with letters, digits, '_' and '.'",
            )
        return Size.of_atom(name)

    @staticmethod
    def of_atom(atom: Factor) -> Size:
        """The size that is one symbol or `Atom`."""
        return Size({(atom,): 1})

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size):
            return self is other
        if isinstance(other, int):
            return self.constant == other
        return NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(f"size {self} has no truth value; use prove(...) or .constant")

    # ---- arithmetic ----------------------------------------------------------------------------

    __add__ = __radd__ = _operator(_sum)
    __sub__ = _operator(lambda left, right: _sum(left, right, -1))
    __mul__ = __rmul__ = _operator(_product)
    __floordiv__ = _operator(lambda left, right: apply("floordiv", (left, right)))
    __mod__ = _operator(lambda left, right: apply("mod", (left, right)))

    def __rsub__(self, other: int) -> Size:
        return as_constant(other) - self

    def __rfloordiv__(self, other: int) -> Size:
        return as_constant(other) // self

    def __rmod__(self, other: int) -> Size:
        return as_constant(other) % self

    def __neg__(self) -> Size:
        return Size({monomial: -coefficient for monomial, coefficient in self.monomials})

    def __pos__(self) -> Size:
        return self

    def __pow__(self, exponent: int) -> Size:
        try:
            count = index(exponent)
        except TypeError:
            return NotImplemented
        result = _CONSTANTS[1]
        for _ in range(count):
            result = result * self
        return result

    # ---- substitution --------------------------------------------------------------------------

    def substitute(
        self, env: Mapping[str, Size | int], known: dict[Factor, Size] | None = None
    ) -> Size:
        """Replace symbols, all at once, and renormalise.

        `known` caches the replacements of atoms under the same `env`.
        """
        if self.symbols.isdisjoint(env):
            return self
        known = {} if known is None else known

        def value(atom: Factor) -> Size:
            if isinstance(atom, Atom):
                return known[atom]
            return as_constant(env[atom]) if atom in env else Size.of_atom(atom)

        for inner in inside_out(self, known):
            arguments = (argument.replace_atoms(value) for argument in inner.arguments)
            known[inner] = apply(inner.function, tuple(arguments))
        return self.replace_atoms(value)

    def replace_atoms(self, change: Callable[[Factor], Size]) -> Size:
        """The same polynomial with every atom (symbol or `Atom`) replaced by a size."""
        terms: dict[Monomial, int] = {}
        seen: dict[Factor, Size] = {}
        for monomial, coefficient in self.monomials:
            product = _CONSTANTS[1]
            for atom in monomial:
                if atom not in seen:
                    seen[atom] = change(atom)
                product = product * seen[atom]
            for other, factor in product.monomials:
                terms[other] = terms.get(other, 0) + coefficient * factor
        return Size({monomial: c for monomial, c in terms.items() if c})

    # ---- structure -----------------------------------------------------------------------------

    def constant_difference(self, other: Size) -> int | None:
        """The value of self - other if it is the same for all sizes, else None."""
        mine, theirs = self.monomials, other.monomials
        whole = less = 0
        if mine and not mine[-1][0]:
            mine, whole = mine[:-1], mine[-1][1]
        if theirs and not theirs[-1][0]:
            theirs, less = theirs[:-1], theirs[-1][1]
        return whole - less if mine == theirs else None

    def divide_exactly(self, other: Size | int) -> Size | None:
        """The exact quotient by polynomial division; None if there is a remainder."""
        divisor = as_constant(other).monomials
        if not divisor:
            return None
        (lead, lead_coefficient), rest = divisor[0], self
        quotient = _CONSTANTS[0]
        while rest.monomials:
            monomial, coefficient = rest.monomials[0]
            remaining = without(monomial, lead)
            if remaining is None or coefficient % lead_coefficient:
                return None
            step = Size({remaining: coefficient // lead_coefficient})
            quotient = quotient + step
            rest = rest - step * other
        return quotient

    def coefficient_of(self, name: str) -> Size | None:
        """The factor of symbol `name` if the size is affine in it, else None."""
        split = self.linear_in((name,))
        return None if split is None else split[0].get(name, _CONSTANTS[0])

    def linear_in(self, names: Iterable[str]) -> tuple[dict[str, Size], Size] | None:
        """(coefficients, rest) with self == sum(coefficients[n] * n) + rest.

        Neither contains any of `names`; names with coefficient 0 are omitted. None when the size
        is not affine in `names`.
        """
        wanted = frozenset(names)
        rest: dict[Monomial, int] = {}
        coefficients: dict[str, dict[Monomial, int]] = {}
        for monomial, coefficient in self.monomials:
            found = [atom for atom in monomial if atom in wanted]
            hidden = any(
                isinstance(atom, Atom) and not wanted.isdisjoint(atom.symbols) for atom in monomial
            )
            if hidden or len(found) > 1:
                return None
            if found:
                others = tuple(atom for atom in monomial if atom != found[0])
                coefficients.setdefault(found[0], {})[others] = coefficient
            else:
                rest[monomial] = coefficient
        return {name: Size(terms) for name, terms in coefficients.items()}, Size(rest)


class _Constants(Results["Size"]):
    """Constants by their value."""

    def __missing__(self, value: int) -> Size:
        return self.keep(value, Size({(): value} if value else {}))


_CONSTANTS = _Constants()


def as_constant(value: Size | int) -> Size:
    """A size as it is; an int (or numpy integer) as a constant; TypeError for anything else."""
    return value if isinstance(value, Size) else _CONSTANTS[index(value)]


# function of an atom, or of `fold` -> builder of its normal form; filled by the modules that define
# them
NORMAL_FORMS: dict[str, Callable[..., Size]] = {"add": Size.__add__, "mul": Size.__mul__}


def apply(function: str, arguments: tuple[Size, ...]) -> Size:
    """Apply a function of `fold`, by name, to its operands."""
    return NORMAL_FORMS[function](*arguments)


def compound(function: str, *arguments: Size) -> Size:
    """The size that consists of one atom."""
    return Size.of_atom(Atom(function, arguments))
