"""Promise: small parts of the arithmetic of sizes are right at their ends, as trying them says."""

from __future__ import annotations

import itertools

import numpy
import pytest

from anydim.base.errors import OptionError
from anydim.sizes import (
    Box,
    Covering,
    Dim,
    Guard,
    Interval,
    Sampled,
    as_size,
    bounds,
    maximum,
    minimum,
)
from anydim.sizes.derived import negated_if_negative
from anydim.sizes.user_sizes import given_dims

SMALL = Box.of(Dim("a", 0, 7), Dim("b", 0, 7), Dim("n", 1, 4))


def same_everywhere(text: str, wanted: str) -> None:
    """A size has at all points of a box what Python has for its text."""
    size = as_size(text)
    for a, b, n in itertools.product(range(8), range(8), range(1, 5)):
        env = {"a": a, "b": b, "n": n}
        assert size.evaluate(env) == eval(wanted, {"min": min, "max": max}, env), (text, env)


@pytest.mark.parametrize(
    "text",
    [
        "(min(a, 5) + 3)//4", "(min(a, 5) - 3)//4", "(max(a, 5) + 3)//4", "(max(3, a) - 9)//2",
        "(a % 6 + b % 4) % 2", "(3*(a % 6) + b % 4) % 6", "((a % 6)*b + 3*(b % 4)) % 2",
        "((a//2 + 3)//3 + 1)//2", "(a//n + b)//n", "(a % n)*(b % n)", "2*(a % 3) % 4",
        "(a - b)//n*n + (a - b) % n", "-(a//2)*b - 1", "(-a)//3", "(a % (b % 3 + 1)) % 2",
        "a//(b//3 + 1)//2", "(a//(b + 1))*(a//(b + 1))",
    ],
)  # fmt: skip
def test_normal_forms_keep_the_value_and_their_text_reads_back(text: str) -> None:
    same_everywhere(text, text)
    assert as_size(str(as_size(text))) == as_size(text)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("(b - 9)//n", -9, -1),  # a quotient of what is negative is
        ("(a - 9)//n + 9", 0, 8),
        ("(9 - b)//n", 0, 9),
        ("(a + b) % n", 0, 3),
    ],
)
def test_bounds_of_quotients_by_sizes(text: str, low: int, high: int) -> None:
    values = {
        as_size(text).evaluate({"a": a, "b": b, "n": n})
        for a, b, n in itertools.product(range(8), range(8), range(1, 5))
    }
    assert (min(values), max(values)) == (low, high)
    assert bounds(as_size(text), SMALL) == Interval(low, high)


def test_a_constraint_bounds_a_product_that_it_holds() -> None:
    box = Box.of(Dim("n", 0, 9), Dim("a", 2, 4), constraints=(as_size("n*n - a - 3"),))
    assert bounds(as_size("n*n"), box) == Interval(5, 81)
    box = Box.of(Dim("n", 0, 9), Dim("a", 2, 4), constraints=(as_size("a + 60 - n*n"),))
    assert bounds(as_size("n*n"), box) == Interval(0, 64)
    assert bounds(as_size("2*n*n"), box) == Interval(0, 128)


def test_what_is_nested_deep_has_bounds() -> None:
    """Sizes whose atoms lie 40 deep, each level with a dim, so that none folds into another."""
    size = as_size("n")
    for level in range(20):
        size = maximum((size + level + as_size("a")) // 2 - 1, as_size("ab"[level % 2]))
    assert size.depth == 40
    one_more = bounds(size + size // 7, SMALL)
    where = bounds(size, Box.of(*SMALL.dims))
    values = []
    for a, b, n in itertools.product(range(8), range(8), range(1, 5)):
        value = n
        for level in range(20):
            value = max((value + level + a) // 2 - 1, b if level % 2 else a)
        assert size.evaluate({"a": a, "b": b, "n": n}) == value
        assert value + value // 7 in one_more
        values.append(value)
    assert where == Interval(min(values), max(values))


def test_what_lies_above_is_compared_by_coefficients() -> None:
    covering = Covering(SMALL)
    assert covering.joined(as_size("2*a"), as_size("a*b")) == as_size("2*a + a*b")
    assert covering.joined(as_size("a"), as_size("b")) == as_size("a + b")
    assert covering.joined(as_size("3*a + 1"), as_size("2*a")) == as_size("3*a + 1")
    for text, never in (
        ("min(a, b)", True), ("min(a - 1, b)", False), ("max(a - 9, b)", True),
        ("max(a - 9, b - 9)", False), ("min(a, b - 1)", False), ("a % 3", True), ("a//3", True),
        ("(a - 9)//3", False), ("(a - 9) % 3", True), ("min(a, b)*a", True),
        ("a*min(a - 1, b)", False), ("a - b", False), ("0*a", True),
    ):  # fmt: skip
        assert Covering(SMALL).not_negative(as_size(text)) is never, text


def test_quotients_of_quotients_become_one_while_the_divisor_fits_64_bits() -> None:
    a = as_size("a")
    assert a // 2**31 // 2**31 == a // 2**62
    assert str(a // 2**31 // 2**32) == "(a//2147483648)//4294967296"


@pytest.mark.parametrize("text", ["a//(b % n)", "a % (b % n)", "a//(b//n)", "a % (b//n)"])
def test_operands_that_are_quotients_or_remainders_have_parentheses(text: str) -> None:
    assert str(as_size(text)) == text


def test_minus_a_size() -> None:
    assert negated_if_negative(as_size("0 - 2*a - b*n - 1")) == as_size("2*a + b*n + 1")
    for text in ("a", "a - b", "0 - a + 1", "0", "3"):
        assert negated_if_negative(as_size(text)) is None
    assert negated_if_negative(-3) == as_size(3)


def test_a_guard_is_substituted_on_both_sides() -> None:
    guard = Guard(as_size("a + 1"), "<=", as_size("2*b"), "why")
    made = guard.substitute({"a": as_size("n"), "b": 3})
    assert (made.left, made.relation, made.right) == (as_size("n + 1"), "<=", as_size(6))
    assert guard.symbols == {"a", "b"} and made.symbols == {"n"}


def test_dims_as_they_are_given() -> None:
    assert given_dims(None) == given_dims({}) == {}
    found = given_dims({"a": 3, "b": (1, None), "n": Dim(1, 4), "x": {2: (32, 64), -1: 5}})
    assert found == {
        "a": Dim(3, 3), "b": Dim(1, None), "n": Dim(1, 4), "x.2": Dim(32, 64), "x.-1": Dim(5, 5),
    }  # fmt: skip
    with pytest.raises(OptionError, match="dims is 3, expected a mapping"):
        given_dims(3)


def test_a_box_without_some_of_its_dims() -> None:
    whole = Box.of(*SMALL.dims, constraints=(as_size("a - b"), as_size("6 - b"), as_size("n - 1")))
    left = whole.without({"a"})
    assert left.names == ("b", "n") and left.constraints == (as_size("6 - b"), as_size("n - 1"))
    assert whole.without(()) is whole


def test_points_begin_with_those_that_tell_most() -> None:
    """All at their least, one above it, all different; later ones by chance, the same each time."""
    box = Box.of(Dim("a", 0, 99), Dim("b", 5), Dim("c", 1, 1))
    first, second, third, *rest = box.points
    assert first == {"a": 0, "b": 5, "c": 1}
    assert second == {"a": 1, "b": 6, "c": 1}
    assert third == {"a": 2, "b": 8, "c": 1}
    assert len(rest) == 13
    steps = {0, 1, 2, 3, 5, 8, 17, 40}
    assert {point["a"] for point in rest} <= steps and {point["b"] - 5 for point in rest} <= steps
    assert len({point["a"] for point in rest}) > 3


def test_values_at_points_are_0_where_there_is_none() -> None:
    points = [{"a": 6, "b": 2}, {"a": 6, "b": 0}, {"a": 0, "b": 0}]
    for text, wanted in (("a//b", [3, 0, 0]), ("a % b", [0, 0, 0]), ("(0 - a)//b", [-3, 0, 0]),
                         ("a*b + 1", [13, 1, 1]), ("max(a, b)", [6, 6, 0])):  # fmt: skip
        numpy.testing.assert_array_equal(Sampled(points).at(as_size(text)), wanted)


@pytest.mark.parametrize(("text", "fits"), [
    ("a**16", True), ("a**17", False), ("(a**16)**4", True), ("(a**16)**4*a", False),
    ("a**016", False), ("(" * 59 + "a" + ")" * 59, True), ("(" * 60 + "a" + ")" * 60, False),
    ("9" * 60, True), ("9" * 61, False), ("2**16*a", True),
])  # fmt: skip
def test_what_is_read_has_an_end(text: str, fits: bool) -> None:
    if fits:
        as_size(text)
        return
    with pytest.raises(OptionError):
        as_size(text)


def test_an_empty_text_and_what_stands_behind_spaces_are_pointed_at() -> None:
    for text, column in (("", 1), ("   ", 4), ("a +", 4), ("a  $", 4), ("(a", 3)):
        with pytest.raises(OptionError, match=rf"column {column}:"):
            as_size(text)


def test_extremes_of_one_size_and_a_number_take_numbers_in() -> None:
    assert maximum(as_size("max(a, 3) - 2"), 0) == as_size("max(a - 2, 1)")
    assert minimum(as_size("min(a, 3) - 2"), 5) == as_size("min(a - 2, 1)")
    assert as_size("(min(a, 7) + 1)//4") == as_size("min((a + 1)//4, 2)")
