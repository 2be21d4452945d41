"""Promise: short requests pass long ones, whatever the mixture, and long ones get their share.

The engine runs on a virtual clock, one thread of each lane on one core: a simulation is the same
each time. Calls share the core by their priority, or equally, as systems without priorities do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from anydim.runtime.program.batches.item import Item
from anydim.serving import engine as engines
from anydim.serving.engine import Engine
from anydim.serving.measures import percentiles
from anydim.serving.order import KNOWN, Steps, step_of
from anydim.serving.requests import DONE, Request

GIANT, SHORT = 0.5, 0.005
OVERHEAD = 0.001


class FakeCosts:
    ratio, is_known = 1.0, True

    def bytes_of_call(self, sizes: Any) -> tuple[int, int, int]:
        return 1, 1, 1

    def learn(self, predicted: float, seconds: float) -> None:
        pass


class FakeForm:
    """Requests are their seconds."""

    name, most_rows, constant_bytes = "fake", None, 0

    def __init__(self) -> None:
        self.costs = FakeCosts()

    def read(self, given: Any, outputs: Any) -> Item:
        return Item((), {}, 1, 1, float(given), 1, 1, None)

    def sizes(self, items: Any) -> dict[str, int]:
        return {}

    def overhead(self, item: Item) -> float:
        return OVERHEAD

    def idle_bytes(self) -> int:
        return 0

    def trim(self) -> None:
        pass


class Simulation:
    """An engine without threads: calls take their seconds of a shared core."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, weights: tuple[float, float], calls: int = 1,
        cores: float = 1.0,
    ) -> None:  # fmt: skip
        self.now, self.weights, self.cores = 0.0, weights, cores
        monkeypatch.setattr(engines, "perf_counter", lambda: self.now)
        monkeypatch.setattr(Engine, "_start", lambda engine: engine._threads.append(None))
        self.engine = Engine(1 << 40, calls, 1 << 20)
        self.engine.add("fake", FakeForm())  # type: ignore[arg-type]
        self.running: list[list[Any]] = []  # group, seconds left, begin
        self.requests: list[Request] = []

    def run(self, arrivals: Iterable[tuple[float, float]], until: float) -> None:
        """Take requests (time, seconds) until a time."""
        waiting = list(arrivals)
        heapq.heapify(waiting)
        while True:
            self._begin()
            arrival = min(waiting[0][0] if waiting else until, until)
            speeds = self._speeds()
            ends = [self.now + call[1] / speed for call, speed in zip(self.running, speeds)]
            then = min([arrival, *ends])
            for call, speed in zip(self.running, speeds):
                call[1] -= speed * (then - self.now)
            self.now = then
            for call in [call for call in self.running if call[1] < 1e-12]:
                self.running.remove(call)
                for request in call[0].requests:
                    request.ended = self.now
                self.engine._end_call(call[0], call[2], self.now)
            if self.now >= until:
                return
            while waiting and waiting[0][0] <= self.now:
                seconds = heapq.heappop(waiting)[1]
                made = self.engine.submit(seconds, None, None, None, 0, None, None)  # type: ignore[arg-type]
                self.requests.append(made)

    def _begin(self) -> None:
        for lane in self.engine.lanes:
            while (group := self.engine._next(lane)) is not None:
                self.running.append([group, group.seconds, self.now])

    def _speeds(self) -> list[float]:
        weights = [self.weights[call[0].lane is self.engine.lanes[1]] for call in self.running]
        return [min(1.0, self.cores * weight / sum(weights)) for weight in weights]

    def latencies(self, seconds: float) -> list[float]:
        """Of requests of these seconds; those that wait count with their time so far."""
        return [
            (each.ended if each.state == DONE else self.now) - each.arrived
            for each in self.requests if each.due - each.arrived < 10 * (seconds + OVERHEAD) + 1e-9
        ]  # fmt: skip

    def done(self, least: float) -> float:
        """The seconds of requests above these that ended."""
        found = [each.due - each.arrived for each in self.requests if each.state == DONE]
        return sum(each / engines.STRETCH for each in found if each > engines.STRETCH * least)


def steady(rate: float, seconds: float, until: float, seed: int) -> list[tuple[float, float]]:
    """Requests of random distances and about these seconds."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1 / rate, int(2 * rate * until)))
    return [(float(t), seconds * float(random.uniform(0.6, 1.4))) for t in times if t < until]


WEIGHTS = {"priorities": (1.0, 1 / 3), "equal": (1.0, 1.0)}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("giants", (0, 1, 10, 20, 40, 80, 200))
def test_short_requests_wait_for_at_most_one_giant(
    monkeypatch: pytest.MonkeyPatch, giants: int, weights: str
) -> None:
    """Giants that come at once, before or amid short requests, or among them."""
    until, simulation = 40.0, Simulation(monkeypatch, WEIGHTS[weights])
    first = (0.0, 5.0)[giants % 3 == 1]
    times = np.linspace(0, 10, giants).tolist() if giants % 3 == 2 else [first] * giants
    simulation.run([*steady(30, SHORT, until, giants), *((t, GIANT) for t in times)], until)
    short = simulation.latencies(1.4 * SHORT)
    assert len(short) > 1000
    assert percentiles(short)["p99"] <= GIANT + 0.05
    assert percentiles(short)["p50"] <= 0.05
    demand = giants * (GIANT + OVERHEAD)
    free = until - sum(each / 10 for each in _costs(simulation, 1.4 * SHORT))
    assert simulation.done(GIANT / 2) >= 0.5 * min(demand, free - first - GIANT)


def _costs(simulation: Simulation, most: float) -> list[float]:
    every = [each.due - each.arrived for each in simulation.requests]
    return [each for each in every if each <= 10 * (most + OVERHEAD)]


@pytest.mark.parametrize("seed", range(12))
def test_random_mixtures(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Short requests of any size, long ones 10 to 300 times as long, in any numbers."""
    random = np.random.default_rng(seed)
    short = float(np.exp(random.uniform(np.log(0.002), np.log(0.02))))
    long = short * float(np.exp(random.uniform(np.log(10), np.log(300))))
    weights = "equal" if seed % 3 else "priorities"  # equal shares: half of the core
    load = float(random.uniform(0.1, 0.35 if seed % 3 else 0.5))
    until = min(60 * long + 10, 40.0)
    giants = int(random.choice([0, 3, 10, 30, 100, 300]))
    times = np.sort(random.uniform(0, random.uniform(0.01, 0.6) * until, giants)).tolist()
    simulation = Simulation(monkeypatch, WEIGHTS[weights])
    arrivals = steady(load / (short + OVERHEAD), short, until, seed)
    simulation.run([*arrivals, *((t, long) for t in times)], until)
    found = percentiles(simulation.latencies(1.4 * short))
    assert found["p99"] <= long + 0.05 + 6 * short
    demand, free = giants * long, (1 - load) * (until - (times[0] if times else until))
    assert simulation.done(3 * short) >= 0.5 * min(demand, free) - long


@pytest.mark.parametrize("weights", WEIGHTS)
def test_long_requests_get_their_share_of_a_full_core(
    monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    """Half of their half, beside short requests that alone would take more than there is."""
    simulation = Simulation(monkeypatch, WEIGHTS[weights])
    until = 20.0
    arrivals = [*steady(400, SHORT, until, 1), *((5.0, GIANT) for _ in range(200))]
    simulation.run(arrivals, until)
    assert simulation.done(GIANT / 2) >= 0.25 * (until - 5.0) - 2 * GIANT


def test_within_a_lane_a_request_waits_for_one_longer_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short to have a thread of their own, and costlier than others by a factor of ten."""
    costly, cheap, until = 0.0035 - OVERHEAD, 0.0, 20.0
    simulation = Simulation(monkeypatch, WEIGHTS["equal"])
    arrivals = [*((1.0, costly) for _ in range(3000)), *steady(100, cheap, until, 2)]
    simulation.run(arrivals, until)
    found = percentiles(simulation.latencies(cheap))
    group = OVERHEAD + 10 * OVERHEAD + costly  # a call of several
    assert found["most"] <= 3 * group  # one of its own kind, a longer one, its own
    assert simulation.done(costly) > 0.5 * min(3000 * 0.0035, 0.8 * until)


def test_one_kind_of_request_is_never_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (0.0001, 0.005, 0.5):
        simulation = Simulation(monkeypatch, WEIGHTS["equal"])
        simulation.run(steady(0.5 / (seconds + OVERHEAD), seconds, 100 * seconds + 1, 0), 1e3)
        long = simulation.engine.lanes[1]
        assert not long.lines.count and simulation.engine._steps.longest_short >= step_of(seconds)


def test_threads_for_all_requests_take_long_ones_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(monkeypatch, (1.0, 1.0), calls=4, cores=4.0)
    simulation.run([*steady(30, SHORT, 5.0, 0), *((1.0, GIANT) for _ in range(40))], 5.0)
    short, long = simulation.engine.lanes
    assert len(short.calls) in (3, 4) and len(long.calls) == 1
    assert percentiles(simulation.latencies(1.4 * SHORT))["p99"] < 0.05
    assert simulation.done(GIANT / 2) > 0.7 * 4 * 4.0


def test_steps_forget_and_rare_requests_are_not_the_short_ones() -> None:
    steps, cheap, usual = Steps(), 2, 9
    for number in range(1000):
        steps.note(usual, number / 10)
    for number in range(KNOWN):
        steps.note(cheap, 100.0 + number)
    assert not steps.is_long(usual)  # 4 of 1,000 requests
    for number in range(30):
        steps.note(cheap, 110.0 + number)
    assert steps.is_long(usual)
    for number in range(3000):
        steps.note(usual, 140.0 + number)
    assert not steps.is_long(usual)
