"""Promise: folders that transformers saves have the logits of its modules, row by row of the table.

The tolerance is that of float32 sums in another order, of the largest logit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import anydim as ad
from anydim.serving.language_models.hugging_face import ARCHITECTURES

transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

_SIZES = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 6, "max_position_embeddings": 64, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2}
_WINDOWS = ["sliding_attention", "sliding_attention", "full_attention"]


def _scaled(kind: str, **more: Any) -> dict[str, Any]:
    return {**_GROUPED, "rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "llama tied, biased": ("Llama", {
        **_GROUPED, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "llama 3": ("Llama", _scaled(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)),
    "llama linear": ("Llama", _scaled("linear", factor=4.0)),
    "llama yarn": ("Llama", _scaled("yarn", factor=4.0, original_max_position_embeddings=16)),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": 5, "head_dim": 16}),
    "qwen 2": ("Qwen2", _GROUPED),
    "qwen 2, windows": ("Qwen2", {
        **_GROUPED, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen 3": ("Qwen3", {**_GROUPED, "head_dim": 16}),
    "mixtral": ("Mixtral", {
        **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None}),
    "mixtral, one expert": ("Mixtral", {
        **_GROUPED, "num_local_experts": 1, "num_experts_per_tok": 1, "sliding_window": None}),
    "qwen 2, experts": ("Qwen2Moe", {
        **_GROUPED, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40, "mlp_only_layers": [1]}),
    "qwen 3, experts": ("Qwen3Moe", {
        **_GROUPED, "num_experts": 6, "num_experts_per_tok": 4, "moe_intermediate_size": 24,
        "head_dim": 16, "norm_topk_prob": True, "decoder_sparse_step": 2}),
    "gemma 2": ("Gemma2", {
        **_GROUPED, "head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20}),
    "gemma 3": ("Gemma3Text", {
        **_GROUPED, "head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20,
        "layer_types": _WINDOWS, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "phi 3": ("Phi3", {**_GROUPED, "sliding_window": 7}),
    "phi 3, long": ("Phi3", {
        **_GROUPED, "original_max_position_embeddings": 16, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": [2.0, 2.5, 3.0, 4.0]}}),
    "gpt 2": ("GPT2", {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64}),
    "gpt neox": ("GPTNeoX", {}),
    "gpt neox, serial": ("GPTNeoX", {"use_parallel_residual": False}),
}  # fmt: skip


def test_every_architecture_has_a_case() -> None:
    kinds = {getattr(transformers, f"{name}Config").model_type for name, _ in CASES.values()}
    assert kinds == ARCHITECTURES.keys()


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(tmp_path: Path, case: str) -> None:
    name, options = CASES[case]
    torch.manual_seed(0)
    configuration = getattr(transformers, f"{name}Config")(**{**_SIZES, **options})
    net = transformers.AutoModelForCausalLM.from_config(
        configuration, attn_implementation="eager"
    ).eval()
    for parameter in net.parameters():
        mean, deviation = (0.3, 0.4) if parameter.ndim == 1 else (0.0, 0.25)
        torch.nn.init.normal_(parameter, mean, deviation)
    net.save_pretrained(tmp_path)
    random = numpy.random.default_rng(0)
    # rotations by the long factors are those of sequences above 16
    lengths = (21, 40) if case == "phi 3, long" else (1, 9, 40)
    prompts = [random.integers(0, 97, length) for length in lengths]
    with ad.language_model(tmp_path, threads=1) as lm, torch.no_grad():
        rows = [lm.model.join() for _ in prompts]
        cuts = [max(len(prompt) // 2, 1) for prompt in prompts]
        step = lm.model.step
        first = step({r: p[:cut] for r, p, cut in zip(rows, prompts, cuts)})["logits"]
        rest = {r: p[cut:] for r, p, cut in zip(rows, prompts, cuts) if len(p) > cut}
        second = dict(zip(rest, step(rest)["logits"]))
        for row, prompt, start in zip(rows, prompts, first):
            expected = net(torch.tensor(prompt[None])).logits[0, -1].numpy()
            found = numpy.asarray(second.get(row, start))
            assert numpy.abs(found - expected).max() <= 1e-5 * numpy.abs(expected).max()
