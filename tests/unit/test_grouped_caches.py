"""Promise: decoders of onnxruntime-genai's form, with GroupQueryAttention, keep their caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.api.cached_rows import CachedRows
from anydim.base.errors import InputError

LAYERS, HEADS, KEPT, DEPTH, WORDS = 2, 4, 2, 16, 64
SIZE, BLOCK, PLACES = HEADS * DEPTH, 32, 512
NAMES = [f"past_key_values.{n}.{part}" for n in range(LAYERS) for part in ("key", "value")]


class _Decoder:
    """A model as the builder writes it: 4-bit products, positions and lengths from the mask."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def drawn(self, name: str, *shape: int) -> str:
        values = self.random.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(name, values.astype(np.float32))

    def node(self, kind: str, inputs: str, outputs: str, domain: str = "", **more: Any) -> None:
        named = (part.split(",") for part in (inputs, outputs))
        self.nodes.append(helper.make_node(kind, *named, domain=domain, **more))

    def product(self, x: str, y: str, wide: int, out: int) -> None:
        weights = self.random.integers(0, 256, (out, wide // BLOCK, BLOCK // 2), np.uint8)
        scales = self.random.random(out * wide // BLOCK, np.float32) / 50
        given = ",".join((x, self.constant(f"{y}.w", weights), self.constant(f"{y}.s", scales)))
        self.node("MatMulNBits", given, y, "com.microsoft", K=wide, N=out, bits=4, block_size=BLOCK)

    def norm(self, x: str, y: str) -> None:
        self.node("SimplifiedLayerNormalization", f"{x},{self.drawn(f'{y}.g', SIZE)}", y, axis=-1)

    def lengths(self) -> None:
        self.constant("one", np.int64([1])), self.constant("place", np.int64(1))
        self.node("ReduceSum", "attention_mask,one", "sums")
        self.node("Sub", "sums,one", "last")
        self.node("Cast", "last", "seqlens_k", to=TensorProto.INT32)
        self.node("Shape", "attention_mask", "shape")
        self.node("Gather", "shape,place", "total64", axis=0)
        self.node("Cast", "total64", "total", to=TensorProto.INT32)

    def layer(self, n: int, x: str) -> str:
        self.norm(x, f"{n}.n")
        for part, heads in (("q", HEADS), ("k", KEPT), ("v", KEPT)):
            self.product(f"{n}.n", f"{n}.{part}", SIZE, heads * DEPTH)
        past, made = ([f"{stem}.{n}.{part}" for part in ("key", "value")]
                      for stem in ("past_key_values", "present"))  # fmt: skip
        given = f"{n}.q,{n}.k,{n}.v,{','.join(past)},seqlens_k,total,cos,sin"
        self.node(
            "GroupQueryAttention", given, f"{n}.a,{','.join(made)}", "com.microsoft",
            num_heads=HEADS, kv_num_heads=KEPT, do_rotary=1,
        )  # fmt: skip
        self.product(f"{n}.a", f"{n}.o", SIZE, SIZE)
        self.node("Add", f"{x},{n}.o", f"{n}.x")
        self.norm(f"{n}.x", f"{n}.m")
        self.product(f"{n}.m", f"{n}.up", SIZE, 2 * SIZE)
        self.node("Sigmoid", f"{n}.up", f"{n}.gate")
        self.node("Mul", f"{n}.up,{n}.gate", f"{n}.silu")
        self.product(f"{n}.silu", f"{n}.down", 2 * SIZE, SIZE)
        self.node("Add", f"{n}.x,{n}.down", f"{n}.y")
        return f"{n}.y"

    def model(self) -> bytes:
        angles = np.outer(np.arange(PLACES), 0.5 ** np.arange(DEPTH // 2)).astype(np.float32)
        self.constant("cos", np.cos(angles)), self.constant("sin", np.sin(angles))
        self.lengths()
        self.node("Gather", f"{self.drawn('words', WORDS, SIZE)},input_ids", "x")
        x = "x"
        for n in range(LAYERS):
            x = self.layer(n, x)
        self.norm(x, "end")
        self.product("end", "logits", SIZE, WORDS)
        kinds = TensorProto.INT64, TensorProto.FLOAT
        value = helper.make_tensor_value_info
        cache, total = ("batch_size", KEPT, "past_sequence_length", DEPTH), "total_sequence_length"
        inputs = [value("input_ids", kinds[0], ("batch_size", "sequence_length")),
                  value("attention_mask", kinds[0], ("batch_size", total))]  # fmt: skip
        inputs += [value(name, kinds[1], cache) for name in NAMES]
        whole = ("batch_size", KEPT, total, DEPTH)
        outputs = [value("logits", kinds[1], ("batch_size", "sequence_length", WORDS))]
        outputs += [value(name.replace("past_key_values", "present"), kinds[1], whole)
                    for name in NAMES]  # fmt: skip
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=domains, ir_version=10)
        return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def network() -> bytes:
    return _Decoder().model()


def empty(batch: int) -> dict[str, np.ndarray]:
    return {name: np.zeros((batch, KEPT, 0, DEPTH), np.float32) for name in NAMES}


@pytest.mark.parametrize("batch", (1, 3))
def test_steps_have_what_carried_caches_give(network: bytes, batch: int) -> None:
    peer = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    step = ad.cached(network, threads=1, room=4)
    assert step.in_place and len(step.caches) == 2 * LAYERS
    random, caches, length = np.random.default_rng(0), empty(batch), 0
    for count in (5, 1, 1, 1, 1, 1, 40, 1):
        length += count if count == 1 or not length else 0
        if count != 1 and length != count:
            continue  # onnxruntime takes prompts at the beginning alone
        given = {"input_ids": random.integers(0, WORDS, (batch, count)),
                 "attention_mask": np.ones((batch, length), np.int64)}  # fmt: skip
        right, *kept = peer.run(None, {**given, **caches})
        caches = dict(zip(NAMES, kept))
        found = step(**given)["logits"]
        np.testing.assert_allclose(found, right, 0, 1e-3 * np.abs(right).max())
        assert step.length == length
    step.forget()
    with pytest.raises(InputError, match=r"'attention_mask' has elements other than 1"):
        step(input_ids=np.zeros((batch, 2), np.int64), attention_mask=np.int64([[1, 0]] * batch))


def test_steps_have_the_results_without_a_cache(network: bytes) -> None:
    plain, step = ad.compile(network, threads=1), ad.cached(network, threads=1)
    ids = np.random.default_rng(1).integers(0, WORDS, (2, 20))
    ones = np.ones((2, 20), np.int64)
    whole = plain(input_ids=ids, attention_mask=ones, **empty(2))["logits"]
    for start, end in ((0, 7), (7, 8), (8, 9), (9, 20)):
        found = step(input_ids=ids[:, start:end], attention_mask=ones[:, :end])["logits"]
        np.testing.assert_allclose(found, whole[:, start:end], 0, 1e-4 * np.abs(whole).max())


def test_rows_of_their_own_lengths(network: bytes) -> None:
    ragged = {"sequence_length": "batch_size"}
    model, other = (ad.cached(network, ragged=ragged, threads=1, room=4) for _ in "12")
    assert isinstance(model, CachedRows) and isinstance(other, CachedRows) and model.in_place
    plain = ad.compile(network, threads=1)
    random, rows = np.random.default_rng(2), {model.join(): other.join() for _ in range(3)}
    texts = {row: np.zeros(0, np.int64) for row in rows}
    for counts in ((5, 1, 9), (1, 1, 1), (1, 0, 2), (3, 17, 1), (1, 1, 1)):
        given = {row: random.integers(0, WORDS, count) for row, count in zip(rows, counts)}
        made = model.step(given)["logits"]
        for number, (row, new) in enumerate(given.items()):
            texts[row] = np.concatenate([texts[row], new])
            single = other.step({rows[row]: new})["logits"][0]
            np.testing.assert_array_equal(made[number], single)
            ones = np.ones((1, len(texts[row])), np.int64)
            whole = plain(input_ids=texts[row][None], attention_mask=ones, **empty(1))["logits"][0]
            expected = whole[len(whole) - len(new) :]
            np.testing.assert_allclose(single, expected, 0, 1e-4 * np.abs(whole).max())
    assert "a loop over rows" not in model.model.explain()
