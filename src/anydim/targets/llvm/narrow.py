"""Conversion between float32 and the floats that LLVM computes nothing with, by their bits.

A value of such a type is held in registers as an integer: its bits. Everything is exact or rounded
to nearest even (float8_e8m0fnu: ties away from zero), as in `ml_dtypes`; see `Format`.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, Format, float32, int32
from anydim.base.errors import InternalError
from anydim.targets.llvm.lanes import Lanes

_INFINITY = 0x7F800000  # of float32
_FRACTION = 23
_BIAS = 127


def widen(v: Lanes, value: str) -> str:
    """The float32 of a narrow float; `v` is of the narrow type."""
    form = _format(v.dtype)
    bits = v.cast("zext", value, int32)
    words = v.like(int32)
    if form.exponent == 8 and form.sign:
        return words.cast("bitcast", words.binary("shl", bits, words.constant(16)), float32)
    if not form.sign:
        return _power_of_two(words, bits)
    return _signed(words, bits, form)


def narrow(v: Lanes, value: str, wanted: DType) -> str:
    """A float32 rounded to a narrow float; `v` is of float32."""
    form = _format(wanted)
    words = v.like(int32)
    bits = v.cast("bitcast", value, int32)
    magnitude = words.binary("and", bits, words.constant(0x7FFFFFFF))
    if not form.sign:
        code = _exponent_of(words, bits)
    else:
        sign = words.binary("sub", bits, magnitude)
        shift = 31 - form.exponent - form.fraction
        sign = words.binary("lshr", sign, words.constant(shift))
        code = _rounded(words, magnitude, form)
        nan = words.compare("icmp ugt", magnitude, words.constant(_INFINITY))
        code = words.select(nan, words.constant(form.nan), code)
        code = _with_sign(words, code, sign, form)
    return words.cast("trunc", code, wanted)


def _format(dtype: DType) -> Format:
    if dtype.format is None:
        raise InternalError(f"{dtype} is no narrow float")
    return dtype.format


# ---- to float32 --------------------------------------------------------------------------------


def _power_of_two(words: Lanes, bits: str) -> str:
    """An exponent alone: 2^(bits - 127), NaN for all ones."""
    plain = words.binary("shl", bits, words.constant(_FRACTION))
    least = words.compare("icmp eq", bits, words.constant(0))
    plain = words.select(least, words.constant(1 << (_FRACTION - 1)), plain)
    nan = words.compare("icmp eq", bits, words.constant(0xFF))
    plain = words.select(nan, words.constant(_INFINITY | 1 << (_FRACTION - 1)), plain)
    return words.cast("bitcast", plain, float32)


def _signed(words: Lanes, bits: str, form: Format) -> str:
    width = form.exponent + form.fraction
    magnitude = words.binary("and", bits, words.constant((1 << width) - 1))
    sign = words.binary("and", bits, words.constant(1 << width))
    sign = words.binary("shl", sign, words.constant(31 - width))
    moved = words.binary("shl", magnitude, words.constant(_FRACTION - form.fraction))
    normal = words.binary("add", moved, words.constant((_BIAS - form.bias) << _FRACTION))
    singles = words.like(float32)
    count = words.cast("sitofp", magnitude, float32)
    unit = 2.0 ** (1 - form.bias - form.fraction)
    small = singles.cast("bitcast", singles.mul(count, singles.constant(unit)), int32)
    is_small = words.compare("icmp ult", magnitude, words.constant(1 << form.fraction))
    result = words.select(is_small, small, normal)
    result = words.binary("or", result, sign)
    return words.cast("bitcast", _special(words, result, bits, magnitude, sign, form), float32)


def _special(
    words: Lanes, result: str, bits: str, magnitude: str, sign: str, form: Format
) -> str:
    """Infinity and NaN, where the format has them."""
    quiet = words.constant(_INFINITY | 1 << (_FRACTION - 1))
    if not form.signed_zero:
        nan = words.compare("icmp eq", bits, words.constant(form.nan))
        return words.select(nan, quiet, result)
    if form.beyond == form.largest:
        return result
    over = words.compare("icmp sgt", magnitude, words.constant(form.largest))
    special = words.binary("or", quiet, sign)
    if form.nan != form.beyond:
        infinite = words.binary("or", words.constant(_INFINITY), sign)
        is_infinite = words.compare("icmp eq", magnitude, words.constant(form.beyond))
        special = words.select(is_infinite, infinite, special)
    return words.select(over, special, result)


# ---- from float32 ------------------------------------------------------------------------------


def _rounded(words: Lanes, magnitude: str, form: Format) -> str:
    """The code of a magnitude that is no NaN."""
    shift = _FRACTION - form.fraction
    odd = words.binary("lshr", magnitude, words.constant(shift))
    odd = words.binary("and", odd, words.constant(1))
    rebased = (1 << (shift - 1)) - 1 - ((_BIAS - form.bias) << _FRACTION)
    code = words.binary("add", magnitude, words.constant(rebased))
    code = words.binary("lshr", words.binary("add", code, odd), words.constant(shift))
    if form.bias != _BIAS:
        code = _small(words, magnitude, code, form)
        over = words.compare("icmp sgt", code, words.constant(form.largest))
        code = words.select(over, words.constant(form.beyond), code)
    return code


def _small(words: Lanes, magnitude: str, code: str, form: Format) -> str:
    """Below the least normal number, adding a large number rounds to whole units."""
    singles = words.like(float32)
    large = singles.constant(2.0 ** (1 - form.bias - form.fraction + _FRACTION))
    total = singles.add(words.cast("bitcast", magnitude, float32), large)
    bits = singles.cast("bitcast", total, int32)
    units = words.binary("sub", bits, singles.cast("bitcast", large, int32))
    least = words.constant((_BIAS - form.bias + 1) << _FRACTION)
    return words.select(words.compare("icmp slt", magnitude, least), units, code)


def _with_sign(words: Lanes, code: str, sign: str, form: Format) -> str:
    if form.signed_zero:
        return words.binary("xor", code, sign)
    keeps = words.compare("icmp sgt", code, words.constant(form.largest))
    zero = words.compare("icmp eq", code, words.constant(0))
    keeps = words.flag("or", keeps, zero)
    return words.select(keeps, code, words.binary("or", code, sign))


def _exponent_of(words: Lanes, bits: str) -> str:
    """The nearest power of two, of two equally near the larger; NaN for what is not positive."""
    half = words.binary("add", bits, words.constant(1 << (_FRACTION - 1)))
    code = words.binary("lshr", half, words.constant(_FRACTION))
    tiny = words.compare("icmp slt", bits, words.constant(3 << (_FRACTION - 2)))
    code = words.select(tiny, words.constant(0), code)
    wrong = words.compare("icmp sle", bits, words.constant(0))
    over = words.compare("icmp sge", bits, words.constant(_INFINITY))
    return words.select(words.flag("or", wrong, over), words.constant(0xFF), code)


