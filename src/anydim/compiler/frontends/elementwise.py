"""numpy's elementwise functions (ufuncs) on values of a graph, and so Python's operators.

A table names the operator of each function. Types are numpy's: operands are converted to the types
in which numpy computes, and results to those that numpy returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType, boolean, dtype_of, float64, int64, uint64
from anydim.base.errors import GraphError
from anydim.compiler.frontends.promotion import (
    array_like,
    builder_of,
    cast,
    kind_of,
    loop_types,
    number,
    strong,
    value_of,
)
from anydim.sizes import Size

Formula = Callable[..., Any]  # of a builder and values of one type

OPERATOR = {
    "absolute": "abs", "add": "add", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "bitwise_and": "bit_and", "bitwise_or": "bit_or", "bitwise_xor": "bit_xor", "ceil": "ceil",
    "cos": "cos", "cosh": "cosh", "divide": "div", "equal": "equal", "exp": "exp",
    "expm1": "expm1", "fabs": "abs", "floor": "floor", "floor_divide": "floor_div",
    "fmod": "fmod", "greater": "greater", "greater_equal": "greater_equal", "invert": "bit_not",
    "isinf": "is_inf", "isnan": "is_nan", "left_shift": "shift_left", "less": "less",
    "less_equal": "less_equal", "log": "log", "log1p": "log1p", "logical_and": "logical_and",
    "logical_not": "logical_not", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "matmul": "matmul", "maximum": "maximum", "minimum": "minimum", "multiply": "mul",
    "negative": "neg", "nextafter": "nextafter", "not_equal": "not_equal", "positive": "identity",
    "power": "pow", "float_power": "pow", "remainder": "mod", "right_shift": "shift_right",
    "rint": "round", "sign": "sign", "signbit": "sign_bit", "sin": "sin", "sinh": "sinh",
    "sqrt": "sqrt", "subtract": "sub", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip
OF_BOOLS = {
    "absolute": "identity", "add": "logical_or", "bitwise_and": "logical_and",
    "bitwise_or": "logical_or", "bitwise_xor": "logical_xor", "invert": "logical_not",
    "maximum": "logical_or", "minimum": "logical_and", "multiply": "logical_and",
}  # fmt: skip
WHOLE = {"ceil", "floor", "trunc"}  # integers are unchanged
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}  # fmt: skip
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less",
             "greater_equal": "less_equal"}  # fmt: skip


def _in_float64(formula: Callable[[Any], Any]) -> Formula:
    """A function of one value, computed in float64."""
    return lambda g, x: cast(g, formula(cast(g, x, float64)), x.dtype)


def _log_add(g: Any, a: Any, b: Any) -> Any:
    top = g.maximum(a, b)
    away = g.where(g.equal(a, b), g.constant(number(0, a.dtype)), g.abs(a - b))
    return top + g.log1p(g.exp(-away))


def _hypot(g: Any, a: Any, b: Any) -> Any:
    """Scaled by the larger one, so that squares do not overflow."""
    a, b = g.abs(a), g.abs(b)
    most = g.maximum(a, b)
    ratio = g.minimum(a, b) / g.where(most == 0, g.constant(number(1, a.dtype)), most)
    made = most * g.sqrt(ratio * ratio + 1)
    infinite = g.logical_or(g.is_inf(a), g.is_inf(b))
    return g.where(infinite, g.constant(number(math.inf, a.dtype)), made)


def _cube_root(x: Any) -> Any:
    g = x.builder
    return _copy_sign(g, g.pow(g.abs(x), g.constant(numpy.array(1 / 3))), x)


def _copy_sign(g: Any, a: Any, b: Any) -> Any:
    return g.where(g.sign_bit(b), -g.abs(a), g.abs(a))


def _choose_number(name: str) -> Formula:
    """The larger or smaller operand; NaN only if both are."""

    def choose(g: Any, a: Any, b: Any) -> Any:
        if not a.dtype.is_float:
            return elementwise(f"{name}imum", a, b)
        return g.where(g.is_nan(a), b, g.where(g.is_nan(b), a, getattr(g, f"{name}imum")(a, b)))

    return choose


FORMULAS: dict[str, Formula] = {
    "cbrt": _in_float64(_cube_root),
    "conjugate": lambda g, x: g.identity(x),
    "copysign": _copy_sign,
    "deg2rad": lambda g, x: x * (math.pi / 180),
    "degrees": lambda g, x: x * (180 / math.pi),
    "exp2": _in_float64(lambda x: x.builder.exp(x * math.log(2))),
    "fmax": _choose_number("max"),
    "fmin": _choose_number("min"),
    "heaviside": lambda g, a, b: g.where(a == 0, b, g.where(g.is_nan(a), a, g.relu(g.sign(a)))),
    "hypot": _hypot,
    "isfinite": lambda g, x: g.logical_not(g.logical_or(g.is_nan(x), g.is_inf(x))),
    "log10": _in_float64(lambda x: x.builder.log(x) / math.log(10)),
    "log2": _in_float64(lambda x: x.builder.log(x) / math.log(2)),
    "logaddexp": _log_add,
    "rad2deg": lambda g, x: x * (180 / math.pi),
    "radians": lambda g, x: x * (math.pi / 180),
    "reciprocal": lambda g, x: g.reciprocal(x) if x.dtype.is_float else g.div(
        g.constant(number(1, x.dtype)), x),
    "square": lambda g, x: g.mul(x, x),
    "vecdot": lambda g, a, b: (a * b).sum(-1).astype(a.dtype),
}  # fmt: skip


def divide_both(a: Any, b: Any) -> tuple[Any, Any]:
    """(a // b, a % b), as Python's divmod."""
    return elementwise("floor_divide", a, b), elementwise("remainder", a, b)


def split_fraction(x: Any) -> tuple[Any, Any]:
    """(what follows the point, the whole number), both with the sign of x."""
    own = x.astype(loop_types("modf", (x.dtype,))[0])
    g, whole = x.builder, elementwise("trunc", own)
    part = g.where(g.is_inf(own), g.constant(number(0, own.dtype)), own - whole)
    return elementwise("copysign", part, own), whole


SEVERAL: dict[str, Formula] = {"divmod": divide_both, "modf": split_fraction}
UFUNCS = frozenset((*OPERATOR, *FORMULAS, *SEVERAL))


def elementwise(name: str, *operands: Any, dtype: DType | None = None) -> Any:
    """Apply a function of numpy, by its name, to operands of which at least one is a value.

    `dtype` is the type in which to compute instead of numpy's choice. Raises GraphError.
    """
    if name in SEVERAL:
        return SEVERAL[name](*operands)
    items = [array_like(item) for item in operands]
    g = builder_of(items)
    kinds = tuple(map(kind_of, items))
    for compare in (_out_of_range, _mixed_signs) if name in COMPARISONS else ():
        made = compare(g, name, items, kinds)
        if made is not None:
            return made
    *types, result = loop_types(name, kinds)
    if dtype is not None:
        *types, result = loop_types(name, (dtype,) * len(types))
    if name.startswith("logical_"):  # on what is not 0
        types = [boolean] * len(types)
    values = [value_of(g, item, own) for item, own in zip(items, types)]
    if name == "power":
        _check_power(items[1], types[0])
        if _is_half(items[1]) and types[0].is_float:
            return elementwise("sqrt", values[0])
    return cast(g, _apply_function(g, name, values, types[0]), result)


def _apply_function(g: Any, name: str, values: list[Any], dtype: DType) -> Any:
    """The function of values of the types in which it is computed."""
    if name in FORMULAS:
        if name == "isfinite" and not dtype.is_float:
            return fill_like(g, values[0], True)
        return FORMULAS[name](g, *values)
    if name in ("isnan", "isinf") and not dtype.is_float:
        return fill_like(g, values[0], False)
    if name in WHOLE and not dtype.is_float:
        return g.identity(values[0])
    if name == "absolute" and dtype.kind == "uint":
        return g.identity(values[0])
    if name == "matmul" and dtype == boolean:
        return g.greater(g._apply("matmul", [g.cast(v, to=int64) for v in values], {}), 0)
    own = OF_BOOLS.get(name, OPERATOR[name]) if dtype == boolean else OPERATOR[name]
    return g._apply(own, values, {})


def fill_like(g: Any, like: Any, value: bool | int | float, dtype: DType = boolean) -> Any:
    """A constant of the shape of a value."""
    return g.fill(shape=like.shape, value=value, dtype=dtype)


def _check_power(exponent: Any, dtype: DType) -> None:
    known = isinstance(exponent, (int, numpy.generic, numpy.ndarray))
    if dtype.is_integer and known and numpy.any(numpy.asarray(exponent) < 0):
        problem = f"integers have no power {exponent} that is an integer"
        raise GraphError(problem, "use floats: x.astype('float64') ** -1, or x ** -1.0")


def _is_half(exponent: Any) -> bool:
    """Whether a power is a square root, which numpy computes for -0.0 and -inf also."""
    known = isinstance(exponent, (float, numpy.generic, numpy.ndarray))
    return known and numpy.ndim(exponent) == 0 and exponent == 0.5


def _out_of_range(g: Any, name: str, items: list[Any], kinds: Any) -> Any:
    """The comparison of integers with a Python integer that their type cannot represent."""
    if int not in kinds:
        return None
    place = kinds.index(int)
    other, kind, own = items[1 - place], kinds[1 - place], items[place]
    own = own.constant if isinstance(own, Size) else own
    if own is None or kind in (int, float) or not kind.is_integer:
        return None
    low, high = kind.range
    if low <= own <= high:
        return None
    beyond = -1 if own < low else 1  # of an element, which compares as 0
    pair = (beyond, 0) if place == 0 else (0, beyond)
    return fill_like(g, g._own(other), COMPARISONS[name](*pair))


def _mixed_signs(g: Any, name: str, items: list[Any], kinds: Any) -> Any:
    """The comparison of int64 with uint64, which have no common integer type."""
    if {int64, uint64} != set(loop_types(name, kinds)[:2]):
        return None
    if loop_types(name, kinds)[0] == uint64:
        return _mixed_signs(g, _MIRRORED.get(name, name), items[::-1], kinds[::-1])
    signed, unsigned = value_of(g, items[0], int64), value_of(g, items[1], uint64)
    below = g.less(signed, 0)
    made = g._apply(OPERATOR[name], (g.cast(signed, to=uint64), unsigned), {})
    if COMPARISONS[name](-1, 0):
        return g.logical_or(below, made)
    return g.logical_and(g.logical_not(below), made)


# ---- calls by numpy ----------------------------------------------------------------------------

METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min", ("logical_and", "reduce"): "all",
    ("logical_or", "reduce"): "any", ("add", "accumulate"): "cumsum",
    ("multiply", "accumulate"): "cumprod",
}  # fmt: skip


def called_ufunc(
    ufunc: Any, method: str, operands: Sequence[Any], options: dict[str, Any]
) -> Any:  # fmt: skip
    """What `__array_ufunc__` returns. Raises GraphError for functions that are not available."""
    name = ufunc.__name__
    if options.pop("out", None) is not None:
        raise GraphError(
            f"numpy.{name} cannot write a value of a graph to an array or another value",
            "assign the result: `a = a + x` instead of `a += x` or `out=a`",
        )
    if method == "outer" and name in UFUNCS:
        left, right = map(strong, operands)
        new = len(getattr(right, "shape", ()))
        shaped = not isinstance(left, Size)
        return elementwise(name, left[(..., *[None] * new)] if shaped else left, right)
    if method != "__call__":
        known = METHODS.get((name, method))
        if known is None:
            raise GraphError(f"numpy.{name}.{method} is not available for values of a graph")
        axis = operands[1] if len(operands) > 1 else options.pop("axis", 0)
        return getattr(operands[0], known)(axis=axis, **options)
    if name not in UFUNCS:
        raise GraphError(
            f"numpy.{name} is not available for values of a graph",
            "write a definition: anydim.define",
        )
    given = options.pop("dtype", None)
    for option in options:
        raise GraphError(f"numpy.{name} of values of a graph takes no `{option}`")
    return elementwise(name, *operands, dtype=None if given is None else dtype_of(given))
