"""Dims and boxes: what they accept, what they refuse, what they draw."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anydim.base.errors import DimError, OptionError
from anydim.sizes import Box, Dim, Interval, as_size
from tests.unit.sizes.strategies import NAMES, boxes, checked, points


def test_dims_are_written_in_several_ways() -> None:
    assert Dim(0, 64) == Dim("", 0, 64) == Dim(lo=0, hi=64) == Dim(0, hi=64)
    assert Dim("seq") == Dim("seq", 0, None)
    assert Dim(hi=5) == Dim("", 0, 5)
    assert Dim(3) == Dim(lo=3)
    assert Dim(1, 512).named("seq") == Dim("seq", 1, 512)
    assert str(Dim("seq", 1, 512)) == "seq=1..512"
    assert str(Dim("seq", 1)) == "seq=1.."
    assert Dim("seq").size == as_size("seq")
    assert 5 in Dim(1, 5)
    assert 6 not in Dim(1, 5)
    assert Dim(np.int64(2), np.int64(3)) == Dim(2, 3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("seq", -1, 4), "dim 'seq': the lower bound -1 is negative"),
        (("seq", 5, 4), "dim 'seq': the upper bound 4 is below the lower bound 5"),
        ((5, 4), "upper bound 4"),
        (("seq", 0.5, 4), "bounds are integers"),
        (("2x", 0, 4), "is not a valid name"),
        ((1, 2, 3), "a name and two bounds"),
    ],
)
def test_bad_dims_are_refused(arguments: tuple, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        Dim(*arguments)


def test_bad_boxes_are_refused() -> None:
    with pytest.raises(OptionError, match="declared twice"):
        Box.of(Dim("n"), Dim("n", 1))
    with pytest.raises(OptionError, match="no name"):
        Box.of(Dim(0, 4))
    with pytest.raises(OptionError, match="did you mean 'seq'"):
        Box.of(Dim("seq"), constraints=(as_size("sec - 1"),))
    with pytest.raises(DimError, match="did you mean 'seq'"):
        Box.of(Dim("seq")).dim("sqe")


def test_violations_name_dim_value_and_bound() -> None:
    box = Box.of(Dim("n", 1, 8), Dim("m", 0, 8), constraints=(as_size("n - m"),))
    assert box.violations({"n": 3, "m": 3}) == []
    assert box.violations({"n": 9, "m": 3}) == ["dim 'n' is 9, above its bound 8"]
    assert box.violations({"n": 0, "m": 0}) == ["dim 'n' is 0, below its bound 1"]
    assert box.violations({"n": 1}) == ["dim 'm' has no size"]
    assert box.violations({"n": 1, "m": 3}) == [
        "n - m >= 0 does not hold: it is -2 at m = 3, n = 1"
    ]
    assert box.contains({"n": 8, "m": 8})
    assert not box.contains({"n": 1, "m": 8})
    assert not Box.of(Dim("n", 0, 8), constraints=(as_size("8//n"),)).contains({"n": 0})


@checked
@given(boxes(constrained=True))
def test_samples_and_corners_lie_inside(box: Box) -> None:
    rng = random.Random(7)
    for _ in range(5):
        assert box.contains(box.sample(rng))
    for corner in box.corners:
        assert box.contains(corner)


@checked
@given(boxes())
def test_contains_agrees_with_the_points(box: Box) -> None:
    inside = list(points(box))
    assert all(box.contains(env) for env in inside)
    for name in box.names:
        hi = box.dim(name).hi
        assert hi is not None
        assert not box.contains({**inside[0], name: hi + 1})


def test_samples_reach_both_ends_and_are_repeatable() -> None:
    box = Box.of(Dim("n", 0, 500), Dim("m", 3))
    drawn = [box.sample(random.Random(seed)) for seed in range(200)]
    assert drawn == [box.sample(random.Random(seed)) for seed in range(200)]
    assert {0, 1, 500} <= {env["n"] for env in drawn}
    assert all(env["m"] >= 3 for env in drawn)
    assert box.contains(box.sample(np.random.default_rng(0)))


def test_an_empty_box_says_so() -> None:
    box = Box.of(Dim("n", 0, 5), constraints=(as_size("n - 9"),))
    with pytest.raises(OptionError, match=r"no size in the box n=0\.\.5, n - 9 >= 0"):
        box.sample(random.Random(0))
    assert box.corners == ()


def test_corners() -> None:
    assert Box.of(Dim("n", 1, 4)).corners == ({"n": 1}, {"n": 4})
    assert Box.of(Dim("n", 4, 4), Dim("m")).corners == ({"n": 4, "m": 0}, {"n": 4, "m": 64})
    many = Box(tuple(Dim(f"d{i}", 0, 9) for i in range(20)))
    assert len(many.corners) == 42
    assert Box.of().corners == ({},)


def test_intervals_print_and_contain() -> None:
    assert str(Interval(1, None)) == "1.."
    assert 3 in Interval(None, 3)
    assert 4 not in Interval(None, 3)
    assert Interval(2, 2).value == 2
    assert Interval().value is None


def test_equal_boxes_of_a_thread_share_what_was_found() -> None:
    first, second = (Box.of(Dim("n", 1, 9), Dim("m", 0)) for _ in range(2))
    assert first.enclosure is second.enclosure
    assert first.answers is second.answers
    assert first.at_most(5) is second.at_most(5)
    assert Box.of(Dim("n", 1, 8), Dim("m", 0)).enclosure is not first.enclosure
    other = Box.of(Dim("n", 1, 9), Dim("m", 0))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: other.enclosure).result() is not first.enclosure
    kept = second.enclosure
    del first
    assert Box.of(Dim("n", 1, 9), Dim("m", 0)).enclosure is kept


def test_a_box_about_a_size_has_what_narrows_it() -> None:
    dims = [Dim(name) for name in ("total", "start", "count", "longest", "other")]
    total, start, count, longest, other = (dim.size for dim in dims)
    box = Box.of(*dims, constraints=(total - start - count, longest - count, 3 * other - count))
    assert box.about(count // 2) == Box.of(Dim("count"))
    assert box.about(total - start - count) == Box.of(
        *dims[:3], constraints=(total - start - count,)
    )
    bounded = Box.of(Dim("total", 0, 9), *dims[1:], constraints=box.constraints)
    assert bounded.about(count // 2).interval(count) == Interval(0, 9)
    assert box.about(as_size(7)) == Box() and Box.of(*dims).about(count) == Box.of(*dims)


@checked
@given(boxes(constrained=True), st.sets(st.sampled_from(NAMES)))
def test_points_of_a_box_are_in_the_boxes_about_sizes(box: Box, open: set[str]) -> None:
    found = list(points(box))
    wide = tuple(Dim(d.name, d.lo) if d.name in open else d for d in box.dims)
    for name in box.names:
        part = Box(wide, box.constraints).about(as_size(f"{name}//2"))
        assert name in part.names
        assert all(part.contains({each: env[each] for each in part.names}) for env in found)
