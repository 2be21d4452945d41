"""Size expressions mean what Python's integers mean, and their normal form is one."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anydim.base.errors import DimError, OptionError
from anydim.sizes import (
    Size,
    align_up,
    as_size,
    ceil_div,
    maximum,
    minimum,
    product,
)
from tests.unit.sizes.strategies import NAMES, Pair, checked, pairs, sizes

ENVS = [dict(zip(NAMES, values)) for values in ((0, 1, 2), (5, 3, 7), (1, 0, 13), (-4, 2, -3))]
a, b, n = map(Size.symbol, NAMES)


@checked
@given(pairs(8))
def test_evaluates_as_python_does(pair: Pair) -> None:
    for env in ENVS:
        try:
            expected = pair.meaning(env)
        except ZeroDivisionError:
            continue
        assert pair.size.evaluate(env) == expected


@checked
@given(sizes(), sizes(), sizes())
def test_ring_laws_hold_for_normal_forms(x: Size, y: Size, z: Size) -> None:
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert (x * y) * z == x * (y * z)
    assert x * (y + z) == x * y + x * z
    assert x - x == 0
    assert hash(x * (y + z)) == hash(x * y + x * z)
    assert minimum(x, minimum(y, z)) == minimum(z, y, x)
    assert maximum(x, x, y) == maximum(y, x)


@checked
@given(sizes(), st.integers(1, 12), st.integers(1, 6))
def test_constant_divisors_normalise(x: Size, c: int, d: int) -> None:
    assert (x * c) // c == x
    assert (x * c) % c == 0
    assert (x * c + n) % c == n % c
    assert (x * d) // (c * d) == x // c
    assert (x * d) % (c * d) == (x % c) * d
    assert (n // c) // d == n // (c * d)
    assert (x % (c * d)) % c == x % c
    assert x // -c == -x // c
    assert -(-x // c) == ceil_div(x, c)
    assert align_up(x * c, c) == x * c
    assert ceil_div(x * c, c) == x


@checked
@given(sizes(), sizes(4), sizes(4))
def test_substitute_is_evaluation_in_two_steps(x: Size, y: Size, z: Size) -> None:
    for env in ENVS:
        try:
            inner = {"a": y.evaluate(env), "b": z.evaluate(env), "n": env["n"]}
            expected = x.evaluate(inner)
            assert x.substitute({"a": y, "b": z}).evaluate(env) == expected
            assert x.substitute(inner) == expected
        except DimError:
            continue


def test_substitution_is_simultaneous() -> None:
    assert (a + 2 * b).substitute({"a": b, "b": a}) == b + 2 * a
    assert (a + 1).substitute({"n": 3}) == a + 1


@checked
@given(sizes())
def test_fold_rebuilds_the_value(x: Size) -> None:
    rebuild = {
        "add": lambda p, q: p + q,
        "mul": lambda p, q: p * q,
        "floordiv": lambda p, q: p // q,
        "mod": lambda p, q: p % q,
        "min": min,
        "max": max,
        "where": lambda test, p, q: p if test >= 0 else q,
    }
    for env in ENVS:
        try:
            expected = x.evaluate(env)
        except DimError:
            continue
        assert x.fold(int, env.__getitem__, lambda f, parts: rebuild[f](*parts)) == expected


def test_fold_makes_a_repeated_atom_once() -> None:
    made: list[str] = []

    def apply(function: str, parts: tuple[str, ...]) -> str:
        made.append(function)
        return f"{function}({','.join(parts)})"

    text = (a * (n // 4) + b * (n // 4)).fold(str, str, apply)
    assert text == "add(mul(a,floordiv(n,4)),mul(b,floordiv(n,4)))"
    assert made.count("floordiv") == 1


@checked
@given(sizes(4), sizes(3))
def test_exact_division_undoes_multiplication(x: Size, y: Size) -> None:
    quotient = (x * y).divide_exactly(y)
    if y == 0:
        assert quotient is None
    else:
        assert quotient == x


def test_exact_division() -> None:
    assert (6 * a * n + 4 * a).divide_exactly(2 * a) == 3 * n + 2
    assert (6 * a * n + 3 * a).divide_exactly(2) is None
    assert (a * n + 1).divide_exactly(a) is None
    assert (n * n - 1).divide_exactly(n + 1) == n - 1
    assert as_size(0).divide_exactly(a) == 0
    assert as_size(7).divide_exactly(7) == 1


@checked
@given(sizes())
def test_linear_in_takes_apart_and_puts_together(x: Size) -> None:
    split = x.linear_in(("a", "b"))
    if split is None:
        return
    coefficients, rest = split
    assert sum((Size.symbol(name) * c for name, c in coefficients.items()), rest) == x
    for part in (rest, *coefficients.values()):
        assert part.symbols.isdisjoint(("a", "b"))


def test_linear_in() -> None:
    assert (3 * a * n + b + n * n).linear_in(("a", "b")) == ({"a": 3 * n, "b": 1}, n * n)
    assert (a * b).linear_in(("a", "b")) is None
    assert (a * b).linear_in(("a",)) == ({"a": b}, 0)
    assert (a // 2).linear_in(("a",)) is None
    assert (a * a).linear_in(("a",)) is None
    assert (3 * a + n).coefficient_of("a") == 3
    assert (3 * a + n).coefficient_of("b") == 0
    assert (a % 3).coefficient_of("a") is None


def test_looking_at_a_size() -> None:
    size = 4 * a * n * n - n // 3 + 7
    assert size.symbols == {"a", "n"}
    assert size.constant is None
    assert as_size(0).constant == 0
    assert as_size(-3).constant == -3
    terms = list(size.terms())
    assert terms[0] == (4, (("a", 1), ("n", 2)))
    assert terms[1][0] == -1
    assert terms[1][1][0][0].arguments == (n, as_size(3))
    assert terms[-1] == (7, ())
    assert product([]) == 1
    assert product([2, a, n]) == 2 * a * n


def test_no_truth_no_order() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(a)
    with pytest.raises(TypeError):
        a < b  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError):
        a + "b"  # type: ignore[operator]
    with pytest.raises(TypeError):
        a + 1.5  # type: ignore[operator]
    assert (a == "a") is False
    assert a != b


def test_ints_of_any_kind_mix() -> None:
    assert np.int64(3) + a == a + 3
    assert np.int64(3) * a == 3 * a
    assert 7 - a == -(a - 7)
    assert 7 // as_size(2) == 3
    assert 7 % as_size(4) == 3
    assert hash(as_size(12345)) == hash(12345)
    assert as_size(5) == 5
    assert as_size(True) == 1
    assert {a + 1: "x"}[1 + a] == "x"
    assert as_size(10**30) * 10 == 10**31


def test_minimum_and_maximum_keep_what_can_win() -> None:
    assert minimum(4, 9) == 4
    assert minimum(n, n + 1, 8, 6) == minimum(6, n)
    assert maximum(n - 2, 3, maximum(n, 1)) == maximum(n, 3)
    assert minimum(n) == n


def test_a_divisor_of_zero_is_an_error() -> None:
    with pytest.raises(DimError, match="divided by 0"):
        a // 0
    with pytest.raises(DimError, match="modulo 0"):
        a % 0
    with pytest.raises(DimError, match=r"the divisor b is 0 at b = 0"):
        (a // b).evaluate({"a": 1, "b": 0})
    with pytest.raises(DimError):
        (a % b).substitute({"b": 0})
    with pytest.raises(DimError, match="'b' has no value"):
        (a + b).evaluate({"a": 1})


def test_a_symbolic_divisor_is_kept_since_it_may_be_zero() -> None:
    assert str(a * b // b) == "(a*b)//b"
    assert str(0 // n) == "0//n"


@pytest.mark.parametrize("name", ["", "3x", "a b", "a+", "a-b", ".a", "a.", "a//b"])
def test_names_that_cannot_be_read_back(name: str) -> None:
    with pytest.raises(OptionError, match="is not a valid name"):
        Size.symbol(name)


@checked
@given(sizes())
@example(n // 2 + 1)
def test_copies_are_equal(x: Size) -> None:
    assert copy.deepcopy(x) == x
    assert pickle.loads(pickle.dumps(x)) == x
