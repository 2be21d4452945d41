"""Numbers of an element type in plain Python, and the functions of the language on them.

Floats are float64 whatever their type, except for storage-only types: the result is an accurate
reference. Integers are Python's, wrapped at the width of their type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, convert_array
from tests.interpreter.kinds import INDEX, INT, NotCovered, is_float, settled

Number = Any
Convert = Callable[[Number], Number]


def wrapped(name: str) -> Convert:
    """Wrap any integer to this type, in two's complement."""
    dtype = DTYPES[name]
    span, half = 1 << dtype.bits, 1 << (dtype.bits - 1)
    if dtype.kind == "uint":
        return lambda value: value % span
    return lambda value: (value + half) % span - half


def identical(value: Number) -> Number:
    """Return the value unchanged."""
    return value


def conversion(source: str, target: str) -> Convert:
    """Convert numbers of one type to another, as numpy's astype."""
    have, want = DTYPES[settled(source) or ""], DTYPES[target]
    if want.kind == "bool":
        return lambda value: value != 0
    if want.is_float:
        if want.stored:
            return lambda value: _stored(value, want.numpy)
        return float
    if have.is_float:
        return _truncated(target)
    narrower = source in (INT, INDEX) or have.name != target
    return wrapped(target) if narrower else identical


def _stored(value: Number, dtype: numpy.dtype) -> float:
    with numpy.errstate(all="ignore"):
        return float(convert_array(numpy.array(value, numpy.float32), dtype).astype(numpy.float32))


def _truncated(target: str) -> Convert:
    wrap, dtype = wrapped(target), DTYPES[target].numpy

    def convert(value: float) -> int:
        if math.isfinite(value):
            return int(wrap(math.trunc(value))) if abs(value) < 2.0**63 else _astype(value)
        return _astype(value)

    def _astype(value: float) -> int:
        with numpy.errstate(all="ignore"):
            return int(convert_array(numpy.array(value, numpy.float32), dtype))

    return convert


# ---- functions ---------------------------------------------------------------------------------


def _minimum(a: Number, b: Number) -> Number:
    if a != a or b != b:
        return math.nan
    return a if a <= b else b


def _maximum(a: Number, b: Number) -> Number:
    if a != a or b != b:
        return math.nan
    return a if a >= b else b


def _quotient(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(numpy.float64(a) / numpy.float64(b))
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _floor_quotient(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(numpy.floor_divide(numpy.float64(a), numpy.float64(b)))
    return a // b if b else 0


def _remainder(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(numpy.mod(numpy.float64(a), numpy.float64(b)))
    return a % b if b else 0


def _c_remainder(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(numpy.fmod(numpy.float64(a), numpy.float64(b)))
    return a - b * _quotient(a, b) if b else 0


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(numpy.power(numpy.float64(a), numpy.float64(b)))
    if b < 0:
        raise NotCovered("a negative power of an integer")
    return pow(a, b, 1 << 64)  # wrapped at a narrower width afterwards


def _sign(a: Number) -> Number:
    return a if a != a else (a > 0) - (a < 0)


def _by_numpy(function: Callable[..., Any]) -> Callable[..., float]:
    return lambda *values: float(function(*map(numpy.float64, values)))


def _sigmoid(x: float) -> float:
    return float(1 / (1 + numpy.exp(numpy.float64(-x))))


_SAME: dict[str, Callable[..., Number]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": _quotient, "quotient": _quotient, "floordiv": _floor_quotient, "mod": _remainder,
    "fmod": _c_remainder, "neg": lambda a: -a, "abs": abs, "sign": _sign, "min": _minimum,
    "max": _maximum, "pow": _power,
    "bit_and": lambda a, b: a & b, "bit_or": lambda a, b: a | b, "bit_xor": lambda a, b: a ^ b,
    "bit_not": lambda a: not a if isinstance(a, bool) else ~a,
    "shift_left": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shift_right": lambda a, b: a >> b if 0 <= b < 64 else -(a < 0),
}  # fmt: skip
_BOOL: dict[str, Callable[..., bool]] = {
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "isnan": lambda a: a != a, "isinf": lambda a: math.isinf(a),
}  # fmt: skip
_FLOAT: dict[str, Callable[..., float]] = {
    "exp": _by_numpy(numpy.exp), "log": _by_numpy(numpy.log), "sqrt": _by_numpy(numpy.sqrt),
    "rsqrt": lambda x: float(1 / numpy.sqrt(numpy.float64(x))), "tanh": _by_numpy(numpy.tanh),
    "sigmoid": _sigmoid, "erf": math.erf,
    "sin": _by_numpy(numpy.sin), "cos": _by_numpy(numpy.cos), "tan": _by_numpy(numpy.tan),
    "asin": _by_numpy(numpy.arcsin), "acos": _by_numpy(numpy.arccos),
    "atan": _by_numpy(numpy.arctan), "sinh": _by_numpy(numpy.sinh),
    "cosh": _by_numpy(numpy.cosh), "asinh": _by_numpy(numpy.arcsinh),
    "acosh": _by_numpy(numpy.arccosh), "atanh": _by_numpy(numpy.arctanh),
    "log1p": _by_numpy(numpy.log1p), "expm1": _by_numpy(numpy.expm1),
    "floor": _by_numpy(numpy.floor), "ceil": _by_numpy(numpy.ceil),
    "round": _by_numpy(numpy.rint), "trunc": _by_numpy(numpy.trunc),
}  # fmt: skip
RULES: dict[str, str] = {
    **dict.fromkeys(_SAME, "same"),
    **dict.fromkeys(_BOOL, "bool"),
    **dict.fromkeys(_FLOAT, "float"),
    "nextafter": "float",
}
LOGIC = ("and", "or", "not", "xor")


def function_of(name: str, kind: str) -> Callable[..., Number]:
    """A function on numbers of a type; an integer result wraps at the width of the type."""
    if name in _BOOL:
        return _BOOL[name]
    if name == "nextafter":
        return _next_after(settled(kind) or "")
    found = _SAME.get(name) or _FLOAT[name]
    if is_float(kind) or settled(kind) == "bool":
        return found
    wrap = wrapped(settled(kind) or "")
    return lambda *values: wrap(found(*values))


def _next_after(kind: str) -> Callable[..., float]:
    """The next number of a type towards another; numpy has it for IEEE types."""
    if kind not in ("float16", "float32", "float64"):
        raise NotCovered(f"nextafter of {kind}")
    element = numpy.dtype(kind).type
    return lambda a, b: float(numpy.nextafter(element(a), element(b)))


def _positive(x: float, then: float, otherwise: Callable[[], float]) -> float:
    return then if x > 0 else otherwise()


def _softplus(x: float) -> float:
    return float(numpy.logaddexp(numpy.float64(x), 0.0))


def _expm1(x: float) -> float:
    return float(numpy.expm1(numpy.float64(x)))


def _hard_sigmoid(x: float, a: float, b: float) -> float:
    return float(_maximum(0.0, _minimum(1.0, a * x + b)))


_SELU = 1.67326319217681884765625, 1.05070102214813232421875

COMPOSED: dict[str, tuple[int, Callable[..., Number]]] = {
    "relu": (1, lambda x: _maximum(x, 0)),
    "reciprocal": (1, lambda x: _quotient(1, x)),
    "softplus": (1, _softplus),
    "softsign": (1, lambda x: x / (1 + abs(x)) if not math.isinf(x) else math.nan),
    "silu": (1, lambda x: x * _sigmoid(x)),
    "mish": (1, lambda x: x * math.tanh(_softplus(x))),
    "gelu": (1, lambda x: x * 0.5 * (1 + math.erf(x * math.sqrt(0.5)))),
    "selu": (1, lambda x: _SELU[1] * _positive(x, x, lambda: _SELU[0] * _expm1(x))),
    "hard_swish": (1, lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
    "elu": (2, lambda x, a: _positive(x, x, lambda: a * _expm1(x))),
    "celu": (2, lambda x, a: _positive(x, x, lambda: a * _expm1(_quotient(x, a)))),
    "leaky_relu": (2, lambda x, a: _positive(x, x, lambda: a * x)),
    "thresholded_relu": (2, lambda x, a: x if x > a else x * 0),
    "hard_sigmoid": (3, _hard_sigmoid),
    "clip": (3, lambda x, low, high: _minimum(_maximum(x, low), high)),
    "shrink": (3, lambda x, a, b: x - b if x > a else x + b if x < -a else x * 0),
    "exp2": (1, _by_numpy(numpy.exp2)),
    "log2": (1, _by_numpy(numpy.log2)),
    "log10": (1, _by_numpy(numpy.log10)),
}
WITHOUT_FLOATS = frozenset(("relu", "clip", "thresholded_relu", "shrink", "leaky_relu"))
"""Composed functions that keep integers; the others return floats."""


def bits_of(value: Number, kind: str) -> int:
    """The bits of a number as an unsigned integer of its width."""
    dtype = DTYPES[kind]
    held = convert_array(numpy.array([value], numpy.float64 if dtype.is_float else dtype.numpy),
                     dtype.numpy)  # fmt: skip
    return int.from_bytes(held.tobytes(), "little")


def number_of(bits: int, kind: str) -> Number:
    """The number of a type with these bits."""
    dtype = DTYPES[kind]
    held = numpy.frombuffer(int(bits).to_bytes(dtype.bytes, "little"), dtype.numpy)
    return float(held.astype(numpy.float64)[0]) if dtype.is_float else int(held[0])


IDENTITY: dict[str, Callable[[str], Number]] = {
    "add": lambda kind: 0.0 if is_float(kind) else 0,
    "mul": lambda kind: 1.0 if is_float(kind) else 1,
    "min": lambda kind: _end(kind, 1),
    "max": lambda kind: _end(kind, 0),
}


def _end(kind: str, top: int) -> Number:
    if is_float(kind):
        return math.inf if top else -math.inf
    return bool(top) if kind == "bool" else DTYPES[kind].range[top]
