"""Promise: models of transformers compile as they come, and give what they give in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.export import Dim  # noqa: E402

import anydim as ad  # noqa: E402
from anydim.base.errors import ModelError  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401

WORDS = 99


def of(**options: Any) -> dict[str, Any]:
    return options


def text(**more: Any) -> dict[str, Any]:
    """A small configuration of a model of tokens."""
    return of(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
        pad_token_id=0, **more,
    )  # fmt: skip


def grouped(**more: Any) -> dict[str, Any]:
    return text(num_key_value_heads=2, **more)


def tokens(batch: int, length: int) -> dict[str, Any]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, 3:] = 0
    return {"input_ids": torch.randint(3, WORDS, (batch, length)), "attention_mask": mask}


def both(batch: int, length: int) -> dict[str, Any]:
    decoded = torch.randint(3, WORDS, (batch, 4))
    return {**tokens(batch, length), "decoder_input_ids": decoded}


def pixels(batch: int, _: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def sounds(batch: int, length: int) -> dict[str, Any]:
    decoded = torch.randint(3, WORDS, (batch, length))
    return {"input_features": torch.randn(batch, 8, 40), "decoder_input_ids": decoded}


def image(**more: Any) -> dict[str, Any]:
    return of(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
        image_size=32, patch_size=8, **more,
    )  # fmt: skip


T5 = of(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
BOTH = of(
    vocab_size=WORDS, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2,
)  # fmt: skip
SOUND = {**BOTH, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 32}

Inputs = Callable[[int, int], dict[str, Any]]
MODELS: dict[str, tuple[str, dict[str, Any], Inputs]] = {  # class, configuration, inputs
    "GPT2LMHeadModel": ("GPT2Config", of(n_layer=1, n_head=2, n_embd=32, vocab_size=WORDS,
                        n_positions=64, bos_token_id=1, eos_token_id=2), tokens),
    "LlamaForCausalLM": ("LlamaConfig", grouped(), tokens),
    "BertForSequenceClassification": ("BertConfig", text(), tokens),
    "T5ForConditionalGeneration": ("T5Config", {**T5, "decoder_start_token_id": 0}, both),
    "ViTModel": ("ViTConfig", image(), pixels),
    "Qwen2ForCausalLM": ("Qwen2Config", grouped(), tokens),
    "Qwen3ForCausalLM": ("Qwen3Config", grouped(head_dim=8), tokens),
    "MistralForCausalLM": ("MistralConfig", grouped(sliding_window=None), tokens),
    "MixtralForCausalLM": ("MixtralConfig", grouped(num_local_experts=4), tokens),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", grouped(num_experts=4, num_experts_per_tok=2,
                            moe_intermediate_size=16, head_dim=8), tokens),
    "GemmaForCausalLM": ("GemmaConfig", grouped(head_dim=8), tokens),
    "Phi3ForCausalLM": ("Phi3Config", grouped(), tokens),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", text(), tokens),
    "RobertaModel": ("RobertaConfig", text(), tokens),
    "DistilBertModel": ("DistilBertConfig", of(vocab_size=WORDS, dim=32, n_layers=1, n_heads=4,
                        hidden_dim=48, max_position_embeddings=64), tokens),
    "DebertaV2Model": ("DebertaV2Config", text(relative_attention=True, pos_att_type=["p2c"]),
                       tokens),
    "ModernBertModel": ("ModernBertConfig", text(local_attention=8, cls_token_id=1,
                        sep_token_id=2), tokens),
    "CLIPVisionModel": ("CLIPVisionConfig", image(), pixels),
    "BartForConditionalGeneration": ("BartConfig", {**BOTH, "max_position_embeddings": 64}, both),
    "WhisperForConditionalGeneration": ("WhisperConfig", SOUND, sounds),
}  # fmt: skip


def cases(*shown: str) -> list[Any]:
    """All models; those that are not shown are slow."""
    return [
        name if name in shown else pytest.param(name, marks=pytest.mark.slow) for name in MODELS
    ]


FREE = ("input_ids", "attention_mask", "decoder_input_ids")  # whose second axis is a length


def made(name: str) -> tuple[Any, Inputs]:
    configuration, options, inputs = MODELS[name]
    net = getattr(transformers, name)(getattr(transformers, configuration)(**options))
    for weight in net.parameters():
        if weight.ndim < 2:  # biases are 0 at first, and scales 1
            weight.data += 0.1 * torch.randn_like(weight)
    return net.eval(), inputs


def axes(inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} if name in FREE else {0: Dim.DYNAMIC}
        for name in inputs
    }


def judge(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted) and list(found) == list(wanted)
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(found[name], value, rtol=2e-3, atol=2e-4)


SIZES = ((2, 5), (3, 9), (2, 16), (4, 7))


@pytest.mark.parametrize("name", cases("LlamaForCausalLM", "BertForSequenceClassification"))
@torch.no_grad()
def test_compiled_as_shipped(name: str) -> None:
    net, inputs = made(name)
    first = inputs(*SIZES[0])
    model = ad.compile(net, first, dynamic_shapes=axes(first))
    for sizes in SIZES:
        given = inputs(*sizes)
        judge(model(**given), net(**given))


@pytest.mark.parametrize("name", cases("MixtralForCausalLM"))
@torch.no_grad()
def test_torch_compile(name: str) -> None:
    net, inputs = made(name)
    traced = torch.compile(net, backend="anydim", dynamic=True)
    for sizes in SIZES:
        given = inputs(*sizes)
        judge(traced(**given), net(**given))


@torch.no_grad()
def test_a_cache_of_a_compiled_model_continues_in_torch() -> None:
    net, inputs = made("LlamaForCausalLM")
    model = ad.compile(net, first := inputs(2, 5), dynamic_shapes=axes(first))
    given = {**inputs(3, 8), "attention_mask": torch.ones(3, 8, dtype=torch.int64)}
    found, wanted = model(**given).past_key_values, net(**given).past_key_values
    assert type(found) is type(wanted) and found.get_seq_length() == 8
    new = torch.randint(3, WORDS, (3, 1))
    one, other = (net(input_ids=new, past_key_values=each).logits for each in (found, wanted))
    torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-4)


@torch.no_grad()
def test_a_cache_of_a_window() -> None:
    """Its code fixes the length: the error says how to leave it out, and that works."""
    configuration = transformers.MistralConfig(**grouped(sliding_window=6))
    net = transformers.MistralForCausalLM(configuration).eval()
    first = tokens(2, 5)
    with pytest.raises(ModelError, match="use_cache = False"):
        ad.compile(net, first, dynamic_shapes=axes(first))
    net.config.use_cache = False
    model = ad.compile(net, first, dynamic_shapes=axes(first))
    for sizes in SIZES:
        given = tokens(*sizes)
        judge(model(**given), net(**given))
