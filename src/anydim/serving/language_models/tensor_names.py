"""Names of weights: those of the decoder, and where files have them.

    embedding, places, norm, head                   of the model
    layers.I.norm1, q, k, v, q_norm, k_norm, o, post1, norm2, gate, up, down, post2
    layers.I.router, expert_gate, expert_up, expert_down, shared_gate, ..., shared_scale

each with `.weight`, and `.bias` where there is one. A row of `FILES` maps these stems to names in
files; several stems with one name are parts of one matrix, one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.serving.language_models.decoder_spec import DecoderSpec
from anydim.serving.language_models.matrices import Matrix, rows_of, take_rows

_LAYER = "layers."


@dataclass(frozen=True)
class FileNames:
    """Where a file has the weights of a decoder.

    Attributes:
        stems: Names in the file by stem; `{}` is the number of the layer, and a second one that of
            the expert, where each expert is a matrix of its own.
        is_transposed: Matrices of layers are [in, out] (GPT-2).
        by_heads: Rows of fused q, k and v are those of one head after another (GPT-NeoX).
        other: Text in names, and what some files have in its place.
    """

    stems: Mapping[str, str]
    is_transposed: bool = False
    by_heads: bool = False
    other: tuple[str, str] = ("", "")

    def names_of(self, weight: str) -> tuple[str, tuple[str, ...]]:
        """The stem of a weight, and its names in files; none where it is not part of them."""
        stem, _, kind = weight.rpartition(".")
        number = ""
        if stem.startswith(_LAYER):
            number, _, stem = stem[len(_LAYER) :].partition(".")
        if stem not in self.stems:
            return stem, ()
        name = f"{self.stems[stem].replace('{}', number, 1)}.{kind}"
        return stem, (name, name.replace(*self.other)) if self.other[0] else (name,)

    def part(self, matrix: Any, stem: str, spec: DecoderSpec) -> Matrix:
        """The part of a matrix or vector of the file that a stem names."""
        if self.is_transposed and matrix.ndim == 2 and stem not in ("embedding", "places", "head"):
            matrix = matrix.T
        fused = [other for other, name in self.stems.items() if name == self.stems[stem]]
        if len(fused) == 1:
            return matrix
        count = matrix.shape[0]
        units = spec.heads * len(fused) if self.by_heads else sum(_units(fused, spec))
        if count % units:
            raise ModelError(
                f"'{self.stems[stem]}' has {count} rows, expected a multiple of {units}"
            )
        if self.by_heads:
            rows = numpy.arange(count).reshape(spec.heads, len(fused), -1)
            return take_rows(matrix, rows[:, fused.index(stem)].reshape(-1))
        sizes = _units(fused, spec)
        unit = count // units
        start = sum(sizes[: fused.index(stem)]) * unit
        return rows_of(matrix, start, start + sizes[fused.index(stem)] * unit)


def _units(fused: list[str], spec: DecoderSpec) -> list[int]:
    """The sizes of parts of a fused matrix, in heads."""
    heads = {"q": spec.heads, "k": spec.kept, "v": spec.kept}
    return [heads.get(each, 1) for each in fused]


_LLAMA = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
    "norm1": "model.layers.{}.input_layernorm", "q": "model.layers.{}.self_attn.q_proj",
    "k": "model.layers.{}.self_attn.k_proj", "v": "model.layers.{}.self_attn.v_proj",
    "q_norm": "model.layers.{}.self_attn.q_norm", "k_norm": "model.layers.{}.self_attn.k_norm",
    "o": "model.layers.{}.self_attn.o_proj", "norm2": "model.layers.{}.post_attention_layernorm",
    "gate": "model.layers.{}.mlp.gate_proj", "up": "model.layers.{}.mlp.up_proj",
    "down": "model.layers.{}.mlp.down_proj",
}  # fmt: skip
_GEMMA = _LLAMA | {
    "post1": "model.layers.{}.post_attention_layernorm",
    "norm2": "model.layers.{}.pre_feedforward_layernorm",
    "post2": "model.layers.{}.post_feedforward_layernorm",
}
_PHI3 = _LLAMA | {
    **dict.fromkeys("qkv", "model.layers.{}.self_attn.qkv_proj"),
    **dict.fromkeys(("gate", "up"), "model.layers.{}.mlp.gate_up_proj"),
}
_QWEN_EXPERTS = _LLAMA | {
    "router": "model.layers.{}.mlp.gate",
    **{f"expert_{part}": f"model.layers.{{}}.mlp.experts.{{}}.{part}_proj"
       for part in ("gate", "up", "down")},
    **{f"shared_{part}": f"model.layers.{{}}.mlp.shared_expert.{part}_proj"
       for part in ("gate", "up", "down")},
    "shared_scale": "model.layers.{}.mlp.shared_expert_gate",
}  # fmt: skip
_MIXTRAL = _LLAMA | {
    "router": "model.layers.{}.block_sparse_moe.gate",
    **{f"expert_{part}": f"model.layers.{{}}.block_sparse_moe.experts.{{}}.{name}"
       for part, name in (("gate", "w1"), ("up", "w3"), ("down", "w2"))},
}  # fmt: skip
_GPT2 = {
    "embedding": "transformer.wte", "places": "transformer.wpe", "norm": "transformer.ln_f",
    "head": "lm_head", "norm1": "transformer.h.{}.ln_1",
    **dict.fromkeys("qkv", "transformer.h.{}.attn.c_attn"),
    "o": "transformer.h.{}.attn.c_proj", "norm2": "transformer.h.{}.ln_2",
    "up": "transformer.h.{}.mlp.c_fc", "down": "transformer.h.{}.mlp.c_proj",
}  # fmt: skip
_NEOX = {
    "embedding": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm", "head": "embed_out",
    "norm1": "gpt_neox.layers.{}.input_layernorm",
    **dict.fromkeys("qkv", "gpt_neox.layers.{}.attention.query_key_value"),
    "o": "gpt_neox.layers.{}.attention.dense",
    "norm2": "gpt_neox.layers.{}.post_attention_layernorm",
    "up": "gpt_neox.layers.{}.mlp.dense_h_to_4h", "down": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
}  # fmt: skip
_BARE = ("model.", "")  # models without a head, as those of embeddings
LLAMA = FileNames(_LLAMA, other=_BARE)
GEMMA = FileNames(_GEMMA, other=_BARE)
PHI3 = FileNames(_PHI3, other=_BARE)
QWEN_EXPERTS = FileNames(_QWEN_EXPERTS, other=_BARE)
MIXTRAL = FileNames(_MIXTRAL, other=_BARE)
GPT2 = FileNames(_GPT2, is_transposed=True, other=("transformer.", ""))
NEOX = FileNames(_NEOX, by_heads=True, other=("embed_out", "lm_head"))

_GGUF = {
    "embedding": "token_embd", "places": "position_embd", "norm": "output_norm", "head": "output",
    "norm1": "blk.{}.attn_norm", "q": "blk.{}.attn_q", "k": "blk.{}.attn_k", "v": "blk.{}.attn_v",
    "q_norm": "blk.{}.attn_q_norm", "k_norm": "blk.{}.attn_k_norm", "o": "blk.{}.attn_output",
    "post1": "blk.{}.post_attention_norm", "norm2": "blk.{}.ffn_norm", "gate": "blk.{}.ffn_gate",
    "up": "blk.{}.ffn_up", "down": "blk.{}.ffn_down", "post2": "blk.{}.post_ffw_norm",
    "router": "blk.{}.ffn_gate_inp", "shared_scale": "blk.{}.ffn_gate_inp_shexp",
    **{f"expert_{part}": f"blk.{{}}.ffn_{part}_exps" for part in ("gate", "up", "down")},
    **{f"shared_{part}": f"blk.{{}}.ffn_{part}_shexp" for part in ("gate", "up", "down")},
}  # fmt: skip
GGUF = FileNames(_GGUF)
GGUF_FUSED = FileNames(_GGUF | dict.fromkeys("qkv", "blk.{}.attn_qkv"))
GGUF_PHI3 = FileNames(
    _GGUF | dict.fromkeys("qkv", "blk.{}.attn_qkv") | dict.fromkeys(("gate", "up"), "blk.{}.ffn_up")
)
