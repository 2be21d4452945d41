"""Construction of expressions, with the simplifications that keep derivatives readable."""

from __future__ import annotations

from typing import TypeGuard

from anydim.lang.functions import INSIDE
from anydim.lang.tree import Apply, Expr, Literal
from anydim.lang.tree.affine import rewrite

ZERO, ONE = Literal(0.0), Literal(1.0)


def is_number(expr: Expr, value: float) -> bool:
    """Whether an expression is this number."""
    return isinstance(expr, Literal) and expr.value == value


def times(left: Expr, right: Expr) -> Expr:
    """The product."""
    if is_number(left, 0) or is_number(right, 0):
        return ZERO
    if is_number(left, 1):
        return right
    if is_number(right, 1):
        return left
    if is_number(left, -1):
        return negative(right)
    if is_number(right, -1):
        return negative(left)
    return Apply("mul", (left, right))


def plus(left: Expr, right: Expr) -> Expr:
    """The sum."""
    if is_number(left, 0):
        return right
    return left if is_number(right, 0) else Apply("add", (left, right))


def minus(left: Expr, right: Expr) -> Expr:
    """The difference."""
    return left if is_number(right, 0) else Apply("sub", (left, right))


def over(left: Expr, right: Expr) -> Expr:
    """The quotient."""
    if is_number(left, 0):
        return ZERO
    return left if is_number(right, 1) else Apply("div", (left, right))


def negative(expr: Expr) -> Expr:
    """The negated value."""
    if isinstance(expr, Literal) and not isinstance(expr.value, bool):
        return Literal(-expr.value if expr.value else expr.value, expr.dtype)
    if isinstance(expr, Apply) and expr.function == "neg":
        return expr.arguments[0]
    return Apply("neg", (expr,))


def where(condition: Expr, then: Expr, otherwise: Expr = ZERO) -> Expr:
    """`condition ? then : otherwise`."""
    if is_number(then, 0) and is_number(otherwise, 0):
        return ZERO
    return Apply("select", (condition, then, otherwise))


def call(function: str, *arguments: Expr) -> Expr:
    """A scalar function of these arguments."""
    return Apply(function, arguments)


def every(conditions: list[Expr]) -> Expr | None:
    """The conjunction; None for no conditions."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else Apply("and", (result, condition))
    return result


def simplify(expr: Expr) -> Expr:
    """Remove bounds checks and decided branches; `instantiate` adds the checks again."""
    return rewrite(expr, _plain_part)


def _plain_part(part: Expr) -> Expr | None:
    if not isinstance(part, Apply):
        return None
    first = part.arguments[0]
    if part.function == INSIDE:
        return first
    if part.function == "select" and _is_truth(first):
        return part.arguments[1 if first.value else 2]
    if part.function == "not" and _is_truth(first):
        return Literal(not first.value, first.dtype)
    if part.function in ("and", "or"):
        return _fold_logic(part.function == "and", *part.arguments)
    return None


def _fold_logic(is_and: bool, left: Expr, right: Expr) -> Expr | None:
    """Simplify `&&` or `||` if one side is a constant; None otherwise."""
    for one, other in ((left, right), (right, left)):
        if _is_truth(one):
            return other if one.value == is_and else one
    return None


def _is_truth(expr: Expr) -> TypeGuard[Literal]:
    return isinstance(expr, Literal) and isinstance(expr.value, bool)
