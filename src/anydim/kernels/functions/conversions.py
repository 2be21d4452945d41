"""Conversions between element types, as numpy's astype does them; float to integer saturates.

Narrow floats go through float32. Integers of less than eight bits keep the low bits of an int32.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, boolean, float16, float32, int8, int32, uint8
from anydim.base.errors import InternalError
from anydim.kernels import ir
from anydim.kernels.functions.narrow import narrow, widen
from anydim.kernels.functions.writer import Lanes


def expand_conversion(v: Lanes, value: ir.Value, wanted: DType) -> ir.Value:
    """A value of v's type as another element type, by conversions that are nearer to a machine.

    Each rule is for what the target lacks once the rules above it do not apply.
    """
    have = v.dtype
    if have.stored and have.is_integer:
        eight = v.like(int8 if have.kind == "int" else uint8)
        return eight.convert(_whole(v, value, eight), wanted)
    if wanted == boolean:
        return to_flag(v, value)
    if have.format is not None:
        return v.like(float32).convert(widen(v, value), wanted)
    if wanted.format is not None:
        return narrow(v.like(float32), v.convert(value, float32), wanted)
    if wanted.stored:
        return _low_bits(v.like(int32), v.convert(value, int32), wanted)
    if float16 in (have, wanted):
        return _half(v, value, wanted)
    if have.is_float and wanted.is_integer:
        return _saturated(v, value, wanted)
    raise InternalError(f"no rule makes {wanted} of {have}")


def to_flag(v: Lanes, value: ir.Value) -> ir.Value:
    """Whether each lane differs from zero (NaN does)."""
    if v.dtype == boolean:
        return value
    if v.dtype.format is not None:
        return to_flag(v.like(float32), widen(v, value))
    return v.apply("not_equal", value, v.constant(0))


def _whole(v: Lanes, value: ir.Value, eight: Lanes) -> ir.Value:
    """An integer of less than eight bits, whatever stands above them, as one of eight."""
    rest = 8 - v.dtype.bits
    moved = eight.shift_left(v.bitcast(value, eight.dtype), rest)
    return eight.shift_right(moved, rest)


def _low_bits(words: Lanes, value: ir.Value, wanted: DType) -> ir.Value:
    kept = words.apply("bit_and", value, words.constant((1 << wanted.bits) - 1))
    return words.like(uint8).bitcast(words.convert(kept, uint8), wanted)


def _half(v: Lanes, value: ir.Value, wanted: DType) -> ir.Value:
    """To and from float16 by way of float32, as numpy rounds."""
    singles = v.like(float32)
    if wanted != float16:
        single = widen(v, value) if wanted == float32 else v.convert(value, float32)
        return singles.convert(single, wanted)
    if v.dtype == float32:
        return narrow(v, value, wanted)
    return singles.convert(v.convert(value, float32), wanted)


def _saturated(v: Lanes, value: ir.Value, wanted: DType) -> ir.Value:
    """Out of range is the nearest integer of the type, NaN is 0."""
    signed = wanted.kind == "int"
    low = -(2 ** (wanted.bits - 1)) if signed else 0
    high = 2 ** (wanted.bits - 1 if signed else wanted.bits)
    whole = v.like(wanted)
    result = v.writer.name(ir.Convert(whole.type, value, fits=True))
    over = v.apply("greater_equal", value, v.constant(float(high)))
    result = whole.select(over, whole.constant(high - 1), result)
    under = v.apply("less_equal", value, v.constant(float(low)))
    result = whole.select(under, whole.constant(low), result)
    return whole.select(v.apply("equal", value, value), result, whole.constant(0))
