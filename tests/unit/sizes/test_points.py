"""Points of a box: inside it, the same in every run, and enough to leave a question open."""

from __future__ import annotations

from hypothesis import given

from anydim.sizes import Box, Dim, Truth, as_size, prove
from tests.unit.sizes.strategies import boxes, checked


@checked
@given(boxes(constrained=True))
def test_points_lie_inside_and_come_again(box):
    found = list(box.points)
    assert found == list(box.points) == list(Box(box.dims, box.constraints).points)
    assert all(box.contains(point) for point in found)


def test_points_reach_the_ends_of_narrow_dims():
    more = as_size("any - few")
    box = Box.of(Dim("one", 1, 1), Dim("few", 3, 4), Dim("any"), constraints=(more,))
    found = list(box.points)
    assert found
    assert {point["one"] for point in found} == {1}
    assert {point["few"] for point in found} == {3, 4}


def test_a_box_without_points_still_answers():
    box = Box.of(Dim("n", 5, 1000), Dim("m"), constraints=(as_size("n*n - 999*999"),))
    assert not list(box.points)
    assert prove(as_size("max(n, m)"), ">=", as_size("n"), box) is Truth.PROVED


def test_what_holds_at_some_points_only_is_unknown():
    box = Box.of(Dim("a"), Dim("b"), Dim("c"))
    common = as_size("max(a, b, c)*min(a, b, c, 1)")
    assert prove(common, "==", as_size("a"), box) is Truth.UNKNOWN
    assert prove(common, "<", as_size("a + b"), box) is Truth.UNKNOWN
    assert prove(common, "<=", as_size("max(a, b, c)"), box) is Truth.PROVED
    assert prove(common, "<", as_size(0), box) is Truth.REFUTED
