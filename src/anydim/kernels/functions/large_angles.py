"""Large angles less multiples of pi/2, by the bits of 2/pi that matter (Payne and Hanek).

A float64 x is m 2^e with an integer m of 53 bits. Bits of 2/pi before the place 2^(1 - e) make
multiples of 4 turns of pi/2, so 192 bits after it, times m, are x 2/pi modulo 4: 2 bits of the
quadrant, up to 62 bits of nothing where x is near a multiple of pi/2, and 128 bits that remain.

Source: M. Payne and R. Hanek, Radian reduction for trigonometric functions, SIGNUM 1983.
"""

from __future__ import annotations

import math
from itertools import pairwise

from anydim.base.dtypes import float64, int64, uint64
from anydim.kernels import ir
from anydim.kernels.functions.writer import Lanes, Writer

_LEADING = 34  # bits 0 before those of 2/pi
_TWO_OVER_PI = (
    0x28BE60DB, 0x9391054A7F09D5F4, 0x7D4D377036D8A566, 0x4F10E4107F9458EA,
    0xF7AEF1586DC91B8E, 0x909374B801924BBA, 0x827464873F877AC7, 0x2C4A69CFBA208D7D,
    0x4BAED1213A671C09, 0xAD17DF904E64758E, 0x60D4CE7D272117E2, 0xEF7E4A0EC7FE25FF,
    0xF7816603FBCBC462, 0xD6829B47DB4D9FB3, 0xC9F2C26DD3D18FD9, 0xA797FA8B5D49EEB1,
    0xFAF97C5ECF41CE7D, 0xE294A4BA9AFED7EC, 0x47E357421580CC11,
)  # fmt: skip
_LOW = 0xFFFFFFFF
_PI_HALVES = 1.5707963267948966, 6.123233995736766e-17


NEAR = 2.0**20  # what is not beyond is left alone
_NAME = "far_angles"
_PARAMETERS = (ir.Pointer("angles", float64), ir.Pointer("turns", int64), ir.Scalar("count"))


def reduced(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(r, n) with x = n pi/2 + r where |x| is above `NEAR`, n modulo 4; NaN beyond numbers.

    A call: lane by lane, since that is seldom, and all vectors of a module share its code.
    """
    writer, start = v.writer, ir.Const(ir.INDEX, 0)
    writer.helper(_NAME, _PARAMETERS, _far_angles)
    angles, turns = writer.stack(float64, v.lanes), writer.stack(int64, v.lanes)
    writer.steps.append(ir.Store(angles, start, x))
    places = ir.Address(angles, start), ir.Address(turns, start)
    writer.steps.append(ir.Call(_NAME, (*places, ir.Const(ir.INDEX, v.lanes))))
    rest = writer.name(ir.Load(v.type, angles, start))
    return rest, writer.name(ir.Load(v.bits.type, turns, start))


def _far_angles(writer: Writer) -> None:
    """The angles that are far become what is left of them; `turns` is written for those."""
    lane, outside = ir.Var(ir.INDEX, "lane"), writer.steps
    writer.steps = []
    v = Lanes(writer, float64, 1)
    x = writer.name(ir.Load(v.type, "angles", lane))
    with v.when_any(v.apply("greater", v.abs(x), v.constant(NEAR))):
        rest, n = _reduced(v, x)
        writer.steps.append(ir.Store("angles", lane, rest))
        writer.steps.append(ir.Store("turns", lane, n))
    body, writer.steps = tuple(writer.steps), outside
    zero, one = ir.Const(ir.INDEX, 0), ir.Const(ir.INDEX, 1)
    writer.steps.append(ir.For(lane.name, zero, ir.Var(ir.INDEX, "count"), one, body))


def _reduced(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    words, whole = v.like(uint64), v.like(int64)
    bits = v.bitcast(v.abs(x), uint64)
    exponent = words.apply("shift_right", bits, words.constant(52))
    fraction = words.apply("bit_and", bits, words.constant((1 << 52) - 1))
    mantissa = words.apply("bit_or", fraction, words.constant(1 << 52))
    digits = _product(words, mantissa, _window(words, exponent))
    rest, n = _signed(v, digits)  # of the angle's magnitude
    rest = v.fma(rest, v.constant(_PI_HALVES[0]), v.mul(rest, v.constant(_PI_HALVES[1])))
    finite = v.apply("less", v.abs(x), v.constant(math.inf))
    rest = v.select(finite, rest, v.constant(math.nan))
    negative = v.apply("less", x, v.constant(0.0))
    return v.select(negative, v.neg(rest), rest), whole.select(negative, whole.neg(n), n)


def _window(words: Lanes, exponent: ir.Value) -> list[ir.Value]:
    """192 bits of 2/pi from the place 2^(1 - e) on, as 32 bits each, the lowest first."""
    start = words.sub(exponent, words.constant(1075 - 32))
    number = words.apply("shift_right", start, words.constant(6))
    found: list[ir.Value] = [words.constant(word) for word in _TWO_OVER_PI]
    for step in (8, 4, 2, 1):
        ahead = words.bit(number, step)
        count = 3 + step  # words that the smaller steps may take, and one to shift from
        found = [words.select(ahead, found[k + step], found[k]) for k in range(count)]
    shift = words.apply("bit_and", start, words.constant(63))
    rest = words.sub(words.constant(64), shift)
    limbs: list[ir.Value] = []
    for high, low in pairwise(found):
        moved = words.apply("shift_left", high, shift)
        word = words.apply("bit_or", moved, words.apply("shift_right", low, rest))
        limbs += [_high(words, word), _low(words, word)]
    return limbs[::-1]


def _product(words: Lanes, mantissa: ir.Value, limbs: list[ir.Value]) -> list[ir.Value]:
    """The lowest 192 bits of the product, as 32 bits each, the lowest first."""
    total: list[ir.Value] = [words.constant(0)] * len(limbs)
    for place, factor in enumerate((_low(words, mantissa), _high(words, mantissa))):
        carry: ir.Value = words.constant(0)
        for number, limb in enumerate(limbs[: len(limbs) - place]):
            column = words.add(words.mul(factor, limb), total[number + place])
            column = words.add(column, carry)
            total[number + place] = _low(words, column)
            carry = _high(words, column)
    return total


def _signed(v: Lanes, digits: list[ir.Value]) -> tuple[ir.Value, ir.Value]:
    """190 bits after the point as a float64 from -1/2 to 1/2, and the nearest integer before it."""
    words = v.like(uint64)
    *lower, top = digits
    above = words.bit(top, 1 << 29)
    n = words.apply("shift_right", words.add(top, words.constant(1 << 29)), words.constant(30))
    flipped = words.select(above, words.constant(_LOW), words.constant(0))
    top = words.apply("bit_and", top, words.constant((1 << 30) - 1))
    top = words.apply("bit_xor", top, words.apply("shift_right", flipped, words.constant(2)))
    total: ir.Value = v.constant(0.0)
    for place, digit in enumerate((*lower, top)):
        if place < len(lower):
            digit = words.apply("bit_xor", digit, flipped)
        weight = v.constant(2.0 ** (32 * place - 190))
        total = v.fma(words.convert(digit, float64), weight, total)
    return v.select(above, v.neg(total), total), words.bitcast(n, int64)


def _low(words: Lanes, value: ir.Value) -> ir.Value:
    return words.apply("bit_and", value, words.constant(_LOW))


def _high(words: Lanes, value: ir.Value) -> ir.Value:
    return words.apply("shift_right", value, words.constant(32))
