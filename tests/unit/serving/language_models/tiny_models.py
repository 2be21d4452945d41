"""Tiny language models as files: folders of Hugging Face, and GGUF files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WIDTH, HIDDEN, HEADS, KEPT, LAYERS, CONTEXT = 64, 96, 4, 2, 2, 128
TEXTS = ["the quick brown fox jumps over the lazy dog", "a model of words and of numbers 0 1 2 3"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer(words: Sequence[str] = ()) -> Tokenizer:
    """Byte pairs of two texts, with the special tokens of `TEMPLATE`, and whole `words`."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(TEXTS, trainer)
    made.add_tokens(list(words))
    return made


def config(vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "llama", "vocab_size": vocabulary, "hidden_size": WIDTH,
        "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KEPT, "max_position_embeddings": CONTEXT, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "eos_token_id": 0,
    }  # fmt: skip


def weights(vocabulary: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(0)
    depth = WIDTH // HEADS

    def drawn(*shape: int) -> numpy.ndarray:
        return random.normal(0, shape[-1] ** -0.5, shape).astype(numpy.float32)

    made = {
        "model.embed_tokens.weight": drawn(vocabulary, WIDTH) * 8,
        "model.norm.weight": numpy.ones(WIDTH, numpy.float32),
    }
    for number in range(LAYERS):
        name = f"model.layers.{number}."
        made |= {
            f"{name}self_attn.q_proj.weight": drawn(HEADS * depth, WIDTH),
            f"{name}self_attn.k_proj.weight": drawn(KEPT * depth, WIDTH),
            f"{name}self_attn.v_proj.weight": drawn(KEPT * depth, WIDTH),
            f"{name}self_attn.o_proj.weight": drawn(WIDTH, HEADS * depth),
            f"{name}mlp.gate_proj.weight": drawn(HIDDEN, WIDTH),
            f"{name}mlp.up_proj.weight": drawn(HIDDEN, WIDTH),
            f"{name}mlp.down_proj.weight": drawn(WIDTH, HIDDEN),
            f"{name}input_layernorm.weight": numpy.ones(WIDTH, numpy.float32),
            f"{name}post_attention_layernorm.weight": numpy.ones(WIDTH, numpy.float32),
        }
    return made


def write_folder(
    folder: Path, tensors: dict[str, numpy.ndarray] | None = None, template: str = TEMPLATE,
    words: Sequence[str] = (), **fields: Any,
) -> Path:  # fmt: skip
    """A folder of Hugging Face; `fields` replace those of its config."""
    own = tokenizer(words)
    size = own.get_vocab_size()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(size) | fields), "utf-8")
    own.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": template, "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    save_file(weights(size) if tensors is None else tensors, folder / "model.safetensors")
    return folder


_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.weight"
    number, _, rest = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{_NAMES[rest]}.weight"


def _by_pairs(matrix: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows of q and k as GGUF files of Llama have them: pairs that are rotated are neighbours."""
    parts = matrix.reshape(heads, 2, -1, matrix.shape[1])
    return numpy.ascontiguousarray(parts.swapaxes(1, 2).reshape(matrix.shape))


def write_gguf(
    path: Path, kind: str = "F32", architecture: str = "llama",
    more: Callable[[gguf.GGUFWriter], Any] = lambda _: None,
    tensors: dict[str, numpy.ndarray] | None = None, named: dict[str, numpy.ndarray] | None = None,
) -> Path:  # fmt: skip
    """The same model as a GGUF file whose matrices have a format; `more` adds metadata. Weights are
    those of `tensors` that every model has, and `named`, by GGUF's names."""
    own = tokenizer()
    tokens = [own.id_to_token(number) for number in range(own.get_vocab_size())]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEPT)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    merges = json.loads(own.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    more(writer)
    kind_of = gguf.GGMLQuantizationType[kind]
    whole = weights(len(tokens)) if tensors is None else tensors
    own_names = weights(len(tokens)).keys() & whole.keys()
    arrays = {_gguf_name(name): array for name, array in whole.items() if name in own_names}
    for name, array in {**arrays, **(named or {})}.items():
        heads = {"attn_q.weight": HEADS, "attn_k.weight": KEPT}.get(name.partition(".")[2][2:], 0)
        is_paired = heads and architecture == "llama"
        array = _by_pairs(array, heads) if is_paired else array
        if array.ndim >= 2 and kind != "F32" and "ffn_gate_inp" not in name:
            data = gguf.quants.quantize(array, kind_of)
            writer.add_tensor(name, data, raw_dtype=kind_of)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
