"""Samples lie in the box, follow guards where they can, and are the same in every run."""

from __future__ import annotations

from hypothesis import given

from anydim.sizes import Box, Dim, Guard, Sampled, Size, as_size, samples
from anydim.sizes.guard import holds
from tests.unit.sizes.strategies import boxes, checked, defined, sizes


@checked
@given(boxes(constrained=True))
def test_samples_are_points_of_the_box(box: Box) -> None:
    found = samples(box, 12)
    assert len(found) <= 12
    assert all(box.contains(point) for point in found)
    assert len({tuple(point.items()) for point in found}) == len(found)
    assert found == samples(box, 12)


def test_the_ends_and_sizes_between_them_are_among_them() -> None:
    found = samples(Box.of(Dim("n", 3, 800), Dim("m")), 24)
    assert len(found) == 24
    assert {"n": 800, "m": 1025} in found
    assert {"n": 3, "m": 1} in found
    assert any(10 < point["n"] < 700 for point in found)


def test_where_guards_hold_comes_first() -> None:
    guard = Guard(as_size("n % 32"), "==", as_size(0), "")
    found = samples(Box.of(Dim("n"), Dim("m")), 16, (guard,))
    assert len(found) == 16
    assert all(holds(guard, point) for point in found)


def test_guards_that_never_hold_do_not_matter() -> None:
    never = Guard(as_size("n"), "==", as_size("n + 1"), "")
    assert len(samples(Box.of(Dim("n")), 8, (never,))) == 8
    undefined = Guard(as_size("5 // (n - n % 7 * 7)"), "==", as_size("unknown"), "")
    assert samples(Box.of(Dim("n")), 8, (undefined,))


def test_a_box_of_nothing_has_its_one_point() -> None:
    assert samples(Box.of(), 8) == [{}]
    assert samples(Box.of(Dim("n", 0, 0)), 8) == [{"n": 0}]


@checked
@given(sizes(), boxes())
def test_values_at_samples_are_those_of_the_size(size: Size, box: Box) -> None:
    found = samples(box, 6)
    for point, value in zip(found, Sampled(found).at(size)):
        assert defined(size, point) in (None, value)


def test_points_are_the_callers() -> None:
    """Equal boxes are sampled once; what a caller does with the points is its own."""
    first, second = (samples(Box((Dim("n", 0, 9),)), 4) for _ in range(2))
    first[0]["n"] = -1
    first.clear()
    assert second and second == samples(Box((Dim("n", 0, 9),)), 4)
