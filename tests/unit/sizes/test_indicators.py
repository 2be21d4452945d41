"""Factors that are 0 or 1 stay few: simplification knows their algebra, and keeps the value."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anydim.sizes import Box, Dim, Size, as_size, broadcast_size, maximum, minimum, simplify
from tests.unit.sizes.strategies import boxes, checked, points

BOX = Box.of(Dim("n"), Dim("m"), Dim("k", 1))


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("min(n, 1)*n", "n"),
        ("min(min(min(n, 1)*n, 1)*n, 1)", "min(n, 1)"),
        ("min(n, 1)*min(n, 1)", "min(n, 1)"),
        ("min(2*n*m, 1)", "min(m, n, 1)"),
        ("min(min(n, 1)*m, 1)*3*n", "3*min(m, 1)*n"),
        ("min(n*k, 1)", "min(n, 1)"),
        ("min(n, 1)*max(n, 1)", "n"),
        ("min(n, 1)*max(n, 2)", "min(n, 1)*max(n, 2)"),
        ("min(n, 1)*max(n, m, 1)", "min(n, 1)*max(m, n)"),
        ("min(n + m, 1)*n", "min(m + n, 1)*n"),
        ("min(n - 1, 1)*n", "min(n - 1, 1)*n"),
        ("max(n, 1)*n", "max(n, 1)*n"),
        ("min(n, 2)*n", "min(n, 2)*n"),
    ],
)
def test_products_and_nests_become_one_factor(written: str, simple: str) -> None:
    found, wanted = simplify(as_size(written), BOX), as_size(simple)
    assert found == wanted
    for n, m, k in itertools.product((0, 1, 2, 5), (0, 1, 3), (1, 4)):
        env = {"n": n, "m": m, "k": k}
        assert found.evaluate(env) == as_size(written).evaluate(env)


def test_a_size_that_meets_one_is_itself() -> None:
    assert broadcast_size([as_size("n"), as_size(1)], BOX) == as_size("n")


@st.composite
def products_of_factors(draw: st.DrawFn) -> Size:
    """Sums of products of dims, their minima and maxima with 1, nested."""
    size = as_size(draw(st.sampled_from(("a", "b", "n", "a*b", "a + n", "b - 2"))))
    for _ in range(draw(st.integers(1, 5))):
        other = as_size(draw(st.sampled_from(("a", "b", "n", "3*n", "1"))))
        size = draw(
            st.sampled_from(
                (minimum(size, 1), minimum(size, other, 1), size * other, size + other,
                 maximum(size, 1), size * minimum(other, 1), size * maximum(other, 1))
            )
        )  # fmt: skip
    return size


@checked
@given(products_of_factors(), boxes(constrained=True))
def test_the_value_stays(size: Size, box: Box) -> None:
    simple = simplify(size, box)
    for env in points(box):
        assert simple.evaluate(env) == size.evaluate(env)
