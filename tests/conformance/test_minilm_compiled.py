"""Promise: MiniLM, compiled once, agrees with onnxruntime at every size, in any order of sizes."""

from __future__ import annotations

import itertools

import numpy
import onnxruntime
import pytest

import anydim as ad
from examples.minilm.model import model_path

TOLERANCE = 1e-4  # the bar of the project; float32 rounding over six layers stays near 5e-6
BATCHES = (0, 1, 2, 7)
LENGTHS = (1, 2, 15, 16, 17, 128, 511, 512)
VOCABULARY = 30522


@pytest.fixture(scope="module")
def model() -> ad.Model:
    dims = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
    return ad.compile(model_path(), dims=dims, threads=2)


@pytest.fixture(scope="module")
def peer() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(str(model_path()), options)


def feeds(batch: int, seq: int, seed: int = 0) -> dict[str, numpy.ndarray]:
    """Token ids, and masks of ragged lengths with at least one token a row."""
    random = numpy.random.default_rng((seed, batch, seq))
    lengths = random.integers(1, seq + 1, batch)
    mask = (numpy.arange(seq) < lengths[:, None]).astype(numpy.int64)
    return {
        "input_ids": random.integers(0, VOCABULARY, (batch, seq)),
        "attention_mask": mask,
    }


def assert_agree(model: ad.Model, peer: onnxruntime.InferenceSession, batch: int, seq: int) -> None:
    given = feeds(batch, seq)
    ours = model(**given)
    for name, theirs in zip(ours, peer.run(list(ours), given)):
        assert ours[name].shape == theirs.shape
        worst = numpy.abs(ours[name] - theirs).max(initial=0.0)
        assert worst <= TOLERANCE, f"{name} at batch {batch}, seq {seq}: differs by {worst}"


def sizes_in_some_order(seed: int) -> list[tuple[int, int]]:
    table = list(itertools.product(BATCHES, LENGTHS))
    numpy.random.default_rng(seed).shuffle(table)
    return [(int(batch), int(seq)) for batch, seq in table]


@pytest.mark.parametrize("batch,seq", [s for s in sizes_in_some_order(1) if s[0] * s[1] <= 512])
def test_agrees_at_the_table_s_sizes(model, peer, batch, seq) -> None:
    assert_agree(model, peer, batch, seq)


def test_agrees_along_a_sequence_of_sizes(model, peer) -> None:
    """Empty first, then large, small, empty again: what one call leaves must not reach the next."""
    for batch, seq in [(0, 512), (3, 211), (1, 1), (0, 1), (2, 17), (0, 16), (1, 300), (5, 3)]:
        assert_agree(model, peer, batch, seq)


@pytest.mark.parametrize("bad", [VOCABULARY, 40_000, -VOCABULARY - 1])
def test_a_token_that_is_not_in_the_vocabulary(model, peer, bad) -> None:
    for batch, seq in [(1, 1), (3, 17), (8, 32)]:
        given = feeds(batch, seq)
        given["input_ids"][-1, -1] = bad
        with pytest.raises(ad.InputError) as caught:
            model(**given)
        text = str(caught.value)
        assert "/embeddings/word_embeddings/Gather" in text and "word_embeddings.weight'" in text
        assert f"index {bad} is outside -{VOCABULARY}..{VOCABULARY - 1} of 'embeddings" in text
        assert text.endswith("they come from input 'input_ids'")
        assert_agree(model, peer, batch, seq)


def test_a_check_knows_the_vocabulary(model) -> None:
    low, high = model.index_ranges["input_ids"]
    assert (low, high) == (0, VOCABULARY - 1)


def test_agrees_at_random_sizes(model, peer) -> None:
    random = numpy.random.default_rng(2)
    for _ in range(12):
        assert_agree(model, peer, int(random.integers(0, 5)), int(random.integers(1, 160)))


@pytest.mark.slow
def test_agrees_at_the_largest_sizes_of_the_table(model, peer) -> None:
    for batch, seq in [(7, 128), (2, 511), (2, 512), (7, 511), (7, 512), (64, 128)]:
        assert_agree(model, peer, batch, seq)


@pytest.mark.slow
def test_agrees_at_two_hundred_random_sizes(model, peer) -> None:
    random = numpy.random.default_rng(3)
    for _ in range(200):
        assert_agree(model, peer, int(random.integers(0, 17)), int(random.integers(1, 257)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_agrees_in_many_orders(model, peer, seed) -> None:
    sizes = [(0, 1), (0, 512), (8, 128), (1, 512), (2, 3), (1, 1), (4, 65), (0, 7)]
    numpy.random.default_rng(seed).shuffle(sizes)
    for batch, seq in [(0, 5), *sizes, (0, 5)]:
        assert_agree(model, peer, int(batch), int(seq))


def test_the_arena_takes_what_the_plan_says(model) -> None:
    model.trim()
    for batch, seq in [(0, 1), (1, 7), (3, 64), (2, 130), (4, 200)]:
        model.trim()
        model(**feeds(batch, seq))
        assert model.executable.arena_bytes == model.plan(batch=batch, seq=seq).bytes
    assert model.memory.bound is not None
    assert model.plan(batch=64, seq=512).bytes == model.memory.bound


def test_memory_is_not_taken_again_and_again(model) -> None:
    model(**feeds(4, 200))
    before = model.executable.arena_bytes
    for batch, seq in [(1, 7), (4, 200), (0, 1), (3, 64), (2, 130)] * 3:
        model(**feeds(batch, seq))
    assert model.executable.arena_bytes == before


def test_the_arena_is_hardly_more_than_what_lives_at_once(model) -> None:
    """At most 1.05 times the largest set of live intermediates that fusion leaves."""
    sizes = {"batch": 8, "seq": 128}
    program = model.program.straight
    held = {b.name: b.bytes.evaluate(sizes) for b in program.buffers if b.kind == "arena"}
    live = [
        sum(
            held.get(name, 0) for name, (first, last) in program.lives.items() if first <= n <= last
        )
        for n in range(len(program.sites))
    ]
    assert model.plan(**sizes).arena_bytes <= 1.05 * max(live)
