"""Promise: embeddings are hidden states, the same alone and in company; wrong texts say why."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest

import anydim as ad
from anydim.serving import Decoder
from anydim.serving.language_models.language_model import LanguageModel
from anydim.serving.language_models.opening import open_files
from tests.unit.serving.language_models.tiny_models import (
    CONTEXT,
    WIDTH,
    weights,
    write_folder,
    write_gguf,
)

TEXTS = ["the quick brown fox", "0", "a model of words and of numbers " * 3, "0"]


@pytest.fixture(scope="module")
def mean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    path = write_folder(tmp_path_factory.mktemp("lm") / "mean")
    (path / "1_Pooling").mkdir()
    settings = {"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(settings), "utf-8")
    with ad.language_model(path, threads=1) as model:
        yield model


def hidden_of(lm: LanguageModel, text: str) -> numpy.ndarray:
    tokens = numpy.array(lm.encode(text))
    row = lm.model.join()
    found = lm.model.step({row: {"ids": tokens, "picks": [], "states": numpy.arange(len(tokens))}})
    lm.model.leave(row)
    return numpy.array(found["hidden"][0], numpy.float64)


def unit(vector: numpy.ndarray) -> numpy.ndarray:
    made: numpy.ndarray = vector / numpy.linalg.norm(vector)
    return made


def test_vectors_are_hidden_states_of_length_one(lm: LanguageModel, mean: LanguageModel) -> None:
    found, other = lm.embed(TEXTS), mean.embed(TEXTS)
    assert found.shape == (4, WIDTH) and found.dtype == numpy.float32
    for text, last, average in zip(TEXTS, found, other):
        states = hidden_of(lm, text)
        assert numpy.allclose(last, unit(states[-1]), atol=1e-6)
        assert numpy.allclose(average, unit(states.mean(axis=0)), atol=1e-6)
    assert numpy.array_equal(found[1], found[3])
    assert numpy.allclose(found[1], other[1], atol=1e-7)  # of one token
    short = lm.embed(TEXTS, dimensions=10)
    assert short.shape == (4, 10) and numpy.allclose(numpy.linalg.norm(short, axis=1), 1)
    assert numpy.allclose(short[0], unit(found[0, :10].astype(numpy.float64)), atol=1e-6)
    assert lm.embed(TEXTS, 1).shape == (4, 1) and lm.embed([]).shape == (0, WIDTH)


def test_bits_do_not_depend_on_company(lm: LanguageModel, mean: LanguageModel) -> None:
    texts = [f"{' 0 1 2'[: 1 + n % 7] * (n % 9 + 1)}x" for n in range(30)]
    for model in (lm, mean):
        alone = numpy.concatenate([model.embed([text]) for text in texts])
        found: dict[int, Any] = {}

        def work(number: int, model: LanguageModel = model, found: Any = found) -> None:
            found[number] = model.embed(texts[number:] + texts[:number])

        answer = model.generate("the quick", 40)
        threads = [threading.Thread(target=work, args=(number,)) for number in (0, 7, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answer.read()
        for number, vectors in found.items():
            assert numpy.array_equal(vectors, numpy.roll(alone, -number, axis=0))
        assert answer.tokens == run_alone(model)


def run_alone(model: LanguageModel) -> list[int]:
    stream = model.generate("the quick", 40)
    stream.read()
    return stream.tokens


def test_prompts_of_several_chunks_and_pauses(mean: LanguageModel) -> None:
    tokens = [numpy.random.default_rng(n).integers(4, 300, 100 + n) for n in range(6)]
    with Decoder(mean.model, chunk=16) as made:
        alone = [made.embed(each, "mean").result() for each in tokens]
        together = [made.embed(each, "mean") for each in tokens]
        assert all(numpy.array_equal(a, b.result()) for a, b in zip(alone, together))
        assert made.metrics()["bytes"]["kept"] == 0
    states = hidden_of(mean, mean.decode(tokens[0].tolist()))
    assert states.shape[1] == alone[0].shape[0]


def test_short_texts_share_steps(lm: LanguageModel) -> None:
    with Decoder(lm.model) as made:
        hold = threading.Event()
        first = made.generate([5], 1, choose=lambda _: int(hold.wait() and 0))
        found = [made.embed([5 + n, 6, 7]) for n in range(20)]
        hold.set()
        assert list(first) == [0]
        assert all(each.result().shape == (WIDTH,) for each in found)
        assert made.metrics()["steps"] <= 4


def test_cancelled_ones_end(lm: LanguageModel) -> None:
    with Decoder(lm.model, rows=1) as made:
        hold = threading.Event()
        first = made.generate([5], 1, choose=lambda _: int(hold.wait() and 0))
        found = [made.embed([5, 6]) for _ in range(8)]
        assert all(each.cancel() for each in found[1:])
        hold.set()
        assert list(first) == [0] and found[0].result().shape == (WIDTH,)
        assert made.metrics()["waiting"] == 0


def test_wrong_texts_are_refused(lm: LanguageModel) -> None:
    for wrong in ("text", None, 3, [3], [None], [[]], [""], [b"a"], [[0.5]], [[-1]], [[1 << 40]],
                  [[[1]]], [["a"]], ["\ud800"], [{}]):  # fmt: skip
        with pytest.raises(ad.InputError):
            lm.embed(wrong)
    with pytest.raises(ad.InputError, match=f"at most {CONTEXT}"):
        lm.embed(["x", [5] * (CONTEXT + 1)])
    assert lm.embed([[5] * CONTEXT]).shape == (1, WIDTH)
    for wrong in (0, -1, WIDTH + 1, 1.5, True, "8"):
        with pytest.raises(ad.OptionError, match="dimensions"):
            lm.embed(["x"], wrong)
    for wrong in ("max", None, 3, ["last"]):
        with pytest.raises(ad.OptionError, match="pooling is"):
            lm.decoder.embed([5], wrong)
    with pytest.raises(ad.MemoryLimitError), Decoder(lm.model, memory=1 << 16) as made:
        made.embed([5] * 100)


def test_folders_of_models_without_a_head_have_other_names(
    lm: LanguageModel, tmp_path: Path
) -> None:
    tensors = {name.removeprefix("model."): array
               for name, array in weights(lm.spec.vocabulary).items()}  # fmt: skip
    with ad.language_model(write_folder(tmp_path / "bare", tensors), threads=1) as other:
        assert numpy.array_equal(other.embed(TEXTS), lm.embed(TEXTS))


def test_files_say_how_texts_end_and_are_pooled(tmp_path: Path, lm: LanguageModel) -> None:
    opened = open_files(write_gguf(tmp_path / "tiny.gguf"), None, None, None, "float32")
    assert opened.pooling == "last" and opened.end == ()
    assert opened.text_tokens("0").tolist() == lm.encode("0")

    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_add_eos_token(True)

    opened = open_files(write_gguf(tmp_path / "other.gguf", more=more), None, None, None, "float32")
    assert opened.pooling == "mean" and len(opened.end) == 1
    assert opened.text_tokens("0").tolist() == [*lm.encode("0"), *opened.end]
    for text, expected in (("{", "not JSON"), ("[]", "not an object"),
                           ('{"pooling_mode_mean_tokens": "yes"}', "mean_tokens")):  # fmt: skip
        folder = write_folder(tmp_path / "folder")
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(text, "utf-8")
        with pytest.raises(ad.ModelError, match=expected):
            open_files(folder, None, None, None, "float32")
