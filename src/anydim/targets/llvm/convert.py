"""Conversions between element types, as numpy's astype does them; float to integer saturates.

Narrow floats go through float32. Integers of less than eight bits keep the low bits of an int32.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, boolean, float16, float32, float64, int8, int32, uint8
from anydim.targets.llvm.functions import to_flag
from anydim.targets.llvm.lanes import Lanes
from anydim.targets.llvm.narrow import narrow, widen


def convert(v: Lanes, value: str, wanted: DType) -> str:
    """A value of v's type as another element type."""
    have = v.dtype
    if have == wanted:
        return value
    if v.dtype.stored and v.dtype.is_integer:
        return convert(v.like(int8 if v.dtype.kind == "int" else uint8), _whole(v, value), wanted)
    if wanted == boolean:
        return to_flag(v, value)
    if v.dtype.format is not None:
        return convert(v.like(float32), widen(v, value), wanted)
    if wanted.format is not None:
        return narrow(v.like(float32), convert(v, value, float32), wanted)
    if wanted.stored:
        return _low_bits(v.like(int32), convert(v, value, int32), wanted)
    if have.is_float and wanted.is_float:
        return _float_to_float(v, value, wanted)
    if have.is_float:
        return _float_to_integer(v, value, wanted)
    if wanted.is_float:
        return _integer_to_float(v, value, wanted)
    return _integer_to_integer(v, value, wanted)


def _whole(v: Lanes, value: str) -> str:
    """A narrow integer, whatever stands above its bits, as one of eight bits."""
    rest = v.like(uint8).constant(8 - v.dtype.bits)
    moved = v.binary("shl", value, rest)
    return v.binary("ashr" if v.dtype.kind == "int" else "lshr", moved, rest)


def _low_bits(words: Lanes, value: str, wanted: DType) -> str:
    kept = words.binary("and", value, words.constant((1 << wanted.bits) - 1))
    return words.cast("trunc", kept, wanted)


def _float_to_float(v: Lanes, value: str, wanted: DType) -> str:
    if wanted.bits > v.dtype.bits:
        return v.cast("fpext", value, wanted)
    if v.dtype == float64 and wanted == float16:
        return v.like(float32).cast("fptrunc", v.cast("fptrunc", value, float32), float16)
    return v.cast("fptrunc", value, wanted)


def _float_to_integer(v: Lanes, value: str, wanted: DType) -> str:
    """Out of range is the nearest integer of the type, NaN is 0."""
    if v.dtype == float16:
        return _float_to_integer(v.like(float32), v.cast("fpext", value, float32), wanted)
    signed = wanted.kind == "int"
    low = -(2 ** (wanted.bits - 1)) if signed else 0
    high = 2 ** (wanted.bits - 1 if signed else wanted.bits)
    whole = v.like(wanted)
    result = v.cast("fptosi" if signed else "fptoui", value, wanted)
    over = v.compare("fcmp oge", value, v.constant(float(high)))
    result = whole.select(over, whole.constant(high - 1), result)
    under = v.compare("fcmp ole", value, v.constant(float(low)))
    result = whole.select(under, whole.constant(low), result)
    return whole.select(v.compare("fcmp uno", value, value), whole.constant(0), result)


def _integer_to_float(v: Lanes, value: str, wanted: DType) -> str:
    instruction = "sitofp" if v.dtype.kind == "int" else "uitofp"
    if wanted != float16:
        return v.cast(instruction, value, wanted)
    return v.like(float32).cast("fptrunc", v.cast(instruction, value, float32), float16)


def _integer_to_integer(v: Lanes, value: str, wanted: DType) -> str:
    if wanted.bits < v.dtype.bits:
        return v.cast("trunc", value, wanted)
    if wanted.bits == v.dtype.bits:
        return value
    return v.cast("sext" if v.dtype.kind == "int" else "zext", value, wanted)
