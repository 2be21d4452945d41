"""Promise: of a function marked `sampled`, `make test` runs the cases that the mark says."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

from tests.samples import functions, sample

GRID = list(product("abc", range(4)))


def chosen(mark: pytest.MarkDecorator | None, most: int | None = None) -> list[str]:
    cases: list[Any] = [
        Mock(
            nodeid=f"test.py::f[{letter}-{number}]",
            callspec=Mock(params={"letter": letter, "number": number}),
            get_closest_marker=Mock(return_value=mark and mark.mark),
        )
        for letter, number in GRID
    ]
    assert list(functions(cases)) == ["test.py::f"]
    return [case.nodeid[11:-1] for case in sample(cases, most)]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (pytest.mark.sampled(), "a-0 a-1 a-2 a-3 b-0 c-0"),
        (pytest.mark.sampled("b-2", "-3"), "a-0 a-1 a-2 a-3 b-0 b-2 b-3 c-0 c-3"),
        (pytest.mark.sampled(only=["b-2", "c-1"]), "b-2 c-1"),
        (pytest.mark.sampled(most=2), "a-0 c-0"),
        (pytest.mark.sampled(most=1), "a-0"),
        (pytest.mark.sampled("c-3", most=2), "a-0 c-3"),
        (pytest.mark.sampled(most=8), "a-0 a-2 a-3 b-1 b-2 c-0 c-1 c-3"),  # more than new values
    ],
)
def test_cases_of_a_mark(mark: pytest.MarkDecorator, expected: str) -> None:
    assert chosen(mark) == expected.split()


def test_most_cases_of_each_function() -> None:
    assert chosen(None) == [f"{letter}-{number}" for letter, number in GRID]
    assert chosen(None, 3) == ["a-0", "a-2", "c-0"]
    assert chosen(pytest.mark.sampled(only=["b-2"]), 3) == ["b-2"]
