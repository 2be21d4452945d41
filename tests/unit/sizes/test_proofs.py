"""Bounds enclose, proofs never lie, simplification keeps every value; all against brute force."""

import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anydim.base.errors import InternalError
from anydim.sizes import (
    Box,
    Dim,
    Interval,
    Size,
    Truth,
    as_size,
    bounds,
    enclosure,
    maximum,
    minimum,
    prove,
    simplify,
)
from anydim.sizes.enclosure import Enclosure
from tests.unit.sizes.strategies import NAMES, boxes, checked, defined, points, sizes

RELATIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
BOX = Box.of(Dim("n", 1, 512), Dim("b", 0, 64), Dim("u", 0))


@checked
@given(sizes(8), boxes(constrained=True))
def test_bounds_enclose_every_value(size: Size, box: Box) -> None:
    where = bounds(size, box)
    for env in points(box):
        value = defined(size, env)
        assert value is None or value in where


@checked
@given(st.data(), boxes())
def test_bounds_are_tight_for_rising_polynomials(data: st.DataObject, box: Box) -> None:
    size = as_size(data.draw(st.integers(-5, 5)))
    for _ in range(data.draw(st.integers(1, 3))):
        factors = data.draw(st.lists(st.sampled_from(NAMES), max_size=3))
        size = size + data.draw(st.integers(0, 5)) * as_size("*".join(["1", *factors]))
    values = [size.evaluate(env) for env in points(box)]
    assert bounds(size, box) == Interval(min(values), max(values))


@checked
@given(st.lists(st.integers(-4, 4), min_size=8, max_size=8), boxes())
def test_bounds_are_tight_for_degree_one_in_each_dim(coefficients: list, box: Box) -> None:
    monomials = ("1", "a", "b", "n", "a*b", "a*n", "b*n", "a*b*n")
    size = as_size(0)
    for coefficient, monomial in zip(coefficients, monomials):
        size = size + coefficient * as_size(monomial)
    values = [size.evaluate(env) for env in points(box)]
    assert bounds(size, box) == Interval(min(values), max(values))


@checked
@given(sizes(5), st.sampled_from(sorted(RELATIONS)), sizes(5), boxes(constrained=True))
def test_proofs_never_lie(left: Size, relation: str, right: Size, box: Box) -> None:
    truth = prove(left, relation, right, box)
    for env in points(box):
        x, y = defined(left, env), defined(right, env)
        if x is not None and y is not None and truth is not Truth.UNKNOWN:
            assert RELATIONS[relation](x, y) == (truth is Truth.PROVED)


@checked
@given(sizes(8), boxes(constrained=True))
def test_simplify_keeps_every_value(size: Size, box: Box) -> None:
    simpler = simplify(size, box)
    for env in points(box):
        value = defined(size, env)
        assert value is None or simpler.evaluate(env) == value


@pytest.mark.parametrize(
    ("text", "lo", "hi"),
    [
        ("4*n*b + 384", 384, 131456),
        ("n - n//2", 1, 256),
        ("n - n % 4", 0, 512),
        ("n - min(n, 8)", 0, 504),
        ("max(n, 8) - n", 0, 7),
        ("8*((n + 7)//8) - n", 0, 7),
        ("n*n - n", 0, 261632),
        ("b*n - b", 0, 32704),
        ("b*n - b*min(n, 3)", 0, 32576),
        ("u - u//3", 0, None),
        ("u*n - u", 0, None),
        ("n % 2 + 2*(n//2) - n", 0, 0),
        ("n//b", 0, 512),
        ("b % n", 0, 64),
        ("u % 7", 0, 6),
        ("max(b, -70)**2", 0, 4096),
        ("u", 0, None),
        ("unheard_of", None, None),
    ],
)
def test_bounds(text: str, lo: int, hi: int) -> None:
    assert bounds(as_size(text), BOX) == Interval(lo, hi)


@pytest.mark.parametrize(
    ("left", "relation", "right", "truth"),
    [
        ("n", ">", "0", Truth.PROVED),
        ("n", ">", "1", Truth.UNKNOWN),
        ("n", "<=", "0", Truth.REFUTED),
        ("n*b//n", "==", "b", Truth.PROVED),
        ("2*n", "==", "2*b + 1", Truth.REFUTED),
        ("2*n", "!=", "2*b + 1", Truth.PROVED),
        ("n + 1", "!=", "n", Truth.PROVED),
        ("b + u", ">=", "u", Truth.PROVED),
        ("n//2*2", "<=", "n", Truth.PROVED),
        ("b", "==", "n", Truth.UNKNOWN),
        ("min(n, 16)", "<=", "n", Truth.PROVED),
        ("(n + 15)//16*16", ">=", "n", Truth.PROVED),
        ("(n + 15)//16*16", "<", "n + 16", Truth.PROVED),
        ("b % n", "<", "n", Truth.PROVED),
    ],
)
def test_proofs(left: str, relation: str, right: str, truth: Truth) -> None:
    assert prove(as_size(left), relation, as_size(right), BOX) is truth


def test_constraints_settle_what_bounds_cannot() -> None:
    dims = (Dim("n", 0, 512), Dim("m", 0, 600))
    shorter = Box(dims, (as_size("n - m - 1"),))
    assert prove(as_size("m"), "<", as_size("n"), Box(dims)) is Truth.UNKNOWN
    assert prove(as_size("m"), "<", as_size("n"), shorter) is Truth.PROVED
    assert prove(as_size("m"), ">=", as_size("n"), shorter) is Truth.REFUTED
    assert bounds(as_size("m"), shorter) == Interval(0, 511)
    assert bounds(as_size("n"), shorter) == Interval(1, 512)
    assert bounds(as_size("(n - m - 1)//4"), shorter) == Interval(0, 127)
    same = Box(dims, (as_size("n - 2*m"), as_size("2*m - n")))
    assert prove(as_size("n"), "==", as_size("2*m"), same) is Truth.PROVED
    assert bounds(as_size("m"), same) == Interval(0, 256)


@pytest.mark.parametrize(
    ("text", "simpler"),
    [
        ("min(n, 512)", "n"),
        ("max(n, 1, b)", "max(b, n)"),
        ("min(n, 100)", "min(n, 100)"),
        ("n % 513", "n"),
        ("b // 65", "0"),
        ("(b*n)//n", "b"),
        ("(b*n) % n", "0"),
        ("(b*n + n - 1)//n", "b"),
        ("(u*512 + n - 1)//512", "u"),
        ("(512*u + n - 1) % 512", "n - 1"),
        ("(n*b)//b", "(b*n)//b"),
        ("(b*n + u)//n", "b + u//n"),
        ("(2*n*b + 3)//(2*n)", "3//(2*n) + b"),
        ("max((b*n)//n, b)", "b"),
    ],
)
def test_simplify(text: str, simpler: str) -> None:
    assert str(simplify(as_size(text), BOX)) == simpler


def test_a_constraint_may_hold_quotients_of_its_own_symbols() -> None:
    box = Box.of(Dim("a", 0, 9), Dim("b", 1, 2), constraints=(as_size("a//b + b - 1"),))
    assert prove(as_size("a//b"), ">=", as_size("1 - b"), box) is Truth.PROVED
    assert prove(as_size("a"), "==", as_size("b"), box) is Truth.UNKNOWN


def test_a_divisor_that_is_always_zero_is_left_for_evaluation_to_report() -> None:
    box = Box.of(Dim("a", 0, 0), Dim("b", 1, 2))
    size = as_size("b//(a//b) + b % (a//b)")
    assert simplify(size, box) == size
    assert prove(size, "==", 3, box) is Truth.UNKNOWN


def test_an_unknown_relation_is_our_bug() -> None:
    with pytest.raises(InternalError):
        prove(minimum(1, as_size("n")), "~", 0, BOX)


def test_work_on_a_question_is_bounded_and_less_work_only_widens_the_answer(monkeypatch):
    """Broadcasts of two sizes, max(a, b) * min(a, b, 1), ask for much when they nest."""
    names = "abcd"
    a, b, c, d = (as_size(name) for name in names)

    def both(left, right):
        return maximum(left, right) * minimum(left, right, 1)

    size = a * b - 2 * both((d + 1) // 2 * minimum(c, d // 2, 1), both(both(a, b), both(c, b)))
    calls = []
    inner = Enclosure._enclose
    monkeypatch.setattr(
        Enclosure, "_enclose", lambda self, *given: (calls.append(given), inner(self, *given))[1]
    )
    found = []
    for most in (10, 100_000):
        monkeypatch.setattr(enclosure, "_MAX_WORK", most)
        calls.clear()
        where = Enclosure({name: Interval(0, 3) for name in names}).of(size)
        found.append((len(calls), where))
    (few, wide), (many, narrow) = found
    assert few < many / 2
    assert wide.low <= narrow.low and narrow.high <= wide.high
    for values in itertools.product(range(4), repeat=4):
        assert size.evaluate(dict(zip(names, values))) in narrow
