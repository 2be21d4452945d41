"""Promise: a lone short request runs in the thread of the event loop, and holds it up for no longer
than a bound."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.runtime.program.batches.costs import _FIRST
from anydim.serving import AsyncBatcher, engine
from tests.unit.serving.models import scaled

LONG = 60.0  # seconds; calls take less


class Noted:
    """A batcher of a small model that notes the threads of its calls."""

    def __init__(self, batcher: AsyncBatcher) -> None:
        self.batcher, self.threads = batcher, list[int]()
        self.form: Any = batcher.engine.models["scaled"].form
        self.seconds = 0.0  # that a call takes longer
        self._run, self.form.run = self.form.run, self.run

    def run(self, items: Any) -> Any:
        self.threads.append(threading.get_ident())
        time.sleep(self.seconds)
        return self._run(items)

    async def send(self, count: int = 3, within: float = LONG) -> bool:
        """Whether a request ran in the thread of the event loop."""
        request = self.batcher.submit(np.ones(count, np.float32), within=within)
        found = await self.batcher.outcome(request)
        assert found["total"] == count and found["y"].shape == (count,)
        await asyncio.sleep(0)  # the call is counted
        return self.threads[-1] == threading.get_ident()


def served(test: Callable[[Noted], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with AsyncBatcher(scaled()) as batcher:
            noted = Noted(batcher)
            await test(noted)
            assert batcher.engine.budget.is_clear

    asyncio.run(run())


def test_results_are_delivered_before_their_call_is_counted() -> None:
    async def test(noted: Noted) -> None:
        await known(noted)
        batcher, counted = noted.batcher, lambda: batcher.metrics()["models"]["scaled"]["done"]
        for keep in (0, 1):
            before = counted()
            request = batcher.submit(np.ones(3, np.float32), within=LONG, keep=keep)
            assert (await batcher.outcome(request))["total"] == 3
            assert counted() == before and batcher.metrics()["running_calls"] == 1
            batcher.release(request)
            await asyncio.sleep(0)
            assert counted() == before + 1 and batcher.engine.budget.is_clear

    served(test)


async def known(noted: Noted) -> None:
    """Measure as many calls as it takes to know what calls take, without outliers."""
    while not noted.form.costs.is_known:
        assert not await noted.send()


def test_a_lone_short_request_runs_on_the_loop_once_its_time_is_known() -> None:
    async def test(noted: Noted) -> None:
        await known(noted)
        for count in (0, 1, 7):
            assert await noted.send(count)
        assert not await noted.send(within=0.0)
        assert not await noted.send(within=1e-9)
        assert noted.batcher.metrics()["models"]["scaled"]["done"] == len(noted.threads)

    served(test)


def test_requests_beside_others_do_not_run_on_the_loop() -> None:
    async def test(noted: Noted) -> None:
        await known(noted)
        noted.seconds = 0.05
        asked = [np.ones(count, np.float32) for count in (1, 2, 3)]
        requests = [noted.batcher.submit(asked[0])]
        requests += [noted.batcher.submit(each, within=LONG) for each in asked[1:]]
        for count, request in enumerate(requests, 1):
            assert (await noted.batcher.outcome(request))["total"] == count
        assert threading.get_ident() not in noted.threads

    served(test)


def test_a_call_above_its_bound_keeps_its_model_off_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "PAUSE", 5.0)

    async def test(noted: Noted) -> None:
        await known(noted)
        noted.seconds = 0.2
        assert await noted.send(within=0.05)
        noted.seconds, end = 0.0, time.perf_counter() + 5 * 0.2
        noted.form.costs._ratio = -100.0  # calls are predicted to be short
        while time.perf_counter() < end - 0.5:
            assert not await noted.send(within=0.05)
            noted.form.costs._ratio = -100.0
        await asyncio.sleep(max(0.0, noted.batcher.engine.models["scaled"].pause_ends
                                - time.perf_counter()))  # fmt: skip
        assert await noted.send(within=0.05)

    served(test)


def repeated(trips_of_data: bool) -> Any:
    """A model that adds x some times: as often as its input c has it, or three times."""
    g = ad.Builder("repeated")
    x = g.input("x", ad.float32, (g.dim("n", 0, 100),))
    trips = g.find(g.input("c", ad.int64, ()), "t", 0, 10**6) if trips_of_data else 3
    g.output("y", g.loop(lambda b, i, total: b.add(total, x), x, trips=trips))
    return ad.compile(g, threads=1)


@pytest.mark.parametrize("trips_of_data", (False, True))
def test_no_model_whose_work_data_decides_runs_on_the_loop(trips_of_data: bool) -> None:
    async def test() -> None:
        async with AsyncBatcher(repeated(trips_of_data)) as batcher:
            form: Any = batcher.engine.models["repeated"].form
            threads, call = list[int](), form.run

            def run(items: Any) -> Any:
                threads.append(threading.get_ident())
                return call(items)

            form.run = run
            given = {"x": np.ones(3, np.float32)}
            if trips_of_data:
                given["c"] = np.array(3)
            for _ in range(5 * _FIRST):
                found = await batcher.outcome(batcher.submit(given, within=LONG))
                assert found["y"].tolist() == [4, 4, 4]
                await asyncio.sleep(0)
            assert (threading.get_ident() in threads) != trips_of_data

    asyncio.run(test())


def test_a_deadline_that_has_passed_is_an_error_on_the_loop_too() -> None:
    async def test(noted: Noted) -> None:
        await known(noted)
        calls = len(noted.threads)
        for within in (LONG, 0.0):
            request = noted.batcher.submit(np.ones(3, np.float32), within=within, deadline=1e-9)
            with pytest.raises(ad.TimeLimitError, match="the deadline was over"):
                await noted.batcher.outcome(request)
        assert len(noted.threads) == calls
        assert await noted.send()

    served(test)


def test_an_error_on_the_loop_is_the_outcome_of_its_request() -> None:
    async def test(noted: Noted) -> None:
        await known(noted)
        noted.form.run = lambda items: 1 // 0
        request = noted.batcher.submit(np.ones(3, np.float32), within=LONG)
        with pytest.raises(ZeroDivisionError):
            await noted.batcher.outcome(request)
        with pytest.raises(ad.InputError):
            noted.batcher.submit(np.ones(3, np.float64), within=LONG)

    served(test)
