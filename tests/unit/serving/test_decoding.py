"""Promise: a sequence has the tokens that it has alone, whatever others are decoded with it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving import AsyncDecoder, Decoder
from bench.networks.sequences import decoder
from tests.unit.runtime.test_slabs import mapped_bytes

WORDS = 60


@pytest.fixture(scope="module")
def network() -> bytes:
    return decoder(2, 2, 8, WORDS, places=600).SerializeToString()


@pytest.fixture
def model(network: bytes) -> Any:
    return ad.cached(network, ragged={"s": "b"}, threads=1, room=4)


def prompt(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, WORDS, count)


def alone(model: Any, tokens: np.ndarray, most: int, chunk: int) -> list[int]:
    """Greedy tokens of a row that has all steps for itself."""
    row, found = model.join(), list[int]()
    for begin in range(0, len(tokens), chunk):
        logits = model.step({row: tokens[begin : begin + chunk]})["logits"]
    for _ in range(most):
        found.append(int(logits[0][-1].argmax()))
        logits = model.step({row: np.array(found[-1:])})["logits"]
    model.leave(row)
    return found


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("rows", (1, 3, 32))
def test_sequences_of_many_threads_have_their_own_tokens(model: Any, rows: int) -> None:
    lengths = (1, 2, 7, 8, 9, 30, 41, 3, 17)
    expected = {n: alone(model, prompt(n), 12, 8) for n in lengths}
    found = dict[int, list[int]]()
    with Decoder(model, rows=rows, chunk=8) as made:

        def work(n: int) -> None:
            found[n] = list(made.generate(prompt(n), most=12))

        threads = [threading.Thread(target=work, args=(n,)) for n in lengths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == expected
        metrics = made.metrics()
        assert metrics["sequences"] == len(lengths) and metrics["tokens"] == 12 * len(lengths)
        assert metrics["rows"] == metrics["waiting"] == metrics["bytes"]["caches"] == 0
        if rows == 32:
            assert metrics["steps"] < 12 * len(lengths)
    assert model.rows == ()


def test_stop_tokens_choices_and_leaving_early(model: Any) -> None:
    whole = alone(model, prompt(5), 20, 128)
    with Decoder(model) as made:
        stop = whole[7]
        assert list(made.generate(prompt(5), 20, {stop})) == whole[: whole.index(stop) + 1]
        least = list(made.generate(prompt(5), 3, choose=lambda logits: int(logits.argmin())))
        assert len(least) == 3 and least[0] != whole[0]
        tokens = made.generate(prompt(5), 500)
        assert [next(tokens), next(tokens)] == whole[:2]
        tokens.close()
        assert list(made.generate(prompt(5), 2)) == whole[:2]
        assert made.metrics()["rows"] == 0

        def wrong(logits: np.ndarray) -> int:
            raise ValueError("of the caller")

        with pytest.raises(ValueError, match="of the caller"):
            list(made.generate(prompt(5), 3, choose=wrong))


def test_a_wrong_token_ends_its_sequence_alone(model: Any) -> None:
    expected = alone(model, prompt(9), 40, 128)
    with Decoder(model) as made:
        right = made.generate(prompt(9), 40)
        first = next(right)
        with pytest.raises(ad.InputError):
            list(made.generate(np.array([3, 10_000]), 5))
        assert [first, *right] == expected


def test_what_does_not_fit_is_refused_and_memory_stays_below_the_limit(network: bytes) -> None:
    model = ad.cached(network, ragged={"s": "b"}, threads=1)  # no larger step was before
    step = model.step_bytes([31] * 3, [11, 1, 1])
    limit = max(3 * model.cache_bytes([32]) + step, 4 * model.cache_bytes([32]))
    taken, own = list[int](), model.step

    def watched(rows: Any) -> Any:
        found = own(rows)
        caches = model.held_bytes()
        results = found["logits"].values.nbytes
        taken.append(caches + model.model.executable.highest_arena_bytes + results)
        return found

    model.step = watched  # type: ignore[method-assign]
    with Decoder(model, memory=limit) as made:
        with pytest.raises(ad.MemoryLimitError, match=r"and 100 more take .* of a step"):
            made.generate(prompt(100), 100)
        for wrong in ([], [[1]], [1.5], "a", [[1, 2], [3]]):
            with pytest.raises(ad.InputError, match=r"a prompt(: list)? is"):
                made.generate(wrong, 3)
        running = [made.generate(prompt(n), 20) for n in range(2, 12)]
        assert [next(tokens) for tokens in running[:3]]
        assert made.metrics()["bytes"]["caches"] <= limit and made.metrics()["rows"] <= 3
        assert [len(list(tokens)) for tokens in running] == [19] * 3 + [20] * 7
        assert made.metrics()["bytes"]["step"] == 0
    assert limit // 2 < max(taken) <= limit


def test_sequences_that_pause_have_their_own_tokens(model: Any) -> None:
    lengths = (3, 8, 20, 33, 140)
    expected = {n: alone(model, prompt(n), 420, 16) for n in lengths}
    limit = 2 * model.cache_bytes([600]) + model.step_bytes([599] * 3, [16, 1, 1])
    found, most = dict[int, list[int]](), list[int]()
    with Decoder(model, memory=limit, chunk=16) as made:
        assert 512 <= made.longest(2) < made.longest() < 5000
        assert made.longest(20) < 200

        def work(n: int) -> None:
            found[n] = list(made.generate(prompt(n), most=420))

        threads = [threading.Thread(target=work, args=(n,)) for n in lengths]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most.append(model.held_bytes())
            threads[0].join(0.01)
        metrics = made.metrics()
    assert found == expected
    assert metrics["paused"] and metrics["rows"] == metrics["waiting"] == 0
    assert metrics["sequences"] == len(lengths)
    assert sum(metrics["first_token"]["counts"]) == len(lengths)
    assert sum(metrics["between_tokens"]["counts"]) == 419 * len(lengths)
    assert limit // 2 < max(most) <= limit


def logits_of(made: Any, tokens: np.ndarray, most: int = 5) -> list[bytes]:
    """The bits of the logits of new tokens."""
    found = list[bytes]()

    def choose(logits: np.ndarray) -> int:
        found.append(logits.tobytes())
        return int(logits.argmax())

    list(made.generate(tokens, most, choose=choose))
    return found


def test_prompts_that_begin_as_others_have_their_own_bits(model: Any) -> None:
    system = prompt(200)
    own = [np.concatenate([system[:count], prompt(n)]) for count, n in (
        (200, 5), (200, 9), (150, 40), (60, 3), (33, 1), (31, 2), (200, 0))]  # fmt: skip
    expected = []
    for tokens in own:  # each alone, in a decoder that knows nothing
        with Decoder(model) as made:
            expected.append(logits_of(made, tokens))
    with Decoder(model) as made:
        assert [logits_of(made, tokens) for tokens in own] == expected
        metrics = made.metrics()
        assert metrics["reused_tokens"] >= 200 + 150 + 60 + 33
        whole = sum(map(len, own))
        assert metrics["prompt_tokens"] + metrics["reused_tokens"] == whole
        assert metrics["bytes"]["kept"] and not metrics["bytes"]["caches"]
        # a conversation: the row of the turn before goes on
        first = list(made.generate(own[0], 20))
        longer = np.concatenate([own[0], first, prompt(7)])
        before = made.metrics()["reused_tokens"]
        found = logits_of(made, longer)
        assert made.metrics()["reused_tokens"] - before == len(own[0]) + 19
        # beside a row that runs
        running = made.generate(own[1], 300)
        next(running)
        assert logits_of(made, own[0]) == expected[0]
        running.close()
    assert model.rows == ()
    with Decoder(model) as made:
        assert logits_of(made, longer) == found


def test_kept_caches_make_room_for_sequences(model: Any) -> None:
    limit = 3 * model.cache_bytes([256]) + model.step_bytes([255] * 3, [128, 1, 1])
    expected = {n: alone(model, prompt(n), 30, 128) for n in (150, 160, 170, 180, 190)}
    with Decoder(model, memory=limit) as made:
        for _ in range(3):
            for n, tokens in expected.items():
                assert list(made.generate(prompt(n), 30)) == tokens
                found = made.metrics()["bytes"]
                assert 0 < found["kept"] <= limit
        assert len(model.rows) <= 3
        long = list(made.generate(prompt(300), 100))
        assert long == alone_bits(model, made, prompt(300), 100)


def alone_bits(model: Any, made: Any, tokens: np.ndarray, most: int) -> list[int]:
    made.close()
    model.limit_caches(1 << 30)
    return alone(model, tokens, most, 128)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of mappings")
def test_resident_memory_of_caches_is_that_of_the_metrics(network: bytes) -> None:
    """While sequences join, grow, pause and leave, and when only kept caches are there."""
    model = ad.cached(network, ragged={"s": "b"}, threads=1)
    gc.collect()
    before, seen, calls = mapped_bytes(), list[tuple[int, int, int]](), itertools.count()
    limit = 2 * model.cache_bytes([600]) + model.step_bytes([599] * 3, [16, 1, 1])

    def choose(logits: np.ndarray) -> int:
        if next(calls) % 11 == 0:  # the system takes 50 ms to tell
            lengths = [model.length(row) for row in model.rows]
            seen.append((mapped_bytes() - before, model.held_bytes(), model.cache_bytes(lengths)))
        return int(logits.argmax())

    with Decoder(model, memory=limit, chunk=16) as made:
        running = [made.generate(prompt(n), 60, choose=choose) for n in (3, 140, 20, 330, 141)]
        assert [len(list(tokens)) for tokens in running] == [60] * 5
        found = made.metrics()["bytes"]
        assert found["caches"] == 0 < found["kept"] == model.held_bytes() < limit
    assert model.held_bytes() == 0 and mapped_bytes() == before
    assert max(held for _, held, _ in seen) > limit // 3
    for resident, held, formula in seen:
        assert 0.97 * held <= resident <= held == formula


def test_sequences_that_wait_may_leave(model: Any) -> None:
    with Decoder(model, rows=1) as made:
        running = made.generate(prompt(5), 500)
        next(running)
        others = [made.generate(prompt(n), 3) for n in range(1, 9)]
        assert made.metrics()["waiting"] == 8
        for each in others[:-1]:
            each.close()
        assert made.metrics()["waiting"] == 1
        del each, others
        assert made.metrics()["waiting"] == 0
        running.close()
        assert len(list(made.generate(prompt(5), 2))) == 2


def test_packing_of_caches_is_within_the_limit(model: Any) -> None:
    """While arrays grow, the largest one is there twice."""
    slabs = model._slabs
    for memory in (10_000, 100_000, 12_345_678):
        room = model.cache_room(memory, 0)
        largest = max(kind.count * kind.dtype.itemsize for kind in slabs.kinds)
        assert room + room * largest // slabs.bytes_per_element <= memory
        assert model.cache_room(memory, memory // 2) <= memory - memory // 2
        assert model.cache_room(memory, 2 * memory) == 0


def test_caches_of_sequences_are_within_cache_limit(network: bytes) -> None:
    options = {"ragged": {"s": "b"}, "threads": 1, "room": 4}
    limit = ad.cached(network, **options).cache_bytes([32])
    model = ad.cached(network, cache_limit=limit, **options)
    assert model.cache_room(1 << 40, 0) == limit
    with Decoder(model) as made:
        with pytest.raises(ad.MemoryLimitError, match=f"caches may take {limit} bytes"):
            made.generate(prompt(20), 200)
        running = [made.generate(prompt(20), 12) for _ in range(3)]  # the others wait
        first, *others = [list(tokens) for tokens in running]
    assert others == [first] * 2
    model.leave(model.join())
    assert first == alone(model, prompt(20), 12, 128)


def test_rows_of_others_end_a_sequence_and_not_the_decoder(model: Any) -> None:
    row = model.join()
    model.step({row: prompt(300)})
    with Decoder(model, memory="130KiB") as made:
        with pytest.raises(ad.MemoryLimitError, match="caches of 1 row would take") as caught:
            list(made.generate(prompt(3), 5))
        assert "cache_limit" not in str(caught.value)
        model.leave(row)
        assert list(made.generate(prompt(3), 5)) == alone(model, prompt(3), 5, 128)
        assert made.metrics()["rows"] == made.metrics()["bytes"]["caches"] == 0


def test_a_failed_allocation_ends_a_sequence_and_not_the_decoder(model: Any) -> None:
    own = model.limit_caches

    def failing(most: int) -> None:
        model.limit_caches = own
        raise MemoryError

    model.limit_caches = failing
    with Decoder(model) as made:
        with pytest.raises(MemoryError):
            list(made.generate(prompt(3), 5))
        assert len(list(made.generate(prompt(3), 5))) == 5


def test_asyncio_streams(model: Any) -> None:
    expected = {n: alone(model, prompt(n), 9, 128) for n in (3, 8, 20)}

    async def run() -> None:
        async with AsyncDecoder(model) as made:

            async def one(n: int) -> list[int]:
                return [token async for token in made.generate(prompt(n), 9)]

            found = await asyncio.gather(*map(one, expected))
            assert dict(zip(expected, found)) == expected
            tokens = made.generate(prompt(3), 500)
            assert await anext(tokens) == expected[3][0]
            await tokens.aclose()
            assert [token async for token in made.generate(prompt(3), 2)] == expected[3][:2]

    asyncio.run(run())


_AT_EXIT = """
import queue, threading
from anydim.serving.decoder import _Tokens
lock, held = threading.RLock(), threading.Event()
def hold():
    with lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
tokens = _Tokens(queue.SimpleQueue(), lock.acquire)
"""


def test_a_sequence_that_runs_does_not_hold_up_the_end_of_a_process() -> None:
    """The thread of a decoder may end with its lock."""
    subprocess.run([sys.executable, "-c", _AT_EXIT], timeout=60, check=True)
