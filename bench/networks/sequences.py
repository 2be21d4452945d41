"""Networks that take sequences, every size free: an encoder, a tagger, a step of a decoder."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from bench.networks.writer import FLOAT, INT64, Network

WORDS, PLACES = 1000, 512
BOOL = TensorProto.BOOL
TOKENS = ("all", "last", "behind", "first", "gathered", "mean", "max")


def encoder() -> onnx.ModelProto:
    """MiniLM's layers with sdpa, masks expanded and shapes computed the way torch exports them."""
    net, size, heads = Network(), 384, 12
    width = size // heads
    batch, seq = net.sizes("input_ids", 0, 1)
    zero = net.constant("", 0, np.int64)
    one = net.constant("", 1, np.int64)
    places = net("Range", zero, net.scalar_size("input_ids", 1), one)
    x = net("Gather", net.drawn(WORDS, size), "input_ids")
    x = net("Add", x, net("Gather", net.drawn(2, size), "token_type_ids"))
    row = net("Unsqueeze", places, net.integers(0))
    x = net("Add", x, net("Gather", net.drawn(PLACES, size), row))
    x = net.norm(x, size)
    bias = _mask(net, batch, seq)
    scale = net.number(width**-0.25)
    for _ in range(6):
        query, key, value = (net.heads(net.linear(x, size, size), heads, width) for _ in range(3))
        turned = net("Transpose", key, perm=[0, 1, 3, 2])
        scores = net("MatMul", net("Mul", query, scale), net("Mul", turned, scale))
        shares = net("Softmax", net("Add", scores, bias), axis=-1)
        mixed = net.joined(net("MatMul", shares, value), size)
        x = net.norm(net("Add", net.linear(mixed, size, size), x), size)
        wide = net.gelu(net.linear(x, size, 4 * size))
        x = net.norm(net("Add", net.linear(wide, 4 * size, size), x), size)
    net("Identity", x, output="last_hidden_state")
    tokens = (INT64, ["batch", "seq"])
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    outputs = {"last_hidden_state": (FLOAT, ["batch", "seq", size])}
    return net.model("encoder", dict.fromkeys(inputs, tokens), outputs)


def _mask(net: Network, batch: str, seq: str) -> str:
    """[batch, 1, seq, seq]: 0 where a token is real, else the lowest number."""
    mask = net("Unsqueeze", net("Unsqueeze", "attention_mask", net.integers(1)), net.integers(2))
    shape = net("Concat", batch, net.integers(1), seq, seq, axis=0)
    ones = net("ConstantOfShape", net("Shape", shape), value=_one())
    copied = net("Equal", shape, net("Mul", ones, net.constant("", -1, np.int64)))
    mask = net("Cast", net("Expand", mask, net("Where", copied, ones, shape)), to=FLOAT)
    absent = net("Sub", net.number(1.0), mask)
    lowest = net.number(float(np.finfo(np.float32).min))
    return net("Where", net("Cast", absent, to=BOOL), lowest, absent)


def _one() -> onnx.TensorProto:
    return onnx.helper.make_tensor("value", INT64, [1], [1])


def tagger() -> onnx.ModelProto:
    """Words, two bidirectional LSTM layers, a class for each word: [t, b] -> [t, b, 20]"""
    net, hidden, wide = Network(), 128, 100
    x = net("Gather", net.drawn(WORDS, wide), "ids")
    for _ in range(2):
        weights = [net.drawn(2, 4 * hidden, wide), net.drawn(2, 4 * hidden, hidden)]
        y = net("LSTM", x, *weights, net.drawn(2, 8 * hidden), hidden_size=hidden,
                direction="bidirectional")  # fmt: skip
        turned = net("Transpose", y, perm=[0, 2, 1, 3])
        x, wide = net("Reshape", turned, net.integers(0, 0, -1)), 2 * hidden
    scores = net.linear(net("Tanh", net.linear(x, wide, hidden)), hidden, 20)
    net("LogSoftmax", scores, axis=-1, output="tags")
    return net.model("tagger", {"ids": (INT64, ["t", "b"])}, {"tags": (FLOAT, ["t", "b", 20])})


def decoder(
    layers: int = 12, heads: int = 12, width: int = 64, words: int = WORDS, places: int = PLACES,
    tokens: str = "all",
) -> onnx.ModelProto:  # fmt: skip
    """A step of GPT-2: new words [b, s] and caches [b, heads, past, width] -> logits, caches.

    `tokens` are those that have logits: one of `TOKENS`, see `of_tokens`; "behind": the logits of
    all are computed, and those of the last taken.
    """
    net, size = Network(), heads * width
    cache = (FLOAT, ["b", heads, "past", width])
    inputs = {"ids": (INT64, ["b", "s"])}
    outputs = {"logits": (FLOAT, ["b", "s" if tokens == "all" else 1, words])}
    before, count = net.scalar_size("keys_0", 2), net.scalar_size("ids", 1)
    whole = net("Add", before, count)
    one, zero = (net.constant("", number, np.int64) for number in (1, 0))
    place = net("Range", before, whole, one)
    every = net("Range", zero, whole, one)
    allowed = net("LessOrEqual", every, net("Unsqueeze", place, net.integers(1)))
    x = net("Add", net("Gather", net.drawn(words, size), "ids"),
            net("Gather", net.drawn(places, size), place))  # fmt: skip
    for layer in range(layers):
        qkv = net.linear(net.norm(x, size), size, 3 * size)
        parts = (
            net("Slice", qkv, *map(net.integers, (part * size, (part + 1) * size, 2)))
            for part in range(3)
        )
        query, key, value = (net.heads(part, heads, width) for part in parts)
        names = [f"keys_{layer}", f"values_{layer}"]
        caches = [
            net("Concat", name, new, axis=2, output=f"new_{name}")
            for name, new in zip(names, (key, value))
        ]
        inputs |= dict.fromkeys(names, cache)
        outputs |= {f"new_{name}": (FLOAT, ["b", heads, "total", width]) for name in names}
        scores = net("MatMul", query, net("Transpose", caches[0], perm=[0, 1, 3, 2]))
        scores = net("Div", scores, net.number(width**0.5))
        scores = net("Where", allowed, scores, net.number(-1e9))
        mixed = net("MatMul", net("Softmax", scores, axis=-1), caches[1])
        x = net("Add", net.linear(net.joined(mixed, size), size, size), x)
        wide = net.gelu(net.linear(net.norm(x, size), size, 4 * size))
        x = net("Add", x, net.linear(wide, 4 * size, size))
    x, weights = net.norm(x, size), net.drawn(size, words)
    if tokens == "behind":
        x = of_tokens(net, net("MatMul", x, weights), "last")
        net("Identity", x, output="logits")
    else:
        net("MatMul", of_tokens(net, x, tokens), weights, output="logits")
    return net.model("decoder", inputs, outputs)


def of_tokens(net: Network, x: str, tokens: str) -> str:
    """[b, s, size] -> [b, 1, size]: one token of each row, or one value of all of them."""
    if tokens in ("last", "first"):
        start, end = (-1, np.iinfo(np.int64).max) if tokens == "last" else (0, 1)
        return net("Slice", x, *map(net.integers, (start, end, 1)))
    if tokens == "gathered":
        return net("Gather", x, net.integers(-1), axis=1)
    if tokens in ("mean", "max"):
        return net("ReduceMean" if tokens == "mean" else "ReduceMax", x, net.integers(1))
    return x
