"""Expansion table: one row per function that a machine lacks, by element types.

Functions without a float32 form are written `in_double`. float16 and narrower types are computed in
float32 and rounded by `legalise.py`. Maximum errors, in ulp, are in ACCURACY of
tests/unit/compiler/targets/test_elementary.py.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import DType
from anydim.compiler.targets.functions import simple
from anydim.compiler.targets.functions.circular import acos, asin, atan, cos, sin, tan
from anydim.compiler.targets.functions.dots import dot_bfloat16
from anydim.compiler.targets.functions.error import coarse_erf, erf
from anydim.compiler.targets.functions.exponential import exp, exp_nonpositive, expm1, sigmoid, tanh
from anydim.compiler.targets.functions.hyperbolic import acosh, asinh, atanh, cosh, sinh
from anydim.compiler.targets.functions.logarithm import log, log1p
from anydim.compiler.targets.functions.power import integer_power, power
from anydim.compiler.targets.functions.remainder import floor_divide, modulo, remainder
from anydim.compiler.targets.functions.writer import Lanes

# of arguments of one type, names or constants
FLOATING: dict[str, Callable[..., Lanes]] = {
    "exp": exp, "exp_nonpositive": exp_nonpositive, "expm1": expm1, "log": log, "log1p": log1p,
    "sigmoid": sigmoid, "erf": erf, "coarse_erf": coarse_erf, "pow": power, "rsqrt": simple.rsqrt,
    "sin": sin, "cos": cos, "tan": tan, "asin": asin, "acos": acos, "atan": atan,
    "sinh": sinh, "cosh": cosh, "tanh": tanh, "asinh": asinh, "acosh": acosh, "atanh": atanh,
    "fmod": remainder, "mod": modulo, "floordiv": floor_divide,
    "sign": simple.sign, "copysign": simple.copied_sign, "nextafter": simple.next_after,
    "isnan": simple.isnan, "isinf": simple.isinf, "dot_bfloat16": dot_bfloat16,
}  # fmt: skip
INTEGER: dict[str, Callable[..., Lanes]] = {
    "sign": simple.integer_sign, "isnan": simple.never, "isinf": simple.never,
    "pow": integer_power,
}  # fmt: skip


def expansion(function: str, dtype: DType) -> Callable[..., Lanes] | None:
    """Return the expansion of a function for an element type, or None."""
    return (FLOATING if dtype.is_float else INTEGER).get(function)
