"""Conversion between float32 and floats that a machine computes nothing with, by their bits.

A value of such a type is held as an unsigned integer: its bits. Everything is exact or rounded
to nearest even (float8_e8m0fnu: ties away from zero), as in `ml_dtypes`; see `Format`.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, Format, float16, float32, int32
from anydim.base.errors import InternalError
from anydim.kernels import ir
from anydim.kernels.functions.writer import Lanes
from anydim.lang.functions import unsigned

_INFINITY = 0x7F800000  # of float32
_FRACTION = 23
_BIAS = 127
_HALF = Format(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00)


def widen(v: Lanes, value: ir.Value) -> ir.Value:
    """The float32 of a narrow float; `v` is of the narrow type."""
    form = _format(v.dtype)
    words, held = v.like(int32), v.like(unsigned(v.dtype))
    bits = held.convert(v.bitcast(value, held.dtype), int32)
    if form.exponent == 8 and form.sign:
        return words.bitcast(words.shift_left(bits, 16), float32)
    if not form.sign:
        return _power_of_two(words, bits)
    return _signed(words, bits, form)


def narrow(v: Lanes, value: ir.Value, wanted: DType) -> ir.Value:
    """A float32 rounded to a narrow float; `v` is of float32."""
    form = _format(wanted)
    words, held = v.like(int32), unsigned(wanted)
    bits = v.bitcast(value, int32)
    magnitude = words.apply("bit_and", bits, words.constant(0x7FFFFFFF))
    if not form.sign:
        code = _exponent_of(words, bits)
    else:
        sign = words.sub(bits, magnitude)
        shift = 31 - form.exponent - form.fraction
        sign = words.shift_in_zeros(sign, shift)
        code = _rounded(words, magnitude, form)
        nan = words.apply("greater", magnitude, words.constant(_INFINITY))
        code = words.select(nan, words.constant(form.nan), code)
        code = _with_sign(words, code, sign, form)
    return v.like(held).bitcast(words.convert(code, held), wanted)


def _format(dtype: DType) -> Format:
    if dtype == float16:
        return _HALF
    if dtype.format is None:
        raise InternalError(f"{dtype} is no narrow float")
    return dtype.format


# ---- to float32 --------------------------------------------------------------------------------


def _power_of_two(words: Lanes, bits: ir.Value) -> ir.Value:
    """An exponent alone: 2^(bits - 127), NaN for all ones."""
    plain = words.shift_left(bits, _FRACTION)
    least = words.apply("equal", bits, words.constant(0))
    plain = words.select(least, words.constant(1 << (_FRACTION - 1)), plain)
    nan = words.apply("equal", bits, words.constant(0xFF))
    plain = words.select(nan, words.constant(_INFINITY | 1 << (_FRACTION - 1)), plain)
    return words.bitcast(plain, float32)


def _signed(words: Lanes, bits: ir.Value, form: Format) -> ir.Value:
    width = form.exponent + form.fraction
    magnitude = words.apply("bit_and", bits, words.constant((1 << width) - 1))
    sign = words.apply("bit_and", bits, words.constant(1 << width))
    sign = words.shift_left(sign, 31 - width)
    moved = words.shift_left(magnitude, _FRACTION - form.fraction)
    normal = words.add(moved, words.constant((_BIAS - form.bias) << _FRACTION))
    singles = words.like(float32)
    count = words.convert(magnitude, float32)
    unit = 2.0 ** (1 - form.bias - form.fraction)
    small = singles.bitcast(singles.mul(count, singles.constant(unit)), int32)
    is_small = words.apply("less", magnitude, words.constant(1 << form.fraction))
    result = words.select(is_small, small, normal)
    result = words.apply("bit_or", result, sign)
    return words.bitcast(_special(words, result, bits, magnitude, sign, form), float32)


def _special(
    words: Lanes, result: ir.Value, bits: ir.Value, magnitude: ir.Value, sign: ir.Value,
    form: Format,
) -> ir.Value:  # fmt: skip
    """Infinity and NaN, where the format has them."""
    quiet = words.constant(_INFINITY | 1 << (_FRACTION - 1))
    if not form.signed_zero:
        nan = words.apply("equal", bits, words.constant(form.nan))
        return words.select(nan, quiet, result)
    if form.beyond == form.largest:
        return result
    over = words.apply("greater", magnitude, words.constant(form.largest))
    special = words.apply("bit_or", quiet, sign)
    if form.nan != form.beyond:
        infinite = words.apply("bit_or", words.constant(_INFINITY), sign)
        is_infinite = words.apply("equal", magnitude, words.constant(form.beyond))
        special = words.select(is_infinite, infinite, special)
    return words.select(over, special, result)


# ---- from float32 ------------------------------------------------------------------------------


def _rounded(words: Lanes, magnitude: ir.Value, form: Format) -> ir.Value:
    """The code of a magnitude that is no NaN."""
    shift = _FRACTION - form.fraction
    odd = words.shift_in_zeros(magnitude, shift)
    odd = words.apply("bit_and", odd, words.constant(1))
    rebased = (1 << (shift - 1)) - 1 - ((_BIAS - form.bias) << _FRACTION)
    code = words.add(magnitude, words.constant(rebased))
    code = words.shift_in_zeros(words.add(code, odd), shift)
    if form.bias != _BIAS:
        code = _small(words, magnitude, code, form)
        over = words.apply("greater", code, words.constant(form.largest))
        code = words.select(over, words.constant(form.beyond), code)
    return code


def _small(words: Lanes, magnitude: ir.Value, code: ir.Value, form: Format) -> ir.Value:
    """Below the least normal number, adding a large number rounds to whole units."""
    singles = words.like(float32)
    large = singles.constant(2.0 ** (1 - form.bias - form.fraction + _FRACTION))
    total = singles.add(words.bitcast(magnitude, float32), large)
    bits = singles.bitcast(total, int32)
    units = words.sub(bits, singles.bitcast(large, int32))
    least = words.constant((_BIAS - form.bias + 1) << _FRACTION)
    return words.select(words.apply("less", magnitude, least), units, code)


def _with_sign(words: Lanes, code: ir.Value, sign: ir.Value, form: Format) -> ir.Value:
    if form.signed_zero:
        return words.apply("bit_xor", code, sign)
    keeps = words.apply("greater", code, words.constant(form.largest))
    zero = words.apply("equal", code, words.constant(0))
    keeps = words.flag("or", keeps, zero)
    return words.select(keeps, code, words.apply("bit_or", code, sign))


def _exponent_of(words: Lanes, bits: ir.Value) -> ir.Value:
    """The nearest power of two, of two equally near the larger; NaN for what is not positive."""
    half = words.add(bits, words.constant(1 << (_FRACTION - 1)))
    code = words.shift_in_zeros(half, _FRACTION)
    tiny = words.apply("less", bits, words.constant(3 << (_FRACTION - 2)))
    code = words.select(tiny, words.constant(0), code)
    wrong = words.apply("less_equal", bits, words.constant(0))
    over = words.apply("greater_equal", bits, words.constant(_INFINITY))
    return words.select(words.flag("or", wrong, over), words.constant(0xFF), code)
