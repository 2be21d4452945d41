"""Scalar functions: a record each with arity, result type rule and numpy semantics.

`targets/functions/expansions.py` expands those that a target lacks. Result rules: 'same' (the
common type of the arguments), 'bool', 'float' (same; integers are rejected), 'second' (type of the
second argument and on, for select), 'bits' (the unsigned integer of the argument's width), or the
name of an element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, DType, bfloat16, convert_array, float32, uint8
from anydim.base.records import dataclass


@dataclass(frozen=True)
class ScalarFunction:
    """An elementwise function of the comprehension language."""

    name: str
    arity: int
    result: str
    numpy: Callable[..., Any]
    operator: str = ""  # infix or prefix spelling, where there is one
    doc: str = ""
    internal: bool = False  # not available to definitions
    narrow: bool = True  # narrower floats may round the float32 result


def unsigned_type(dtype: DType) -> DType:
    """The unsigned integer type of a type's width in memory."""
    return DTYPES[f"uint{8 * dtype.bytes}"] if dtype.kind != "bool" else uint8


_erf = numpy.frompyfunc(math.erf, 1, 1)


def _float_erf(x: Any) -> Any:
    x = numpy.asarray(x)
    return numpy.asarray(_erf(x)).astype(x.dtype)


def _divide(a: Any, b: Any) -> Any:
    """C division: exact on floats, truncating toward zero on integers (0 divisor yields 0)."""
    a, b = numpy.asarray(a), numpy.asarray(b)
    if object in (a.dtype, b.dtype) or numpy.result_type(a, b).kind == "f":
        return a / b
    safe = numpy.where(b == 0, 1, b)
    quotient = numpy.floor_divide(a, safe)
    remainder = a - quotient * safe
    truncated = quotient + ((remainder != 0) & (quotient < 0))
    return numpy.where(b == 0, 0, truncated).astype(numpy.result_type(a, b))


def _row(
    name: str, arity: int, result: str, numpy_function: Callable[..., Any],
    operator: str = "", doc: str = "",
) -> ScalarFunction:  # fmt: skip
    return ScalarFunction(name, arity, result, numpy_function, operator, doc)


_ROWS = (
    _row("add", 2, "same", numpy.add, "+"),
    _row("sub", 2, "same", numpy.subtract, "-"),
    _row("mul", 2, "same", numpy.multiply, "*"),
    _row("div", 2, "same", _divide, "/", "C division: integers truncate toward zero"),
    _row("quotient", 2, "same", _divide, "", "a / b rounded once, even where b is constant"),
    _row("floordiv", 2, "same", numpy.floor_divide, "//", "rounds toward minus infinity"),
    _row("mod", 2, "same", numpy.mod, "%", "sign of the divisor, as in Python"),
    _row("fmod", 2, "same", numpy.fmod, "", "sign of the dividend, as in C"),
    _row("neg", 1, "same", numpy.negative, "-"),
    _row("abs", 1, "same", numpy.abs),
    _row("sign", 1, "same", numpy.sign),
    _row("min", 2, "same", numpy.minimum, "", "NaN when either argument is NaN"),
    _row("max", 2, "same", numpy.maximum, "", "NaN when either argument is NaN"),
    _row("pow", 2, "same", numpy.power),
    ScalarFunction("nextafter", 2, "float", numpy.nextafter, narrow=False,
                   doc="the next number after a in the direction of b"),
    _row("exp", 1, "float", numpy.exp),
    _row("log", 1, "float", numpy.log),
    _row("sqrt", 1, "float", numpy.sqrt),
    _row("rsqrt", 1, "float", lambda x: 1 / numpy.sqrt(x)),
    _row("tanh", 1, "float", numpy.tanh),
    _row("sigmoid", 1, "float", lambda x: 1 / (1 + numpy.exp(-x))),
    _row("erf", 1, "float", _float_erf),
    _row("sin", 1, "float", numpy.sin),
    _row("cos", 1, "float", numpy.cos),
    _row("tan", 1, "float", numpy.tan),
    _row("asin", 1, "float", numpy.arcsin),
    _row("acos", 1, "float", numpy.arccos),
    _row("atan", 1, "float", numpy.arctan),
    _row("sinh", 1, "float", numpy.sinh),
    _row("cosh", 1, "float", numpy.cosh),
    _row("asinh", 1, "float", numpy.arcsinh),
    _row("acosh", 1, "float", numpy.arccosh),
    _row("atanh", 1, "float", numpy.arctanh),
    _row("log1p", 1, "float", numpy.log1p),
    _row("expm1", 1, "float", numpy.expm1),
    _row("floor", 1, "float", numpy.floor),
    _row("ceil", 1, "float", numpy.ceil),
    _row("round", 1, "float", numpy.rint, "", "half to even"),
    _row("trunc", 1, "float", numpy.trunc),
    _row("isnan", 1, "bool", numpy.isnan),
    _row("isinf", 1, "bool", numpy.isinf),
    _row("equal", 2, "bool", numpy.equal, "=="),
    _row("not_equal", 2, "bool", numpy.not_equal, "!="),
    _row("less", 2, "bool", numpy.less, "<"),
    _row("less_equal", 2, "bool", numpy.less_equal, "<="),
    _row("greater", 2, "bool", numpy.greater, ">"),
    _row("greater_equal", 2, "bool", numpy.greater_equal, ">="),
    _row("and", 2, "bool", numpy.logical_and, "&&"),
    _row("or", 2, "bool", numpy.logical_or, "||"),
    _row("xor", 2, "bool", numpy.logical_xor),
    _row("not", 1, "bool", numpy.logical_not, "!"),
    _row("bit_and", 2, "same", numpy.bitwise_and, "&"),
    _row("bit_or", 2, "same", numpy.bitwise_or, "|"),
    _row("bit_xor", 2, "same", numpy.bitwise_xor, "^"),
    _row("bit_not", 1, "same", numpy.bitwise_not, "~"),
    _row("shift_left", 2, "same", numpy.left_shift, "<<"),
    _row("shift_right", 2, "same", numpy.right_shift, ">>"),
    _row("select", 3, "second", numpy.where, "?:", "select(c, a, b) is a where c holds, else b"),
    _row("bits", 1, "bits", lambda x: x.view(unsigned_type(DTYPES[x.dtype.name]).numpy), "",
         "the bits of a number as an unsigned integer"),
    *(_row(f"as_{name}", 1, name, lambda x, to=dtype.numpy: x.view(to), "",
           f"the {name} that has these bits")
      for name, dtype in DTYPES.items() if dtype.kind != "bool" and dtype.bits >= 8),
)  # fmt: skip

INSIDE = "inside"  # see tree/bounds_checks.py
_CHECK = ScalarFunction(
    INSIDE, 3, "same", lambda index, size, number: index, doc="a bounds-checked index",
    internal=True,
)  # fmt: skip

_COARSE = ScalarFunction(
    "coarse_erf", 1, "float", _float_erf, doc="erf for results that are rounded to bfloat16",
    internal=True,
)  # fmt: skip

FUNCTIONS: dict[str, ScalarFunction] = {row.name: row for row in (*_ROWS, _CHECK, _COARSE)}

REINTERPRETING = frozenset(name for name in FUNCTIONS if name == "bits" or name[:3] == "as_")


def compute(name: str, arguments: Sequence[Any]) -> Any:
    """Apply a function to numpy arrays; bfloat16 is computed in float32 and rounded each time."""
    narrow = any(getattr(a, "dtype", None) == bfloat16.numpy for a in arguments)
    if not narrow or FUNCTIONS[name].result in ("second", "bits"):
        return FUNCTIONS[name].numpy(*arguments)
    wide = [convert_array(a, float32.numpy) if a.dtype == bfloat16.numpy else a for a in arguments]
    result = FUNCTIONS[name].numpy(*wide)
    return convert_array(result, bfloat16.numpy) if result.dtype == float32.numpy else result
