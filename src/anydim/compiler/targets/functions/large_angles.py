"""Argument reduction of large angles modulo pi/2, by the relevant bits of 2/pi (Payne and Hanek).

A float64 x is m 2^e with an integer m of 53 bits. Bits of 2/pi above weight 2^(1 - e) contribute
multiples of 4 quadrants, so the next 192 bits, times m, are x 2/pi modulo 4: 2 bits of the
quadrant, up to 62 zero bits if x is near a multiple of pi/2, and 128 significant bits.

Source: M. Payne and R. Hanek, Radian reduction for trigonometric functions, SIGNUM 1983.
"""

from __future__ import annotations

import math
from itertools import pairwise

from anydim.base.dtypes import float64, int64, uint64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.writer import Expander, Lanes

_TWO_OVER_PI = (  # 34 leading zero bits, then those of 2/pi
    0x28BE60DB, 0x9391054A7F09D5F4, 0x7D4D377036D8A566, 0x4F10E4107F9458EA,
    0xF7AEF1586DC91B8E, 0x909374B801924BBA, 0x827464873F877AC7, 0x2C4A69CFBA208D7D,
    0x4BAED1213A671C09, 0xAD17DF904E64758E, 0x60D4CE7D272117E2, 0xEF7E4A0EC7FE25FF,
    0xF7816603FBCBC462, 0xD6829B47DB4D9FB3, 0xC9F2C26DD3D18FD9, 0xA797FA8B5D49EEB1,
    0xFAF97C5ECF41CE7D, 0xE294A4BA9AFED7EC, 0x47E357421580CC11,
)  # fmt: skip
_LOW = 0xFFFFFFFF
_PI_HALVES = 1.5707963267948966, 6.123233995736766e-17


NEAR = 2.0**20  # smaller angles are reduced elsewhere
_NAME = "far_angles"
_PARAMETERS = (ir.Pointer("angles", float64), ir.Pointer("turns", int64), ir.Scalar("count"))


def reduce_large_angle(x: Lanes) -> tuple[Lanes, Lanes]:
    """Return (r, n), x = n pi/2 + r, for |x| above `NEAR`, n modulo 4; NaN for infinity and NaN.

    Emitted as a call of a scalar loop: it is rare, and all vectors of a module share its code.
    """
    writer, count = x.writer, ir.Const(ir.INDEX, x.lanes)
    writer.helper(_NAME, _PARAMETERS, _far_angles)
    angles, turns = (writer.stack(dtype, x.lanes) for dtype in (float64, int64))
    angles[0] = x.value
    writer.emit(ir.Call(_NAME, (angles.address(0), turns.address(0), count)))
    return x.of(angles.load(0, x.lanes)), x.of(turns.load(0, x.lanes))


def _far_angles(writer: Expander) -> None:
    """Replace large angles by their remainders, and store their quadrants in `turns`."""
    angles, turns = Buffer(writer, "angles", float64), Buffer(writer, "turns", int64)
    with writer.range(0, ir.Var(ir.INDEX, "count"), name="lane") as lane:
        x = Lanes(writer, angles[lane])
        with (abs(x) > NEAR).when_any():
            rest, n = _reduced(x)
            angles[lane], turns[lane] = rest.value, n.value


def _reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    bits = abs(x).bits(uint64)
    exponent = bits >> 52
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    rest, n = _signed_fraction(_product(mantissa, _window(exponent)))  # of the magnitude
    rest = fma(rest, _PI_HALVES[0], rest * _PI_HALVES[1])
    rest = select(abs(x) < math.inf, rest, math.nan)
    negative = x < 0.0
    return select(negative, -rest, rest), select(negative, -n, n)


def _window(exponent: Lanes) -> list[Lanes]:
    """Return 192 bits of 2/pi from weight 2^(1 - e) on, in limbs of 32 bits, the lowest first."""
    start = exponent - (1075 - 32)
    number = start >> 6
    found = [exponent.like(word) for word in _TWO_OVER_PI]
    for step in (8, 4, 2, 1):
        ahead = number.bit(step)
        count = 3 + step  # limbs that the smaller steps may select, and one to shift from
        found = [select(ahead, found[k + step], found[k]) for k in range(count)]
    shift = start & 63
    rest = 64 - shift
    limbs: list[Lanes] = []
    for high, low in pairwise(found):
        word = (high << shift) | (low >> rest)
        limbs += [word >> 32, word & _LOW]
    return limbs[::-1]


def _product(mantissa: Lanes, limbs: list[Lanes]) -> list[Lanes]:
    """Return the low 192 bits of the product, in limbs of 32 bits, the lowest first."""
    total = [mantissa.like(0)] * len(limbs)
    for shift, factor in enumerate((mantissa & _LOW, mantissa >> 32)):
        carry = mantissa.like(0)
        for number, limb in enumerate(limbs[: len(limbs) - shift]):
            column = factor * limb + total[number + shift] + carry
            total[number + shift] = column & _LOW
            carry = column >> 32
    return total


def _signed_fraction(digits: list[Lanes]) -> tuple[Lanes, Lanes]:
    """Return 190 fraction bits as a float64 from -1/2 to 1/2, and the nearest integer."""
    *lower, top = digits
    above = top.bit(1 << 29)
    n = (top + (1 << 29)) >> 30
    flipped = select(above, top.like(_LOW), 0)
    top = (top & ((1 << 30) - 1)) ^ (flipped >> 2)
    total: Lanes | None = None
    for shift, digit in enumerate((*(digit ^ flipped for digit in lower), top)):
        part, weight = digit.as_(float64), 2.0 ** (32 * shift - 190)
        total = part * weight if total is None else fma(part, weight, total)
    assert total is not None
    return select(above, -total, total), n.bits(int64)
