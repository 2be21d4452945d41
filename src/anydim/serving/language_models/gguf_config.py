"""The metadata of a GGUF file as the configuration and the names of its decoder.

Keys are those of the GGUF specification (ggml/docs/gguf.md); what files do not say is as llama.cpp
computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.base.user_values import short_repr
from anydim.serving.language_models import tensor_names as names
from anydim.serving.language_models.config_fields import Config
from anydim.serving.language_models.decoder_spec import DecoderSpec, Rope
from anydim.serving.language_models.hugging_face import ARCHITECTURES
from anydim.serving.language_models.matrices import Blocks
from anydim.serving.language_models.rope_scaling import rope_from
from anydim.serving.language_models.tensor_names import FileNames
from anydim.serving.language_models.weight_files import TensorFile

_FIELDS = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps", "rope.freq_base": "rope_theta",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "vocab_size": "vocab_size",
    "use_parallel_residual": "use_parallel_residual",
    "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
}  # fmt: skip
_METADATA = "the metadata of the file"
_SCALINGS = {"linear": "linear", "yarn": "yarn", "longrope": "longrope"}
_LARGEST_GEMMAS = {("gemma2", 46), ("gemma3", 62)}  # layers of those with another score scale


@dataclass(frozen=True)
class GgufRow:
    """An architecture: its `model_type`, its names, its activation, and how pairs are rotated."""

    model_type: str
    names: FileNames = names.GGUF
    activation: str = "silu"
    is_interleaved: bool = False


_ROWS = {
    "llama": GgufRow("llama", is_interleaved=True),
    "qwen2": GgufRow("qwen2"),
    "qwen3": GgufRow("qwen3"),
    "qwen2moe": GgufRow("qwen2_moe"),
    "qwen3moe": GgufRow("qwen3_moe"),
    "gemma2": GgufRow("gemma2", activation="gelu_pytorch_tanh"),
    "gemma3": GgufRow("gemma3_text", activation="gelu_pytorch_tanh"),
    "phi3": GgufRow("phi3", names.GGUF_PHI3),
    "gpt2": GgufRow("gpt2", names.GGUF_FUSED, "gelu_new"),
    "gptneox": GgufRow("gpt_neox", names.GGUF_FUSED, "gelu"),
}


def gguf_context(fields: Mapping[str, Any]) -> int:
    """The most tokens of a sequence that a file declares."""
    return _config(fields, *_row(fields)).whole("max_position_embeddings")


def gguf_spec(
    fields: Mapping[str, Any], file: TensorFile, context: int
) -> tuple[DecoderSpec, FileNames]:
    """The decoder of a GGUF file and its names. Raises ModelError for an unknown architecture."""
    kind, row = _row(fields)
    config = _config(fields, kind, row, file)
    spec = ARCHITECTURES[row.model_type].spec(config, context)
    divisors = _vector(file, "rope_freqs.weight")
    layers = tuple(
        replace(layer, rope=layer.rope and _rope_in_file(layer.rope, row, divisors))
        for layer in spec.layers
    )
    # files have the offset in the scales of norms
    return replace(spec, layers=layers, norm_offset=0.0), row.names


def _row(fields: Mapping[str, Any]) -> tuple[str, GgufRow]:
    kind = Config(fields, _METADATA).text("general.architecture", default="")
    if kind not in _ROWS:
        raise ModelError(f"GGUF files of architecture {short_repr(kind)} are not known",
                         f"known are {quote_list(_ROWS)}")  # fmt: skip
    if kind == "llama" and fields.get("llama.expert_count"):
        return kind, replace(_ROWS[kind], model_type="mixtral")
    return kind, _ROWS[kind]


def _config(
    fields: Mapping[str, Any], kind: str, row: GgufRow, file: TensorFile | None = None
) -> Config:
    own = {name.removeprefix(f"{kind}."): value for name, value in fields.items()}
    made: dict[str, Any] = {
        other: own[name] for name, other in _FIELDS.items() if own.get(name) is not None
    }
    made |= {"model_type": row.model_type, "hidden_act": row.activation,
             "norm_topk_prob": kind == "qwen3moe"}  # fmt: skip
    held, given = Config(own, _METADATA), Config(made, _METADATA)
    tokens = Config(fields, _METADATA).items("tokenizer.ggml.tokens", str, "a list of texts")
    made.setdefault("vocab_size", len(tokens or ()))
    width, heads = given.whole("hidden_size"), given.whole("num_attention_heads")
    depth = given.whole("head_dim", default=max(width // heads, 1))
    if held.get("rope.dimension_count"):
        made["partial_rotary_factor"] = held.whole("rope.dimension_count") / depth
    scaling = _scaling(held)
    if file is not None and "rope_factors_long.weight" in file.names:
        scaling = {
            "rope_type": "longrope", "attention_factor": held.get("rope.scaling.attn_factor"),
            **{f"{name}_factor": _read_list(file, f"rope_factors_{name}.weight")
               for name in ("long", "short")},
        }  # fmt: skip
    if own.get("rope.scaling.original_context_length"):
        made["original_max_position_embeddings"] = own["rope.scaling.original_context_length"]
    if (kind, made.get("num_hidden_layers")) in _LARGEST_GEMMAS:
        made["query_pre_attn_scalar"] = width / heads
    if kind == "gemma3":
        theta = made.pop("rope_theta", 1e6)
        made["rope_parameters"] = {"full_attention": {"rope_theta": theta, **scaling}}
    elif scaling:
        made["rope_scaling"] = scaling
    return given


def _scaling(held: Config) -> dict[str, Any]:
    kind = held.text("rope.scaling.type", default="none")
    if kind == "none":
        return {}
    if kind not in _SCALINGS:
        raise ModelError(f"rotary positions of type {short_repr(kind)} are not supported",
                         f"known are {quote_list(_SCALINGS)}")  # fmt: skip
    return {"rope_type": _SCALINGS[kind], "factor": held.get("rope.scaling.factor", default=1.0)}


def _rope_in_file(rope: Rope, row: GgufRow, divisors: numpy.ndarray | None) -> Rope:
    """The rotation as files of the architecture have it: their rows of q and k are permuted."""
    frequencies = numpy.array(rope.frequencies)
    if divisors is not None:
        if len(divisors) != len(frequencies):
            raise ModelError(f"{len(divisors)} divisors of {len(frequencies)} frequencies")
        with numpy.errstate(all="ignore"):
            frequencies = frequencies / divisors
    return rope_from(frequencies, rope.magnitude, frequencies.size, row.is_interleaved)


def _vector(file: TensorFile, name: str) -> numpy.ndarray | None:
    if name not in file.names:
        return None
    found = file.read(name)
    array = found.floats() if isinstance(found, Blocks) else found
    return numpy.asarray(array, numpy.float64).reshape(-1)


def _read_list(file: TensorFile, name: str) -> list[float]:
    found = _vector(file, name)
    if found is None:
        raise ModelError(f"'{file.path}' has no '{name}'")
    return [float(value) for value in found]
