"""Proofs of relations between sizes over a box, and simplification based on them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import gcd
from operator import eq, le, lt

from anydim.base.errors import DimError, InternalError
from anydim.sizes.atoms import Atom, Factor, inside_out
from anydim.sizes.box import Box
from anydim.sizes.conditions import ALWAYS, NEVER, Condition
from anydim.sizes.expression import Size, apply, as_constant
from anydim.sizes.indicators import without_needless
from anydim.sizes.interval import Interval


class Truth(Enum):
    """PROVED: holds at every point of the box. REFUTED: holds at none. UNKNOWN: undecided.

    A point where an operand is undefined (a divisor is 0) counts for neither. In a box that its
    constraints make empty, any answer is possible.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


def decide(condition: Condition, box: Box) -> Truth:
    """Whether a condition holds over the box."""
    return prove(condition.test, ">=", 0, box)


def settle(condition: Condition, box: Box) -> Condition:
    """A condition that is equal at every point of the box: simpler, constant where decided."""
    truth = decide(condition, box)
    if truth is Truth.UNKNOWN:
        return Condition(simplify(condition.test, box))
    return ALWAYS if truth is Truth.PROVED else NEVER


def bounds(size: Size | int, box: Box) -> Interval:
    """Bounds of a size over the box."""
    return box.interval(as_constant(size))


def prove(left: Size | int, relation: str, right: Size | int, box: Box) -> Truth:
    """Whether `left relation right` holds over the box; relation: '==' '!=' '<' '<=' '>' '>='."""
    left, right = as_constant(left), as_constant(right)
    if relation in (">", ">="):
        return prove(right, relation.replace(">", "<"), left, box)
    if relation == "!=":
        return _OPPOSITE[prove(left, "==", right, box)]
    if relation not in ("==", "<", "<="):
        raise InternalError(f"prove does not know the relation {relation!r}")
    difference = left - right
    value = difference.constant
    if value is not None:
        return Truth.PROVED if _RELATIONS[relation](value, 0) else Truth.REFUTED
    box = box.about(difference)
    known = box.answers
    if (difference, relation) not in known:
        known[difference, relation] = _answer(difference, relation, box)
    return known[difference, relation]


def _answer(difference: Size, relation: str, box: Box) -> Truth:
    truth = _against_zero(difference, relation, box)
    if truth is Truth.UNKNOWN and not _open(difference, relation, box):
        simpler = simplify(difference, box)
        if simpler != difference:
            truth = _against_zero(simpler, relation, box)
    return truth


def _against_zero(size: Size, relation: str, box: Box) -> Truth:
    if _open(size, relation, box):
        return Truth.UNKNOWN
    truth = _where(size, relation, box.enclosure.roughly(size))
    return _where(size, relation, box.interval(size)) if truth is Truth.UNKNOWN else truth


def _where(size: Size, relation: str, where: Interval) -> Truth:
    """Whether a relation to 0 holds for a size that is in an interval."""
    if relation == "==":
        if where.value == 0:
            return Truth.PROVED
        return Truth.UNKNOWN if 0 in where and _may_vanish(size) else Truth.REFUTED
    limit = -1 if relation == "<" else 0
    if where.high <= limit:
        return Truth.PROVED
    return Truth.REFUTED if where.low > limit else Truth.UNKNOWN


def _open(size: Size, relation: str, box: Box) -> bool:
    """Whether a relation to 0 holds at one point of the box and fails at another.

    Not tested where bounds are fast: for sums of few symbols.
    """
    monomials = size.monomials
    compound = any(isinstance(atom, Atom) for monomial, _ in monomials for atom in monomial)
    if not compound and (len(monomials) <= _FEW or not box.dims):
        return False
    known = box.open_questions
    if (size, relation) not in known:
        known[size, relation] = _differs(size, _RELATIONS[relation], box)
    return known[size, relation]


def _differs(size: Size, holds: Callable[[int, int], bool], box: Box) -> bool:
    seen = set()
    for number, point in enumerate(box.points):
        known = box.evaluated.setdefault(number, {})
        try:
            seen.add(holds(size.evaluate(point, known), 0))
        except DimError:  # undefined there, or it uses a name that is not a dim of the box
            continue
        if len(seen) > 1:
            return True
    return False


def _may_vanish(size: Size) -> bool:
    """False for sizes such as 2*n + 1, where a common divisor does not divide the constant."""
    common = gcd(*(coefficient for monomial, coefficient in size.monomials if monomial))
    return size.coefficients.get((), 0) % common == 0


_FEW = 4
_RELATIONS: dict[str, Callable[[int, int], bool]] = {"==": eq, "<": lt, "<=": le}
_OPPOSITE = {
    Truth.PROVED: Truth.REFUTED,
    Truth.REFUTED: Truth.PROVED,
    Truth.UNKNOWN: Truth.UNKNOWN,
}


def simplify(size: Size, box: Box) -> Size:
    """A size with the same value at every point of the box where `size` is defined.

    Operands of min and max that never win are dropped; quotients and remainders that the bounds
    decide are removed; a factor that is never 0 cancels; indicator factors occur once
    (`indicators.py`).
    """
    box = box.about(size)
    known = box.simplified

    def simpler(atom: Factor) -> Size:
        return known[atom] if isinstance(atom, Atom) else Size.of_atom(atom)

    def simplified(atom: Atom) -> Size:
        arguments = tuple(simplify(argument, box) for argument in atom.arguments)
        return _SIMPLER[atom.function](atom, arguments, box)

    for inner in inside_out(size, known):
        known[inner] = simplified(inner)
    return without_needless(size.replace_atoms(simpler), box)


def _simplify_extreme(atom: Atom, arguments: tuple[Size, ...], box: Box) -> Size:
    relation = "<=" if atom.function == "min" else ">="
    kept: list[Size] = []
    for part in arguments:
        if any(_proved(other, relation, part, box) for other in kept):
            continue
        kept = [k for k in kept if not _proved(part, relation, k, box)]
        kept.append(part)
    return apply(atom.function, tuple(kept))


def _simplify_choice(atom: Atom, arguments: tuple[Size, ...], box: Box) -> Size:
    test, then, otherwise = arguments
    if _proved(test, ">=", 0, box):
        return then
    return otherwise if _proved(test, "<", 0, box) else apply(atom.function, arguments)


def _simplify_division(given: Atom, arguments: tuple[Size, ...], box: Box) -> Size:
    """size = divisor * whole + rest: with 0 <= rest < divisor these are quotient and remainder."""
    if arguments[1] == 0:
        return Size.of_atom(given)  # undefined in the whole box; evaluating it raises an error
    function = given.function
    result = apply(function, arguments)
    atom = result.atom
    if not isinstance(atom, Atom) or atom.function != function:
        return result
    size, divisor = atom.arguments
    if not _proved(divisor, ">", 0, box):
        return result
    whole, rest = _split_multiples(size, divisor)
    lowest, by = box.interval(rest).lo, divisor.constant
    for shift in (0, -1) if by is None or lowest is None else (lowest // by,):
        low = rest - shift * divisor
        if _proved(low, ">=", 0, box) and _proved(low, "<", divisor, box):
            return whole + shift if function == "floordiv" else low
    outside = whole if function == "floordiv" else as_constant(0)
    return outside + apply(function, (rest, divisor))


def _proved(left: Size, relation: str, right: Size | int, box: Box) -> bool:
    """Whether bounds alone prove a relation; `prove` would simplify again and not terminate."""
    if relation.startswith(">"):
        left, right, relation = as_constant(right), left, relation.replace(">", "<")
    return _against_zero(left - right, relation, box) is Truth.PROVED


def _split_multiples(size: Size, divisor: Size) -> tuple[Size, Size]:
    """(whole, rest) with size == divisor * whole + rest, by dividing term by term."""
    whole, rest = as_constant(0), size
    lead, by = divisor.monomials[0]
    for monomial, coefficient in size.monomials:
        quotient = Size({monomial: coefficient // by * by}).divide_exactly(Size({lead: by}))
        if coefficient // by and quotient is not None:
            whole = whole + quotient
            rest = rest - quotient * divisor
    return whole, rest


_SIMPLER: dict[str, Callable[[Atom, tuple[Size, ...], Box], Size]] = {
    "min": _simplify_extreme,
    "max": _simplify_extreme,
    "floordiv": _simplify_division,
    "mod": _simplify_division,
    "where": _simplify_choice,
}
