"""Promise: bodies are made when the strategy says so, and every call is right, to the bit."""

from __future__ import annotations

import json
import random
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.variants import serving
from anydim.compiler.variants.call_sites import Event
from anydim.compiler.variants.strategies import Buckets
from anydim.compiler.variants.workers import Order, Reply
from anydim.runtime.variant_tables import Span
from tests.unit.compiler.variants.models import Here, depthwise, here, image

__all__ = ["here"]
HEIGHTS = (3, 4, 9, 10, 17)


@pytest.fixture(scope="module")
def wanted() -> dict[int, numpy.ndarray]:
    model = depthwise("generic")
    return {height: model(x=image(height))["y"] for height in HEIGHTS}


def same(model: ad.Model, wanted: dict[int, numpy.ndarray], heights: list[int]) -> None:
    for height in heights:
        assert model(x=image(height))["y"].tobytes() == wanted[height].tobytes()


def test_generic_makes_nothing(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    model = depthwise("generic")
    same(model, wanted, [*HEIGHTS, *HEIGHTS])
    assert model.variants() == () and not here.orders and model.prepare(b=1, h=3, q=10) == 0


def test_exact_makes_one_body_for_each_size_of_a_site(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    model = depthwise("exact")
    same(model, wanted, [*HEIGHTS, *HEIGHTS])
    assert len(here.orders) == 2 * len(HEIGHTS) == len(model.variants())
    assert all(variant.hits == 1 for variant in model.variants())
    assert len({(order.recipe, order.sizes) for order in here.orders}) == len(here.orders)


def test_adaptive_keeps_what_is_faster(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    for ratio, kept in ((0.5, 2), (0.99, 0)):
        here.ratio = ratio
        model = depthwise("adaptive(after=4)")
        model._serving._ledger._path.unlink(missing_ok=True)
        same(model, wanted, [3] * 40)
        settle()
        assert len(model.variants()) == kept
        assert all(variant.ratio == ratio for variant in model.variants())
        same(model, wanted, [3, 4, 3])
        assert all(variant.hits >= 2 for variant in model.variants())


def test_adaptive_takes_a_span_for_more_sizes_than_there_is_room_for(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    here.ratio = 0.5
    model = depthwise("adaptive(after=4, limit=1)")
    for _ in range(8):
        same(model, wanted, [3, 4, 9, 10] * 4)
        settle()
    spans = [v for v in model.variants() if any(isinstance(s, tuple) for s in v.sizes.values())]
    tall = [each.sizes["h"] for each in spans if "h" in each.sizes]
    assert all(3 <= low <= high <= 10 for low, high in tall)
    assert any(low <= 4 and high >= 9 for low, high in tall)  # one of fewer sizes may be older
    same(model, wanted, [3, 4, 9, 10, 17] * 20)
    settle()
    assert sum(each.hits for each in spans) >= 40
    assert len([order for order in here.orders if isinstance(order.sizes, Span)]) <= 6


def test_verdicts_are_asked_for_once(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    here.ratio = 0.99
    for orders in (2, 0):
        here.orders.clear()
        model = depthwise("adaptive(after=4)")
        same(model, wanted, [3] * 40)
        settle()
        assert len(here.orders) == orders and not model.variants()


def test_buckets_are_made_with_the_model(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    here.ratio = 0.5
    model = depthwise("buckets(b=1, h=[3, 9], q=10)")
    assert len(here.orders) == 4
    same(model, wanted, list(HEIGHTS))
    explained = " ".join(model.explain(details=True).split())
    assert str(model.variants()[0]) in explained and "window_reduction" in explained
    assert sum(variant.hits for variant in model.variants()) == 6
    assert len(here.orders) == 4
    assert {variant.sizes["h"] for variant in model.variants() if "h" in variant.sizes} == {
        (1, 3), (4, 9)
    }  # fmt: skip
    with pytest.raises(ad.OptionError, match="names dim 'height'"):
        depthwise("buckets(height=3)")


def test_buckets_share_a_search(here: Here) -> None:
    here.ratio = 0.5
    model = depthwise("buckets(b=[1, 2], h=[3, 9], q=10)")
    assert len(here.orders) == 8 == len(model.variants())
    first, rest = here.orders[:2], here.orders[2:]
    assert len({order.recipe for order in first}) == 2 and not any(o.found for o in first)
    largest = {order.recipe: order.sizes.high for order in first if isinstance(order.sizes, Span)}
    schedules = {order.recipe: order.recipe.schedule for order in first}  # what `Here` answers
    for order in rest:
        high = order.sizes.high if isinstance(order.sizes, Span) else order.sizes
        assert high < largest[order.recipe]
        assert order.found[-1] == schedules[order.recipe] or set(order.found) == {
            *schedules.values()
        }
    assert sum(order.budget for order in first) <= 10 >= sum(order.budget for order in rest)
    more = depthwise("buckets(b=[1, 2, 3], h=[3, 9], q=10)")  # verdicts are known, but for b = 3
    new = [order for order in here.orders[8:] if order.most is not None]
    assert len(new) == 4 and len(more.variants()) == 12 and sum(bool(o.found) for o in new) == 2


def test_buckets_are_cut_for_what_was_recorded(here: Here, tmp_path: Path) -> None:
    here.ratio, path = 0.5, tmp_path / "sizes.jsonl"
    plain = depthwise("generic")
    with plain.record(path):
        for height in (3, 3, 4, 9, 9, 17):
            plain(x=image(height))
    model = depthwise(f"buckets(profile={json.dumps(str(path))}, count=3)")
    assert model.strategy == Buckets({"b": 1, "h": [4, 9, 17], "q": 10})
    made = len(here.orders)
    same(model, {h: plain(x=image(h))["y"] for h in range(1, 20)}, list(range(1, 20)))
    assert len(here.orders) == made


def test_parts_have_strategies_of_their_own(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    model = depthwise("generic", strategies={"z": "exact(limit=2)", "y*": "generic()"})
    same(model, wanted, [*HEIGHTS, *HEIGHTS])
    assert len(here.orders) == 2 == len(model.variants())
    assert all(order.recipe == here.orders[0].recipe for order in here.orders)
    assert str(model.strategy) == "generic()" and str(model.strategies["z"]) == "exact(limit=2)"
    assert [launch.body.partition(" ")[0] for launch in model.plan(b=1, h=3, q=10).launches] == [
        "exact", "generic"
    ]  # fmt: skip
    assert (
        model.plan(b=1, h=3, q=10)
        .document()["launches"][0]["body"]
        .startswith("exact window_reduction")
    )
    model.serve_by("generic", {"window_reduction*": "exact"})
    same(model, wanted, [3])
    assert len(model.variants()) == 2
    with pytest.raises(ad.OptionError, match="no node or kernel is called 'softmax'"):
        model.serve_by("generic", {"softmax": "exact"})
    assert len(model.variants()) == 2 and list(model.strategies) == ["window_reduction*"]


def test_conditions_choose_a_strategy_at_each_size(here: Here) -> None:
    generic = depthwise("generic", rows=True)
    wanted = {height: generic(x=image(height))["y"] for height in HEIGHTS}
    model = depthwise("where('h <= 4', exact(), else_=adaptive(after=4))", rows=True)
    here.ratio = 0.5
    same(model, wanted, [3, 4, 9, 10, 3, 4, 9, 10])
    assert {order.most for order in here.orders} == {None}
    first, *_, second = ([o for o in here.orders if o.recipe == r] for r in model.program.recipes)
    assert len(first) == 2 and len(second) == 0  # the softmax knows b*h, no h
    assert "do not determine whether h <= 4" in model.explain(details=True)
    same(model, wanted, [9] * 40)
    settle()
    assert len(model.variants()) == 4 and model.variants()[0].misses > 0
    assert all(order.sizes[-1] for order in here.orders)  # no body for an empty range
    with pytest.raises(ad.OptionError, match="names dim 'n'"):
        model.serve_by("where('n <= 4', exact())")


def test_somebody_may_be_told_of_bodies(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    told: list[Event] = []
    model = depthwise("exact")
    model.on_variant(told.append)
    same(model, wanted, [3])
    assert [event.kind for event in told] == ["compiled", "published"] * 2
    assert told[0].sizes["h"] == 3 and told[0].schedule.startswith("window_reduction")
    here.problem = "no such luck"
    model.on_variant(lambda event: told.append(event) or 1 / 0)
    same(model, wanted, [4])
    assert [event.kind for event in told[4:]] == ["rejected"] * 2
    assert told[-1].reason == "no such luck" and "no such luck" in str(told[-1])
    with pytest.raises(ad.OptionError, match="expected a function"):
        model.on_variant(3)


def test_a_body_that_cannot_be_made_costs_nothing_but_itself(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    here.problem = "no such luck"
    model = depthwise("exact")
    same(model, wanted, [3, 4, 3])
    assert len(here.orders) == 4 and not model.variants()


def test_forbidden_compiles_are_errors(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    model = depthwise("exact")
    assert model.prepare(b=1, h=3, q=10) == 2
    with settings.override(forbid_compile=True):
        same(model, wanted, [3])
        with pytest.raises(ad.OptionError, match="forbid_compile"):
            model(x=image(4))
        same(model, wanted, [3])
    same(model, wanted, [4])


def test_many_callers_cause_one_body_and_get_right_results(
    here: Here, wanted: dict[int, numpy.ndarray]
) -> None:
    model, failed = depthwise("exact(limit=2)"), []

    def call(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(12):
            height = order.choice(HEIGHTS)
            if model(x=image(height))["y"].tobytes() != wanted[height].tobytes():
                failed.append(height)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(model.variants()) <= 4
    model.executable.retire(None)
    assert len(model.executable._retired) <= 1


def test_a_strategy_can_be_exchanged(here: Here, wanted: dict[int, numpy.ndarray]) -> None:
    model = depthwise("exact")
    same(model, wanted, [3, 4])
    model.serve_by("generic")
    same(model, wanted, [3, 9])
    assert model.variants() == () and str(model.strategy) == "generic()"
    model.serve_by("exact")
    same(model, wanted, [3])
    assert len(model.variants()) == 2


def test_whoever_asks_is_answered_whatever_fails(
    here: Here, wanted: dict[int, numpy.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    model = depthwise("exact")
    with monkeypatch.context() as now:
        now.setattr(here, "submit", fails)
        same(model, wanted, [3, 3])
    model = depthwise("adaptive(after=1)")
    with monkeypatch.context() as now:
        now.setattr(model._serving._ledger, "find", fails)
        same(model, wanted, [3] * 20)
        settle()
    here.ratio = 0.5
    same(model, wanted, [4] * 20)
    settle()
    assert {variant.sizes["h"] for variant in model.variants() if "h" in variant.sizes} <= {4}
    assert len(model.variants()) == 2


def test_what_is_ordered_and_not_begun_is_not_made_for_a_model_that_is_closed(
    here: Here, wanted: dict[int, numpy.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Future[Reply]] = []

    class Slow:
        def submit(self, order: Order) -> Future[Reply]:
            asked.append(Future())
            return asked[-1]

    monkeypatch.setattr(serving, "workers", lambda polite: Slow())
    model = depthwise("adaptive(after=1)")
    same(model, wanted, [3] * 20)
    while not asked:
        time.sleep(0.01)
    model.serve_by("generic")
    settle()
    assert asked and all(each.cancelled() for each in asked)


def test_an_interrupt_reaches_who_waits_for_a_body(
    here: Here, wanted: dict[int, numpy.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **more: object) -> None:
        raise KeyboardInterrupt

    model = depthwise("exact")
    with monkeypatch.context() as now:
        now.setattr(model._serving, "_make", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(x=image(3))
    same(model, wanted, [3, 4])
    assert len(model.variants()) == 4


def test_sizes_that_are_rejected_are_not_kept_without_end(
    here: Here, wanted: dict[int, numpy.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anydim.compiler.variants.call_sites.MAX_REJECTED", 2)
    here.problem = "no such luck"
    model = depthwise("exact")
    same(model, wanted, list(HEIGHTS))
    assert all(len(place.rejected) <= 2 for place in model._serving.call_sites)


def settle() -> None:
    """Wait until nothing is made aside any more."""
    for thread in threading.enumerate():
        if thread.name == "anydim-adaptive":
            thread.join(60)


def test_variants_of_rows_across_lanes_compile(here: Here) -> None:
    builder = ad.Builder("centred")
    n = builder.dim("n", 0, 9)
    x = builder.input("x", "float32", [3, n, 37])
    builder.output("y", builder.exp(x - x.mean(axis=0, keepdims=True)))
    model = ad.compile(builder, strategy="exact")
    for size in (8, 0, 4):
        model(x=numpy.zeros((3, size, 37), numpy.float32))
    assert [variant.sizes["n"] for variant in model.variants()] == [8, 4]
