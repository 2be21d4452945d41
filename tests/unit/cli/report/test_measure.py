"""Promise: what is timed takes turns, and ratios compare what ran side by side."""

from __future__ import annotations

import gc
import math
import time

import numpy
import pytest

from anydim.cli.report.measure import (
    Timings,
    largest_difference,
    median_ratio,
    quiet_collector,
    time_interleaved,
    time_stream,
)


def test_callables_take_turns_in_both_orders() -> None:
    calls: list[str] = []
    time_interleaved({n: lambda n=n: calls.append(n) for n in "ab"}, rounds=4, seconds=1e-6)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab" + "ba"


def test_a_ratio_is_taken_within_its_round() -> None:
    slow_second_round = Timings({"a": (1.0, 10.0, 1.0), "b": (2.0, 20.0, 1.0)})
    assert slow_second_round.ratio("a", "b") == 0.5
    assert slow_second_round.median("b") == 2.0


def test_times_are_seconds() -> None:
    times = time_interleaved({"nap": lambda: time.sleep(0.01)}, rounds=2, seconds=0.05)
    assert 0.01 <= times.median("nap") < 10  # milliseconds would be 10 or more


def test_a_stream_meets_every_engine_once() -> None:
    seen: list[tuple[str, int]] = []
    engines = {name: lambda item, name=name: seen.append((name, item)) for name in "ab"}
    told: list[tuple[int, int]] = []
    seconds = time_stream(engines, range(5), block=2, advance=lambda *at: told.append(at))
    assert [item for name, item in seen if name == "a"] == [0, 1, 2, 3, 4]
    assert [name for name, _ in seen] == list("aabbbbaaab")
    assert {name: len(times) for name, times in seconds.items()} == {"a": 5, "b": 5}
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert time_stream(engines, []) == {"a": [], "b": []}


def test_the_collector_comes_back() -> None:
    with quiet_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_ratio_of_nothing() -> None:
    assert math.isnan(median_ratio([], []))
    assert median_ratio([1, 2, 9], [2, 4, 9]) == 0.5


@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([math.nan, math.inf], [math.nan, math.inf], 0.0),
        ([math.nan], [1.0], math.inf),
        ([math.inf], [-math.inf], math.inf),
        ([], [], 0.0),
        ([1.0], [1.0, 2.0], math.inf),
        ([True], [False], 1.0),
    ],
)
def test_differences(left, right, apart: float) -> None:
    assert largest_difference(numpy.array(left), numpy.array(right)) == apart
