"""Promise: both sides of every rule of local algebra are equal wherever the rule applies."""

from __future__ import annotations

import warnings

import numpy
import pytest

from anydim.base.dtypes import (
    DType,
    bfloat16,
    boolean,
    float16,
    float32,
    float64,
    int8,
    int64,
)
from anydim.compiler.passes.rules import RULES, Hole, Rule, apply_rules, match, simplify_expression
from anydim.lang.functions import INSIDE
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
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
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
        made = simplify_expression(Apply("div", (x, literal)))
        exact = number & (number - 1) == 0 and 1 / number >= tiny
        inverse = Apply("mul", (x, Literal(1 / number, dtype)))
        assert made == (inverse if exact else Apply("div", (x, literal)))
        fast = simplify_expression(Apply("quotient", (x, literal)), fast=True)
        assert isinstance(fast, Apply) and fast.function == "quotient"


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_divisors_whose_reciprocals_are_normal_floats(dtype: DType, sign: int) -> None:
    """Powers of two from the least normal float, which is left out, to its reciprocal."""
    x, least = Read("x", (Index("i"),)), numpy.finfo(dtype.numpy).minexp
    for exponent in (least - 1, least, least + 1, -1, 1, -least - 1, -least, -least + 1):
        divisor = sign * 2.0**exponent
        quotient = Apply("div", (x, Literal(divisor, dtype)))
        inverse = Apply("mul", (x, Literal(1 / divisor, dtype)))
        assert simplify_expression(quotient) == (
            inverse if least < exponent <= -least else quotient
        )


X = Read("x", (Index("i"),))


@pytest.mark.parametrize(
    "kept",
    [
        Apply("add", (X, Literal(0.0, float32))),  # -0 + 0 is 0
        Apply("add", (Literal(0.0, float32), X)),
        Apply("sub", (X, Literal(-0.0, float32))),
        Apply("add", (X, Literal(0.0))),
        Apply("add", (X, Literal(False, boolean))),
        Apply("add", (X, Literal(1, int8))),
        Apply("mul", (X, Literal(True, boolean))),
        Apply("div", (X, Literal(2, int8))),
        Apply("div", (X, Literal(2.0))),
        Apply("div", (X, Literal(3.0, float32))),
        Apply("div", (X, Literal(4.0, bfloat16))),  # too coarse
        Apply("pow", (X, Literal(2, int8))),
        Apply("pow", (X, Literal(2))),
        Apply("pow", (X, Literal(1, int8))),
        Apply("select", (Literal(1, int8), X, Literal(0.0, float32))),
        Apply("add", (Literal(1), Literal(2, int8))),  # a type that is not known yet
        Apply(INSIDE, (Literal(True, boolean),)),
        X,
    ],
)
def test_what_no_rule_fits(kept: Expr) -> None:
    assert apply_rules(kept) is None
    assert simplify_expression(kept) == kept


@pytest.mark.parametrize(
    ("written", "made"),
    [
        (Apply("add", (X, Literal(0, int8))), X),
        (Apply("sub", (X, Literal(0, int8))), X),
        (Apply("add", (X, Literal(-0.0))), X),
        (Apply("mul", (X, Literal(1))), X),
        (Apply("pow", (X, Literal(1.0, float32))), X),
        (Apply("pow", (X, Literal(2.0, float32))), Apply("mul", (X, X))),
        (Apply("select", (Literal(False, boolean), X, Index("i"))), Index("i")),
        (Apply("mul", (SizeTerm(as_size(6)), SizeTerm(as_size(7)))), Literal(42, int64)),
        (Apply("less", (Literal(1, int8), Literal(2, int8))), Literal(True, boolean)),
        (Cast(int8, Literal(300, int64)), Literal(44, int8)),
        (Cast(int8, Literal(300.0, float32)), Literal(44, int8)),
        (Cast(float32, Literal(float("nan"), float64)), Literal(float("nan"), float32)),
    ],
)
def test_what_rules_make(written: Expr, made: Expr) -> None:
    """Without a warning of numpy's, at numbers that a type does not hold too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(simplify_expression(written)) == str(made)


def test_numbers_that_leave_their_type_are_folded_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large = Literal(float(numpy.finfo(numpy.float32).max), float32)
        assert simplify_expression(Apply("add", (large, large))) == Literal(float("inf"), float32)
        assert simplify_expression(Cast(float16, Literal(1e30, float32))) == Literal(
            float("inf"), float16
        )


def test_a_fast_rule_waits_to_be_asked_for() -> None:
    third = Apply("div", (X, Literal(3.0, float32)))
    inverse = Apply("mul", (X, Literal(float(numpy.float32(1 / 3)), float32)))
    assert apply_rules(third) is None and simplify_expression(third) == third
    assert apply_rules(third, fast=True) == inverse == simplify_expression(third, fast=True)


def test_a_hole_matches_one_expression() -> None:
    twice = Apply("select", (Hole("a"), Hole("b"), Hole("b")))
    condition, y = Apply("less", (X, X)), Read("y", (Index("i"),))
    assert match(twice, Apply("select", (condition, y, y)), {})
    assert not match(twice, Apply("select", (condition, y, X)), {})
    assert not match(twice, Apply("select", (condition, y)), {})
    assert not match(twice, Apply("clip", (condition, y, y)), {})
    assert not match(twice, y, {})
    assert match(y, y, {}) and not match(y, X, {})
    assert not match(Hole("c", literal=True), y, {})


def test_rules_apply_at_every_depth() -> None:
    x = Read("x", (Index("i"),))
    one, zero = Literal(1.0, float32), Literal(0.0, float32)
    inner = Apply("mul", (Apply("add", (x, Literal(-0.0, float32))), one))
    assert simplify_expression(Apply("exp", (Apply("sub", (inner, zero)),))) == Apply("exp", (x,))


def test_numbers_are_folded() -> None:
    two = Literal(2.0, float32)
    assert simplify_expression(Apply("add", (two, Apply("mul", (two, two))))) == Literal(
        6.0, float32
    )


def test_a_cast_of_a_choice_among_numbers_is_a_choice() -> None:
    chosen = Apply("select", (Apply("less", (Index("i"), Index("j"))), Literal(1), Literal(0)))
    condition, *_ = chosen.arguments
    cast = Apply("select", (condition, Literal(1.0, float32), Literal(0.0, float32)))
    assert simplify_expression(Cast(float32, chosen)) == cast
    mixed = Apply("select", (condition, Literal(300), Literal(0.5)))  # 300.0 is no 300 to bytes
    assert simplify_expression(Cast(int8, mixed)) == Cast(int8, mixed)
