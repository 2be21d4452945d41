"""The ONNX file of the MiniLM example is the network it says it is, at every size."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from bert_reference import encode

from examples.minilm import model as minilm
from examples.minilm.tokenizer import Tokenizer

SIZES = [(batch, seq) for batch in (0, 1, 2, 7) for seq in (1, 2, 16, 17)]


def feeds(batch: int, seq: int, vocabulary: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tokens; each row has a random number of real ones, at least one, then padding."""
    random = np.random.default_rng(seed)
    real = random.integers(1, seq + 1, size=(batch, 1))
    mask = (np.arange(seq)[None] < real).astype(np.int64)
    ids = random.integers(0, vocabulary, size=(batch, seq)) * mask
    return {"input_ids": ids, "attention_mask": mask}


def session(model: onnx.ModelProto | Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def small():
    weights = minilm.random_weights(minilm.SMALL)
    return weights, session(minilm.build_model(minilm.SMALL, weights))


@pytest.fixture(scope="module")
def real():
    return minilm.load_weights(), session(minilm.model_path())


@pytest.mark.parametrize(("batch", "seq"), SIZES)
def test_small_encoder_is_bert(small, batch, seq):
    weights, engine = small
    inputs = feeds(batch, seq, minilm.SMALL.vocabulary)
    hidden, sentence = encode(weights, minilm.SMALL.heads, **inputs)
    got_hidden, got_sentence = engine.run(None, inputs)
    assert got_hidden.shape == hidden.shape and got_sentence.shape == sentence.shape
    np.testing.assert_allclose(got_hidden, hidden, atol=2e-5)
    np.testing.assert_allclose(got_sentence, sentence, atol=2e-5)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize(("batch", "seq"), [(0, 1), (1, 1), (1, 17), (7, 2), (2, 16), (1, 128)])
def test_real_encoder_is_bert(real, batch, seq):
    weights, engine = real
    inputs = feeds(batch, seq, 30522, seed=1)
    hidden, sentence = encode(weights, 12, **inputs)
    got_hidden, got_sentence = engine.run(None, inputs)
    assert got_hidden.shape == (batch, seq, 384) and got_sentence.shape == (batch, 384)
    np.testing.assert_allclose(got_hidden, hidden, atol=2e-5)
    np.testing.assert_allclose(got_sentence, sentence, atol=2e-6)


def test_file_declares_two_dims_and_passes_the_checker():
    graph = onnx.load(minilm.model_path()).graph
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*graph.input, *graph.output]
    }
    assert shapes == {
        "input_ids": ["batch", "seq"],
        "attention_mask": ["batch", "seq"],
        "last_hidden_state": ["batch", "seq", 384],
        "sentence_embedding": ["batch", 384],
    }
    onnx.checker.check_model(str(minilm.model_path()), full_check=True)


def test_random_weights_have_the_sizes_of_the_package():
    assert minilm.load_config() == minilm.MINILM
    real, drawn = minilm.load_weights(), minilm.random_weights(minilm.MINILM)
    assert {name: array.shape for name, array in drawn.items()}.items() <= {
        (name, array.shape) for name, array in real.items()
    }


def test_node_names_are_unique_and_torch_like():
    model = minilm.build_model(minilm.SMALL, minilm.random_weights(minilm.SMALL))
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert "/encoder/layer.0/attention/self/query/MatMul" in names
    assert "/encoder/layer.1/output/LayerNorm/LayerNormalization" in names


def test_the_file_is_the_same_every_time(tmp_path):
    first = minilm.write_onnx(tmp_path / "deep" / "first.onnx")
    cached = minilm.model_path()
    assert hashlib.sha256(first.read_bytes()).digest() == (
        hashlib.sha256(cached.read_bytes()).digest()
    ), "the graph changed: raise REVISION in examples/minilm/model.py"
    assert [path.name for path in first.parent.iterdir()] == ["first.onnx"]


def test_a_written_file_is_not_written_again(tmp_path):
    path = tmp_path / "minilm.onnx"
    path.write_bytes(b"already here")
    assert minilm.model_path(path) == path
    assert path.read_bytes() == b"already here"


def test_tokenizer_pads_to_the_longest_and_cuts_at_its_limit():
    tokenizer = Tokenizer()
    one = tokenizer.one("The cat sleeps.")
    assert one["input_ids"].tolist() == [[101, 1996, 4937, 25126, 1012, 102]]
    assert one["attention_mask"].tolist() == [[1] * 6]
    two = tokenizer.batch(["The cat sleeps.", "Hello"])
    assert two["input_ids"].dtype == two["attention_mask"].dtype == np.int64
    assert two["input_ids"][1].tolist() == [101, 7592, 102, 0, 0, 0]
    assert two["attention_mask"].sum(axis=1).tolist() == [6, 3]
    assert tokenizer.one("word " * 600)["input_ids"].shape == (1, 512)
    assert tokenizer.batch([])["input_ids"].shape == (0, 1)
    assert tokenizer.length("") == 2


def test_meaning_is_nearer_than_wording(real):
    sentences = [
        "A kitten naps on the couch.",
        "The cat sleeps on the sofa.",
        "The couch factory sleeps at weekends.",
        "Shares fell sharply on Friday.",
    ]
    embedding = real[1].run(["sentence_embedding"], Tokenizer().batch(sentences))[0]
    nearness = embedding @ embedding[0]
    assert np.argsort(-nearness)[:2].tolist() == [0, 1]
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-6)
