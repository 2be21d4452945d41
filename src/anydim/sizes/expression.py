"""Size expressions: integer expressions over named sizes, kept in a normal form.

A `Size` is a sum of integer coefficients times products of atoms. An atom is a symbol or one of
`a // b`, `a % b`, `min(...)`, `max(...)` of sizes. Floor division and modulo have Python's meaning.

Two sizes that compare equal are equal for every value of their symbols. Two that compare unequal
may still be equal: ask `prove`. The normal form has the value of the expression it came from
wherever that expression is defined (no divisor is 0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import groupby
from math import gcd
from operator import index
from typing import NoReturn, TypeVar, cast

from anydim.base.errors import DimError, OptionError
from anydim.sizes.printing import atom_text, size_text

T = TypeVar("T")
Monomial = tuple[str, ...]  # sorted, an atom repeats for its power; () belongs to the constant
MOST_CHARACTERS = 1 << 16  # of the text of a size
DEEPEST = 1024  # quotients, remainders, minima and maxima inside each other
_DEEP = 16  # from here on what is nested is gone through from the inside, without recursion
_LARGEST_DIVISOR = 1 << 62  # of a quotient that quotients become; host code has 64 bits
NAME = re.compile(r"[^\W\d](?:[\w$@#]|\.(?=\w))*|[$@#](?:[\w$@#]|\.(?=\w))+")


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


class Size:
    """An immutable size expression in normal form; made by operators, `as_size` and `parse`.

    Equality and hash are those of the normal form; a constant equals (and hashes as) its int.
    There is no order and no truth value: `prove` answers questions about sizes.
    """

    __slots__ = ("_hash", "_ordered", "_symbols", "_terms", "_text")
    __array_ufunc__ = None  # numpy integers leave mixed arithmetic to Size

    def __init__(self, terms: dict[Monomial, int]) -> None:
        """Takes ownership of `terms`: monomials as in `Monomial`, no zero coefficients."""
        self._terms = terms
        self._hash: int | None = None
        self._text: str | None = None
        self._symbols: frozenset[str] | None = None
        self._ordered: tuple[tuple[Monomial, int], ...] | None = None

    @staticmethod
    def constant_of(value: int) -> Size:
        """The size that is always `value`."""
        if 0 <= value < len(_SMALL):
            return _SMALL[value]
        return Size({(): index(value)})

    @staticmethod
    def symbol(name: str) -> Size:
        """The size called `name`; raises OptionError for a name that could not be read back."""
        if not NAME.fullmatch(name):
            raise OptionError(
                f"a size cannot be called {name!r}",
                "names start with a letter or '_' and go on with letters, digits, '_' and '.'",
            )
        return Size({(name,): 1})

    # ---- looking at it -------------------------------------------------------------------------

    @property
    def constant(self) -> int | None:
        """The value, when it is the same for all sizes; else None."""
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
        """How many atoms stand inside each other in it."""
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
        """Monomial -> coefficient, in no order; none of them is 0."""
        return self._terms

    def terms(self) -> Iterator[tuple[int, tuple[tuple[str, int], ...]]]:
        """(coefficient, ((atom, power), ...)) of every term; an atom is a symbol or an `Atom`."""
        for monomial, coefficient in self.monomials:
            yield coefficient, tuple((a, len(list(same))) for a, same in groupby(monomial))

    @property
    def atom(self) -> str | None:
        """The symbol or `Atom` that this size is, when it is just one."""
        if len(self._terms) != 1:
            return None
        ((monomial, coefficient),) = self._terms.items()
        return monomial[0] if coefficient == 1 and len(monomial) == 1 else None

    def __str__(self) -> str:
        if self._text is None:
            self._text = size_text(self)
        return self._text

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
            return Size({_merge(left, right): factor * c for right, c in many.items()})
        terms: dict[Monomial, int] = {}
        for left, factor in few.items():
            for right, coefficient in many.items():
                merged = _merge(left, right)
                terms[merged] = terms.get(merged, 0) + factor * coefficient
        return Size({monomial: c for monomial, c in terms.items() if c})

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Size:
        result = _SMALL[1]
        for _ in range(exponent):
            result = result * self
        return result

    def __floordiv__(self, other: Size | int) -> Size:
        other = _coerce(other)
        return NotImplemented if other is NotImplemented else floor_divide(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return floor_divide(as_constant(other), self)

    def __mod__(self, other: Size | int) -> Size:
        other = _coerce(other)
        return NotImplemented if other is NotImplemented else modulo(self, other)

    def __rmod__(self, other: int) -> Size:
        return modulo(as_constant(other), self)

    # ---- values --------------------------------------------------------------------------------

    def evaluate(self, env: Mapping[str, int], known: dict[str, int] | None = None) -> int:
        """The value where the symbols have the values of `env`.

        `known` holds the values of atoms at `env` and gets those that are found. Raises DimError
        for a symbol without a value and for a divisor of 0.
        """
        known = {} if known is None else known
        for inner in inside_out(self, known):
            known[inner] = _evaluate_atom(inner, env, known)
        return self._value(env, known)

    def _value(self, env: Mapping[str, int], known: Mapping[str, int]) -> int:
        """The value where that of each `Atom` is known."""
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

    def substitute(self, env: Mapping[str, Size | int]) -> Size:
        """Replace symbols, all at once, and normalise again."""
        if self.symbols.isdisjoint(env):
            return self
        known: dict[str, Size] = {}

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

    def fold(
        self,
        constant: Callable[[int], T],
        symbol: Callable[[str], T],
        apply: Callable[[str, tuple[T, ...]], T],
    ) -> T:
        """Rebuild in another notation, bottom up and always in the same order.

        `apply` gets 'add', 'mul', 'floordiv', 'mod', 'min' or 'max' and two operands. The result
        for an atom that occurs several times is made once.
        """
        seen: dict[str, T] = {}

        def of_atom(atom: str) -> T:
            if atom not in seen:
                if isinstance(atom, Atom):
                    seen[atom] = chain(atom.function, [of_size(a) for a in atom.arguments])
                else:
                    seen[atom] = symbol(atom)
            return seen[atom]

        def chain(function: str, parts: list[T]) -> T:
            result = parts[0]
            for part in parts[1:]:
                result = apply(function, (result, part))
            return result

        def of_size(size: Size) -> T:
            sums: list[T] = []
            for monomial, coefficient in size.monomials:
                factors = [of_atom(atom) for atom in monomial]
                if coefficient != 1 or not factors:
                    factors.append(constant(coefficient))
                sums.append(chain("mul", factors))
            return chain("add", sums) if sums else constant(0)

        if self.depth > _DEEP:
            for inner in inside_out(self, seen):
                of_atom(inner)
        return of_size(self)

    # ---- structure -----------------------------------------------------------------------------

    def divide_exactly(self, other: Size | int) -> Size | None:
        """The size whose product with `other` is this one, by polynomial division; else None."""
        divisor = as_constant(other).monomials
        if not divisor:
            return None
        (lead, lead_coefficient), rest = divisor[0], self
        quotient = _SMALL[0]
        while rest._terms:
            monomial, coefficient = rest.monomials[0]
            remaining = _without(monomial, lead)
            if remaining is None or coefficient % lead_coefficient:
                return None
            step = Size({remaining: coefficient // lead_coefficient})
            quotient = quotient + step
            rest = rest - step * other
        return quotient

    def coefficient_of(self, name: str) -> Size | None:
        """The factor of symbol `name` where the size is affine in it; None where it is not."""
        split = self.linear_in((name,))
        return None if split is None else split[0].get(name, _SMALL[0])

    def linear_in(self, names: Iterable[str]) -> tuple[dict[str, Size], Size] | None:
        """(coefficients, rest) with self == sum(coefficients[n] * n) + rest.

        Neither holds any of `names`; names with coefficient 0 are left out. None when the size
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


_SMALL = (Size({}), *(Size({(): value}) for value in range(1, 1025)))


def as_constant(value: Size | int) -> Size:
    """A size as it is; an int (numpy's too) as a constant; TypeError for anything else."""
    return value if isinstance(value, Size) else Size.constant_of(index(value))


def _coerce(value: object) -> Size:
    if isinstance(value, Size):
        return value
    try:
        return Size.constant_of(index(value))  # type: ignore[arg-type]
    except TypeError:
        return cast(Size, NotImplemented)


def _merge(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    if left[-1] <= right[0]:
        return left + right
    return tuple(sorted(left + right))


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """The monomial divided by another; None when that does not divide it."""
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


# ---- atoms -----------------------------------------------------------------------------------


def inside_out(size: Size, known: Container[str]) -> Iterator[Atom]:
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


def floor_divide(size: Size, divisor: Size) -> Size:
    """size // divisor; what a constant divisor divides exactly is taken out.

    What stays under it has coefficients smaller than the divisor and a positive leading one:
    -(-n // 8) and (n + 7) // 8 are the same size.
    """
    by = divisor.constant
    if by is None:
        return _compound("floordiv", size, divisor)
    if by == 0:
        raise DimError(f"size {size} is divided by 0")
    if by < 0:
        size, by = -size, -by
    if by == 1:
        return size
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in size._terms.items():
        quotient, remainder = divmod(coefficient, by)
        if monomial and coefficient < 0 and remainder:  # keep the sign: -n // 4 is not 3*n // 4 - n
            quotient, remainder = quotient + 1, remainder - by
        if quotient:
            whole[monomial] = quotient
        if remainder:
            rest[monomial] = remainder
    low = rest.pop((), 0)
    if not rest:
        return Size(whole)
    common = gcd(by, *rest.values())
    inner = Size({monomial: c // common for monomial, c in rest.items()})
    by, low = by // common, low // common
    if inner.monomials[0][1] > 0:
        return Size(whole) + _divide_remainder(inner, low, by)
    return Size(whole) - _divide_remainder(-inner, by - 1 - low, by)


def _divide_remainder(size: Size, low: int, by: int) -> Size:
    """(size + low) // by, where nothing can be taken out; quotients of quotients become one."""
    atom = size.atom
    if isinstance(atom, Atom) and atom.function == "floordiv":
        under = atom.arguments[1].constant
        if under is not None and by * under <= _LARGEST_DIVISOR:
            return floor_divide(atom.arguments[0] + low * under, as_constant(by * under))
    if isinstance(atom, Atom) and _is_clip(atom):
        parts = (floor_divide(part + low, as_constant(by)) for part in atom.arguments)
        return apply(atom.function, tuple(parts))
    return _compound("floordiv", size + low, as_constant(by))


def _is_clip(atom: Atom) -> bool:
    """Whether it is the minimum or the maximum of one size and a number."""
    if atom.function not in ("min", "max") or len(atom.arguments) != 2:
        return False
    return atom.arguments[1].constant is not None  # numbers come last


def modulo(size: Size, divisor: Size) -> Size:
    """size % divisor; for a constant divisor coefficients are reduced into [0, divisor)."""
    by = divisor.constant
    if by is None:
        return _compound("mod", size, divisor)
    if by == 0:
        raise DimError(f"size {size} is taken modulo 0")
    if by < 0:
        return -modulo(-size, as_constant(-by))
    size = _drop_inner_modulo(size, by)
    rest = {m: c % by for m, c in size._terms.items() if c % by}
    low = rest.pop((), 0)
    if not rest:
        return as_constant(low)
    common = gcd(by, *rest.values())
    inner = Size({monomial: c // common for monomial, c in rest.items()}) + low // common
    return _compound("mod", inner, as_constant(by // common)) * common + low % common


def _drop_inner_modulo(size: Size, by: int) -> Size:
    """Replace k * (x % d) by k * x where `by` divides k * d: the two are congruent modulo `by`."""
    for monomial, coefficient in size._terms.items():
        for atom in monomial:
            if isinstance(atom, Atom) and atom.function == "mod":
                inner, under = atom.arguments[0], atom.arguments[1].constant
                if under is not None and coefficient * under % by == 0:
                    others = _without(monomial, (atom,))
                    assert others is not None
                    change = Size({others: coefficient}) * inner - Size({monomial: coefficient})
                    return _drop_inner_modulo(size + change, by)
    return size


def minimum(*sizes: Size | int) -> Size:
    """The least of one or more sizes."""
    return _extreme("min", sizes)


def maximum(*sizes: Size | int) -> Size:
    """The greatest of one or more sizes."""
    return _extreme("max", sizes)


def _extreme(function: str, sizes: Iterable[Size | int]) -> Size:
    """Flattened; of operands whose difference is constant, only the one that can win is kept."""
    kept: list[Size] = []
    for operand in sizes:
        for part in _operands(function, as_constant(operand)):
            for position, other in enumerate(kept):
                ahead = (part - other).constant
                if ahead is not None:
                    if (ahead < 0) == (function == "min"):
                        kept[position] = part
                    break
            else:
                kept.append(part)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=lambda size: (size.constant is not None, str(size)))
    return _compound(function, *kept)


def _operands(function: str, size: Size) -> tuple[Size, ...]:
    """What a size is the extreme of: max(a, b) of a and b, max(a, 0) - 2 of a - 2 and -2."""
    atom = size.atom
    if isinstance(atom, Atom) and atom.function == function:
        return atom.arguments
    constant = size.coefficients.get((), 0)
    if len(size.coefficients) == 2 and constant:
        atom = (size - constant).atom
        if isinstance(atom, Atom) and atom.function == function and _is_clip(atom):
            return tuple(part + constant for part in atom.arguments)
    return (size,)


def apply(function: str, arguments: tuple[Size, ...]) -> Size:
    """The size that a function name of `fold` makes of its operands."""
    return _FUNCTIONS[function](*arguments)


_FUNCTIONS: dict[str, Callable[..., Size]] = {
    "add": Size.__add__,
    "mul": Size.__mul__,
    "floordiv": floor_divide,
    "mod": modulo,
    "min": minimum,
    "max": maximum,
}


def _compound(function: str, *arguments: Size) -> Size:
    return Size({(Atom(function, arguments),): 1})


def _evaluate_atom(atom: Atom, env: Mapping[str, int], known: Mapping[str, int]) -> int:
    values = [argument._value(env, known) for argument in atom.arguments]
    if atom.function == "min":
        return min(values)
    if atom.function == "max":
        return max(values)
    if values[1] == 0:
        at = ", ".join(f"{n} = {env[n]}" for n in sorted(atom.arguments[1].symbols))
        raise DimError(f"size {atom}: the divisor {atom.arguments[1]} is 0 at {at}")
    return values[0] // values[1] if atom.function == "floordiv" else values[0] % values[1]


# ---- derived ---------------------------------------------------------------------------------


def ceil_div(size: Size | int, by: Size | int) -> Size:
    """size / by rounded up, for by > 0."""
    size, by = as_constant(size), as_constant(by)
    return floor_divide(size + by - 1, by)


def align_up(size: Size | int, multiple: int) -> Size:
    """The least multiple of `multiple` that is not below `size`."""
    size = as_constant(size)
    atom = size.atom
    if isinstance(atom, Atom) and atom.function in ("min", "max"):
        if all(align_up(part, multiple) == part for part in atom.arguments):
            return size
    return ceil_div(size, multiple) * multiple


def product(sizes: Iterable[Size | int]) -> Size:
    """All sizes multiplied; 1 for none."""
    result = _SMALL[1]
    for size in sizes:
        result = result * size
    return result
