"""Promise: `prove` says what trying all sizes says where intervals touch, overlap or are points."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import pytest

from anydim.sizes import Box, Dim, Truth, as_size, prove

RELATIONS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ENDS = list(combinations_with_replacement(range(4), 2))  # (low, high), points among them
# sizes of one dim whose bounds are exact at all those ends
ALONE = ("n", "-n", "2*n", "3 - 2*n", "n*n", "n//2", "min(n, 2)", "max(n, 2)", "n - n//2")


def tried(found: Iterator[bool]) -> Truth:
    """What holds at every point is proved, what holds at none is refuted."""
    seen = set(found)
    return Truth.UNKNOWN if len(seen) == 2 else Truth.PROVED if True in seen else Truth.REFUTED


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("text", ALONE)
def test_a_size_against_a_number(text: str, relation: str) -> None:
    """The numbers lie at the ends, inside, and one beside either end."""
    size, holds = as_size(text), RELATIONS[relation]
    for low, high in ENDS:
        box = Box.of(Dim("n", low, high))
        values = [size.evaluate({"n": n}) for n in range(low, high + 1)]
        for number in range(min(values) - 2, max(values) + 3):
            right = tried(holds(value, number) for value in values)
            if (
                relation in ("==", "!=")
                and right is not Truth.UNKNOWN
                and _in_a_gap(number, values)
            ):
                continue  # between values, where bounds settle nothing
            told = prove(size, relation, number, box)
            assert told is right, f"{text} {relation} {number} over {box}"
            mirrored = prove(number, _MIRRORED[relation], size, box)
            assert mirrored is right, f"{number} {_MIRRORED[relation]} {text} over {box}"


_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _in_a_gap(number: int, values: list[int]) -> bool:
    return number not in values and min(values) < number < max(values)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_size_against_a_size(relation: str) -> None:
    """Two ranges apart, touching at either end, overlapping, inside each other, equal, points."""
    holds = RELATIONS[relation]
    n, m = as_size("n"), as_size("m")
    for mine, other in product(ENDS, repeat=2):
        box = Box.of(Dim("n", *mine), Dim("m", *other))
        points = product(range(mine[0], mine[1] + 1), range(other[0], other[1] + 1))
        right = tried(holds(x, y) for x, y in points)
        assert prove(n, relation, m, box) is right, f"n {relation} m over {box}"


@pytest.mark.parametrize("low", range(4))
def test_a_range_without_end(low: int) -> None:
    box, n = Box.of(Dim("n", low)), as_size("n")
    for number in range(-1, low + 3):
        under, at_least = number < low, number <= low
        expected = {
            "<": Truth.REFUTED if at_least else Truth.UNKNOWN,
            "<=": Truth.REFUTED if under else Truth.UNKNOWN,
            ">": Truth.PROVED if under else Truth.UNKNOWN,
            ">=": Truth.PROVED if at_least else Truth.UNKNOWN,
            "==": Truth.REFUTED if under else Truth.UNKNOWN,
            "!=": Truth.PROVED if under else Truth.UNKNOWN,
        }
        assert {relation: prove(n, relation, number, box) for relation in expected} == expected


@pytest.mark.parametrize(
    ("left", "right", "truth"),
    [
        ("2*n", "3", Truth.REFUTED),  # a common divisor leaves the number out
        ("2*n + 4*m", "7", Truth.REFUTED),
        ("2*n + 4*m", "6", Truth.UNKNOWN),
        ("6*n + 4*m", "5", Truth.REFUTED),
        ("6*n + 3*m", "4", Truth.REFUTED),
        ("6*n + 3*m", "9", Truth.UNKNOWN),
        ("2*n", "2*m + 1", Truth.REFUTED),
        ("2*n", "3*m", Truth.UNKNOWN),
    ],
)
def test_equality_of_multiples(left: str, right: str, truth: Truth) -> None:
    box = Box.of(Dim("n", 0, 5), Dim("m", 0, 5))
    opposite = {Truth.REFUTED: Truth.PROVED, Truth.UNKNOWN: Truth.UNKNOWN}[truth]
    assert prove(as_size(left), "==", as_size(right), box) is truth
    assert prove(as_size(left), "!=", as_size(right), box) is opposite
