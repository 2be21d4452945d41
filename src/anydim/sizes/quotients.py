"""Normal form of quotients and remainders."""

from __future__ import annotations

from math import gcd

from anydim.base.errors import DimError
from anydim.sizes.atoms import Atom, Monomial, without
from anydim.sizes.expression import NORMAL_FORMS, Size, apply, as_constant, compound
from anydim.sizes.extremes import is_clip

_LARGEST_DIVISOR = 1 << 62  # of merged nested quotients; host code has 64 bits


def floor_divide(size: Size, divisor: Size) -> Size:
    """size // divisor; multiples of a constant divisor are moved out of the quotient.

    The remaining dividend has coefficients smaller than the divisor and a positive leading one:
    -(-n // 8) and (n + 7) // 8 are the same size.
    """
    by = divisor.constant
    if by is None:
        return compound("floordiv", size, divisor)
    if by == 0:
        raise DimError(f"size {size} is divided by 0")
    if by < 0:
        size, by = -size, -by
    if by == 1:
        return size
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in size.coefficients.items():
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
    """(size + low) // by without multiples of `by`; nested quotients are merged."""
    atom = size.atom
    if isinstance(atom, Atom) and atom.function == "floordiv":
        under = atom.arguments[1].constant
        if under is not None and by * under <= _LARGEST_DIVISOR:
            return floor_divide(atom.arguments[0] + low * under, as_constant(by * under))
    if isinstance(atom, Atom) and is_clip(atom):
        parts = (floor_divide(part + low, as_constant(by)) for part in atom.arguments)
        return apply(atom.function, tuple(parts))
    return compound("floordiv", size + low, as_constant(by))


def modulo(size: Size, divisor: Size) -> Size:
    """size % divisor; for a constant divisor coefficients are reduced into [0, divisor)."""
    by = divisor.constant
    if by is None:
        return compound("mod", size, divisor)
    if by == 0:
        raise DimError(f"size {size} is taken modulo 0")
    if by < 0:
        return -modulo(-size, as_constant(-by))
    size = _drop_inner_modulo(size, by)
    rest = {m: c % by for m, c in size.coefficients.items() if c % by}
    low = rest.pop((), 0)
    if not rest:
        return as_constant(low)
    common = gcd(by, *rest.values())
    inner = Size({monomial: c // common for monomial, c in rest.items()}) + low // common
    return compound("mod", inner, as_constant(by // common)) * common + low % common


def _drop_inner_modulo(size: Size, by: int) -> Size:
    """Replace k * (x % d) by k * x where `by` divides k * d: the two are congruent modulo `by`."""
    for monomial, coefficient in size.coefficients.items():
        for atom in monomial:
            if isinstance(atom, Atom) and atom.function == "mod":
                inner, under = atom.arguments[0], atom.arguments[1].constant
                if under is not None and coefficient * under % by == 0:
                    others = without(monomial, (atom,))
                    assert others is not None
                    change = Size({others: coefficient}) * inner - Size({monomial: coefficient})
                    return _drop_inner_modulo(size + change, by)
    return size


NORMAL_FORMS["floordiv"] = floor_divide
NORMAL_FORMS["mod"] = modulo
