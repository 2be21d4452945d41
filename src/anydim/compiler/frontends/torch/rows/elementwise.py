"""Rows of elementwise overloads.

Results have torch's promoted type; 16-bit floats are computed in float32, as torch's kernels do.
"""

from __future__ import annotations

import math
from typing import Any

from anydim.base.dtypes import boolean, float64, int32, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Operand, TorchBuilder
from anydim.compiler.frontends.torch.promotion import working
from anydim.sizes import Size, as_size, minimum


def unary(name: str) -> Build:
    """A function of one tensor, in the type of the result."""

    def build(g: TorchBuilder, x: Value, **_: Any) -> Value:
        (x,) = g.to_working(x)
        return getattr(g, name)(x)

    return build


def rounding(name: str) -> Build:
    """A rounding function; integers stay as they are."""

    def build(g: TorchBuilder, x: Value) -> Value:
        return getattr(g, name)(g.to_working(x)[0]) if x.dtype.is_float else g.identity(x)

    return build


def binary(name: str, of_bool: str = "") -> Build:
    """A function of two operands that broadcast; `of_bool` is the one of two bools."""

    def build(g: TorchBuilder, a: Operand, b: Operand) -> Value:
        own = of_bool if g.result == boolean and of_bool else name
        a, b = g.to_working(a, b)
        return getattr(g, own)(a, b)

    return build


def comparison(name: str) -> Build:
    """A comparison, in the common type of the operands."""

    def build(g: TorchBuilder, a: Operand, b: Operand) -> Value:
        a, b = g.operands(a, b)
        if a.dtype == boolean and name not in ("equal", "not_equal"):
            a, b = g.cast(a, to=int32), g.cast(b, to=int32)
        return getattr(g, name)(a, b)

    return build


def logical(name: str) -> Build:
    """A logical function of whether elements are not zero."""

    def build(g: TorchBuilder, *operands: Operand) -> Value:
        return getattr(g, name)(*(g.operand(value, boolean) for value in operands))

    return build


def bitwise(name: str) -> Build:
    def build(g: TorchBuilder, *operands: Operand) -> Value:
        operands = tuple(g.operand(value, g.result) for value in operands)
        return getattr(g, f"{'logical' if g.result == boolean else 'bit'}_{name}")(*operands)

    return build


def shift(name: str) -> Build:
    def build(g: TorchBuilder, a: Operand, b: Operand) -> Value:
        """A count below 0, or from the width on, gives 0; to the right -1 for a number below 0."""
        a, b = (g.operand(value, g.result) for value in (a, b))
        return getattr(g, name)(a, b)

    return build


# ---- arithmetic --------------------------------------------------------------------------------


def add_scaled(name: str) -> Build:
    """a + alpha * b, or a - alpha * b."""

    def build(g: TorchBuilder, a: Operand, b: Operand, alpha: Operand = 1) -> Value:
        if g.result == boolean:
            a, b = (g.operand(value, boolean) for value in (a, b))
            return g.logical_or(a, g.logical_and(b, g.operand(alpha, boolean)))
        a, b = g.to_working(a, b)
        if isinstance(alpha, (Value, Size)) or alpha != 1:
            b = g.mul(b, g.operand(alpha, b.dtype))
        return getattr(g, name)(a, b)

    return build


def reversed_subtraction(g: TorchBuilder, a: Value, b: Operand, alpha: Operand = 1) -> Value:
    return add_scaled("sub")(g, b, a, alpha)


def divide(g: TorchBuilder, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    """Division; with a rounding mode, integers give integers."""
    if rounding_mode == "floor":
        return floor_divide(g, a, b)
    _require_divisor(g, a, b)
    a, b = g.to_working(a, b)
    if rounding_mode is None:
        return g.div(a, b)
    return g.trunc(g.div(a, b)) if a.dtype.is_float else g.div(a, b)


def floor_divide(g: TorchBuilder, a: Operand, b: Operand) -> Value:
    """Floors as torch does for floats: (a - fmod(a, b)) / b, corrected."""
    _require_divisor(g, a, b)
    a, b = g.to_working(a, b)
    if not a.dtype.is_float:
        return g.floor_div(a, b)
    rest = g.fmod(a, b)
    quotient = g.div(g.sub(a, rest), b)
    unequal = g.not_equal(g.less(b, 0), g.less(rest, 0))
    quotient = g.where(g.logical_and(g.not_equal(rest, 0), unequal), g.sub(quotient, 1), quotient)
    low = g.floor(quotient)
    rounded = g.where(g.greater(g.sub(quotient, low), 0.5), g.add(low, 1), low)
    return g.where(g.equal(b, 0), g.div(a, b), rounded)


def _require_divisor(g: TorchBuilder, a: Operand, b: Operand) -> None:
    """A call fails if integers are divided by a number that is 0, as in torch."""
    if isinstance(b, (int, Size)) and g.result.is_integer:
        count = g.elements(a) if isinstance(a, Value) else as_size(1)
        g.require(minimum(count, 1), "<=", b * b, "integers are divided by 0")


def remainder(g: TorchBuilder, a: Operand, b: Operand) -> Value:
    _require_divisor(g, a, b)
    a, b = g.to_working(a, b)
    return g.mod(a, b)


def power(g: TorchBuilder, a: Operand, b: Operand) -> Value:
    """Small constant exponents are products and roots."""
    if isinstance(b, float) and b.is_integer() and g.result.is_integer:
        b = int(b)
    if isinstance(b, (int, float)) and not isinstance(b, bool) and isinstance(a, Value):
        (x,) = g.to_working(a)
        if b == 0:
            return g.fill_shape(x.shape, 1, x.dtype)
        if b in _POWERS and (b >= 1 or x.dtype.is_float):
            return _POWERS[b](g, x)
    if isinstance(b, Size) and g.result.is_integer:
        g.require(0, "<=", b, "integers have no negative integer powers")
    a, b = g.to_working(a, b)
    return g.pow(a, b)


_POWERS: dict[float, Build] = {
    1: lambda g, x: g.identity(x), 2: lambda g, x: g.mul(x, x),
    3: lambda g, x: g.mul(g.mul(x, x), x), 0.5: lambda g, x: g.sqrt(x),
    -0.5: lambda g, x: g.rsqrt(x), -1: lambda g, x: g.reciprocal(x),
    -2: lambda g, x: g.reciprocal(g.mul(x, x)),
}  # fmt: skip


def absolute(g: TorchBuilder, x: Value) -> Value:
    return g.identity(x) if x.dtype.kind in ("bool", "uint") else g.abs(x)


def sign(g: TorchBuilder, x: Value) -> Value:
    """torch's sign of NaN is 0."""
    if not x.dtype.is_float:
        return g.identity(x) if x.dtype == boolean else g.sign(x)
    return g.where(g.is_nan(x), g.scalar(0, x.dtype), g.sign(x))


def sign_bit(g: TorchBuilder, x: Value) -> Value:
    """Whether the sign bit is set: of -0 and of negative NaN too."""
    if not x.dtype.is_float:
        if x.dtype == boolean:
            return g.fill_shape(x.shape, False, boolean)
        return g.less(g.as_type(x, int64), 0)
    return g.sign_bit(g.as_type(x, working(x.dtype)))


def copy_sign(g: TorchBuilder, a: Operand, b: Operand) -> Value:
    a, b = g.to_working(a, b)
    size = g.abs(a)
    return g.where(g.sign_bit(b), g.neg(size), size)


def is_nan(g: TorchBuilder, x: Value) -> Value:
    return g.is_nan(x) if x.dtype.is_float else g.fill_shape(x.shape, False, boolean)


def is_infinite(negative: bool = True, positive: bool = True) -> Build:
    def build(g: TorchBuilder, x: Value) -> Value:
        if not x.dtype.is_float:
            return g.fill_shape(x.shape, False, boolean)
        return g.is_inf(x, negative=negative, positive=positive)

    return build


def nan_to_num(
    g: TorchBuilder, x: Value, nan: float | None, posinf: float | None, neginf: float | None
) -> Value:
    if not x.dtype.is_float:
        return g.identity(x)
    import ml_dtypes

    most = float(ml_dtypes.finfo(x.dtype.numpy).max)
    (own,) = g.to_working(x)
    made = g.where(g.is_nan(own), g.scalar(nan or 0.0, own.dtype), own)
    for negative, limit in ((False, posinf), (True, neginf)):
        value = (-most if negative else most) if limit is None else limit
        infinite = g.is_inf(own, negative=negative, positive=not negative)
        made = g.where(infinite, g.scalar(value, own.dtype), made)
    return made


def extreme(name: str) -> Build:
    def build(g: TorchBuilder, a: Operand, b: Operand) -> Value:
        a, b = (g.operand(value, g.result) for value in (a, b))
        if g.result == boolean:
            return g.logical_or(a, b) if name == "maximum" else g.logical_and(a, b)
        return getattr(g, name)(a, b)

    return build


def number_extreme(name: str) -> Build:
    """The larger or smaller number; NaN only when both are NaN."""

    def build(g: TorchBuilder, a: Operand, b: Operand) -> Value:
        if not g.result.is_float:
            return extreme(name)(g, a, b)
        a, b = g.to_working(a, b)
        shape = getattr(g, name)(a, b)
        return g.where(g.is_nan(a), b, g.where(g.is_nan(b), a, shape))

    return build


def clamp(
    g: TorchBuilder, x: Value, low: Operand | None = None, high: Operand | None = None
) -> Value:
    """Bounds are numbers or tensors; either may be None."""
    (x,) = g.to_working(x)
    if low is not None:
        x = g.maximum(x, g.operand(low, x.dtype))
    return x if high is None else g.minimum(x, g.operand(high, x.dtype))


def where(g: TorchBuilder, condition: Value, a: Operand, b: Operand) -> Value:
    condition = g.as_type(condition, boolean)
    return g.where(condition, g.operand(a, g.result), g.operand(b, g.result))


def masked_fill(g: TorchBuilder, x: Value, mask: Value, value: Operand) -> Value:
    return g.where(mask, g.operand(value, x.dtype), x)


def add_product(name: str) -> Build:
    """x + value * a * b, or x + value * a / b."""

    def build(g: TorchBuilder, x: Value, a: Value, b: Value, value: Operand = 1) -> Value:
        x, a, b = g.to_working(x, a, b)
        if isinstance(value, (Value, Size)) or value != 1:
            a = g.mul(g.operand(value, a.dtype), a)
        return g.add(x, getattr(g, name)(a, b))

    return build


def multiply_add(g: TorchBuilder, a: Operand, b: Operand, c: Operand) -> Value:
    a, b, c = g.to_working(a, b, c)
    return g.add(g.mul(a, b), c)


def interpolate(g: TorchBuilder, a: Value, b: Value, weight: Operand) -> Value:
    """a + weight * (b - a); from the nearer end, as torch does."""
    a, b, w = g.to_working(a, b, weight)
    away = g.sub(b, a)
    near = g.add(a, g.mul(w, away))
    far = g.sub(b, g.mul(away, g.sub(g.scalar(1, w.dtype), w)))
    return g.where(g.less(g.abs(w), 0.5), near, far)


def log_base(scale: float) -> Build:
    return lambda g, x: g.mul(g.log(g.as_type(g.to_working(x)[0], float64)), scale)


def exp2(g: TorchBuilder, x: Value) -> Value:
    return g.exp(g.mul(g.as_type(g.to_working(x)[0], float64), math.log(2)))


def convert(g: TorchBuilder, x: Value, *_: Any, **__: Any) -> Value:
    """The importer converts x to the type of the result."""
    return x


def hypot(g: TorchBuilder, a: Value, b: Value) -> Value:
    """Scaled by the larger one, so that squares do not overflow."""
    a, b = g.to_working(a, b)
    a, b = g.abs(a), g.abs(b)
    most, least = g.maximum(a, b), g.minimum(a, b)
    ratio = g.div(least, g.where(g.equal(most, 0), g.scalar(1, most.dtype), most))
    made = g.mul(most, g.sqrt(g.add(g.mul(ratio, ratio), 1)))
    infinite = g.logical_or(g.is_inf(a), g.is_inf(b))
    return g.where(infinite, g.scalar(math.inf, made.dtype), made)


def angle(g: TorchBuilder, x: Value) -> Value:
    """Of real numbers: pi below 0."""
    (x,) = g.to_working(x)
    made = g.where(g.less(x, 0), g.scalar(math.pi, x.dtype), g.scalar(0, x.dtype))
    return g.where(g.is_nan(x), x, made)


def mantissa(g: TorchBuilder, x: Value) -> list[Value]:
    """(x / 2^e from 1/2 to 1, e)."""
    wide = g.cast(x, to=float64)
    size = g.abs(wide)
    usual = g.logical_and(g.greater(size, 0.0), g.logical_not(g.is_inf(size)))
    safe = g.where(usual, size, g.scalar(1.0, float64))
    power = g.add(g.floor(g.div(g.log(safe), math.log(2))), 1.0)
    part = g.mul(safe, g.pow(g.scalar(2.0, float64), g.neg(power)))
    high, low = g.greater_equal(part, 1.0), g.less(part, 0.5)
    part = g.where(high, g.mul(part, 0.5), g.where(low, g.mul(part, 2.0), part))
    power = g.where(high, g.add(power, 1.0), g.where(low, g.sub(power, 1.0), power))
    signed = g.where(g.less(wide, 0.0), g.neg(part), part)
    zero = g.scalar(0.0, float64)
    return [g.where(usual, signed, wide), g.cast(g.where(usual, power, zero), to=int32)]


def greatest_divisor(g: TorchBuilder, a: Operand, b: Operand) -> Value:
    values = [g.operand(value, int64) for value in (a, b)]
    shape = g.broadcast(*values)
    flat = [g.flat(g.expand(value, shape=shape)) for value in values]
    return g.reshape(g.call_definition("greatest_divisor", *flat), shape=shape)


def round_decimals(g: TorchBuilder, x: Value, *, decimals: int) -> Value:
    if not decimals:
        return rounding("round")(g, x)
    (x,) = g.to_working(x)
    scale = float(10 ** abs(decimals))
    if decimals > 0:
        return g.div(g.round(g.mul(x, scale)), scale)
    return g.mul(g.round(g.div(x, scale)), scale)


_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp",
    "expm1", "log", "log1p", "mish", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "sin",
    "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
_COMPARED = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip

_PRIMS = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "atan2")


ROWS: dict[str, Build] = {
    **{f"prims.{name}.default": binary(name) for name in _PRIMS},
    "prims.round.default": rounding("round"), "prims.frexp.default": mantissa,
    "frexp.Tensor": mantissa, "prims.gcd.default": greatest_divisor,
    "gcd.default": greatest_divisor, "angle.default": angle,
    "round.decimals": round_decimals,
    **{f"{name}.default": unary(name) for name in _UNARY},
    "hardswish.default": unary("hard_swish"),
    **{f"{name}.default": rounding(name) for name in ("floor", "ceil", "round", "trunc")},
    **{f"{theirs}.{kind}": comparison(ours) for theirs, ours in _COMPARED.items()
       for kind in ("Tensor", "Scalar")},
    **{f"bitwise_{name}.{kind}": bitwise(name) for name in ("and", "or", "xor")
       for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"logical_{name}.default": logical(f"logical_{name}")
       for name in ("and", "or", "xor", "not")},
    **{f"{theirs}.{kind}": shift(ours) for theirs, ours in (
        ("bitwise_left_shift", "shift_left"), ("bitwise_right_shift", "shift_right"),
        ("__lshift__", "shift_left"), ("__rshift__", "shift_right"))
       for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor", "Scalar")},
    "bitwise_not.default": bitwise("not"),
    "abs.default": absolute, "_neg_view.default": unary("neg"),
    "add.Tensor": add_scaled("add"), "add.Scalar": add_scaled("add"),
    "sub.Tensor": add_scaled("sub"), "sub.Scalar": add_scaled("sub"),
    "rsub.Tensor": reversed_subtraction, "rsub.Scalar": reversed_subtraction,
    "mul.Tensor": binary("mul", "logical_and"), "mul.Scalar": binary("mul", "logical_and"),
    "div.Tensor": divide, "div.Scalar": divide,
    "true_divide.Tensor": divide, "prims.fma.default": multiply_add,
    "div.Tensor_mode": divide, "div.Scalar_mode": divide,
    "floor_divide.default": floor_divide, "floor_divide.Scalar": floor_divide,
    "remainder.Tensor": remainder, "remainder.Scalar": remainder,
    "remainder.Scalar_Tensor": remainder,
    "fmod.Tensor": binary("fmod"), "fmod.Scalar": binary("fmod"),
    "pow.Tensor_Tensor": power, "pow.Tensor_Scalar": power, "pow.Scalar": power,
    "atan2.default": binary("atan2"),
    "nextafter.default": binary("nextafter"),
    "hypot.default": hypot,
    "copysign.Tensor": copy_sign, "copysign.Scalar": copy_sign,
    "sign.default": sign, "signbit.default": sign_bit,
    "isnan.default": is_nan, "isinf.default": is_infinite(),
    "isposinf.default": is_infinite(negative=False),
    "isneginf.default": is_infinite(positive=False),
    "nan_to_num.default": nan_to_num,
    "maximum.default": extreme("maximum"), "minimum.default": extreme("minimum"),
    "fmax.default": number_extreme("maximum"), "fmin.default": number_extreme("minimum"),
    "clamp.default": clamp, "clamp.Tensor": clamp,
    "clamp_min.default": clamp, "clamp_min.Tensor": clamp,
    **{f"clamp_max.{kind}": lambda g, x, high: clamp(g, x, None, high)
       for kind in ("default", "Tensor")},
    "where.self": where, "where.ScalarSelf": where, "where.ScalarOther": where,
    "where.Scalar": where,
    "masked_fill.Scalar": masked_fill, "masked_fill.Tensor": masked_fill,
    "addcmul.default": add_product("mul"), "addcdiv.default": add_product("div"),
    "lerp.Scalar": interpolate, "lerp.Tensor": interpolate,
    "log2.default": log_base(1 / math.log(2)), "log10.default": log_base(1 / math.log(10)),
    "exp2.default": exp2,
    "_to_copy.default": convert, "to.dtype": convert, "clone.default": convert,
    "alias.default": convert, "detach.default": convert, "lift_fresh_copy.default": convert,
    "contiguous.default": convert, "_conj.default": convert, "positive.default": convert,
    "prims.convert_element_type.default": convert,
}  # fmt: skip
