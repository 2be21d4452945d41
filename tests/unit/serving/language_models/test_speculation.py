"""Promise: drafts and shared prompts change how many steps an answer takes, and no bit of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.serving import Decoder
from anydim.serving.drafts import ModelDrafts, PromptDrafts
from anydim.serving.language_models.language_model import MOST_DRAFT, LanguageModel
from tests.unit.serving.language_models import tiny_models
from tests.unit.serving.language_models.tiny_models import tokenizer, weights, write_folder

PROMPT = "0 1 2 3 0 1 2 3 0 1 2"
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"temperature": 0.7, "seed": 3}, {"temperature": 1.0, "top_p": 0.8, "seed": 5},
    {"repetition_penalty": 1.3}, {"logit_bias": {17: 40.0}}, {"stop": "1 2"},
)  # fmt: skip


def folder_of(path: Path, seed: int = 0, **fields: Any) -> Path:
    tensors = weights(tokenizer().get_vocab_size())
    if seed:
        random = numpy.random.default_rng(seed)
        for name in tensors:
            noise = random.normal(0, 0.03, tensors[name].shape)
            tensors[name] = (tensors[name] + noise).astype(numpy.float32)
    tensors["model.embed_tokens.weight"] /= 4  # tokens that differ from the one before
    return write_folder(path, tensors, **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("lm") / "tiny")


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    """A model that is often right, with a shorter context."""
    path = folder_of(tmp_path_factory.mktemp("lm") / "near", seed=1)
    with ad.language_model(path, threads=1, context=40) as model:
        yield model


def run(lm: LanguageModel, prompt: Any = PROMPT, most: int = 60, **options: Any) -> Any:
    stream = lm.generate(prompt, most, **options)
    return stream.read(), stream.tokens, stream.reason


def counts(lm: LanguageModel) -> tuple[int, int, int]:
    found = lm.decoder.metrics()
    return found["steps"], found["drafted_tokens"], found["accepted_tokens"]


def assert_no_rows(model: LanguageModel) -> None:
    """An answer ends at its last token; the row of its drafts is free a moment later."""
    end = time.monotonic() + 60
    while model.model.rows and time.monotonic() < end:
        time.sleep(0.001)
    assert not model.model.rows


@pytest.mark.sampled
@pytest.mark.parametrize("speculate", (1, 2, 7, MOST_DRAFT))
@pytest.mark.parametrize("options", OPTIONS)
def test_answers_are_the_same_with_drafts(
    lm: LanguageModel, near: LanguageModel, options: dict[str, Any], speculate: int
) -> None:
    for most in (1, 2, 60, 100):
        expected = run(lm, most=most, **options)
        assert run(lm, most=most, speculate=speculate, **options) == expected
        for draft in (lm, near):
            assert run(lm, most=most, speculate=speculate, draft=draft, **options) == expected
    assert_no_rows(near)


def test_drafts_that_are_right_save_steps(lm: LanguageModel) -> None:
    start = counts(lm)
    run(lm)
    alone = counts(lm)
    run(lm, speculate=8, draft=lm)
    end = counts(lm)
    assert alone[0] - start[0] >= 60 and alone[1:] == start[1:]
    assert end[0] - alone[0] <= 15
    assert end[1] - alone[1] == end[2] - alone[2] >= 45


def test_logits_have_the_same_bits_with_drafts(lm: LanguageModel) -> None:
    def bits(drafts: Any) -> list[bytes]:
        found = list[bytes]()

        def choose(logits: numpy.ndarray) -> int:
            found.append(logits.tobytes())
            return 17 + len(found) % 3

        list(lm.decoder.generate(prompt, 30, choose=choose, drafts=drafts))
        return found

    prompt = numpy.array(lm.encode(PROMPT))
    before = counts(lm)[2]
    assert bits(PromptDrafts(5)) == bits(None)
    assert counts(lm)[2] - before >= 10


def test_stop_tokens_within_drafts_end_answers(lm: LanguageModel) -> None:
    prompt = numpy.array(lm.encode(PROMPT))
    turn = iter([20, 21, 22, 23] * 8)
    made = lm.decoder.generate(
        prompt, 30, choose=lambda _: next(turn), drafts=PromptDrafts(16), stop={99}
    )
    assert list(made) == ([20, 21, 22, 23] * 8)[:30]
    turn = iter([20, 21, 22, 23] * 3 + [20, 21, 22, 23])
    drafts = PromptDrafts(16)
    begun = counts(lm)[2]
    made = lm.decoder.generate(
        [*prompt.tolist(), 20, 21, 22, 23, 20], 30, choose=lambda _: next(turn), drafts=drafts,
        stop={23},
    )  # fmt: skip
    assert list(made) == [20, 21, 22, 23]
    longer = [*prompt.tolist(), 20, 21, 22, 23, 20, 20, 21, 22, 23]  # the row that was kept
    assert run(lm, longer, 5) == run(lm, longer, 5, speculate=4)
    assert counts(lm)[2] >= begun


def test_errors_of_choosing_behind_right_drafts(lm: LanguageModel) -> None:
    turn = iter([20, 21, 22, 23] * 3)

    def choose(_: numpy.ndarray) -> int:
        token = next(turn, None)
        if token is None:
            raise ValueError("no more")
        return token

    found = list[int]()
    with pytest.raises(ValueError, match="no more"):
        for token in lm.decoder.generate([4, 5], 30, choose=choose, drafts=PromptDrafts(16)):
            found.append(token)
    assert found == [20, 21, 22, 23] * 3


def test_answers_in_company_within_small_memory(
    lm: LanguageModel, near: LanguageModel, folder: Path
) -> None:
    prompts = [PROMPT[: 3 + n] * (1 + n % 3) for n in range(8)]
    expected = [run(lm, prompt, 40, temperature=0.5, seed=n) for n, prompt in enumerate(prompts)]
    found: dict[int, Any] = {}
    room = 2 * lm.model.cache_bytes([128]) + lm.model.step_bytes([127] * 2, [64, 9])
    with ad.language_model(folder, threads=1, memory=room) as small:

        def work(number: int) -> None:
            draft = near if number % 2 else None
            found[number] = run(small, prompts[number], 40, temperature=0.5, seed=number,
                                speculate=6, draft=draft)  # fmt: skip

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(8)] == expected
    assert not near.model.rows


def test_steps_with_drafts_stay_within_the_formula(folder: Path) -> None:
    lm = ad.language_model(folder, threads=1)  # no larger step was before
    model, own, taken = lm.model, lm.model.step, list[int]()
    most = model.step_bytes([99], [33], {"picks": [33]})
    assert most > model.step_bytes([99], [33]) > model.step_bytes([99], [1])

    def watched(rows: Any) -> Any:
        found = own(rows)
        taken.append(found["logits"].values.nbytes + model.model.executable.highest_arena_bytes)
        return found

    model.step = watched  # type: ignore[method-assign]
    with lm:
        run(lm, lm.encode(PROMPT)[:20], 80, speculate=32, draft=lm)
    assert max(taken) <= model.step_bytes([127], [33], {"picks": [33]})


def test_a_draft_model_without_memory_is_left_out(lm: LanguageModel, near: LanguageModel) -> None:
    near.model.limit_caches(near.model.cache_bytes([16]))
    try:
        assert run(lm, speculate=4, draft=near) == run(lm)
    finally:
        near.model.limit_caches(1 << 30)
    assert_no_rows(near)


@pytest.mark.parametrize("wrong", (-1, 1.5, True, "4", None, MOST_DRAFT + 1, [4]))
def test_wrong_counts_are_refused(lm: LanguageModel, wrong: Any) -> None:
    with pytest.raises(ad.OptionError, match="speculate"):
        lm.generate(PROMPT, speculate=wrong)


def test_wrong_draft_models_are_refused(lm: LanguageModel, tmp_path: Path) -> None:
    with pytest.raises(ad.OptionError, match="speculate is 0"):
        lm.generate(PROMPT, draft=lm)
    for wrong in (3, "model.gguf", lm.model):
        with pytest.raises(ad.OptionError, match="draft is"):
            lm.generate(PROMPT, speculate=4, draft=wrong)
    words = ["another", "vocabulary"]
    tensors = weights(tokenizer(words).get_vocab_size())
    path = write_folder(tmp_path / "other", tensors, words=words)
    with (
        ad.language_model(path, threads=1) as other,
        pytest.raises(ad.OptionError, match="tokens, and the model"),
    ):
        lm.generate(PROMPT, speculate=4, draft=other)


def test_drafts_are_what_followed() -> None:
    made = PromptDrafts(8)
    for tokens in ([], [1], [2], [3], [4]):
        assert made.offer(8) == []
        made.read(tokens)
    made.read([5, 1, 2, 3])
    assert made.offer(0) == [] and made.offer(1) == [4] and made.offer(8) == [4, 5]
    made.judge(2, 2)
    assert made.offer(8) == [4, 5, 1, 2]
    made.judge(4, 4)
    assert made.offer(8) == [4, 5, 1, 2, 3, 4, 5, 1]  # beyond the end
    made.judge(8, 0)
    assert [bool(made.offer(8)) for _ in range(3)] == [False, False, True]
    made.judge(1, 0)
    assert [bool(made.offer(8)) for _ in range(5)] == [False] * 4 + [True]


def test_rows_of_draft_models_follow_their_sequence(lm: LanguageModel) -> None:
    made, tokens = ModelDrafts(4, lm.model, 64), lm.encode(PROMPT)
    made.read(tokens)
    first = made.offer(2)
    assert first == run(lm, tokens, 2)[1]
    made.judge(2, 2)
    made.read([first[0], 30])  # not what it drafted
    assert made.offer(2) == run(lm, [*tokens, first[0], 30], 2)[1]
    made.read([31] * (63 - len(tokens) - 2))
    assert len(made.offer(4)) == 1
    made.read([31])
    assert made.offer(4) == []
    count = len(lm.model.rows)
    made.close()
    assert len(lm.model.rows) == count - 1


# ---- optional inputs of steps --------------------------------------------------------------------


def test_picks_are_the_tokens_whose_logits_a_step_has(lm: LanguageModel) -> None:
    model, tokens = lm.model, numpy.arange(4, 14)
    rows = [model.join() for _ in range(4)]
    try:
        every = model.step({rows[0]: {"ids": tokens, "picks": numpy.arange(10)}})["logits"][0]
        assert every.shape == (10, lm.spec.vocabulary)
        found = model.step({
            rows[1]: {"ids": tokens, "picks": numpy.empty(0, numpy.int64)},
            rows[2]: tokens, rows[3]: {"ids": tokens, "picks": [0, -1, 0]},
        })["logits"]  # fmt: skip
        assert found[0].shape == (0, lm.spec.vocabulary)
        assert numpy.array_equal(found[1], every[-1:])
        assert numpy.array_equal(found[2], every[[0, 9, 0]])
        for wrong in ([10], [-11], [1 << 40]):
            with pytest.raises(ad.UserError):
                model.step({rows[2]: {"ids": tokens, "picks": wrong}})
        for wrong in ([[0]], 0, [0.5], ["a"], None):
            with pytest.raises(ad.UserError):
                model.step({rows[2]: {"ids": tokens, "picks": wrong}})
        with pytest.raises(ad.UserError):
            model.step({rows[2]: numpy.empty(0, numpy.int64)})  # no token has logits
        nothing = numpy.empty(0, numpy.int64)
        found = model.step({rows[2]: {"ids": nothing, "picks": nothing}, rows[3]: [5]})["logits"]
        assert [len(each) for each in found] == [0, 1]
        assert model.length(rows[2]) == 10
    finally:
        for row in rows:
            model.leave(row)


def test_hidden_states_are_those_before_the_head(lm: LanguageModel) -> None:
    tokens = numpy.arange(4, 14)
    row = lm.model.join()
    found = lm.model.step({row: {"ids": tokens, "states": [-1, 0]}})
    lm.model.leave(row)
    hidden, logits = found["hidden"][0], found["logits"][0][-1]
    table = tiny_models.weights(lm.spec.vocabulary)["model.embed_tokens.weight"] / 4
    assert hidden.shape == (2, tiny_models.WIDTH)
    assert numpy.allclose(table @ hidden[0], logits, rtol=1e-4, atol=1e-4)


# ---- shared prompts ------------------------------------------------------------------------------


def test_equal_prompts_that_arrive_together_are_read_once(lm: LanguageModel) -> None:
    prompt = numpy.random.default_rng(3).integers(4, 300, 90)
    expected = [run(lm, prompt, 12, temperature=1.0, seed=n)[1] for n in range(4)]
    with Decoder(lm.model, chunk=32) as made:
        lock = threading.Event()
        first = made.generate([5], 1, choose=lambda _: int(lock.wait() and 0))  # holds the step up
        lm_decoder, lm.decoder = lm.decoder, made
        try:
            streams = [lm.generate(prompt, 12, temperature=1.0, seed=n) for n in range(4)]
            lock.set()
            for stream in streams:
                stream.read()
        finally:
            lm.decoder = lm_decoder
        assert list(first) == [0]
        metrics = made.metrics()
    assert [stream.tokens for stream in streams] == expected
    assert metrics["prompt_tokens"] == 1 + 90 + 3 and metrics["reused_tokens"] == 3 * 89
    assert metrics["steps"] <= 1 + 3 + 1 + 12  # the others read their last tokens together
