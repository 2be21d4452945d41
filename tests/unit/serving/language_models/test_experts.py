"""Promise: mixtures of experts are one model in all files, and rows of them have their own bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest

import anydim as ad
from anydim.serving.language_models import matrices
from tests.unit.serving.language_models.tiny_models import (
    HEADS,
    LAYERS,
    WIDTH,
    tokenizer,
    weights,
    write_folder,
    write_gguf,
)

COUNT, USED, INNER = 5, 2, 32
NAMES = {
    "mixtral": ("block_sparse_moe.gate", "block_sparse_moe.experts.{}", ("w1", "w3", "w2")),
    "qwen2_moe": ("mlp.gate", "mlp.experts.{}", ("gate_proj", "up_proj", "down_proj")),
    "qwen3_moe": ("mlp.gate", "mlp.experts.{}", ("gate_proj", "up_proj", "down_proj")),
}
ARCHITECTURES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
Tensors = dict[str, numpy.ndarray]


def sparse_weights(kind: str) -> Tensors:
    """Llama's weights with experts in place of feed-forward parts."""
    chance, made = numpy.random.default_rng(1), weights(tokenizer().get_vocab_size())

    def drawn(*shape: int) -> numpy.ndarray:
        return chance.normal(0, shape[-1] ** -0.5, shape).astype(numpy.float32)

    router, experts, parts = NAMES[kind]
    for name in [name for name in made if ".mlp." in name]:
        del made[name]
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}."
        made[f"{stem}{router}.weight"] = drawn(COUNT, WIDTH)
        for number in range(COUNT):
            for part, shape in zip(parts, ((INNER, WIDTH), (INNER, WIDTH), (WIDTH, INNER))):
                made[f"{stem}{experts.format(number)}.{part}.weight"] = drawn(*shape)
        if kind == "qwen2_moe":
            made[f"{stem}mlp.shared_expert_gate.weight"] = drawn(1, WIDTH)
            for part, shape in zip(parts, ((96, WIDTH), (96, WIDTH), (WIDTH, 96))):
                made[f"{stem}mlp.shared_expert.{part}.weight"] = drawn(*shape)
        if kind == "qwen3_moe":
            for part in "qk":
                made[f"{stem}self_attn.{part}_norm.weight"] = drawn(WIDTH // HEADS) + 1
    return made


def folder_of(path: Path, kind: str, tensors: Tensors, **more: Any) -> Path:
    fields = {"model_type": kind, "num_experts": COUNT, "num_experts_per_tok": USED,
              "norm_topk_prob": kind == "qwen3_moe", **more}  # fmt: skip
    return write_folder(path, tensors, **fields)


def gguf_tensors(kind: str, tensors: Tensors) -> Tensors:
    """The tensors of experts as GGUF files have them."""
    router, experts, parts = NAMES[kind]
    made: Tensors = {}
    for layer in range(LAYERS):
        stem, own = f"model.layers.{layer}.", f"blk.{layer}."
        made[f"{own}ffn_gate_inp.weight"] = tensors[f"{stem}{router}.weight"]
        for part, name in zip(("gate", "up", "down"), parts):
            made[f"{own}ffn_{part}_exps.weight"] = numpy.stack(
                [tensors[f"{stem}{experts.format(n)}.{name}.weight"] for n in range(COUNT)]
            )
            if kind == "qwen2_moe":
                made[f"{own}ffn_{part}_shexp.weight"] = tensors[
                    f"{stem}mlp.shared_expert.{name}.weight"]  # fmt: skip
        if kind == "qwen2_moe":
            scale = tensors[f"{stem}mlp.shared_expert_gate.weight"]
            made[f"{own}ffn_gate_inp_shexp.weight"] = scale.reshape(-1)
        if kind == "qwen3_moe":
            for part in "qk":
                made[f"{own}attn_{part}_norm.weight"] = tensors[
                    f"{stem}self_attn.{part}_norm.weight"]  # fmt: skip
    return made


def logits_and_bytes(path: Path, **options: Any) -> tuple[numpy.ndarray, int]:
    """Logits behind some tokens, and bytes of weights."""
    tokens = numpy.random.default_rng(0).integers(4, 300, 40)
    with ad.language_model(path, threads=1, **options) as lm:
        row = lm.model.join()
        logits = lm.model.step({row: tokens})["logits"][0][-1]
        return numpy.array(logits, numpy.float64), lm.memory([1])["weights"]


def logits_of(path: Path, **options: Any) -> numpy.ndarray:
    return logits_and_bytes(path, **options)[0]


def dequantized(array: numpy.ndarray, kind: Any) -> numpy.ndarray:
    data = gguf.quants.quantize(array, kind)
    return numpy.asarray(gguf.quants.dequantize(data, kind), numpy.float32).reshape(array.shape)


def _with_experts(writer: gguf.GGUFWriter) -> None:
    writer.add_expert_count(COUNT)
    writer.add_expert_used_count(USED)


@pytest.mark.sampled(only=["mixtral-Q4_0", "qwen2_moe-Q8_0", "qwen3_moe-F32"])
@pytest.mark.parametrize("format", ("F32", "Q8_0", "Q4_0", "Q4_1"))
@pytest.mark.parametrize("kind", NAMES)
def test_gguf_files_are_the_folder_of_their_values(tmp_path: Path, kind: str, format: str) -> None:
    tensors, code = sparse_weights(kind), gguf.GGMLQuantizationType[format]
    path = write_gguf(tmp_path / "tiny.gguf", format, ARCHITECTURES[kind], more=_with_experts,
        tensors=tensors, named=gguf_tensors(kind, tensors))  # fmt: skip
    if format != "F32":
        tensors = {
            name: dequantized(array, code)
            if array.ndim == 2 and "gate.weight" not in name else array
            for name, array in tensors.items()
        }  # fmt: skip
    expected = logits_of(folder_of(tmp_path / "folder", kind, tensors))
    assert numpy.abs(logits_of(path) - expected).max() <= 1e-4 * numpy.abs(expected).max()


@pytest.mark.parametrize("quantize", (None, "q8", "q4"))
def test_rows_have_their_bits_in_any_company(tmp_path: Path, quantize: str | None) -> None:
    path = folder_of(tmp_path / "tiny", "qwen2_moe", sparse_weights("qwen2_moe"))
    with ad.language_model(path, threads=2, quantize=quantize) as lm:
        prompts = [numpy.random.default_rng(n).integers(4, 300, 3 + 9 * n) for n in range(6)]
        alone = []
        for prompt in prompts:
            row = lm.model.join()
            alone.append(numpy.array(lm.model.step({row: prompt})["logits"][0][-1]))
            for part in (1, 7):
                row = lm.model.join()
                for begin in range(0, len(prompt), part):
                    made = lm.model.step({row: prompt[begin : begin + part]})["logits"][0][-1]
                assert numpy.array_equal(made, alone[-1])
        rows = {lm.model.join(): prompt for prompt in prompts}
        for found, expected in zip(lm.model.step(rows)["logits"], alone):
            assert numpy.array_equal(found[-1], expected)
        answers = [lm.generate(prompt, 12, temperature=0.9, seed=4).read() for prompt in prompts]
        found: dict[int, str] = {}

        def work(number: int) -> None:
            found[number] = lm.generate(
                prompts[number], 12, temperature=0.9, seed=4, speculate=3
            ).read()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[number] for number in range(6)] == answers


@pytest.mark.parametrize("quantize", ("q8", "q4"))
def test_quantised_experts_have_the_values_of_their_codes(tmp_path: Path, quantize: str) -> None:
    tensors = sparse_weights("mixtral")
    path = folder_of(tmp_path / "tiny", "mixtral", tensors)
    bits = {"q8": 8, "q4": 4}[quantize]
    rounded = {
        name: matrices.quantize(array, bits).floats()
        if array.ndim == 2 and "moe.gate" not in name else array
        for name, array in tensors.items()
    }  # fmt: skip
    expected, wide = logits_and_bytes(folder_of(tmp_path / "rounded", "mixtral", rounded))
    found, narrow = logits_and_bytes(path, quantize=quantize)
    assert numpy.abs(found - expected).max() <= 1e-4 * numpy.abs(expected).max()
    assert narrow < wide / 2


def _without(tensors: Tensors) -> None:
    tensors.pop(f"model.layers.1.block_sparse_moe.experts.{COUNT - 1}.w3.weight")


def _more(tensors: Tensors) -> None:
    name = f"model.layers.1.block_sparse_moe.experts.{COUNT}.w3.weight"
    tensors[name] = numpy.ones((INNER, WIDTH), numpy.float32)


def _other(tensors: Tensors) -> None:
    name = "model.layers.0.block_sparse_moe.experts.1.w1.weight"
    tensors[name] = numpy.ones((INNER, WIDTH + 1), numpy.float32)


def _router(tensors: Tensors) -> None:
    tensors["model.layers.0.block_sparse_moe.gate.weight"] = numpy.ones((3, WIDTH), numpy.float32)


def _same(tensors: Tensors) -> None:
    pass


@pytest.mark.parametrize("change, fields, said", (
    (_without, {}, "has no"), (_more, {}, "does not use"), (_other, {}, "differ in shape"),
    (_router, {}, "expected"), (_same, {"num_experts": 0}, "at least 1"),
    (_same, {"num_experts": 3}, "does not use"), (_same, {"num_experts": 10**9}, "at most"),
    (_same, {"num_experts": 4000}, "has no"),
    (_same, {"num_experts_per_tok": COUNT + 1}, "experts of a token"),
    (_same, {"num_experts_per_tok": 0}, "at least 1"),
    (_same, {"num_experts_per_tok": "2"}, "at least 1"),
    (_same, {"num_experts": None}, "at least 1"), (_same, {"decoder_sparse_step": 0}, "at least 1"),
    (_same, {"mlp_only_layers": [0]}, "has no"), (_same, {"num_experts": True}, "at least 1"),
))  # fmt: skip
def test_wrong_experts_say_what_is_wrong(
    tmp_path: Path, change: Callable[[Tensors], None], fields: dict[str, Any], said: str
) -> None:
    tensors = sparse_weights("mixtral")
    change(tensors)
    with pytest.raises(ad.ModelError, match=said):
        ad.language_model(folder_of(tmp_path / "tiny", "mixtral", tensors, **fields))
