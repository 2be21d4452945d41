"""Promise: a cache of bodies that is too small costs little: few compiles, and no call waits."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.variants import serving
from anydim.compiler.variants.admission import Admission, Capacity
from anydim.compiler.variants.workers import Order, Reply
from tests.unit.compiler.variants.models import Here, depthwise, here, image

__all__ = ["here"]
HEIGHTS = (3, 4, 9, 10, 17)
AFTER = 16


class Cache:
    """The policy alone: bodies for sizes that are numbers, looked after every eighth launch."""

    def __init__(self, limit: int) -> None:
        self.limit, self.admission = limit, Admission()
        self.seen, self.hits = Counter[int](), dict[int, int]()
        self.compiles, self.launches = Counter[int](), Counter[int]()

    def launch(self, sizes: Iterable[int]) -> None:
        for number, size in enumerate(sizes):
            self.launches[size] += 1
            if size in self.hits:
                self.hits[size] += 1
            elif len(self.hits) < self.limit and not self.admission.had_variant((size,)):
                self._made(size)
            else:
                self.seen[size] += 1
            if number % 8 == 7:
                self._look()

    def _look(self) -> None:
        often = {s: self.admission.frequency((s,), n) for s, n in self.seen.items()}
        room = Capacity(self.limit, self._used().values())
        for size, count in sorted(often.items(), key=lambda row: -row[1]):
            if count >= self.admission.launches_needed((size,), AFTER) and room.admits(count):
                self._made(size)
        counts = {**self.seen, **self.hits}
        self.admission.age({(s,): n for s, n in counts.items()}, self.limit, AFTER)

    def _used(self) -> dict[int, int]:
        return {s: self.admission.frequency((s,), n) for s, n in self.hits.items()}

    def _made(self, size: int) -> None:
        used = self._used()
        if len(used) >= self.limit:
            gone = min(used, key=lambda each: used[each])
            del self.hits[gone]
            self.admission.drop((gone,))
        often = [self.admission.frequency((s,), n) for s, n in self.seen.items()]
        self.admission.record_variant((size,), max(often, default=0))
        self.seen.pop(size, None)
        self.hits[size] = 0
        self.compiles[size] += 1


def streams(count: int = 4000) -> Iterator[tuple[str, list[int]]]:
    """Sizes as they come: in turns, by chance, a few often, in bursts, always others."""
    some = random.Random(0)
    yield "turns", [number % 16 for number in range(count)]
    yield "chance", [some.randrange(16) for _ in range(count)]
    yield "few often", [min(some.randrange(1, 64), some.randrange(1, 64)) for _ in range(count)]
    yield "bursts", [number // 100 % 4 for number in range(count)]
    yield "short bursts", [number // 17 % 3 for number in range(count)]
    yield "others", list(range(count))


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("limit", [1, 2, 8])
@pytest.mark.parametrize(("name", "sizes"), list(streams()))
def test_compiles_are_bounded(name: str, sizes: list[int], limit: int) -> None:
    cache = Cache(limit)
    cache.launch(sizes)
    for size, compiles in cache.compiles.items():
        assert compiles <= 1 + math.log2(1 + cache.launches[size] / AFTER)
    total = sum(cache.compiles.values())
    assert total <= {"turns": limit, "others": limit, "chance": limit + 4}.get(name, 100)


@pytest.mark.parametrize("limit", [1, 4])
def test_sizes_that_come_instead_of_others_take_their_room(limit: int) -> None:
    cache = Cache(limit)
    cache.launch(number % limit for number in range(10_000))
    cache.launch(100 + number % limit for number in range(10_000))
    assert set(cache.hits) == {100 + number for number in range(limit)}
    assert sum(cache.compiles.values()) == 2 * limit


@pytest.fixture(scope="module")
def wanted() -> dict[int, numpy.ndarray]:
    model = depthwise("generic")
    return {height: model(x=image(height))["y"] for height in HEIGHTS}


def same(model: ad.Model, wanted: dict[int, numpy.ndarray], heights: Iterable[int]) -> None:
    for height in heights:
        assert model(x=image(height))["y"].tobytes() == wanted[height].tobytes()


def tall(model: ad.Model) -> set[int]:
    """The heights that have bodies."""
    return {variant.sizes["h"] for variant in model.variants() if "h" in variant.sizes}


def settle() -> None:
    """Wait until nothing is made aside any more."""
    for thread in threading.enumerate():
        if thread.name == "anydim-adaptive":
            thread.join(60)


def test_exact_that_is_full_leaves_sizes_to_the_generic_body(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    model, failed = depthwise("exact(limit=2)"), []

    def call(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(20):
            for height in order.sample(HEIGHTS, len(HEIGHTS)):
                if model(x=image(height))["y"].tobytes() != wanted[height].tobytes():
                    failed.append(height)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle()
    made = Counter((order.recipe, order.sizes) for order in here.orders)
    assert not failed and len(model.variants()) == 4
    assert max(made.values()) <= 1 + math.log2(1 + 8 * 20 / AFTER)
    assert len(here.orders) <= 2 * 2 * len(HEIGHTS)
    model, before = depthwise("exact(limit=2)"), len(here.orders)
    same(model, wanted, HEIGHTS * 40)
    settle()
    assert len(here.orders) == before + 4 and tall(model) == {3, 4}


def test_no_call_waits_where_exact_is_full(
    here: Here, wanted: dict[int, numpy.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = depthwise("exact(limit=1)"), list[Future[Reply]]()
    same(model, wanted, [3])

    class Slow:
        def submit(self, order: Order) -> Future[Reply]:
            asked.append(Future())
            return asked[-1]

    monkeypatch.setattr(serving, "workers", lambda polite: Slow() if polite else 1 / 0)
    same(model, wanted, [4] * 200)  # a call that waits does so without end
    while len(asked) < 2:  # of both kernels
        time.sleep(0.01)
    model.serve_by("generic")
    settle()
    assert asked and all(each.cancelled() for each in asked)


def test_what_comes_again_takes_the_room_of_what_does_not(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    model = depthwise("exact(limit=2)")
    same(model, wanted, [3, 4])
    for height, launches, there, orders in (
        (9, 10, {3, 4}, 4), (9, 30, {4, 9}, 6), (3, 20, {4, 9}, 6), (3, 40, {3, 9}, 8),
    ):  # fmt: skip
        for _ in range(launches):
            same(model, wanted, [height])
            settle()
        assert tall(model) == there and len(here.orders) == orders
    with settings.override(forbid_compile=True):
        same(model, wanted, [17] * 40)
        settle()
    assert tall(model) == {3, 9} and len(here.orders) == 8


def test_each_part_of_a_condition_has_room_of_its_own(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    model = depthwise("where('h <= 4', exact(limit=1), else_=exact(limit=2))")
    same(model, wanted, [3, 4, 9, 4])
    assert tall(model) == {3, 9}
    same(model, wanted, [10, 17, *HEIGHTS])
    assert tall(model) == {3, 9, 10}


def test_bodies_that_were_prepared_take_room(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    model = depthwise("exact(limit=2)")
    for height in (3, 4, 9):
        assert model.prepare(b=1, h=height, q=10) == 2
    same(model, wanted, [*HEIGHTS, *HEIGHTS])
    assert len(here.orders) == 6 and tall(model) == {4, 9}


def test_adaptive_makes_no_body_anew_that_was_dropped_just_now(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    here.ratio = 0.5
    model = depthwise("adaptive(after=4, limit=1)")
    for height in (3, 9, 3, 9, 3, 9, 3, 9):  # spans are tried, too
        for _ in range(16):
            same(model, wanted, [height])
            settle()
    made = Counter((order.recipe, order.sizes) for order in here.orders)
    assert max(made.values()) <= 1 + math.log2(1 + 64 / 4)
    assert len(here.orders) <= 16
