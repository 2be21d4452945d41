"""The cases of a test function that `make test` runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest


def functions(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """The cases of each test function."""
    found: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        found[item.nodeid.partition("[")[0]].append(item)
    return found


def _with_new_values(cases: Iterable[pytest.Item]) -> list[pytest.Item]:
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


def sample(cases: list[pytest.Item], most: int | None = None) -> list[pytest.Item]:
    """The cases of a function that `make test` runs: all, unless it is marked `sampled`.

    `sampled` keeps the cases that have a new value of a parameter, `sampled(*ends)` those whose ids
    end so as well, `sampled(only=ends)` only those; `most=` keeps so many of them. `most` of this
    function bounds the cases of every function.
    """
    mark = cases[0].get_closest_marker("sampled")
    if mark is not None:
        cases = _marked(cases, *mark.args, **mark.kwargs)
    return cases if most is None else _spread(_with_new_values(cases), most)


def _marked(
    cases: list[pytest.Item], *ends: str, only: Iterable[str] = (), most: int | None = None
) -> list[pytest.Item]:
    new = set() if only else set(_with_new_values(cases))
    ending = tuple(f"{end}]" for end in (*ends, *only))
    kept = [case for case in cases if case in new or case.nodeid.endswith(ending)]
    return kept if most is None else _spread(kept if len(kept) >= most else cases, most)


def _spread(cases: list[pytest.Item], most: int) -> list[pytest.Item]:
    """At most so many cases at equal distances, the first and the last among them."""
    if len(cases) <= most:
        return cases
    return [cases[round(number * (len(cases) - 1) / max(most - 1, 1))] for number in range(most)]


def _key(value: Any) -> Any:
    """What tells values apart: their text, where it is no address and has an end."""
    try:
        return id(value) if callable(value) else repr(value)[:200]
    except Exception:  # such as a structure that is deeper than Python's stack
        return id(value)
