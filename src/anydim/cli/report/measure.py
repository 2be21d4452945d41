"""Times several callables side by side, so that noise of the machine affects all of them alike.

The callables run in turn; ratios are computed within a round, and their median over the rounds: a
slow minute of the machine affects both sides of a ratio.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy

from anydim.base.collector import collector_paused
from anydim.base.records import dataclass

Item = TypeVar("Item")


@dataclass(frozen=True)
class Timings:
    """Seconds of one call by name, one entry a round: the median of the calls of that round."""

    rounds: Mapping[str, tuple[float, ...]]

    def median(self, name: str) -> float:
        """Seconds of one call, over all rounds."""
        return median(self.rounds[name])

    def ratio(self, name: str, base: str) -> float:
        """How long `name` takes for one of `base`: the median of the ratios of the rounds."""
        return median_ratio(self.rounds[name], self.rounds[base])


def median_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios of two measurements taken in pairs; nan when there are none."""
    return median(a / b for a, b in zip(times, base)) if times else float("nan")


def time_interleaved(
    callables: Mapping[str, Callable[[], Any]], rounds: int = 9, seconds: float = 2.0
) -> Timings:
    """Time callables in turn: `rounds` times, within about `seconds` in total.

    Each is called once beforehand. The order is reversed from round to round.
    """
    share = seconds / (rounds * max(1, len(callables)))
    medians: dict[str, list[float]] = {name: [] for name in callables}
    for call in callables.values():
        call()
    with quiet_collector():
        for number in range(rounds):
            for name in list(callables)[:: -1 if number % 2 else 1]:
                medians[name].append(_median_of_calls(callables[name], share))
    return Timings({name: tuple(values) for name, values in medians.items()})


def time_stream(
    engines: Mapping[str, Callable[[Item], Any]],
    items: Sequence[Item],
    block: int = 16,
    advance: Callable[[int, int], None] | None = None,
) -> dict[str, list[float]]:
    """Return the seconds that each engine takes for each item of a stream, in the stream's order.

    Every engine gets every item once; the engines process blocks of items in turn.
    """
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    with quiet_collector():
        for start in range(0, len(items), block):
            part = items[start : start + block]
            turn = -1 if start // block % 2 else 1
            for name in list(engines)[::turn]:
                seconds[name] += [time_call(engines[name], item) for item in part]
            if advance is not None:
                advance(start + len(part), len(items))
    return seconds


def time_call(call: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of one call."""
    start = perf_counter()
    call(*arguments)
    return perf_counter() - start


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Collect garbage now and not inside the block."""
    gc.collect()
    with collector_paused():
        yield


def largest_difference(left: numpy.ndarray, right: numpy.ndarray) -> float:
    """The largest absolute difference; equal infinities and two NaN differ by 0."""
    if left.shape != right.shape:
        return float("inf")
    a, b = left.astype(numpy.float64), right.astype(numpy.float64)
    with numpy.errstate(invalid="ignore"):
        apart = numpy.abs(a - b)
    same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    apart = numpy.where(same, 0.0, numpy.where(numpy.isnan(apart), numpy.inf, apart))
    return float(apart.max(initial=0.0))


def _median_of_calls(call: Callable[[], Any], seconds: float) -> float:
    """Call for about `seconds`; of three or more calls the first only warms the caches."""
    times: list[float] = []
    until = perf_counter() + seconds
    while not times or perf_counter() < until:
        times.append(time_call(call))
    return median(times[1:] if len(times) > 2 else times)
