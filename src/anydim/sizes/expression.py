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
from anydim.sizes.atoms import Atom, Monomial, inside_out, merged, without
from anydim.sizes.normal_form import Form

NAME = r"[^\W\d](?:[\w$@#]|\.(?=\w))*|[$@#](?:[\w$@#]|\.(?=\w))+"


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a size."""
    plain = text.isascii() and text.isidentifier()  # the common case, without a regular expression
    return plain or re.fullmatch(NAME, text) is not None


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
        if 0 <= value <= _LARGEST_SMALL:
            return _SMALL[value]
        return Size({(): index(value)})

    @staticmethod
    def symbol(name: str) -> Size:
        """The size with the name `name`; raises OptionError for a name that cannot be parsed."""
        if not is_name(name):
            raise OptionError(
                f"{name!r} is not a valid name of a size",
                "names start with a letter or '_' and continue with letters, digits, '_' and '.'",
            )
        return Size({(name,): 1})

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"

    def __hash__(self) -> int:
        if self._hash is None:
            constant = self.constant
            of_terms = frozenset(self._terms.items())
            self._hash = hash(of_terms) if constant is None else hash(constant)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size):
            return self is other or self._terms == other._terms
        if isinstance(other, int):
            return self.constant == other
        return NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(f"size {self} has no truth value; use prove(...) or .constant")

    # ---- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Size | int) -> Size:
        if not isinstance(other, Size):
            other = _coerce(other)
            if other is NotImplemented:
                return NotImplemented
        small, large = self._terms, other._terms
        if not small:
            return other
        if not large:
            return self
        if len(small) > len(large):
            small, large = large, small
        terms = large.copy()
        for monomial, coefficient in small.items():
            total = terms.get(monomial, 0) + coefficient
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]
        return Size(terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size({monomial: -coefficient for monomial, coefficient in self._terms.items()})

    def __pos__(self) -> Size:
        return self

    def __sub__(self, other: Size | int) -> Size:
        other = _coerce(other)
        return NotImplemented if other is NotImplemented else self + -other

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __mul__(self, other: Size | int) -> Size:
        if not isinstance(other, Size):
            other = _coerce(other)
            if other is NotImplemented:
                return NotImplemented
        few, many = self._terms, other._terms
        if len(few) > len(many):
            few, many = many, few
        if len(few) <= 1:
            if not few:
                return _SMALL[0]
            ((left, factor),) = few.items()
            if not left:
                if factor == 1:
                    return other if few is self._terms else self
                return Size({right: factor * c for right, c in many.items()})
            return Size({merged(left, right): factor * c for right, c in many.items()})
        terms: dict[Monomial, int] = {}
        for left, factor in few.items():
            for right, coefficient in many.items():
                both = merged(left, right)
                terms[both] = terms.get(both, 0) + factor * coefficient
        return Size({monomial: c for monomial, c in terms.items() if c})

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Size:
        try:
            count = index(exponent)
        except TypeError:
            return NotImplemented
        result = _SMALL[1]
        for _ in range(count):
            result = result * self
        return result

    def __floordiv__(self, other: Size | int) -> Size:
        other = _coerce(other)
        return NotImplemented if other is NotImplemented else apply("floordiv", (self, other))

    def __rfloordiv__(self, other: int) -> Size:
        return apply("floordiv", (as_constant(other), self))

    def __mod__(self, other: Size | int) -> Size:
        other = _coerce(other)
        return NotImplemented if other is NotImplemented else apply("mod", (self, other))

    def __rmod__(self, other: int) -> Size:
        return apply("mod", (as_constant(other), self))

    # ---- substitution --------------------------------------------------------------------------

    def substitute(
        self, env: Mapping[str, Size | int], known: dict[str, Size] | None = None
    ) -> Size:
        """Replace symbols, all at once, and renormalise.

        `known` caches the replacements of atoms under the same `env`.
        """
        if self.symbols.isdisjoint(env):
            return self
        known = {} if known is None else known

        def value(atom: str) -> Size:
            if isinstance(atom, Atom):
                return known[atom]
            return as_constant(env[atom]) if atom in env else Size({(atom,): 1})

        for inner in inside_out(self, known):
            arguments = (argument.replace_atoms(value) for argument in inner.arguments)
            known[inner] = apply(inner.function, tuple(arguments))
        return self.replace_atoms(value)

    def replace_atoms(self, change: Callable[[str], Size]) -> Size:
        """The same polynomial with every atom (symbol or `Atom`) replaced by a size."""
        total = _SMALL[0]
        seen: dict[str, Size] = {}
        for monomial, coefficient in self._terms.items():
            term = Size({(): coefficient})
            for atom in monomial:
                if atom not in seen:
                    seen[atom] = change(atom)
                term = term * seen[atom]
            total = total + term
        return total

    # ---- structure -----------------------------------------------------------------------------

    def divide_exactly(self, other: Size | int) -> Size | None:
        """The exact quotient by polynomial division; None if there is a remainder."""
        divisor = as_constant(other).monomials
        if not divisor:
            return None
        (lead, lead_coefficient), rest = divisor[0], self
        quotient = _SMALL[0]
        while rest._terms:
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
        return None if split is None else split[0].get(name, _SMALL[0])

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


class _Small(dict[int, Size]):
    """Constants, each made once, at its first use."""

    def __missing__(self, value: int) -> Size:
        return self.setdefault(value, Size({(): index(value)} if value else {}))


_SMALL, _LARGEST_SMALL = _Small(), 1024


def as_constant(value: Size | int) -> Size:
    """A size as it is; an int (or numpy integer) as a constant; TypeError for anything else."""
    return value if isinstance(value, Size) else Size.constant_of(index(value))


def _coerce(value: object) -> Size:
    if isinstance(value, Size):
        return value
    try:
        return Size.constant_of(index(value))  # type: ignore[arg-type]
    except TypeError:
        return cast(Size, NotImplemented)


# function of an atom, or of `fold` -> builder of its normal form; filled by the modules that define
# them
NORMAL_FORMS: dict[str, Callable[..., Size]] = {"add": Size.__add__, "mul": Size.__mul__}


def apply(function: str, arguments: tuple[Size, ...]) -> Size:
    """Apply a function of `fold`, by name, to its operands."""
    return NORMAL_FORMS[function](*arguments)


def compound(function: str, *arguments: Size) -> Size:
    """The size that consists of one atom."""
    return Size({(Atom(function, arguments),): 1})
