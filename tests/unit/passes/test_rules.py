"""Promise: both sides of every rule of local algebra are equal wherever the rule applies."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import boolean, float32
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    Statement,
    Tensor,
    TensorType,
)
from anydim.passes.rules import RULES, Hole, Rule, match, simplified
from anydim.sizes import as_size

COUNT = 8
VALUES = numpy.array([-3.0, -1.0, -0.5, 0.25, 1.0, 2.0, 7.0, 100.0], numpy.float32)
NUMBERS = (0.0, 1.0, 2.0, -2.5, 0.5, 3.0)


def fill(pattern, literal: Literal) -> Expr:
    """The pattern with its holes filled: tensors for expressions, `literal` for numbers."""
    if isinstance(pattern, Hole):
        return literal if pattern.literal else Read(pattern.name, (Index("i"),))
    return Apply(pattern.function, tuple(fill(p, literal) for p in pattern.arguments))


def value(expr: Expr, dtypes) -> numpy.ndarray:
    size = as_size(COUNT)
    inputs = tuple(Tensor(name, TensorType(dtype, (size,))) for name, dtype in dtypes.items())
    result = boolean if getattr(expr, "function", "") == "not" else next(iter(dtypes.values()))
    output = Tensor("y", TensorType(result, (size,)))
    group = Group(inputs, (output,), (Statement("y", (Axis("i", size),), expr),))
    arrays = {
        name: VALUES[:: 1 if name == "a" else -1].astype(dtype.numpy) > 0
        if dtype == boolean
        else VALUES[:: 1 if name == "a" else -1]
        for name, dtype in dtypes.items()
    }
    return evaluate(group, arrays, {})["y"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_both_sides_are_equal(rule: Rule) -> None:
    kind = boolean if rule.pattern.function == "not" else float32
    literals = [Literal(True, boolean), Literal(False, boolean)]
    literals += [Literal(number, float32) for number in NUMBERS]
    applied = 0
    for literal in literals:
        left = fill(rule.pattern, literal)
        found: dict[str, Expr] = {}
        if not match(rule.pattern, left, found) or not rule.when(found):
            continue
        applied += 1
        dtypes = {"a": kind, "b": kind}
        numpy.testing.assert_allclose(
            value(rule.result(found), dtypes), value(left, dtypes), rtol=2e-7
        )
    assert applied, f"rule '{rule.name}' never applied"


def test_rules_apply_at_every_depth() -> None:
    x = Read("x", (Index("i"),))
    one, zero = Literal(1.0, float32), Literal(0.0, float32)
    inner = Apply("mul", (Apply("add", (x, zero)), one))
    assert simplified(Apply("exp", (Apply("sub", (inner, zero)),))) == Apply("exp", (x,))


def test_numbers_are_folded() -> None:
    two = Literal(2.0, float32)
    assert simplified(Apply("add", (two, Apply("mul", (two, two))))) == Literal(6.0, float32)
