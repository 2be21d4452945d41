"""LLVM code of the primitive functions, elementwise (see `targets/functions/primitives.py`).

Integer division never traps: dividing by 0 yields 0, and the smallest integer divided by -1 wraps.
'dot_bytes' and 'dot_bfloat16' are in `dots.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from anydim.base.dtypes import DType, boolean, float32, float64
from anydim.base.errors import InternalError
from anydim.compiler.targets.llvm.convert import convert
from anydim.compiler.targets.llvm.dots import dot_bfloat16, dot_bytes, first_lanes, widen
from anydim.compiler.targets.llvm.emitter import Emitter
from anydim.compiler.targets.llvm.lanes import Lanes
from anydim.compiler.targets.llvm.spelling import constant, type_text

Rule = Callable[..., str]
_RELAXED, _VECTOR_BITS = "relaxed-simd", 128

_COMPARISONS = {
    "equal": ("eq", "eq", "oeq"),
    "not_equal": ("ne", "ne", "une"),
    "less": ("slt", "ult", "olt"),
    "less_equal": ("sle", "ule", "ole"),
    "greater": ("sgt", "ugt", "ogt"),
    "greater_equal": ("sge", "uge", "oge"),
}
_FLOAT_PLAIN = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "quotient": "fdiv"}
_FLOAT_INTRINSICS = {
    "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven",
    "trunc": "trunc", "fma": "fmuladd", "copysign": "copysign",
}  # fmt: skip
_INTEGER_PLAIN = {
    "add": "add", "sub": "sub", "mul": "mul", "bit_and": "and", "bit_or": "or", "bit_xor": "xor",
}  # fmt: skip
_BOOLEAN_PLAIN = {
    "add": "or", "mul": "and", "min": "and", "max": "or", "fast_min": "and", "fast_max": "or",
    "bit_and": "and", "bit_or": "or", "bit_xor": "xor",
}  # fmt: skip
_LOGICAL = {"and": "and", "or": "or", "xor": "xor"}


def apply(
    emitter: Emitter, function: str, dtype: DType, lanes: int, arguments: list[str]
) -> str:  # fmt: skip
    """Return the result of a function whose arguments have element type `dtype`.

    The condition of 'select' is boolean for any `dtype`.
    """
    plain = _plain(function, dtype, lanes)
    if plain is not None:
        a, b = arguments
        return emitter.pure(f"{plain} {a}, {b}", arguments)
    v = Lanes(emitter, dtype, lanes)
    if function == "select":
        return v.select(*arguments)
    if function == "not":
        return v.opposite(*arguments)
    if dtype.is_float:
        return _floating(v, function, arguments)
    if function not in _INTEGER:
        raise InternalError(f"no rule for '{function}' of {dtype}")
    return _INTEGER[function](v, *arguments)


@cache
def _plain(function: str, dtype: DType, lanes: int) -> str | None:
    """Return instruction and type of a function that is one instruction on two operands."""
    if function in _LOGICAL:
        return f"{_LOGICAL[function]} {type_text(boolean, lanes)}"
    if function in _COMPARISONS:
        signed, unsigned, floating = _COMPARISONS[function]
        predicate = {"int": signed, "float": floating}.get(dtype.kind, unsigned)
        instruction = f"{'fcmp' if dtype.is_float else 'icmp'} {predicate}"
    else:
        known = _BOOLEAN_PLAIN if dtype == boolean else _INTEGER_PLAIN
        found = (_FLOAT_PLAIN if dtype.is_float else known).get(function)
        if found is None:
            return None
        instruction = found
    return f"{instruction} {type_text(dtype, lanes)}"


# ---- floating point ----------------------------------------------------------------------------


def _floating(v: Lanes, function: str, arguments: list[str]) -> str:
    if function == "fma" and _RELAXED in v.emitter.module.processor.has:
        return _relaxed_fma(v, *arguments)
    if function in _FLOAT_INTRINSICS:
        return v.intrinsic(_FLOAT_INTRINSICS[function], *arguments)
    if function not in _FLOATING:
        raise InternalError(f"no rule for '{function}' of {v.dtype}")
    return _FLOATING[function](v, *arguments)


def _relaxed_fma(v: Lanes, *arguments: str) -> str:
    """Return a * b + c by WebAssembly's relaxed_madd, which scalars do not have."""
    least = _VECTOR_BITS // v.dtype.bits
    if v.lanes < least:
        wide = Lanes(v.emitter, v.dtype, least)
        return first_lanes(v, wide, _relaxed_fma(wide, *(widen(v, wide, a) for a in arguments)))
    name = f"llvm.fmuladd.{_suffix(v).replace('i', 'f')}"
    call = v.emitter.call_text(v.text, name, [(v.text, a) for a in arguments])
    return v.emitter.pure(call.replace("call", "call contract", 1), arguments)


def _extreme(v: Lanes, predicate: str, a: str, b: str) -> str:
    """Return min or max that yields NaN if either is NaN."""
    for value, bound in ((a, b), (b, a)):
        if _is_number(v, bound):  # the other operand is returned if it is NaN
            return v.select(v.compare(predicate, bound, value), bound, value)
    best = v.select(v.compare(predicate, a, b), a, b)  # b if either is NaN
    return v.select(v.compare("fcmp uno", a, a), a, best)


def _is_number(v: Lanes, operand: str) -> bool:
    """Whether an operand is a constant other than NaN."""
    return not operand.startswith("%") and operand != v.constant(math.nan)


_FLOATING: dict[str, Rule] = {
    "neg": Lanes.neg,
    "min": lambda v, a, b: _extreme(v, "fcmp olt", a, b),
    "max": lambda v, a, b: _extreme(v, "fcmp ogt", a, b),
    "fast_min": lambda v, a, b: v.select(v.compare("fcmp olt", a, b), a, b),
    "fast_max": lambda v, a, b: v.select(v.compare("fcmp ogt", a, b), a, b),
    "dot_bfloat16": dot_bfloat16,
}


# ---- integers and booleans ---------------------------------------------------------------------


def _is_signed(v: Lanes) -> bool:
    return v.dtype.kind == "int"


def _clamp(v: Lanes, which: str, a: str, b: str) -> str:
    return v.intrinsic(("s" if _is_signed(v) else "u") + which, a, b)


def _absolute(v: Lanes, a: str) -> str:
    if not _is_signed(v):
        return a
    name = f"llvm.abs.{_suffix(v)}"
    return v.emitter.intrinsic(v.text, name, (v.text, a), ("i1", "false"))


def _suffix(v: Lanes) -> str:
    return f"i{v.dtype.bits}" if v.lanes == 1 else f"v{v.lanes}i{v.dtype.bits}"


def _quotient_and_rest(v: Lanes, a: str, b: str) -> tuple[str, str]:
    """Return C quotient and remainder; (0, 0) for a zero divisor."""
    if _is_plain_divisor(v, b):
        quotient = v.binary(_divide(v), a, b)
        return quotient, v.binary("sub", a, v.binary("mul", quotient, b))
    zero = v.compare("icmp eq", b, v.constant(0))
    safe = v.select(zero, v.constant(1), b)
    if _is_signed(v):
        minus = v.compare("icmp eq", b, v.constant(-1))
        safe = v.select(minus, v.constant(1), safe)
        quotient = _exact_quotient(v, a, safe)
        quotient = v.select(minus, v.binary("sub", v.constant(0), quotient), quotient)
    else:
        quotient = _exact_quotient(v, a, safe)
    quotient = v.select(zero, v.constant(0), quotient)
    rest = v.binary("sub", a, v.binary("mul", quotient, b))
    return quotient, v.select(zero, v.constant(0), rest)


def _divide(v: Lanes) -> str:
    return "sdiv" if _is_signed(v) else "udiv"


def _exact_quotient(v: Lanes, a: str, b: str) -> str:
    """Return the quotient; of vectors by float division: processors have no integer vector
    division.

    Rounded down it is exact if a * b has fewer bits than a float: a quotient that is not an integer
    is further from the next one than its rounding error.
    """
    if v.lanes == 1 or v.dtype.bits > 32:
        return v.binary(_divide(v), a, b)
    floats = v.like(float32 if v.dtype.bits <= 16 else float64)
    ratio = floats.binary("fdiv", convert(v, a, floats.dtype), convert(v, b, floats.dtype))
    return convert(floats, ratio, v.dtype)


def _is_plain_divisor(v: Lanes, b: str) -> bool:
    """Whether a divisor is one number other than 0 and -1; vector constants begin with `<`."""
    return not b.startswith(("%", "<")) and b not in (v.constant(0), v.constant(-1))


def _wrong_side(v: Lanes, rest: str, b: str) -> str:
    """Whether the remainder is nonzero with a sign other than the divisor's."""
    zero = v.constant(0)
    mixed = v.compare("icmp slt", v.binary("xor", rest, b), zero)
    return v.flag("and", v.compare("icmp ne", rest, zero), mixed)


def _floored_quotient(v: Lanes, a: str, b: str) -> str:
    quotient, rest = _quotient_and_rest(v, a, b)
    if not _is_signed(v):
        return quotient
    lowered = v.binary("sub", quotient, v.constant(1))
    return v.select(_wrong_side(v, rest, b), lowered, quotient)


def _floored_rest(v: Lanes, a: str, b: str) -> str:
    _, rest = _quotient_and_rest(v, a, b)
    if not _is_signed(v):
        return rest
    return v.select(_wrong_side(v, rest, b), v.binary("add", rest, b), rest)


def _shift(v: Lanes, instruction: str, a: str, b: str) -> str:
    """Shift; by the type's width or more (or a negative number) all bits are shifted out."""
    if b in _counts(v.dtype, v.lanes):
        return v.binary(instruction, a, b)
    fits = v.compare("icmp ult", b, v.constant(v.dtype.bits))
    if instruction == "ashr":
        return v.binary(instruction, a, v.select(fits, b, v.constant(v.dtype.bits - 1)))
    shifted = v.binary(instruction, a, v.select(fits, b, v.constant(0)))
    return v.select(fits, shifted, v.constant(0))


def _zeros(v: Lanes, intrinsic: str, a: str) -> str:
    return v.emitter.intrinsic(
        v.text, f"llvm.{intrinsic}.{_suffix(v)}", (v.text, a), ("i1", "false")
    )


def _overflows(v: Lanes, operation: str, a: str, b: str) -> str:
    """Whether the sum or product of scalars overflows."""
    if operation == "mul" and v.emitter.module.processor.is_wasm:
        return _product_overflows(v, a, b)
    pair = f"{{ {v.text}, i1 }}"
    name = f"llvm.s{operation}.with.overflow.{_suffix(v)}"
    both = v.emitter.intrinsic(pair, name, (v.text, a), (v.text, b))
    return v.emitter.pure(f"extractvalue {pair} {both}, 1", (both,))


def _product_overflows(v: Lanes, a: str, b: str) -> str:
    """The same by a division, without the library function that LLVM calls for 128 bits."""
    back, _ = _quotient_and_rest(v, v.binary("mul", a, b), b)
    differs = v.flag("and", v.compare("icmp ne", back, a), v.compare("icmp ne", b, v.constant(0)))
    lowest = v.compare("icmp eq", a, v.constant(-(2**63)))
    return v.flag("or", differs, v.flag("and", v.compare("icmp eq", b, v.constant(-1)), lowest))


@cache
def _counts(dtype: DType, lanes: int) -> frozenset[str]:
    """Return the operands that are valid shift counts."""
    return frozenset(constant(dtype, count, lanes) for count in range(dtype.bits))


_INTEGER: dict[str, Rule] = {
    "div": lambda v, a, b: _quotient_and_rest(v, a, b)[0],
    "quotient": lambda v, a, b: _quotient_and_rest(v, a, b)[0],
    "fmod": lambda v, a, b: _quotient_and_rest(v, a, b)[1],
    "floordiv": _floored_quotient,
    "mod": _floored_rest,
    "neg": lambda v, a: v.binary("sub", v.constant(0), a),
    "abs": _absolute,
    "min": lambda v, a, b: _clamp(v, "min", a, b),
    "max": lambda v, a, b: _clamp(v, "max", a, b),
    "fast_min": lambda v, a, b: _clamp(v, "min", a, b),
    "fast_max": lambda v, a, b: _clamp(v, "max", a, b),
    "fma": lambda v, a, b, c: v.binary("add", v.binary("mul", a, b), c),
    "dot_bytes": dot_bytes,
    "bit_not": lambda v, a: v.binary("xor", a, v.constant(-1)),
    "shift_left": lambda v, a, b: _shift(v, "shl", a, b),
    "shift_right": lambda v, a, b: _shift(v, "ashr" if _is_signed(v) else "lshr", a, b),
    "ones": lambda v, a: v.intrinsic("ctpop", a),
    "trailing_zeros": lambda v, a: _zeros(v, "cttz", a),
    "leading_zeros": lambda v, a: _zeros(v, "ctlz", a),
    "add_overflows": lambda v, a, b: _overflows(v, "add", a, b),
    "mul_overflows": lambda v, a, b: _overflows(v, "mul", a, b),
}
