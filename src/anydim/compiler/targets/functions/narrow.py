"""Conversions between float32 and storage-only float formats, by their bits.

A value of such a type is stored as an unsigned integer: its bits. Conversions are exact or round to
nearest even (float8_e8m0fnu: ties away from zero), as in `ml_dtypes`; see `Format`.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, Format, bfloat16, float16, float32, int32, uint16, uint32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import select
from anydim.compiler.targets.functions.writer import Lanes, type_of
from anydim.lang.functions import unsigned_type

_INFINITY = 0x7F800000  # float32 infinity
_FRACTION = 23
_QUIET = _INFINITY | 1 << (_FRACTION - 1)  # a NaN
_BIAS = 127
_SUBNORMAL = 0xFFFFFF  # above twice the bits of a subnormal float32, less 1
_HALF = Format(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00)


def widen(x: Lanes) -> Lanes:
    """Convert a narrow float to float32."""
    form = _format(x.dtype)
    bits = x.bits(unsigned_type(x.dtype)).as_(int32)
    if form.exponent == 8 and form.sign:
        return (bits << 16).bits(float32)
    return _encode_sign(bits, form) if form.sign else _power_of_two(bits)


def narrow(x: Lanes, wanted: DType) -> Lanes:
    """Round a float32 to a narrow float."""
    form = _format(wanted)
    bits = x.bits(int32)
    if not form.sign:
        code = _exponent_of(bits)
    else:
        magnitude = bits & 0x7FFFFFFF
        sign = (bits - magnitude).shift_in_zeros(31 - form.exponent - form.fraction)
        code = select(magnitude > _INFINITY, form.nan, _round_magnitude(magnitude, form))
        code = _with_sign(code, sign, form)
    return code.as_(unsigned_type(wanted)).bits(wanted)


def narrow_normal(x: Lanes) -> Lanes:
    """Round a float32 to bfloat16 by the machine's conversion, which makes subnormal numbers zeros:
    vectors with one are rounded by `narrow`."""
    code = x.of(ir.Convert(type_of(bfloat16, x.lanes), x.value, fits=True)).bits(uint16).register()
    bits = x.bits(uint32)
    with (((bits << 1) - 1) < _SUBNORMAL).when_any():  # of 0, the difference wraps
        code.set(narrow(x, bfloat16).bits(uint16))
    return code.bits(bfloat16)


def _format(dtype: DType) -> Format:
    if dtype == float16:
        return _HALF
    if dtype.format is None:
        raise InternalError(f"{dtype} is not a narrow float")
    return dtype.format


# ---- to float32 --------------------------------------------------------------------------------


def _power_of_two(bits: Lanes) -> Lanes:
    """Decode a bare exponent: 2^(bits - 127), NaN for all ones."""
    plain = select(bits.equals(0), 1 << (_FRACTION - 1), bits << _FRACTION)
    return select(bits.equals(0xFF), _QUIET, plain).bits(float32)


def _encode_sign(bits: Lanes, form: Format) -> Lanes:
    width = form.exponent + form.fraction
    magnitude = bits & ((1 << width) - 1)
    sign = (bits & (1 << width)) << (31 - width)
    moved = magnitude << (_FRACTION - form.fraction)
    normal = moved + ((_BIAS - form.bias) << _FRACTION)
    small = (magnitude.as_(float32) * 2.0 ** (1 - form.bias - form.fraction)).bits(int32)
    result = select(magnitude < (1 << form.fraction), small, normal) | sign
    return _special(result, bits, magnitude, sign, form).bits(float32)


def _special(result: Lanes, bits: Lanes, magnitude: Lanes, sign: Lanes, form: Format) -> Lanes:
    """Handle infinity and NaN of formats that have them."""
    if not form.signed_zero:
        return select(bits.equals(form.nan), _QUIET, result)
    if form.beyond == form.largest:
        return result
    special = sign | _QUIET
    if form.nan != form.beyond:
        special = select(magnitude.equals(form.beyond), sign | _INFINITY, special)
    return select(magnitude > form.largest, special, result)


# ---- from float32 ------------------------------------------------------------------------------


def _round_magnitude(magnitude: Lanes, form: Format) -> Lanes:
    """Return the code of a magnitude other than NaN."""
    shift = _FRACTION - form.fraction
    odd = magnitude.shift_in_zeros(shift) & 1
    rebased = (1 << (shift - 1)) - 1 - ((_BIAS - form.bias) << _FRACTION)
    code = (magnitude + rebased + odd).shift_in_zeros(shift)
    if form.bias != _BIAS:
        code = _small(magnitude, code, form)
        code = select(code > form.largest, form.beyond, code)
    return code


def _small(magnitude: Lanes, code: Lanes, form: Format) -> Lanes:
    """Round subnormal results by adding a large number."""
    singles = magnitude.bits(float32)
    large = singles.like(2.0 ** (1 - form.bias - form.fraction + _FRACTION))
    units = (singles + large).bits(int32) - large.bits(int32)
    return select(magnitude < ((_BIAS - form.bias + 1) << _FRACTION), units, code)


def _with_sign(code: Lanes, sign: Lanes, form: Format) -> Lanes:
    if form.signed_zero:
        return code ^ sign
    keeps = (code > form.largest) | code.equals(0)
    return select(keeps, code, code | sign)


def _exponent_of(bits: Lanes) -> Lanes:
    """Return the nearest power of two, ties to the larger; NaN for numbers <= 0 and NaN."""
    code = (bits + (1 << (_FRACTION - 1))).shift_in_zeros(_FRACTION)
    code = select(bits < (3 << (_FRACTION - 2)), 0, code)
    return select((bits <= 0) | (bits >= _INFINITY), 0xFF, code)
