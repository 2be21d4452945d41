"""Conversions between element types, as numpy's astype does them; float to integer saturates.

Narrow floats go through float32. Integers of less than eight bits keep the low bits of an int32.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, boolean, float16, float32, int8, int32, uint8
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import select
from anydim.compiler.targets.functions.narrow import narrow, widen
from anydim.compiler.targets.functions.writer import Lanes, type_of


def expand_conversion(x: Lanes, wanted: DType) -> Lanes:
    """Convert by conversions closer to the machine's.

    The rules are tried in order, each for conversions that the target lacks.
    """
    have = x.dtype
    if have.stored and have.is_integer:
        return _whole(x).as_(wanted)
    if wanted == boolean:
        return to_flag(x)
    if have.format is not None:
        return widen(x).as_(wanted)
    if wanted.format is not None:
        return narrow(x.as_(float32), wanted)
    if wanted.stored:
        return (x.as_(int32) & ((1 << wanted.bits) - 1)).as_(uint8).bits(wanted)
    if float16 in (have, wanted):
        return _half(x, wanted)
    if have.is_float and wanted.is_integer:
        return _saturate(x, wanted)
    raise InternalError(f"no rule converts {have} to {wanted}")


def to_flag(x: Lanes) -> Lanes:
    """Whether each lane differs from zero (NaN does)."""
    if x.dtype == boolean:
        return x
    return (x if x.dtype.format is None else widen(x)).differs(0)


def _whole(x: Lanes) -> Lanes:
    """Extend an integer of less than eight bits with undefined upper bits to eight bits."""
    rest = 8 - x.dtype.bits
    return (x.bits(int8 if x.dtype.kind == "int" else uint8) << rest) >> rest


def _half(x: Lanes, wanted: DType) -> Lanes:
    """Convert to and from float16 via float32, rounding as numpy does."""
    if wanted == float32:
        return widen(x)
    if x.dtype == float32:
        return narrow(x, wanted)
    return x.as_(float32).as_(wanted)


def _saturate(x: Lanes, wanted: DType) -> Lanes:
    """Saturating conversion; NaN becomes 0."""
    signed = wanted.kind == "int"
    low = -(2 ** (wanted.bits - 1)) if signed else 0
    high = 2 ** (wanted.bits - 1 if signed else wanted.bits)
    result = x.of(ir.Convert(type_of(wanted, x.lanes), x.value, fits=True))
    result = select(x >= float(high), high - 1, result)
    result = select(x <= float(low), low, result)
    return select(x.equals(x), result, 0)
