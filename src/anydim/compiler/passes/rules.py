"""Algebraic simplification of scalar expressions, as a table of rules that tests can enumerate.

A pattern is an expression with holes. `Hole(name)` matches any expression, `Hole(name, literal=
True)` a literal; the same name must match equal expressions. `when` receives the matches.
Rules that are not exact in floating point state it in `error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, convert_array, int64
from anydim.base.records import dataclass
from anydim.lang.functions import INSIDE, compute
from anydim.lang.tree import Apply, Cast, Expr, Literal, SizeTerm
from anydim.lang.tree.affine import rewrite


@dataclass(frozen=True)
class Hole:
    """A wildcard in a pattern that matches any expression, or only literals."""

    name: str
    literal: bool = False


@dataclass(frozen=True)
class Rule:
    """Replaces `pattern` by `result` of the matched holes, if `when` holds."""

    name: str
    pattern: Any
    result: Callable[[Mapping[str, Any]], Expr]
    when: Callable[[Mapping[str, Any]], bool] = lambda found: True
    error: str = "exact"
    fast: bool = False  # only with precision "fast"


A, B, C = Hole("a"), Hole("b"), Hole("c", literal=True)


def call(function: str, *arguments: Any) -> Apply:
    return Apply(function, tuple(arguments))


def _is(value: float, found: Mapping[str, Any]) -> bool:
    return not isinstance(found["c"].value, bool) and found["c"].value == value


def _float_divisor(found: Mapping[str, Any]) -> bool:
    """Whether the reciprocal of a literal is a normal float of a standard type."""
    literal = found["c"]
    if literal.dtype is None or not literal.dtype.is_float or literal.dtype.format is not None:
        return False
    inverse = 1.0 / literal.value if literal.value else 0.0
    tiny = float(numpy.finfo(literal.dtype.numpy).tiny)
    return tiny <= abs(inverse) < 1 / tiny


def _power_of_two(found: Mapping[str, Any]) -> bool:
    """Whether the reciprocal of a literal is exact and normal."""
    return _float_divisor(found) and abs(math.frexp(found["c"].value)[0]) == 0.5


def _neutral_zero(sign: float, found: Mapping[str, Any]) -> bool:
    """Whether c is the neutral 0; a float must have this sign, as -0 + 0 is 0."""
    literal = found["c"]
    if not _is(0, found):
        return False
    whole = literal.dtype is not None and not literal.dtype.is_float
    return whole or math.copysign(1.0, literal.value) == sign


def _float(found: Mapping[str, Any]) -> bool:
    return found["c"].dtype is not None and found["c"].dtype.is_float


def _inverse(found: Mapping[str, Any]) -> Expr:
    literal = found["c"]
    value = literal.dtype.numpy.type(1.0 / literal.value)
    return call("mul", found["a"], Literal(float(value), literal.dtype))


RULES: tuple[Rule, ...] = (
    Rule("add zero", call("add", A, C), lambda f: f["a"], partial(_neutral_zero, -1.0)),
    Rule("zero add", call("add", C, A), lambda f: f["a"], partial(_neutral_zero, -1.0)),
    Rule("subtract zero", call("sub", A, C), lambda f: f["a"], partial(_neutral_zero, 1.0)),
    Rule("multiply by one", call("mul", A, C), lambda f: f["a"], partial(_is, 1)),
    Rule("one multiplied", call("mul", C, A), lambda f: f["a"], partial(_is, 1)),
    Rule("divide by one", call("div", A, C), lambda f: f["a"], partial(_is, 1)),
    Rule("divide by a power of two", call("div", A, C), _inverse, _power_of_two),
    Rule(
        "divide by a number", call("div", A, C), _inverse, _float_divisor,
        error="two units in the last place", fast=True,
    ),
    Rule(
        "square", call("pow", A, C), lambda f: call("mul", f["a"], f["a"]),
        lambda f: _is(2, f) and _float(f),
    ),
    Rule("first power", call("pow", A, C), lambda f: f["a"], lambda f: _is(1, f) and _float(f)),
    Rule("double negation", call("neg", call("neg", A)), lambda f: f["a"]),
    Rule("not not", call("not", call("not", A)), lambda f: f["a"]),
    Rule("choose among equals", call("select", A, B, B), lambda f: f["b"]),
    Rule(
        "decided choice", call("select", C, A, B),
        lambda f: f["a"] if f["c"].value else f["b"], lambda f: isinstance(f["c"].value, bool),
    ),
)  # fmt: skip


def match(pattern: Any, expr: Expr, found: dict[str, Expr]) -> bool:
    """Whether `expr` has the form of `pattern`; fills `found` with the matches of the holes."""
    if isinstance(pattern, Hole):
        if pattern.literal and not isinstance(expr, Literal):
            return False
        return found.setdefault(pattern.name, expr) == expr
    if isinstance(pattern, Apply):
        return (
            isinstance(expr, Apply)
            and expr.function == pattern.function
            and len(expr.arguments) == len(pattern.arguments)
            and all(match(p, e, found) for p, e in zip(pattern.arguments, expr.arguments))
        )
    return bool(pattern == expr)


_BY_FUNCTION: dict[str, list[Rule]] = {}
for _rule in RULES:
    _BY_FUNCTION.setdefault(_rule.pattern.function, []).append(_rule)


def apply_rules(expr: Expr, fast: bool = False) -> Expr | None:
    """Apply the first rule that matches at the root; None if none does."""
    if isinstance(expr, Cast):
        return fold_cast(expr)
    if not isinstance(expr, Apply):
        return None
    for rule in _BY_FUNCTION.get(expr.function, ()):
        found: dict[str, Expr] = {}
        if rule.fast <= fast and match(rule.pattern, expr, found) and rule.when(found):
            return rule.result(found)
    return fold_numbers(expr)


def fold_cast(expr: Cast) -> Expr | None:
    """Fold a cast of a literal, or of a selection between literals; else None."""
    inner = expr.argument
    if isinstance(inner, Apply) and inner.function == "select":
        condition, *choices = inner.arguments
        cast = [fold_cast(Cast(expr.dtype, c)) for c in choices if isinstance(c, Literal)]
        kinds = {(c.dtype, type(c.value)) for c in choices if isinstance(c, Literal)}
        if len(cast) == 2 and len(kinds) == 1:
            return Apply("select", (condition, *(c for c in cast if c is not None)))
    if isinstance(inner, Literal):
        with numpy.errstate(all="ignore"):
            value = convert_array(numpy.asarray(inner.value, _numpy(inner)), expr.dtype.numpy)
        return Literal(value.item(), expr.dtype)
    return None


def fold_numbers(expr: Apply) -> Expr | None:
    """Fold a function of literals and constant sizes; else None."""
    numbers = (_number(argument) for argument in expr.arguments)
    literals = [a for a in numbers if isinstance(a, Literal)]
    if len(literals) != len(expr.arguments) or any(a.dtype is None for a in literals):
        return None
    if expr.function == INSIDE:
        return None
    with numpy.errstate(all="ignore"):
        arguments = [numpy.asarray(a.value, _numpy(a)) for a in literals]
        value = numpy.asarray(compute(expr.function, arguments))
    kind = DTYPES.get(value.dtype.name)
    return None if kind is None else Literal(value.item(), kind)


def _number(expr: Expr) -> Expr:
    if isinstance(expr, SizeTerm) and expr.size.constant is not None:
        return Literal(expr.size.constant, int64)
    return expr


def _numpy(literal: Literal) -> Any:
    return None if literal.dtype is None else literal.dtype.numpy


def simplify_expression(expr: Expr, fast: bool = False) -> Expr:
    """Apply rules bottom up until none matches, at most 8 times."""
    for _ in range(8):
        changed = rewrite(expr, lambda part: apply_rules(part, fast))
        if changed == expr:
            return expr
        expr = changed
    return expr
