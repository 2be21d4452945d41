"""Conditions: relations between sizes, joined by and, or, not.

A condition is kept as one size, `test`, which is >= 0 exactly where the condition holds:

    a >= b     a - b                 A and B    min(A, B)
    a < b      b - a - 1             A or B     max(A, B)
                                     not A      -A - 1

So it is evaluated, bounded, proved, substituted and simplified like any size. Like a size, it has
no truth value: use `decide`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import gcd
from typing import NoReturn

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.sizes.atoms import Atom
from anydim.sizes.expression import NORMAL_FORMS, Size, apply, as_constant, compound
from anydim.sizes.extremes import maximum, minimum
from anydim.sizes.interned import Results
from anydim.sizes.printing import condition_text
from anydim.sizes.quotients import floor_divide


@dataclass(frozen=True)
class Condition:
    """The condition test >= 0, in a normal form; made by `condition`, `&`, `|` and `~`."""

    test: Size

    def __and__(self, other: Condition) -> Condition:
        return Condition(_all(self.test, other.test))

    def __or__(self, other: Condition) -> Condition:
        return Condition(_any(self.test, other.test))

    def __invert__(self) -> Condition:
        return Condition(_negated(self.test))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"condition {self} has no truth value; use decide(...) or .constant")

    def __str__(self) -> str:
        known = {True: "always", False: "never", None: ""}[self.constant]
        return known or condition_text(self.test)

    @property
    def constant(self) -> bool | None:
        """Whether it holds, if that is the same for all sizes; else None."""
        value = self.test.constant
        return None if value is None else value >= 0

    @property
    def operands(self) -> tuple[str, tuple[Condition, ...]]:
        """'and' or 'or' and the conditions that it joins; ('', ()) for a relation."""
        joined, parts = _parts(self.test)
        return {"min": "and", "max": "or"}.get(joined, ""), tuple(map(Condition, parts))

    @property
    def limit(self) -> tuple[Size, str, int]:
        """A relation as a size, '>=' or '<=', and a number."""
        number = self.test.coefficients.get((), 0)
        rest = self.test - number
        if all(each < 0 for each in rest.coefficients.values()):
            return -rest, "<=", number
        return rest, ">=", -number

    @property
    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        return self.test.symbols

    def substitute(self, env: Mapping[str, Size | int]) -> Condition:
        """The same condition with symbols replaced."""
        return Condition(_normal(self.test.substitute(env)))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds at these sizes."""
        return self.test.evaluate(sizes) >= 0

    def where(self, then: Size | int, otherwise: Size | int) -> Size:
        """The size `then` where the condition holds, `otherwise` elsewhere."""
        return apply("where", (self.test, as_constant(then), as_constant(otherwise)))

    @property
    def flag(self) -> Size:
        """1 where the condition holds, else 0: the number that a kernel is given."""
        return self.where(1, 0)


def condition(left: Size | int, relation: str, right: Size | int) -> Condition:
    """The condition `left relation right`; relation: '==' '!=' '<' '<=' '>' '>='."""
    left, right = as_constant(left), as_constant(right)
    if relation not in _TESTS:
        raise InternalError(f"conditions do not know the relation {relation!r}")
    return Condition(_TESTS[relation](left, right))


def at_least(size: Size | int, least: Size | int) -> Condition:
    """The condition size >= least."""
    return condition(size, ">=", least)


def exactly(size: Size | int, number: Size | int) -> Condition:
    """Where a size is a number."""
    return condition(size, "==", number)


def at_most(size: Size | int, most: Size | int) -> Condition:
    """The condition size <= most."""
    return condition(size, "<=", most)


_LARGEST = 1 << 32  # of constants in relations without quotients
_TRUE, _FALSE = Size.constant_of(0), Size.constant_of(-1)
ALWAYS, NEVER = Condition(_TRUE), Condition(_FALSE)


def _leaf(test: Size) -> Size:
    """A test without the common divisor of its coefficients."""
    if test.constant is not None:
        return _TRUE if test.constant >= 0 else _FALSE
    common = gcd(*(coefficient for monomial, coefficient in test.coefficients.items() if monomial))
    if common != 1:
        return _leaf(floor_divide(test, as_constant(common)))
    return _without_quotient(test)


def _without_quotient(test: Size) -> Size:
    """x//c >= k is x >= c*k, and x//c <= k is x <= c*k + c - 1, for constants c > 0 and k.

    Not for large constants, with which the difference may not fit 64 bits although x//c does.
    """
    constant = test.coefficients.get((), 0)
    (factors, sign), *others = [term for term in test.monomials if term[0]]
    atom = factors[0]
    if others or len(factors) > 1 or not isinstance(atom, Atom) or atom.function != "floordiv":
        return test
    size, by = atom.arguments
    if abs(sign) != 1 or not 0 < (by.constant or 0) * (abs(constant) + 1) <= _LARGEST:
        return test
    return _leaf(size * sign + by * constant + (0 if sign > 0 else by - 1))


def _all(*tests: Size) -> Size:
    if _FALSE in tests or any(n < 0 for n in _together(tests)):  # such as a >= 5 and a <= 3
        return _FALSE
    kept = [test for test in tests if test != _TRUE]
    return minimum(*kept) if kept else _TRUE


def _any(*tests: Size) -> Size:
    if _TRUE in tests or any(n >= -1 for n in _together(tests)):  # such as a >= 4 or a <= 3
        return _TRUE
    kept = [test for test in tests if test != _FALSE]
    return maximum(*kept) if kept else _FALSE


def _together(tests: Sequence[Size]) -> Iterator[int]:
    """The sums of two tests that are constant: those of opposite bounds of one size."""
    for one, other in combinations(tests, 2):
        both = (one + other).constant
        if both is not None and one.constant is None:
            yield both


def _parts(test: Size) -> tuple[str, tuple[Size, ...]]:
    """'min' or 'max' and the operands of a compound condition; '' for a relation."""
    atom = test.atom
    joined = isinstance(atom, Atom) and atom.function in _JOINED
    return (atom.function, atom.arguments) if joined else ("", ())  # type: ignore[union-attr]


def _negated(test: Size) -> Size:
    joined, parts = _parts(test)
    if not joined:
        return _leaf(-test - 1)
    return _JOINED["max" if joined == "min" else "min"](*map(_negated, parts))


def _normal(test: Size) -> Size:
    found = _NORMAL.get(test.number)
    if found is None:
        joined, parts = _parts(test)
        found = _JOINED[joined](*map(_normal, parts)) if joined else _leaf(test)
        _NORMAL.keep(test.number, found)
    return found


_NORMAL: Results[Size] = Results()


def _chosen(test: Size, then: Size, otherwise: Size) -> Size:
    """The normal form of a choice."""
    test = _normal(test)
    if test.constant is not None:
        return then if test.constant >= 0 else otherwise
    return then if then == otherwise else compound("where", test, then, otherwise)


_JOINED: dict[str, Callable[..., Size]] = {"min": _all, "max": _any}
_TESTS: dict[str, Callable[[Size, Size], Size]] = {
    ">=": lambda left, right: _leaf(left - right),
    "<=": lambda left, right: _leaf(right - left),
    ">": lambda left, right: _leaf(left - right - 1),
    "<": lambda left, right: _leaf(right - left - 1),
    "==": lambda left, right: _all(_leaf(left - right), _leaf(right - left)),
    "!=": lambda left, right: _any(_leaf(left - right - 1), _leaf(right - left - 1)),
}
NORMAL_FORMS["where"] = _chosen
