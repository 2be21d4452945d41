"""Random element work: functions, arithmetic, comparisons, choices, casts, bits."""

from __future__ import annotations

import anydim as ad
from anydim.base.dtypes import bfloat16, boolean
from anydim.compiler.frontends.builder import Value
from tests.fuzz.maker import Maker

SMOOTH = (
    "neg", "abs", "tanh", "sin", "cos", "atan", "asinh", "sigmoid", "erf", "relu", "elu", "selu",
    "celu", "leaky_relu", "hard_sigmoid", "hard_swish", "softplus", "softsign", "swish", "mish",
    "gelu", "gelu_tanh", "identity",
)  # fmt: skip
TAMED = ("exp", "sinh", "cosh", "tan", "exp", "exp")
POSITIVE = ("log", "sqrt", "reciprocal", "sqrt")
UNIT = ("asin", "acos", "atanh")
STEPS = ("floor", "ceil", "round", "sign", "thresholded_relu", "shrink")
ALPHA = ("elu", "celu", "leaky_relu", "hard_sigmoid", "swish")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
EXACT = ("neg", "abs", "relu", "identity", "maximum", "minimum")


def unary(m: Maker) -> Value | None:
    """A function of a float value, inside its domain."""
    g, x = m.builder, m.float()
    family = m.one((SMOOTH, SMOOTH, SMOOTH, TAMED, POSITIVE, UNIT, STEPS))
    name = m.one(family)
    if family is STEPS:
        return m.keep_exact(getattr(g, name)(x), x) if m.is_exact(x) else None
    if family is TAMED:
        x = g.clip(x, m.scalar(x.dtype, -1.4), m.scalar(x.dtype, 1.4)) if m.chance(0.3) else x * 0.3
    elif family is POSITIVE and not (m.is_exact(x) and m.chance(0.3)):
        x = g.abs(x) + 0.3
    elif family is UNIT:
        x = g.tanh(x) * 0.9
    attributes = {"alpha": m.one((0.1, 0.5, 1.0, 1.7))} if name in ALPHA and m.chance(0.5) else {}
    made = getattr(g, name)(x, **attributes)
    return m.keep_exact(made, x) if name in EXACT else made


def unary_integer(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype.is_integer)
    if x is None:
        return None
    return m.keep_exact(getattr(m.builder, m.one(("neg", "abs", "sign", "bit_not", "relu")))(x), x)


def binary(m: Maker) -> Value | None:
    """Arithmetic of floats, broadcasting."""
    g, x = m.builder, m.float()
    y = m.mate(x)
    name = m.one(("add", "sub", "mul", "add", "mul", "sub", "div", "maximum", "minimum", "steps"))
    if name == "steps":
        if not m.is_exact(x, y):
            return None
        return getattr(g, m.one(("floor_div", "mod", "fmod")))(x, g.abs(y) + 1.0)
    if name == "div" and m.chance(0.9):
        y = g.abs(y) + 0.4
    if m.chance(0.3):
        x, y = y, x
        if name == "div":
            y = g.abs(y) + 0.4
    made = getattr(g, name)(x, y)
    return m.keep_exact(made, x, y) if name in EXACT else made


def binary_integer(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype.is_integer)
    if x is None:
        return None
    names = (
        "add", "sub", "mul", "div", "floor_div", "mod", "fmod", "maximum", "minimum",
        "bit_and", "bit_or", "bit_xor",
    )  # fmt: skip
    y = m.mate(x)
    if m.chance(0.3):
        x, y = y, x
    return m.keep_exact(getattr(m.builder, m.one(names))(x, y), x, y)


def shift(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype.is_integer)
    if x is None:
        return None
    amount = m.number(x.dtype, m.random.randint(0, 5))
    return m.keep_exact(getattr(m.builder, m.one(("shift_left", "shift_right")))(x, amount), x)


def compare(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.name in m.exact and v.dtype != boolean)
    if x is None:
        return None
    y = m.mate(x)
    if not m.is_exact(y):
        y = m.number(x.dtype)
    return m.keep_exact(getattr(m.builder, m.one(COMPARISONS))(x, y), x, y)


def logical(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype == boolean)
    if x is None:
        return None
    name = m.one(("logical_and", "logical_or", "logical_xor", "logical_not", "equal"))
    if name == "logical_not":
        return m.keep_exact(m.builder.logical_not(x), x)
    y = m.mate(x)
    return m.keep_exact(getattr(m.builder, name)(x, y), x, y)


def classify(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype.is_float and v.name in m.exact)
    if x is None:
        return None
    if m.chance(0.5):
        return m.keep_exact(m.builder.is_nan(x), x)
    return m.keep_exact(m.builder.is_inf(x, negative=m.chance(0.5)), x)


def where(m: Maker) -> Value | None:
    a = m.pick()
    if a is None:
        return None
    b, condition = m.mate(a), m.mate(a, boolean)
    if m.chance(0.3):
        a, b = b, a
    return m.keep_exact(m.builder.where(condition, a, b), a, b, condition)


def clip(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype != boolean)
    if x is None:
        return None
    low, high = m.one(((-1, 1), (0, 6), (-2, 0), (1, -1)))
    scalars = []
    for bound in (low, high):
        if m.chance(0.15):
            scalars.append(m.input((), x.dtype))
        else:
            scalars.append(m.scalar(x.dtype, bound))
    return m.keep_exact(m.builder.clip(x, *scalars), x, *scalars)


def cast(m: Maker) -> Value | None:
    """A change of type that does not depend on rounding."""
    x = m.pick()
    if x is None:
        return None
    to = m.one(
        (ad.float32, ad.float32, ad.float64, ad.int64, ad.int32, boolean) * 3
        + (ad.float16, bfloat16, ad.int8, ad.uint8, ad.int16)
    )
    made = m.builder.cast(x, to=to)
    if to.is_float:
        wider = x.dtype.is_float and x.dtype.bits < to.bits
        exact = x.dtype in (boolean, to) or wider
        return m.keep_exact(made, x) if exact else made
    if not m.is_exact(x) or (x.dtype.is_float and m.specials and to != boolean):
        return None
    if x.dtype.is_float and to.kind == "uint":  # negative numbers have no place there
        return None
    return m.keep_exact(made, x)


def power(m: Maker) -> Value | None:
    x = m.float()
    g = m.builder
    if m.chance(0.6):
        exponent = m.one((2.0, 3.0, 1.0, 0.5, -1.0, -0.5, 2.5, 0.0))
        base = x if exponent in (2.0, 3.0, 1.0, 0.0) else g.abs(x) + 0.3
        return g.pow(base, m.number(x.dtype, exponent))
    return g.pow(g.abs(x) + 0.3, g.tanh(m.mate(x)))


def prelu(m: Maker) -> Value | None:
    x = m.float()
    return m.builder.prelu(x, m.mate(x))


def chain(m: Maker) -> Value | None:
    """Several functions in a row, with a value used twice."""
    x = m.float(1)
    y = x
    for _ in range(m.random.randint(2, 5)):
        before, y = y, getattr(m.builder, m.one(SMOOTH))(y)
        if m.chance(0.4):
            y = getattr(m.builder, m.one(("add", "mul", "maximum")))(y, m.one((x, before)))
    return y
