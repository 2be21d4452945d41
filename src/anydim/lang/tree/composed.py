"""Functions defined in terms of others: each expands to an expression.

Targets see only the expansions. Sources: the operators of ONNX of the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

from anydim.base.records import dataclass
from anydim.lang.tree import Apply, Expr, Literal


@dataclass(frozen=True)
class Composed:
    """A function of `arity` expressions; `meaning` is its expansion in the language."""

    name: str
    arity: int
    make: Callable[..., Expr]
    meaning: str


def _of(function: str, *arguments: Expr | float) -> Expr:
    made = (Literal(a) if isinstance(a, (int, float)) else a for a in arguments)
    return Apply(function, tuple(made))


def _where_positive(x: Expr, then: Expr, otherwise: Expr) -> Expr:
    return _of("select", _of("greater", x, 0), then, otherwise)


def _softplus(x: Expr) -> Expr:
    return _of("add", _of("max", x, 0), _of("log1p", _of("exp", _of("neg", _of("abs", x)))))


def _gelu(x: Expr) -> Expr:
    inner = _of("erf", _of("mul", x, 0.5**0.5))
    return _of("mul", _of("mul", x, 0.5), _of("add", inner, 1))


def _elu(x: Expr, alpha: Expr) -> Expr:
    return _where_positive(x, x, _of("mul", alpha, _of("expm1", x)))


def _celu(x: Expr, alpha: Expr) -> Expr:
    return _where_positive(x, x, _of("mul", alpha, _of("expm1", _of("div", x, alpha))))


def _selu(x: Expr) -> Expr:
    alpha, gamma = 1.67326319217681884765625, 1.05070102214813232421875
    return _of("mul", gamma, _where_positive(x, x, _of("mul", alpha, _of("expm1", x))))


def _hard_sigmoid(x: Expr, alpha: Expr | float, beta: Expr | float) -> Expr:
    return _of("max", 0, _of("min", 1, _of("add", _of("mul", alpha, x), beta)))


def _shrink(x: Expr, bound: Expr, bias: Expr) -> Expr:
    below = _of("select", _of("less", x, _of("neg", bound)), _of("add", x, bias), _of("mul", x, 0))
    return _of("select", _of("greater", x, bound), _of("sub", x, bias), below)


_ROWS = (
    Composed("relu", 1, lambda x: _of("max", x, 0), "max(x, 0)"),
    Composed("reciprocal", 1, lambda x: _of("div", 1, x), "1 / x"),
    Composed("softplus", 1, _softplus, "max(x, 0) + log1p(exp(-abs(x)))"),
    Composed("softsign", 1, lambda x: _of("div", x, _of("add", _of("abs", x), 1)),
             "x / (abs(x) + 1)"),
    Composed("silu", 1, lambda x: _of("mul", x, _of("sigmoid", x)), "x * sigmoid(x)"),
    Composed("mish", 1, lambda x: _of("mul", x, _of("tanh", _softplus(x))),
             "x * tanh(softplus(x))"),
    Composed("gelu", 1, _gelu, "x * 0.5 * (erf(x * sqrt(0.5)) + 1)"),
    Composed("selu", 1, _selu, "1.0507010 * elu(x, 1.6732632)"),
    Composed("hard_swish", 1, lambda x: _of("mul", x, _hard_sigmoid(x, 1 / 6, 0.5)),
             "x * hard_sigmoid(x, 1.0 / 6, 0.5)"),
    Composed("elu", 2, _elu, "x > 0 ? x : a * expm1(x)"),
    Composed("celu", 2, _celu, "x > 0 ? x : a * expm1(x / a)"),
    Composed("leaky_relu", 2, lambda x, a: _where_positive(x, x, _of("mul", a, x)),
             "x > 0 ? x : a * x"),
    Composed("thresholded_relu", 2,
             lambda x, a: _of("select", _of("greater", x, a), x, _of("mul", x, 0)),
             "x > a ? x : x * 0"),
    Composed("hard_sigmoid", 3, _hard_sigmoid, "max(0, min(1, a * x + b))"),
    Composed("clip", 3, lambda x, a, b: _of("min", _of("max", x, a), b), "min(max(x, a), b)"),
    Composed("shrink", 3, _shrink, "x > a ? x - b : (x < -a ? x + b : x * 0)"),
    Composed("exp2", 1, lambda x: _of("exp", _of("mul", x, log(2))), "exp(x * log(2.0))"),
    Composed("log2", 1, lambda x: _of("mul", _of("log", x), 1 / log(2)), "log(x) / log(2.0)"),
    Composed("log10", 1, lambda x: _of("mul", _of("log", x), 1 / log(10)), "log(x) / log(10.0)"),
)  # fmt: skip

COMPOSED: dict[str, Composed] = {row.name: row for row in _ROWS}
