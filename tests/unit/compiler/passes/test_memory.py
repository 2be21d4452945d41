"""Promise: values that live together never share a byte, at any size, and little is wasted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anydim as ad
from anydim.base.errors import OptionError
from anydim.compiler.passes.arena_order import Near
from anydim.compiler.passes.memory import PLANNERS, ArenaPlan, Lifetime, Planner, Stacked
from anydim.compiler.passes.options import given_options
from anydim.sizes import Atom, Box, Dim, Size, align_up, maximum, minimum

N, M = Size.symbol("n"), Size.symbol("m")
BOUNDED = Box.of(Dim("n", 0, 50), Dim("m", 0, 50))
BOXES = (BOUNDED, Box.of(Dim("n"), Dim("m")), Box.of(Dim("n", 2), Dim("m", 0, 9)))
FORMULAS = (
    64 * N, 256 * N * M, align_up(4 * N, 64), align_up(4 * M, 64), 64 * N + 128, 640 * M,
    Size.constant_of(64), Size.constant_of(4096), Size.constant_of(0), 64 * ((N + 1) // 2) * M,
    256 * ((N + 3) // 4) * ((M + 3) // 4), align_up(12 * N * M, 64), 64 * maximum(N, M),
    64 * maximum(N - 3, 0) * M, 128 * minimum(N, 1) * M, 64 * N * N - 64 * N, 64 * (N % 5) + 64,
)  # fmt: skip
POINTS = [{"n": n, "m": m} for n, m in itertools.product((2, 0, 1, 7, 50, 333), (0, 1, 9, 2048))]

lifetimes = st.lists(
    st.tuples(st.sampled_from(FORMULAS), st.integers(0, 12), st.integers(0, 5)), max_size=16
).map(
    lambda rows: [
        Lifetime(f"v{number}", size, first, first + length)
        for number, (size, first, length) in enumerate(rows)
    ]
)


def check(plan: ArenaPlan, values: list[Lifetime], point: Mapping[str, int]) -> None:
    """No two values that live together share a byte at a point, and all lie inside the arena."""
    total = plan.bytes.evaluate(point)
    places = [(v, plan.offsets[v.name].evaluate(point), v.bytes.evaluate(point)) for v in values]
    for _, at, size in places:
        assert at >= 0
        assert at % 64 == 0
        assert at + size <= total
    for (a, at, size), (b, other, other_size) in itertools.combinations(places, 2):
        if a.meets(b):
            assert at + size <= other or other + other_size <= at or 0 in (size, other_size)


def least(values: list[Lifetime], point: Mapping[str, int]) -> int:
    """The most bytes that live at one time."""
    steps = range(max((v.last for v in values), default=0) + 1)
    return max(
        sum(v.bytes.evaluate(point) for v in values if v.first <= step <= v.last) for step in steps
    )


@pytest.mark.parametrize("planner", PLANNERS.values(), ids=list(PLANNERS))
@given(lifetimes, st.sampled_from(BOXES))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_no_two_living_values_overlap(planner: Planner, values: list[Lifetime], box: Box) -> None:
    plan = planner.run(values, box)
    for point in POINTS:
        if box.contains(point):
            check(plan, values, point)


@given(lifetimes)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_without_samples_the_plan_is_still_right(values: list[Lifetime]) -> None:
    """What samples say is taste: one that sees a single point is as right as any."""
    plan = Stacked(points=1, placements=1, slack=5.0).run(values, BOXES[1])
    for point in POINTS:
        check(plan, values, point)


def test_a_chain_takes_two_values() -> None:
    values = [Lifetime(f"v{i}", 64 * N, i, i + 1) for i in range(20)]
    assert Stacked().run(values, BOUNDED).bytes == 128 * N


def test_formulas_of_one_family_are_packed_like_numbers() -> None:
    """A transformer's pattern: a big value between small ones, all multiples of one size."""
    row = 64 * N * M
    values = [
        Lifetime("x", row, 0, 6), Lifetime("q", row, 1, 2), Lifetime("k", row, 1, 2),
        Lifetime("v", row, 1, 2), Lifetime("o", row, 2, 3), Lifetime("h", 4 * row, 4, 5),
        Lifetime("y", row, 5, 6),
    ]  # fmt: skip
    point = {"n": 9, "m": 9}
    plan = Stacked().run(values, BOUNDED)
    assert plan.bytes.evaluate(point) == least(values, point)
    assert plan.bytes == 384 * N * M


def pyramid() -> list[Lifetime]:
    """The lives of a detector's values: sizes fall by quarters, channels rise, some are kept."""
    values, step = [], 0
    for level, channels in enumerate((16, 32, 64, 128, 256)):
        side = 2 << level
        area = ((N + (side - 1)) // side) * ((M + (side - 1)) // side)
        for number in range(6):
            last = 40 - level if number == 5 else step + 1 + number % 3
            values.append(Lifetime(f"{level}.{number}", 64 * (channels // 16) * area, step, last))
            step += 1
    return values


def test_a_pyramid_of_open_sizes_is_near_the_lower_bound_and_short() -> None:
    values, box = pyramid(), Box.of(Dim("n"), Dim("m"))
    plan = Stacked().run(values, box)
    for point in ({"n": n, "m": m} for n in (31, 64, 111, 640) for m in (17, 96, 640, 999)):
        check(plan, values, point)
        assert plan.bytes.evaluate(point) <= 1.1 * least(values, point)
    for offset in plan.offsets.values():
        inner = [a for m, _ in offset.monomials for a in m if isinstance(a, Atom)]
        assert all("max" not in str(argument) for atom in inner for argument in atom.arguments)
    assert len(set(plan.offsets.values())) <= 0.7 * len(values)


def test_long_programs_are_planned_in_their_order_of_size() -> None:
    """A thousand values: chains, one long life in ten, sizes of a dozen kinds."""
    kinds = FORMULAS[:6] + FORMULAS[9:12]
    values = [
        Lifetime(f"v{i}", kinds[i % len(kinds)], i, i + (30 if i % 10 == 0 else 1 + i % 3))
        for i in range(1000)
    ]
    plan = Stacked().run(values, BOXES[1])
    for point in ({"n": 50, "m": 50}, {"n": 7, "m": 333}):
        check(plan, values, point)
        assert plan.bytes.evaluate(point) <= 1.15 * least(values, point)


def test_equal_programs_have_equal_plans() -> None:
    first, second = (Stacked().run(pyramid(), BOXES[1]) for _ in range(2))
    assert first == second


def test_nothing_takes_nothing() -> None:
    assert Stacked().run([], BOUNDED).bytes == 0


def test_the_planner_is_an_option() -> None:
    def model(**given: object) -> ad.Model:
        g = ad.Builder("chain")
        x = g.input("x", ad.float32, (g.dim("n", 0, 64), 8))
        y = g.softmax(g.softmax(g.softmax(g.softmax(x, axis=1), axis=0), axis=1), axis=0)
        g.output("y", y)
        return ad.compile(g, **given)

    options = given_options({"chain": {"memory": "apart"}}, ["chain"])["chain"]
    shared, apart = model(), model(options=options)
    assert shared.memory.at(n=64) < apart.memory.at(n=64)
    x = numpy.random.default_rng(0).standard_normal((64, 8), numpy.float32)
    assert numpy.array_equal(shared(x=x)["y"], apart(x=x)["y"])
    assert given_options("chain: memory=apart", ["chain"])["chain"] == options


def test_a_planner_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'memory' is 'heap'.*\n.*stacked.*apart"):
        given_options({"f": {"memory": "heap"}}, ["f"])


def test_weights_are_packed_once() -> None:
    g = ad.Builder("twice")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 32))
    w = g.constant(numpy.ones((32, 32), numpy.float32), "w")
    g.output("y", g.matmul(g.softmax(g.matmul(g.softmax(g.matmul(x, w), axis=1), w), axis=1), w))
    packed = [held.name for held in ad.compile(g).program.constants if "panels" in held.name]
    assert len(packed) == 1


@pytest.mark.parametrize("longest", [3, 100])
def test_who_lives_together_is_the_same_without_a_table(longest: int) -> None:
    chance = numpy.random.default_rng(longest)
    first = chance.integers(0, 200, 150)
    last = first + chance.integers(0, longest, 150)
    near = Near(first, last)
    for value in range(150):
        meets = (first <= last[value]) & (last >= first[value])
        meets[value] = False
        assert near[value].tolist() == numpy.flatnonzero(meets).tolist()
