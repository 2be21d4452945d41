"""BERT sentence encoding in plain numpy at float64, written from the paper and not from a graph.

Sources: Devlin et al. 2018 (the network), Reimers and Gurevych 2019 (mean pooling). Two ways apart
from any ONNX file: weights stay [out, in], heads are sliced columns, and padding keys are left out
of the softmax rather than pushed down by a bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

_PARTS = ("query", "key", "value")
_erf = np.vectorize(math.erf, otypes=[np.float64])


def encode(
    weights: Mapping[str, np.ndarray],
    heads: int,
    input_ids: np.ndarray,
    attention_mask: np.ndarray,
    epsilon: float = 1e-12,
) -> tuple[np.ndarray, np.ndarray]:
    """(last hidden state [batch, seq, hidden], sentence embedding [batch, hidden]).

    Every row of the mask needs at least one 1.
    """
    wide = {name: value.astype(np.float64) for name, value in weights.items()}
    layers = sum(name.endswith("attention.self.query.weight") for name in wide)
    hidden = np.zeros((*input_ids.shape, wide["embeddings.LayerNorm.bias"].size))
    sentence = np.zeros((len(input_ids), hidden.shape[-1]))
    for row, (ids, mask) in enumerate(zip(input_ids, attention_mask.astype(bool))):
        tokens = _embed(wide, ids, epsilon)
        for layer in range(layers):
            tokens = _layer(wide, f"encoder.layer.{layer}.", tokens, mask, heads, epsilon)
        hidden[row] = tokens
        mean = tokens[mask].mean(axis=0)
        sentence[row] = mean / math.sqrt(float(mean @ mean))
    return hidden, sentence


def _embed(weights: Mapping[str, np.ndarray], ids: np.ndarray, epsilon: float) -> np.ndarray:
    words = weights["embeddings.word_embeddings.weight"][ids]
    places = weights["embeddings.position_embeddings.weight"][: len(ids)]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    return _norm(weights, "embeddings.LayerNorm", words + places + kind, epsilon)


def _layer(
    weights: Mapping[str, np.ndarray],
    prefix: str,
    tokens: np.ndarray,
    mask: np.ndarray,
    heads: int,
    epsilon: float,
) -> np.ndarray:
    attended = _attention(weights, prefix + "attention.self.", tokens, mask, heads)
    attended = _linear(weights, prefix + "attention.output.dense", attended)
    tokens = _norm(weights, prefix + "attention.output.LayerNorm", tokens + attended, epsilon)
    inner = _linear(weights, prefix + "intermediate.dense", tokens)
    inner = _linear(weights, prefix + "output.dense", _gelu(inner))
    return _norm(weights, prefix + "output.LayerNorm", tokens + inner, epsilon)


def _attention(
    weights: Mapping[str, np.ndarray], prefix: str, tokens: np.ndarray, mask: np.ndarray, heads: int
) -> np.ndarray:
    query, key, value = (_linear(weights, prefix + part, tokens) for part in _PARTS)
    width = tokens.shape[1] // heads
    mixed = np.empty_like(tokens)
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        scores = query[:, columns] @ key[mask][:, columns].T / math.sqrt(width)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        mixed[:, columns] = shares @ value[mask][:, columns]
    return mixed


def _linear(weights: Mapping[str, np.ndarray], name: str, tokens: np.ndarray) -> np.ndarray:
    return tokens @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(
    weights: Mapping[str, np.ndarray], name: str, tokens: np.ndarray, epsilon: float
) -> np.ndarray:
    centred = tokens - tokens.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _gelu(values: np.ndarray) -> np.ndarray:
    return values * 0.5 * (1.0 + _erf(values / math.sqrt(2.0)))
