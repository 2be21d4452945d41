"""Promise: both sides of every rule of local algebra are equal wherever the rule applies."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import DType, boolean, float16, float32, float64, int8
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
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

TYPES = (float16, float32, float64)


def special(dtype: DType) -> numpy.ndarray:
    """Signed zeros, subnormals, infinities, NaN, the largest, and neighbours of integers."""
    kind = numpy.finfo(dtype.numpy)
    below, above = 1 - kind.epsneg, 1 + kind.eps
    sizes = [0, kind.smallest_subnormal, 3 * kind.smallest_subnormal, kind.tiny, 3 * kind.tiny,
             0.25, 0.5, below, 1, above, 3 * below, 3, 3 * above, 7, 41, 61, 100, kind.max / 3,
             kind.max, numpy.inf, numpy.nan]  # fmt: skip
    with numpy.errstate(over="ignore"):
        positive = numpy.array(sizes, dtype.numpy)
    return numpy.concatenate([positive, -positive])


def numbers(dtype: DType) -> list[Literal]:
    """What stands for the numbers of a rule: special values too, powers of two, small divisors."""
    found = [*special(dtype).tolist(), 2.0, -2.0, -2.5, 5.0, 2.0**-10, 49.0, 4095.0]
    return [Literal(value, dtype) for value in found]


def fill(pattern, literal: Literal) -> Expr:
    """The pattern with its holes filled: tensors for expressions, `literal` for numbers."""
    if isinstance(pattern, Hole):
        return literal if pattern.literal else Read(pattern.name, (Index("i"),))
    return Apply(pattern.function, tuple(fill(p, literal) for p in pattern.arguments))


def value(expr: Expr, dtype: DType, flags: bool) -> numpy.ndarray:
    """What an expression of tensors a and b is, a and b taking every pair of special values."""
    given = special(dtype)
    arrays = {"a": numpy.repeat(given, len(given)), "b": numpy.tile(given, len(given))}
    kind = boolean if flags else dtype
    arrays = {name: array > 0 if flags else array for name, array in arrays.items()}
    size = as_size(len(given) ** 2)
    inputs = tuple(Tensor(name, TensorType(kind, (size,))) for name in arrays)
    output = Tensor("y", TensorType(kind, (size,)))
    group = Group(inputs, (output,), (Statement("y", (Axis("i", size),), expr),))
    with numpy.errstate(all="ignore"):
        return evaluate(group, arrays, {})["y"]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_both_sides_are_equal(rule: Rule, dtype: DType) -> None:
    """In bits where a rule is exact; within two units where it says so, and the range allows it."""
    flags = rule.pattern.function == "not"
    literals = [Literal(True, boolean), Literal(False, boolean), *numbers(dtype)]
    applied = 0
    for literal in literals:
        left = fill(rule.pattern, literal)
        found: dict[str, Expr] = {}
        if not match(rule.pattern, left, found) or not rule.when(found):
            continue
        applied += 1
        old, new = value(left, dtype, flags), value(rule.result(found), dtype, flags)
        if rule.error == "exact":
            same_bits(new, old)
        else:
            assert rule.error == "two units in the last place"
            normal = numpy.isfinite(old) & (abs(old) >= 4 * numpy.finfo(dtype.numpy).tiny)
            with numpy.errstate(over="ignore"):
                unit = numpy.spacing(abs(old[normal]))
            gap = abs(new[normal].astype(object) - old[normal].astype(object))
            assert (gap <= 2 * unit).all()
    assert applied, f"rule '{rule.name}' never applied"


def same_bits(new: numpy.ndarray, old: numpy.ndarray) -> None:
    """Equal, with equal signs of zeros; NaN where the other is."""
    numpy.testing.assert_array_equal(new, old)
    if new.dtype != bool:
        known = ~numpy.isnan(old)
        numpy.testing.assert_array_equal(numpy.signbit(new[known]), numpy.signbit(old[known]))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_only_exact_reciprocals_stand_for_divisors(dtype: DType) -> None:
    x = Read("x", (Index("i"),))
    tiny = numpy.finfo(dtype.numpy).tiny
    for number in range(2, 4097):
        literal = Literal(float(dtype.numpy.type(number)), dtype)
        if literal.value != number:
            continue
        made = simplified(Apply("div", (x, literal)))
        exact = number & (number - 1) == 0 and 1 / number >= tiny
        inverse = Apply("mul", (x, Literal(1 / number, dtype)))
        assert made == (inverse if exact else Apply("div", (x, literal)))
        fast = simplified(Apply("quotient", (x, literal)), fast=True)
        assert isinstance(fast, Apply) and fast.function == "quotient"


def test_rules_apply_at_every_depth() -> None:
    x = Read("x", (Index("i"),))
    one, zero = Literal(1.0, float32), Literal(0.0, float32)
    inner = Apply("mul", (Apply("add", (x, Literal(-0.0, float32))), one))
    assert simplified(Apply("exp", (Apply("sub", (inner, zero)),))) == Apply("exp", (x,))


def test_numbers_are_folded() -> None:
    two = Literal(2.0, float32)
    assert simplified(Apply("add", (two, Apply("mul", (two, two))))) == Literal(6.0, float32)


def test_a_cast_of_a_choice_among_numbers_is_a_choice() -> None:
    chosen = Apply("select", (Apply("less", (Index("i"), Index("j"))), Literal(1), Literal(0)))
    condition, *_ = chosen.arguments
    cast = Apply("select", (condition, Literal(1.0, float32), Literal(0.0, float32)))
    assert simplified(Cast(float32, chosen)) == cast
    mixed = Apply("select", (condition, Literal(300), Literal(0.5)))  # 300.0 is no 300 to bytes
    assert simplified(Cast(int8, mixed)) == Cast(int8, mixed)
