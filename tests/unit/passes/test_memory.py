"""Promise: values that live together never share a byte, at any size, and little is wasted."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from anydim.passes.memory import Lifetime, PlanMemory
from anydim.sizes import Box, Dim, Size, align_up

N, M = Size.symbol("n"), Size.symbol("m")
BOX = Box.of(Dim("n", 0, 50), Dim("m", 0, 50))
FORMULAS = (
    64 * N, 256 * N * M, align_up(4 * N, 64), align_up(4 * M, 64), 64 * N + 128, 640 * M,
    Size.constant_of(64), Size.constant_of(4096),
)  # fmt: skip
POINTS = [{"n": n, "m": m} for n, m in itertools.product((0, 1, 7, 50), repeat=2)]

lifetimes = st.lists(
    st.tuples(st.sampled_from(FORMULAS), st.integers(0, 9), st.integers(0, 4)), max_size=9
).map(
    lambda rows: [
        Lifetime(f"v{number}", size, first, first + length)
        for number, (size, first, length) in enumerate(rows)
    ]
)


@given(lifetimes)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_no_two_living_values_overlap(values: list[Lifetime]) -> None:
    plan = PlanMemory().run(values, BOX)
    for point in POINTS:
        total = plan.bytes.evaluate(point)
        places = [
            (v, plan.offsets[v.name].evaluate(point), v.bytes.evaluate(point)) for v in values
        ]
        for _, at, size in places:
            assert at >= 0
            assert at % 64 == 0
            assert at + size <= total
        for (a, at, size), (b, other, other_size) in itertools.combinations(places, 2):
            if a.meets(b):
                assert at + size <= other or other + other_size <= at


def test_a_chain_takes_two_values() -> None:
    values = [Lifetime(f"v{i}", 64 * N, i, i + 1) for i in range(20)]
    assert PlanMemory().run(values, BOX).bytes == 128 * N


def test_formulas_of_one_family_are_packed_like_numbers() -> None:
    """A transformer's pattern: a big value between small ones, all multiples of one size."""
    row = 64 * N * M
    values = [
        Lifetime("x", row, 0, 6), Lifetime("q", row, 1, 2), Lifetime("k", row, 1, 2),
        Lifetime("v", row, 1, 2), Lifetime("o", row, 2, 3), Lifetime("h", 4 * row, 4, 5),
        Lifetime("y", row, 5, 6),
    ]  # fmt: skip
    peak = max(
        sum((v.bytes for v in values if v.first <= step <= v.last), start=Size.constant_of(0))
        .evaluate({"n": 9, "m": 9})
        for step in range(7)
    )  # fmt: skip
    assert PlanMemory().run(values, BOX).bytes.evaluate({"n": 9, "m": 9}) <= 1.1 * peak


def test_nothing_takes_nothing() -> None:
    assert PlanMemory().run([], BOX).bytes == 0
