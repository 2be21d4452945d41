"""Which cases of a test function bring in a value of a parameter that no earlier case has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest


def functions(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """The cases of each test function."""
    found: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        found[function_of(item.nodeid)].append(item)
    return found


def function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def bringing_new_values(cases: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases that have a value of a parameter which no case before them has."""
    seen: set[tuple[str, Any]] = set()
    found = []
    for case in cases:
        given = getattr(case, "callspec", None)
        values = {(name, _key(value)) for name, value in given.params.items()} if given else {None}
        if not values <= seen:
            found.append(case)
        seen |= values
    return found


def spread(cases: list[pytest.Item], most: int) -> list[pytest.Item]:
    """At most so many cases at equal distances, the first and the last among them."""
    if len(cases) <= most:
        return cases
    return [cases[round(number * (len(cases) - 1) / (most - 1))] for number in range(most)]


def _key(value: Any) -> Any:
    """What tells values apart: their text, where it is no address."""
    return id(value) if callable(value) else repr(value)[:200]
