"""Promise: a decoder step with a growing cache gives what onnxruntime gives, from nothing on."""

from __future__ import annotations

import numpy as np
import onnx

import anydim as ad
from tests.models.building import compare, graph, model, node

HEADS, WIDTH, LAYERS, WORDS = 4, 16, 2, 50
SIZE = HEADS * WIDTH


def decoder() -> onnx.ModelProto:
    """ids [b, s], caches [b, heads, past, width] -> logits [b, s, words], caches of past + s."""
    rng = np.random.default_rng(9)
    constants: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        scale = 1 / np.sqrt(shape[0])
        constants[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        return name

    def integer(name: str, number: int | list[int]) -> str:
        constants[name] = np.array(number, np.int64)
        return name

    nodes = _embedding(weight, integer)
    hidden = "embedded"
    for layer in range(LAYERS):
        parts, hidden = _layer(layer, hidden, weight, constants)
        nodes += parts
    nodes.append(node(f"logits = MatMul({hidden}, {weight('head', SIZE, WORDS)})"))
    cache = f"f[b, {HEADS}, past, {WIDTH}]"
    inputs = ["ids l[b, s]"]
    outputs = [f"logits f[b, s, {WORDS}]"]
    for layer in range(LAYERS):
        inputs += [f"keys_{layer} {cache}", f"values_{layer} {cache}"]
        outputs += [f"new_keys_{layer} f[b, {HEADS}, total, {WIDTH}]",
                    f"new_values_{layer} f[b, {HEADS}, total, {WIDTH}]"]  # fmt: skip
    constants["scale"] = np.array(WIDTH**-0.5, np.float32)
    constants["low"] = np.array(-1e9, np.float32)
    integer("heads_shape", [0, 0, HEADS, WIDTH])
    integer("joined_shape", [0, 0, SIZE])
    return model(graph("decoder", inputs, nodes, outputs, constants))


def _embedding(weight, integer) -> list[onnx.NodeProto]:  # type: ignore[no-untyped-def]
    """Words and positions; a mask of what lies behind each position."""
    integer("second", 1)
    integer("third", 2)
    integer("zero", 0)
    integer("one", 1)
    integer("column", [1])
    return [
        node("ids_shape = Shape(ids)"),
        node("count = Gather(ids_shape, second)"),
        node("cache_shape = Shape(keys_0)"),
        node("before = Gather(cache_shape, third)"),
        node("whole = Add(before, count)"),
        node("places = Range(before, whole, one)"),
        node("all_places = Range(zero, whole, one)"),
        node("rows = Unsqueeze(places, column)"),
        node("allowed = LessOrEqual(all_places, rows)"),
        node(f"words = Gather({weight('word_table', WORDS, SIZE)}, ids)"),
        node(f"where = Gather({weight('place_table', 128, SIZE)}, places)"),
        node("embedded = Add(words, where)"),
    ]


def _layer(layer, x, weight, constants):  # type: ignore[no-untyped-def]
    """Attention over the cache and what is new, then two matrices, each around a sum."""
    p = f"l{layer}_"
    constants[p + "ones"] = np.ones(SIZE, np.float32)
    constants[p + "zeros"] = np.zeros(SIZE, np.float32)
    wide = weight(p + "wide", SIZE, 3 * SIZE)
    nodes = [
        node(f"{p}normed = LayerNormalization({x}, {p}ones, {p}zeros)", axis=-1),
        node(f"{p}qkv = MatMul({p}normed, {wide})"),
        node(f"{p}q, {p}k, {p}v = Split({p}qkv)", axis=-1, num_outputs=3),
    ]
    for part in "qkv":
        nodes += [
            node(f"{p}{part}4 = Reshape({p}{part}, heads_shape)"),
            node(f"{p}{part}h = Transpose({p}{part}4)", perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node(f"new_keys_{layer} = Concat(keys_{layer}, {p}kh)", axis=2),
        node(f"new_values_{layer} = Concat(values_{layer}, {p}vh)", axis=2),
        node(f"{p}turned = Transpose(new_keys_{layer})", perm=[0, 1, 3, 2]),
        node(f"{p}raw = MatMul({p}qh, {p}turned)"),
        node(f"{p}scaled = Mul({p}raw, scale)"),
        node(f"{p}masked = Where(allowed, {p}scaled, low)"),
        node(f"{p}weights = Softmax({p}masked)", axis=-1),
        node(f"{p}mixed = MatMul({p}weights, new_values_{layer})"),
        node(f"{p}back = Transpose({p}mixed)", perm=[0, 2, 1, 3]),
        node(f"{p}joined = Reshape({p}back, joined_shape)"),
        node(f"{p}out = MatMul({p}joined, {weight(p + 'out_w', SIZE, SIZE)})"),
        node(f"{p}mid = Add({x}, {p}out)"),
        node(f"{p}normed2 = LayerNormalization({p}mid, {p}ones, {p}zeros)", axis=-1),
        node(f"{p}up = MatMul({p}normed2, {weight(p + 'up_w', SIZE, 2 * SIZE)})"),
        node(f"{p}act = Relu({p}up)"),
        node(f"{p}down = MatMul({p}act, {weight(p + 'down_w', 2 * SIZE, SIZE)})"),
        node(f"{p}end = Add({p}mid, {p}down)"),
    ]
    return nodes, f"{p}end"


def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
    batch, steps, past = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(0, 40))
    steps, past = int(rng.choice([1, steps])), int(rng.choice([0, past]))
    inputs = {"ids": rng.integers(0, WORDS, (batch, steps))}
    for layer in range(LAYERS):
        for kind in ("keys", "values"):
            shape = (batch, HEADS, past, WIDTH)
            inputs[f"{kind}_{layer}"] = rng.standard_normal(shape).astype(np.float32)
    return inputs


def test_logits_and_caches_are_those_of_onnxruntime() -> None:
    dims = {"b": ad.Dim(1, 4), "s": ad.Dim(1, 16), "past": ad.Dim(0, 64)}
    found = compare(decoder(), dims, draw, tolerance=2e-4)
    assert any(values[1].shape[2] == values[0].shape[1] for values in found)  # an empty cache


def test_steps_one_by_one_are_those_of_one_call() -> None:
    """The caches that a call gives are those that the next call takes."""
    run = ad.compile(decoder(), dims={"b": ad.Dim(1, 4), "s": ad.Dim(1, 16), "past": ad.Dim(0, 64)})
    rng = np.random.default_rng(2)
    ids = rng.integers(0, WORDS, (2, 9))
    names = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("keys", "values")]
    caches = {name: np.zeros((2, HEADS, 0, WIDTH), np.float32) for name in names}
    whole = run(ids=ids, **caches)["logits"]
    for step in range(9):
        results = run(ids=ids[:, step : step + 1], **caches)
        caches = {name: results[f"new_{name}"] for name in names}
        np.testing.assert_allclose(results["logits"][:, 0], whole[:, step], rtol=2e-4, atol=2e-4)
