"""Promise: a request has the results of a call of it alone, whatever it is grouped with."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving import AsyncBatcher, Batcher
from anydim.serving.batcher import form_of
from tests.unit.serving.models import (
    dependent,
    encoder,
    encoder_file,
    images,
    same,
    scaled,
    tokens,
)

LENGTHS = (1, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 19, 20)


class Held:
    """Keeps a model's calls waiting until it is released, and counts the requests of each."""

    def __init__(self, batcher: Any, name: str) -> None:
        self.form = batcher.engine.models[name].form
        self._run, self._open = self.form.run, threading.Event()
        self.begun = threading.Event()
        self.groups: list[int] = []
        self.form.run = self.run

    def run(self, items: Any) -> Any:
        self.groups.append(len(items))
        self.begun.set()
        assert self._open.wait(30)
        return self._run(items)

    def release(self) -> None:
        self._open.set()


def test_every_request_has_the_bits_of_a_call_alone() -> None:
    model = encoder()
    plain = ad.compile(encoder_file(), {"seq": (1, 20)}, threads=1)
    random = np.random.default_rng(0)
    rows = [tokens(int(random.choice(LENGTHS)), n) for n in range(300)]
    with Batcher(model) as batcher:
        futures = [batcher.submit({"input_ids": ids}) for ids in rows]
        found = [future.result(60) for future in futures]
        calls = batcher.metrics()["models"]["minilm"]["calls"]
    assert calls < len(rows)
    for ids, results in zip(rows, found):
        alone = model(input_ids=[ids[0]])
        assert results["sentence_embedding"].tobytes() == alone["sentence_embedding"].tobytes()
        assert results["last_hidden_state"].shape == (1, ids.shape[1], 24)
        assert results["last_hidden_state"].tobytes() == alone["last_hidden_state"].values.tobytes()
        exact = plain(input_ids=ids, attention_mask=np.ones_like(ids))["sentence_embedding"]
        np.testing.assert_allclose(results["sentence_embedding"], exact, rtol=1e-4, atol=1e-5)


def test_rows_of_any_form_are_requests() -> None:
    one, two = np.float32([1, 2, 3]), np.float32([[1, 2], [3, 4]])
    with Batcher(scaled()) as batcher:
        alone = batcher({"x": one})
        assert alone["y"].tolist() == [2, 4, 6] and alone["total"] == 6
        assert batcher(one)["y"].tolist() == [2, 4, 6]  # the only input
        both = batcher({"x": two})
        assert both["y"].tolist() == [[2, 4], [6, 8]] and both["total"].tolist() == [3, 7]
        many = batcher({"x": [one, two[0]]})
        assert [row.tolist() for row in many["y"]] == [[2, 4, 6], [2, 4]]
        lists = batcher({"x": [[1.0, 2.0, 3.0], [1.0, 2.0]]})
        assert [row.tolist() for row in lists["y"]] == [[2, 4, 6], [2, 4]]
        assert many["total"].tolist() == [6, 3]
        for shape in ((0, 5), (3, 0), (0, 0)):
            none = batcher({"x": np.zeros(shape, np.float32)})
            assert none["y"].shape == shape and none["total"].shape == shape[:1]
        assert batcher({"x": two}, outputs=["total"]).keys() == {"total"}


def test_padding_behind_rows_is_cut_and_filled() -> None:
    ids = np.concatenate([tokens(6, 1), tokens(6, 2)])
    mask = np.int64([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    with Batcher(encoder()) as batcher:
        found = batcher({"input_ids": ids, "attention_mask": mask})
        short = batcher({"input_ids": ids[:1, :4]})
        state, vector = found["last_hidden_state"], found["sentence_embedding"]
        assert state.shape == (2, 6, 24) and not state[0, 4:].any()
        assert state[0, :4].tobytes() == short["last_hidden_state"].tobytes()
        assert vector[:1].tobytes() == short["sentence_embedding"].tobytes()
        with pytest.raises(ad.InputError, match="is not all ones"):
            batcher({"input_ids": ids[:1], "attention_mask": np.int64([[1, 0, 1, 1, 1, 1]])})


def test_equal_shapes_share_calls_along_a_batch_and_others_do_not() -> None:
    model, random = images(), np.random.default_rng(0)
    given = [random.standard_normal((1 + n % 2, 3, 4 + n % 3)).astype("f4") for n in range(60)]
    batcher = Batcher({})
    batcher.add("images", model, batch="batch")
    held = Held(batcher, "images")
    futures = [batcher.submit({"x": given[0]})]
    assert held.begun.wait(10)
    futures += [batcher.submit({"x": x}) for x in given[1:]]
    held.release()
    for x, future in zip(given, futures):
        assert same(future.result(30), model(x))
    assert max(held.groups) > 1
    batcher.close()
    with Batcher(model) as alone:  # without batch=: a call each
        held = Held(alone, "images")
        held.release()
        assert all(same(alone({"x": x}), model(x)) for x in given[:9])
        assert set(held.groups) == {1}


def test_rows_that_depend_on_each_other_are_not_mixed() -> None:
    model = dependent()
    given = [np.random.default_rng(n).standard_normal((2, 4)).astype("f4") for n in range(12)]
    with Batcher({}) as batcher:
        batcher.add("dependent", model, batch="batch")
        held = Held(batcher, "dependent")
        futures = [batcher.submit({"x": given[0]})]
        assert held.begun.wait(10)
        futures += [batcher.submit({"x": x}) for x in given[1:]]
        held.release()
        assert all(same(f.result(30), model(x)) for x, f in zip(given, futures))
        assert batcher.engine.models["dependent"].form.depends


def test_rows_that_depend_are_found_by_two_threads_at_once() -> None:
    """A shared call that began before another one was found wrong is not believed either."""
    with Batcher({}) as batcher:
        batcher.add("dependent", dependent(), batch="batch")
        form = batcher.engine.models["dependent"].form
        items = [form.read(np.float32([[n, 2, 3, 4]]), None) for n in range(2)]
        alone = [form.run([item])[0] for item in items]
        executable, found = form.executable, list[Any]()
        begun, go = threading.Event(), threading.Event()

        def late(feeds: Any) -> Any:
            results = executable(feeds)
            if threading.current_thread() is thread and not begun.is_set():
                begun.set()
                assert go.wait(30)
            return results

        thread = threading.Thread(target=lambda: found.extend(form.run(items)))
        form.executable = late
        thread.start()
        assert begun.wait(30)
        assert all(map(same, form.run(items), alone))
        go.set()
        thread.join(30)
        assert len(found) == 2 and all(map(same, found, alone))


def test_a_wrong_request_of_a_group_fails_alone() -> None:
    bad = tokens(5)
    bad[0, 2] = 10_000  # no word
    with Batcher(encoder()) as batcher:
        held = Held(batcher, "minilm")
        first = batcher.submit({"input_ids": tokens(3)})
        assert held.begun.wait(10)
        futures = [batcher.submit({"input_ids": ids}) for ids in (tokens(4), bad, tokens(6))]
        held.release()
        assert first.result(10) and futures[0].result(10) and futures[2].result(10)
        with pytest.raises(ad.InputError, match="10000"):
            futures[1].result(10)
        found = batcher.metrics()["models"]["minilm"]
        assert found["done"] == 3 and found["failed"] == 1


# ---- order -------------------------------------------------------------------------------------


def test_priorities_deadlines_and_cancelling() -> None:
    batcher, order = Batcher(scaled()), list[str]()
    held = Held(batcher, "scaled")
    held.form.most_rows = 1  # a request a call
    first = batcher.submit(np.float32([0]))
    assert held.begun.wait(10)

    def submit(name: str, **options: Any) -> Any:
        future = batcher.submit(np.float32([1, 2]), **options)
        future.add_done_callback(lambda _: order.append(name))
        return future

    low, high = submit("low"), submit("high", priority=1)
    late, gone = submit("late", deadline=0.01), submit("gone")
    urgent = submit("urgent", deadline=0.0001 + 30, priority=1)
    assert gone.cancel() and gone.cancelled()
    threading.Event().wait(0.05)
    held.release()
    assert first.result(10) and low.result(10) and high.result(10) and urgent.result(10)
    with pytest.raises(ad.TimeLimitError, match="the deadline was over"):
        late.result(10)
    with pytest.raises(CancelledError):
        gone.result(10)
    assert order[0] == "gone" and order.index("high") < order.index("low")
    found = batcher.metrics()
    assert found["models"]["scaled"]["late"] == found["models"]["scaled"]["cancelled"] == 1
    assert found["memory"]["requests"] == 0 == found["queue"]["waiting"]
    batcher.close()


def test_long_requests_do_not_hold_up_short_ones() -> None:
    begun, release = threading.Event(), threading.Event()
    with Batcher(scaled()) as batcher:
        engine = batcher.engine
        form = engine.models["scaled"].form
        run = form.run

        def run_long(items: Any) -> Any:
            if items[0].extent > 1000:
                begun.set()
                assert release.wait(30)
            return run(items)

        form.run = run_long
        form.costs.learn = lambda *_: None
        for _ in range(20):
            batcher(np.ones(4, np.float32))
        long = batcher.submit(np.ones((40, 90_000), np.float32))
        assert begun.wait(10) and not long.done()
        assert batcher(np.ones(4, np.float32))["total"] == 4
        release.set()
        assert (long.result(10)["total"] == 90_000).all()


def test_a_busy_queue_is_refused_and_close_drains() -> None:
    batcher = Batcher(scaled(), queue=3)
    held = Held(batcher, "scaled")
    futures = [batcher.submit(np.float32([1]))]
    assert held.begun.wait(10)
    futures += [batcher.submit(np.float32([n])) for n in range(3)]
    with pytest.raises(ad.BusyError, match="scaled: 3 requests wait, the most there may be"):
        batcher.submit(np.float32([9]))
    held.release()
    batcher.close()
    assert all(future.result(0) for future in futures)
    with pytest.raises(ad.BusyError, match="takes no more requests"):
        batcher.submit(np.float32([9]))


def test_close_without_drain_ends_what_waits() -> None:
    batcher = Batcher(scaled())
    held = Held(batcher, "scaled")
    first = batcher.submit(np.float32([1]))
    assert held.begun.wait(10)
    other = batcher.submit(np.float32([2]))
    closing = threading.Thread(target=batcher.close, kwargs={"drain": False})
    closing.start()
    with pytest.raises(ad.BusyError, match="the server stops"):
        other.result(10)
    held.release()
    closing.join(10)
    assert first.result(0)["total"] == 1


def test_close_and_a_worker_do_not_both_end_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is free to take requests while close makes their errors."""
    batcher = Batcher(scaled())
    held = Held(batcher, "scaled")
    futures = [batcher.submit(np.float32([1]))]
    assert held.begun.wait(10)
    futures += [batcher.submit(np.float32([n])) for n in range(4)]

    def slow(problem: str) -> ad.BusyError:
        held.release()
        time.sleep(0.1)
        return ad.BusyError(problem)

    monkeypatch.setattr("anydim.serving.engine.BusyError", slow)
    batcher.close(drain=False)
    assert futures[0].result(0)["total"] == 1
    for future in futures[1:]:
        with pytest.raises(ad.BusyError, match="the server stops"):
            future.result(0)
    found = batcher.metrics()
    assert found["models"]["scaled"]["cancelled"] == 4
    assert found["memory"]["requests"] == found["queue"]["waiting"] == 0


# ---- memory ------------------------------------------------------------------------------------


def test_what_can_never_fit_is_refused_with_bytes_and_sizes() -> None:
    with Batcher(scaled(), memory="64 KiB") as batcher:
        with pytest.raises(ad.MemoryLimitError) as caught:
            batcher.submit(np.ones((3, 20_000), np.float32))
        assert "scaled at rows = 3, n.total = 60000, n.longest = 20000 takes" in str(caught.value)
        assert "above the memory limit of 65536 bytes (64 KiB)" in str(caught.value)
        assert "outputs" in str(caught.value)
        assert batcher(np.ones(1000, np.float32))["total"] == 1000


def test_requests_that_wait_and_run_stay_below_the_limit() -> None:
    limit = 1 << 20
    batcher = Batcher(scaled(), memory=limit, calls=2)
    engine, random = batcher.engine, np.random.default_rng(0)
    futures, refused = [], 0
    for number in range(400):
        row = np.full(int(random.integers(1, 30_000)), number, np.float32)
        try:
            futures.append((number, len(row), batcher.submit(row)))
        except ad.BusyError as error:
            assert "are in use" in str(error)
            refused += 1
            futures[0][2].result(30)
            futures = futures[1:]
        with engine._lock:
            assert engine.budget.held + engine.budget.running <= limit
            assert engine.budget.held + engine.budget.largest <= limit
    for number, length, future in futures:
        found = future.result(30)
        assert found["y"].shape == (length,) and (found["y"] == 2 * number).all()
    assert refused and engine.budget.most <= limit
    assert engine.budget.is_clear
    batcher.close()


def test_kept_results_count_until_they_are_released() -> None:
    async def run() -> None:
        async with AsyncBatcher(scaled()) as batcher:
            request = batcher.submit(np.ones((1, 1000), np.float32), keep=True)
            await batcher.outcome(request)
            assert batcher.engine.budget.held == 4000 + 4
            batcher.release(request)
            batcher.release(request)  # once more changes nothing
            assert batcher.engine.budget.held == 0

    asyncio.run(run())


def test_padding_counts_as_it_came_and_as_it_is_filled() -> None:
    async def run() -> None:
        async with AsyncBatcher(encoder()) as batcher:
            ids, mask = tokens(20), np.zeros((1, 20), np.int64)
            mask[0, 0] = 1
            held = Held(batcher, "minilm")
            request = batcher.submit({"input_ids": ids, "attention_mask": mask}, keep=True)
            whole = batcher.submit({"input_ids": ids}, keep=True)
            assert request.held == ids.nbytes + mask.nbytes + whole.item.output_bytes
            filled = whole.item.output_bytes
            held.release()
            results = await batcher.outcome(request)
            assert sum(array.nbytes for array in results.values()) <= filled
            await batcher.outcome(whole)

    asyncio.run(run())


@pytest.mark.parametrize("outcome", ("done", "failed", "rejected", "refused"))
def test_arrays_are_free_once_a_request_has_ended(outcome: str) -> None:
    """Without the garbage collector: no cycle keeps them."""
    kept = list[weakref.ref[np.ndarray]]()

    async def one(batcher: AsyncBatcher) -> None:
        ids = np.full((1, 21 if outcome == "refused" else 9), 3)
        if outcome == "failed":
            ids[0, 4] = 10_000  # no word
        kept.append(weakref.ref(ids))
        await batcher({"input_ids": ids})

    async def run() -> None:
        async with AsyncBatcher(encoder(), queue=1) as batcher:
            if outcome == "rejected":
                held = Held(batcher, "minilm")
                first = asyncio.create_task(batcher({"input_ids": tokens(3)}))
                await asyncio.to_thread(held.begun.wait, 30)
                second = asyncio.create_task(batcher({"input_ids": tokens(3)}))
                await asyncio.sleep(0)
            if outcome == "done":
                await one(batcher)
            else:
                with pytest.raises(ad.UserError):
                    await one(batcher)
            if outcome == "rejected":
                held.release()
                await asyncio.gather(first, second)

    gc.disable()
    try:
        asyncio.run(run())
        assert kept[0]() is None
    finally:
        gc.enable()


def test_results_are_free_once_their_caller_drops_them() -> None:
    """Without the garbage collector: neither futures nor requests keep them."""
    gc.disable()
    try:
        with Batcher(scaled()) as batcher:
            row = np.ones(9, np.float32)
            results = [batcher(row)["y"], batcher.submit(row).result()["y"]]
            kept = [weakref.ref(each) for each in results]
            results.clear()
            assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()


# ---- models, threads, processes ----------------------------------------------------------------


def test_models_share_the_limit_and_may_be_replaced_and_removed() -> None:
    with Batcher({"a": scaled(), "b": encoder()}, memory="8 MiB") as batcher:
        assert batcher(np.float32([1, 2]), "a")["total"] == 3
        assert batcher({"input_ids": tokens(4)}, "b")["sentence_embedding"].shape == (1, 24)
        with pytest.raises(ad.OptionError, match="which model"):
            batcher(np.float32([1]))
        batcher.add("a", images())
        assert batcher(np.zeros((1, 3, 5), np.float32), "a")["y"].shape == (1, 5, 5)
        assert batcher.remove("b")
        with pytest.raises(ad.OptionError, match="there is no model 'b'"):
            batcher({"input_ids": tokens(4)}, "b")


def test_many_threads_submit_at_once() -> None:
    model, wrong = encoder(), list[int]()
    alone = {n: model(input_ids=[tokens(n)[0]])["sentence_embedding"].tobytes() for n in LENGTHS}
    with Batcher(model, calls=2) as batcher:

        def work(seed: int) -> None:
            random = np.random.default_rng(seed)
            for n in random.choice(LENGTHS, 40).tolist():
                found = batcher({"input_ids": tokens(n)}, outputs=("sentence_embedding",))
                if found["sentence_embedding"].tobytes() != alone[n]:
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong and batcher.metrics()["models"]["minilm"]["done"] == 320


def test_a_lone_call_runs_in_its_own_thread() -> None:
    names = list[str]()
    with Batcher(scaled(), memory="1 MiB") as batcher:
        form = batcher.engine.models["scaled"].form
        run = form.run

        def noted(items: Any) -> Any:
            names.append(threading.current_thread().name)
            return run(items)

        form.run = noted  # type: ignore[method-assign]
        for count in (3, 0, 7):
            found = batcher(np.ones(count, np.float32), deadline=5.0)
            assert found["total"] == count and found["y"].shape == (count,)
        with pytest.raises(ad.InputError):
            batcher(np.ones(3, np.float64))
        with pytest.raises(ad.InputError):
            batcher(np.ones(3, np.float32), outputs=["nothing"])
        assert set(names) == {threading.current_thread().name}
        assert batcher.engine.budget.is_clear and not batcher.engine._threads
        assert batcher.metrics()["models"]["scaled"]["done"] == 3
        form.run = lambda items: 1 // 0  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            batcher(np.ones(3, np.float32))
        assert batcher.engine.budget.is_clear


@pytest.mark.parametrize("calls", (1, 2))
def test_a_call_in_its_own_thread_is_one_of_the_calls(calls: int) -> None:
    with Batcher(scaled(), calls=calls) as batcher:
        held = Held(batcher, "scaled")
        found = dict[int, float]()

        def work(count: int) -> None:
            found[count] = float(batcher(np.ones(count, np.float32))["total"])

        first = threading.Thread(target=work, args=(1,))
        first.start()
        assert held.begun.wait(30)
        others = [threading.Thread(target=work, args=(count,)) for count in (2, 3, 4)]
        for thread in others:
            thread.start()
        batcher.submit(np.ones(9, np.float32)).cancel()
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            assert batcher.metrics()["running_calls"] <= calls
            assert len(held.groups) <= calls
        held.release()
        for thread in (first, *others):
            thread.join(30)
        assert found == {count: float(count) for count in (1, 2, 3, 4)}


def test_close_waits_for_a_call_in_the_thread_of_its_caller() -> None:
    batcher = Batcher(scaled())
    held, found = Held(batcher, "scaled"), list[float]()
    thread = threading.Thread(
        target=lambda: found.append(float(batcher(np.ones(2, np.float32))["total"]))
    )
    thread.start()
    assert held.begun.wait(30)
    batcher.close(seconds=0.05)
    assert not found
    threading.Timer(0.1, held.release).start()
    batcher.close()
    assert batcher.engine.groups == 0
    thread.join(30)
    assert found == [2.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_fork_has_threads_of_its_own() -> None:
    batcher = Batcher(scaled())
    assert batcher.submit(np.float32([1])).result()["total"] == 1
    child = os.fork()
    if not child:
        results = batcher.submit(np.float32([5])).result(), batcher(np.float32([5]))
        os._exit(0 if all(each["total"] == 5 for each in results) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert batcher.submit(np.float32([2])).result()["total"] == 2
    batcher.close()


def test_asyncio_results_cancelling_and_deadlines() -> None:
    async def run() -> None:
        async with AsyncBatcher(encoder()) as batcher:
            rows = [tokens(n, 3) for n in LENGTHS]
            found = await asyncio.gather(*(batcher({"input_ids": ids}) for ids in rows))
            for ids, each in zip(rows, found):
                alone = encoder()(input_ids=[ids[0]])["sentence_embedding"]
                assert each["sentence_embedding"].tobytes() == alone.tobytes()
            held = Held(batcher, "minilm")
            first = asyncio.ensure_future(batcher({"input_ids": tokens(3)}))
            await asyncio.to_thread(held.begun.wait, 10)
            gone = asyncio.ensure_future(batcher({"input_ids": tokens(4)}))
            late = asyncio.ensure_future(batcher({"input_ids": tokens(5)}, deadline=0.02))
            await asyncio.sleep(0)
            gone.cancel()
            with pytest.raises(ad.TimeLimitError):  # at the deadline, though a call runs
                await asyncio.wait_for(late, 10)
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert batcher.metrics()["queue"]["waiting"] == 0
            held.release()
            assert (await first)["sentence_embedding"].shape == (1, 24)

    asyncio.run(run())


def test_an_outcome_is_taken_once() -> None:
    async def run() -> None:
        async with AsyncBatcher(encoder()) as batcher:
            for ids in (tokens(3), np.int64([[10_000]])):  # no word
                request = batcher.submit({"input_ids": ids})
                await asyncio.gather(batcher.outcome(request), return_exceptions=True)
                with pytest.raises(ad.InputError, match="outcome of this request was taken before"):
                    await batcher.outcome(request)

    asyncio.run(run())


def test_costs_follow_what_was_measured() -> None:
    with Batcher(encoder()) as batcher:
        for n in range(30):
            batcher({"input_ids": tokens(1 + n % 20)})
        found = batcher.metrics()["models"]["minilm"]
        costs = batcher.engine.models["minilm"].form.costs
    assert found["latency"]["sum"] >= found["seconds"]["waiting"] >= 0
    assert sum(found["latency"]["counts"]) == found["done"] == 30
    before = costs.ratio
    for _ in range(100):
        costs.learn(1e-3, 3e-3 * before)
    assert 2.9 * before < costs.ratio < 3.1 * before
    costs.learn(1e-3, before)  # a stall says nothing
    assert 2.9 * before < costs.ratio < 3.1 * before


def test_lengths_are_predicted_at_once_as_each_alone() -> None:
    form, alone = form_of(encoder()), form_of(encoder())
    alone.costs._seconds.clear()
    for n in (7, *LENGTHS):
        items = [each.read({"input_ids": tokens(n)}, None) for each in (form, alone)]
        assert items[0].own == items[1].own > 0
    assert len(form.costs._seconds) >= 20 > len(alone.costs._seconds)
