"""How each function that a machine does not compute is written: one row each.

A row says what writes the function and for which element types. Where a row has no float32 form
of its own, float32 is computed in float64 and rounded. float16 and what is narrower is computed
in float32 and rounded, which `legalise.py` sees to. Largest errors, in units of the last place,
stand in ACCURACY of tests/unit/targets/test_elementary.py.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import DType, float32, float64
from anydim.base.records import dataclass
from anydim.kernels.functions.circular import acos, asin, atan, cos, sin, tan
from anydim.kernels.functions.error import erf
from anydim.kernels.functions.exponential import exp, exp_nonpositive, expm1, sigmoid, tanh
from anydim.kernels.functions.hyperbolic import acosh, asinh, atanh, cosh, sinh
from anydim.kernels.functions.logarithm import log, log1p
from anydim.kernels.functions.power import constant_power, integer_power, power, rounded
from anydim.kernels.functions.remainder import floor_divide, modulo, remainder
from anydim.kernels.functions.simple import (
    copied_sign,
    integer_sign,
    isinf,
    isnan,
    never,
    next_after,
    rsqrt,
    sign,
)
from anydim.kernels.functions.writer import Lanes


@dataclass(frozen=True)
class Expansion:
    """What writes a function of arguments of one type, which are names or constants.

    `single` says that what writes it takes float32 as well as float64.
    """

    name: str
    write: Callable[..., Lanes]
    single: bool = True


_FLOATING = (
    Expansion("exp", exp),
    Expansion("exp_nonpositive", exp_nonpositive),
    Expansion("log", log),
    Expansion("tanh", tanh),
    Expansion("sigmoid", sigmoid),
    Expansion("erf", erf),
    Expansion("sign", sign),
    Expansion("rsqrt", rsqrt),
    Expansion("isnan", isnan),
    Expansion("isinf", isinf),
    Expansion("copysign", copied_sign),
    Expansion("nextafter", next_after),
    Expansion("fmod", remainder),
    Expansion("mod", modulo),
    Expansion("floordiv", floor_divide),
    Expansion("expm1", expm1),
    Expansion("log1p", log1p, single=False),
    Expansion("sin", sin, single=False),
    Expansion("cos", cos, single=False),
    Expansion("tan", tan, single=False),
    Expansion("asin", asin),
    Expansion("acos", acos),
    Expansion("atan", atan),
    Expansion("sinh", sinh, single=False),
    Expansion("cosh", cosh, single=False),
    Expansion("asinh", asinh, single=False),
    Expansion("acosh", acosh, single=False),
    Expansion("atanh", atanh, single=False),
    Expansion("pow", power, single=False),
)
_INTEGER = (
    Expansion("sign", integer_sign),
    Expansion("isnan", never),
    Expansion("isinf", never),
    Expansion("pow", integer_power),
)
FLOATING: dict[str, Expansion] = {row.name: row for row in _FLOATING}
INTEGER: dict[str, Expansion] = {row.name: row for row in _INTEGER}


def expansion(function: str, dtype: DType) -> Expansion | None:
    """The row of a function for an element type; None where it has no other form."""
    return (FLOATING if dtype.is_float else INTEGER).get(function)


def expand(row: Expansion, arguments: tuple[Lanes, ...]) -> Lanes:
    """The value of a function of float32, float64, integers or flags."""
    last = arguments[-1]
    if row.write is power:
        exponent = last.writer.constant_of(last.value)
        if exponent is not None:
            simple = constant_power(arguments[0], rounded(exponent, last.dtype))
            if simple is not None:
                return simple
    if last.dtype != float32 or row.single:
        return row.write(*arguments)
    return row.write(*(argument.as_(float64) for argument in arguments)).as_(float32)
