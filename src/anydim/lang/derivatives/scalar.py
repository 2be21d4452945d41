"""Derivatives of scalar functions: a row each.

A rule takes the arguments and the cotangent of the result, and returns the cotangents of the
arguments. `select` is in `flow.py`. At a tie `min` and `max` give each
argument half, as torch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anydim.lang.derivatives.algebra import (
    ONE,
    ZERO,
    call,
    minus,
    negative,
    over,
    plus,
    times,
    where,
)
from anydim.lang.functions import FUNCTIONS, REINTERPRETING
from anydim.lang.tree import Expr, Literal

Rule = Callable[[Sequence[Expr], Expr], tuple[Expr, ...]]


def _square(x: Expr) -> Expr:
    return times(x, x)


def _extreme(larger: str) -> Rule:
    def rule(arguments: Sequence[Expr], seed: Expr) -> tuple[Expr, ...]:
        a, b = arguments
        half = times(Literal(0.5), seed)
        tied = where(call("equal", a, b), half)
        return where(call(larger, a, b), seed, tied), where(call(larger, b, a), seed, tied)

    return rule


def _power(arguments: Sequence[Expr], seed: Expr) -> tuple[Expr, ...]:
    base, exponent = arguments
    by_base = times(seed, times(exponent, call("pow", base, minus(exponent, ONE))))
    by_exponent = times(seed, times(call("pow", base, exponent), call("log", base)))
    return (
        where(call("equal", exponent, ZERO), ZERO, by_base),
        where(call("greater", base, ZERO), by_exponent),
    )


def _one(factor: Callable[[Expr], Expr]) -> Rule:
    """The rule of a function of one argument with this derivative."""
    return lambda arguments, seed: (times(seed, factor(arguments[0])),)


def _division(arguments: Sequence[Expr], seed: Expr) -> tuple[Expr, ...]:
    a, b = arguments
    return over(seed, b), negative(over(times(seed, a), _square(b)))


def _remainder(rounding: str) -> Rule:
    return lambda a, seed: (seed, negative(times(seed, call(rounding, over(a[0], a[1])))))


_ERF = Literal(2 / math.sqrt(math.pi))

RULES: dict[str, Rule] = {
    "add": lambda a, seed: (seed, seed),
    "sub": lambda a, seed: (seed, negative(seed)),
    "mul": lambda a, seed: (times(seed, a[1]), times(seed, a[0])),
    "div": _division,
    "quotient": _division,
    "mod": _remainder("floor"),
    "fmod": _remainder("trunc"),
    "neg": lambda a, seed: (negative(seed),),
    "abs": _one(lambda x: call("sign", x)),
    "min": _extreme("less"),
    "max": _extreme("greater"),
    "pow": _power,
    "exp": _one(lambda x: call("exp", x)),
    "log": lambda a, seed: (over(seed, a[0]),),
    "sqrt": lambda a, seed: (over(times(Literal(0.5), seed), call("sqrt", a[0])),),
    "rsqrt": _one(lambda x: over(times(Literal(-0.5), call("rsqrt", x)), x)),
    "tanh": _one(lambda x: minus(ONE, _square(call("tanh", x)))),
    "sigmoid": _one(lambda x: times(call("sigmoid", x), minus(ONE, call("sigmoid", x)))),
    "erf": _one(lambda x: times(_ERF, call("exp", negative(_square(x))))),
    "sin": _one(lambda x: call("cos", x)),
    "cos": _one(lambda x: negative(call("sin", x))),
    "tan": _one(lambda x: plus(ONE, _square(call("tan", x)))),
    "asin": _one(lambda x: call("rsqrt", minus(ONE, _square(x)))),
    "acos": _one(lambda x: negative(call("rsqrt", minus(ONE, _square(x))))),
    "atan": lambda a, seed: (over(seed, plus(ONE, _square(a[0]))),),
    "sinh": _one(lambda x: call("cosh", x)),
    "cosh": _one(lambda x: call("sinh", x)),
    "asinh": _one(lambda x: call("rsqrt", plus(_square(x), ONE))),
    "acosh": _one(lambda x: call("rsqrt", minus(_square(x), ONE))),
    "atanh": lambda a, seed: (over(seed, minus(ONE, _square(a[0]))),),
    "log1p": lambda a, seed: (over(seed, plus(ONE, a[0])),),
    "expm1": _one(lambda x: call("exp", x)),
}

FLAT = frozenset(
    ("sign", "floor", "ceil", "round", "trunc", "floordiv", "isnan", "isinf")
    + tuple(name for name, row in FUNCTIONS.items() if row.result == "bool")
    + tuple(name for name in FUNCTIONS if name.startswith(("bit_", "shift_")))
)  # zero wherever they have a derivative
NONE = frozenset(("nextafter", *REINTERPRETING))  # without one
