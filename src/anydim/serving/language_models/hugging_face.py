"""Folders of Hugging Face: config.json and safetensors, as the row of their architecture says.

Sizes and scales are those of transformers' modules of the same `model_type`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import short_repr
from anydim.serving.language_models import tensor_names as names
from anydim.serving.language_models.config_fields import MOST_LAYERS, Config, read_object
from anydim.serving.language_models.decoder_spec import (
    PARTS,
    DecoderSpec,
    Experts,
    LayerSpec,
    Rope,
)
from anydim.serving.language_models.rope_scaling import rope_of
from anydim.serving.language_models.tensor_names import FileNames

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
_MOST_EXPERTS = 4096
_MOST_DEPTH = 1 << 16  # elements of a head
_SLIDING = "sliding_attention"
_HEAD_NORMS = frozenset({"q_norm", "k_norm"})
_POST_NORMS = frozenset({"post1", "post2"})


@dataclass(frozen=True)
class Architecture:
    """How to read a model_type: its spec from a config and the most tokens, and its names."""

    spec: Callable[[Config, int], DecoderSpec]
    names: FileNames


def read_config(folder: Path) -> Config:
    """Read config.json of a folder. Raises ModelError if it is none."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"there is no file '{path}'", "give a folder with config.json")
    fields = read_object(path)
    inner = fields.get("text_config")  # of models for several kinds of data
    return Config(inner if isinstance(inner, dict) else fields, str(path))


def architecture_of(config: Config) -> Architecture:
    """The row of a config's model_type. Raises ModelError for an unknown one."""
    kind = config.text("model_type", default="")
    if kind not in ARCHITECTURES:
        hint = suggestion(kind[:99], ARCHITECTURES) or f"known are {quote_list(ARCHITECTURES)}"
        raise ModelError(
            f"decoders of model_type {short_repr(kind)} are not known",
            f"{hint}; compile others from ONNX or torch, with ad.cached",
        )
    return ARCHITECTURES[kind]


def context_of(config: Config) -> int:
    """The most tokens of a sequence that a config declares."""
    return config.whole("max_position_embeddings", "n_positions")


# ---- rows ----------------------------------------------------------------------------------------


def _spec(config: Config, context: int, **more: Any) -> DecoderSpec:
    """What all architectures have; `more` replaces fields."""
    width, heads = (
        config.whole("hidden_size", "n_embd"),
        config.whole("num_attention_heads", "n_head"),
    )
    depth = config.whole("head_dim", default=max(width // heads, 1), most=_MOST_DEPTH)
    kept = config.whole("num_key_value_heads", default=heads)
    if heads % kept:
        raise ModelError(f"{heads} heads of queries for {kept} of keys")
    act = config.text("hidden_act", "hidden_activation", "activation_function")
    if act not in _ACTIVATIONS:
        hint = f"known are {quote_list(_ACTIVATIONS)}"
        raise ModelError(f"activations {short_repr(act)} are not supported", hint)
    fields: dict[str, Any] = {
        "name": config.text("model_type"), "vocabulary": config.whole("vocab_size"),
        "width": width, "heads": heads, "kept": kept, "depth": depth, "context": context,
        "epsilon": config.number("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                 default=1e-5, above=0),
        "activation": _ACTIVATIONS[act], "score_scale": depth**-0.5,
    }  # fmt: skip
    fields |= more
    if "layers" not in fields:
        fields["layers"] = _layers(config, _rope(config, context, depth))
    return DecoderSpec(**fields)


def _layers(config: Config, rope: Rope | None, local: Rope | None = None) -> tuple[LayerSpec, ...]:
    """Layers with the windows of `layer_types`; those with a window rotate by `local`, if given."""
    count = config.whole("num_hidden_layers", "n_layer", most=MOST_LAYERS)
    is_used = config.flag("use_sliding_window", default=True)
    # transformers writes 0 where a model of windows has none
    window = config.whole("sliding_window") if is_used and config.get("sliding_window") else None
    kinds = config.items("layer_types", str, "a list of texts")
    if kinds is None:
        kinds = _usual_kinds(config, count) if window else ["full_attention"] * count
    if len(kinds) < count:
        raise ModelError(f"layer_types has {len(kinds)} types of {count} layers")
    made = []
    for kind in kinds[:count]:
        is_local = kind == _SLIDING and window is not None
        own = local if is_local and local is not None else rope
        made.append(LayerSpec(window if is_local else None, own))
    return tuple(made)


def _usual_kinds(config: Config, count: int) -> list[str]:
    """The layers with windows where a config does not list them."""
    kind = config.text("model_type")
    if kind.startswith("gemma"):
        every = config.whole("sliding_window_pattern", default=2 if kind == "gemma2" else 6)
        return ["full_attention" if (n + 1) % every == 0 else _SLIDING for n in range(count)]
    first = config.whole("max_window_layers", default=count) if kind.startswith("qwen") else 0
    return [_SLIDING if n >= first else "full_attention" for n in range(count)]


def _rope(
    config: Config, context: int, depth: int, layer_type: str = "", theta: float = 10000.0,
    share: float = 1.0,
) -> Rope:  # fmt: skip
    """The rotation of a config, of layers of a type if it distinguishes them."""
    given = config.part("rope_parameters")
    if layer_type and isinstance(given.get(layer_type), dict):
        own = dict(given.part(layer_type).fields)
    else:
        own = {**given.fields, **config.part("rope_scaling").fields}
        theta = config.number("rope_theta", "rotary_emb_base", default=theta)
        share = config.number("partial_rotary_factor", "rotary_pct", default=share)
    longest = context_of(config)
    whole = config.get("original_max_position_embeddings", default=longest)
    own.setdefault("original_max_position_embeddings", whole)
    own.setdefault("max_position_embeddings", longest)
    scaling = Config(own, "the rotary positions of the model")
    theta = scaling.number("rope_theta", default=theta)
    share = scaling.number("partial_rotary_factor", default=share)
    if not 0 < share <= 1:
        raise ModelError(f"rotary positions of {share:g} of a head", "expected a share of 0 to 1")
    width = int(depth * share)
    return rope_of(scaling, theta, width, context)


def _depth(config: Config) -> int:
    """Elements of a head of Gemma."""
    return config.whole("head_dim", default=256, most=_MOST_DEPTH)


def _gemma2(config: Config, context: int) -> DecoderSpec:
    width, depth = config.whole("hidden_size"), _depth(config)
    return _spec(
        config, context, norm_offset=1.0, embedding_scale=width**0.5,
        score_scale=config.number("query_pre_attn_scalar", default=float(depth), above=0) ** -0.5,
        score_cap=config.number("attn_logit_softcapping", default=0.0),
        logit_cap=config.number("final_logit_softcapping", default=0.0), parts=PARTS | _POST_NORMS,
    )  # fmt: skip


def _gemma3(config: Config, context: int) -> DecoderSpec:
    depth = _depth(config)
    rope = _rope(config, context, depth, "full_attention", 1e6)
    base = config.number("rope_local_base_freq", default=10000.0)
    held = config.part("rope_parameters").part(_SLIDING)
    local = rope_of(Config({}, ""), held.number("rope_theta", default=base), depth, context)
    spec = _gemma2(config, context)
    return replace(spec, layers=_layers(config, rope, local), parts=spec.parts | _HEAD_NORMS)


def _qwen3(config: Config, context: int) -> DecoderSpec:
    return _spec(config, context, parts=PARTS | _HEAD_NORMS)


def _sparse(config: Config, spec: DecoderSpec, experts: Experts) -> DecoderSpec:
    """A spec with experts in the layers that a config says."""
    if not 0 < experts.used <= experts.count <= _MOST_EXPERTS:
        raise ModelError(f"{experts.used} experts of a token, of {experts.count}",
                         f"expected at most {_MOST_EXPERTS}")  # fmt: skip
    step = config.whole("decoder_sparse_step", default=1)
    dense = config.items("mlp_only_layers", int, "a list of integers") or []
    layers = tuple(replace(layer, is_sparse=number not in dense and (number + 1) % step == 0)
                   for number, layer in enumerate(spec.layers))  # fmt: skip
    return replace(spec, layers=layers, experts=experts)


def _experts(config: Config, is_normalised: bool, is_shared: bool = False) -> Experts:
    return Experts(
        config.whole("num_experts", "num_local_experts"), config.whole("num_experts_per_tok"),
        is_normalised, is_shared,
    )  # fmt: skip


def _mixtral(config: Config, context: int) -> DecoderSpec:
    return _sparse(config, _spec(config, context), _experts(config, True))


def _qwen2_experts(config: Config, context: int) -> DecoderSpec:
    is_normalised = config.flag("norm_topk_prob", default=False)
    return _sparse(config, _spec(config, context), _experts(config, is_normalised, True))


def _qwen3_experts(config: Config, context: int) -> DecoderSpec:
    is_normalised = config.flag("norm_topk_prob", default=False)
    return _sparse(config, _qwen3(config, context), _experts(config, is_normalised))


def _gpt2(config: Config, context: int) -> DecoderSpec:
    layers = (LayerSpec(None, None),) * config.whole(
        "n_layer", "num_hidden_layers", most=MOST_LAYERS
    )
    return _spec(config, context, norm="layer", layers=layers, parts=PARTS - {"gate"} | {"places"})


def _neox(config: Config, context: int) -> DecoderSpec:
    depth = config.whole("hidden_size") // config.whole("num_attention_heads")
    return _spec(
        config, context, norm="layer", layers=_layers(config, _rope(config, context, depth,
                                                                    share=0.25)),
        parallel=config.flag("use_parallel_residual", default=True), parts=PARTS - {"gate"},
    )  # fmt: skip


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(_spec, names.LLAMA),
    "mistral": Architecture(_spec, names.LLAMA),
    "qwen2": Architecture(_spec, names.LLAMA),
    "qwen3": Architecture(_qwen3, names.LLAMA),
    "mixtral": Architecture(_mixtral, names.MIXTRAL),
    "qwen2_moe": Architecture(_qwen2_experts, names.QWEN_EXPERTS),
    "qwen3_moe": Architecture(_qwen3_experts, names.QWEN_EXPERTS),
    "gemma2": Architecture(_gemma2, names.GEMMA),
    "gemma3_text": Architecture(_gemma3, names.GEMMA),
    "phi3": Architecture(_spec, names.PHI3),
    "gpt2": Architecture(_gpt2, names.GPT2),
    "gpt_neox": Architecture(_neox, names.NEOX),
}
"""Decoders by `model_type`. `smollm` files are of model_type 'llama'."""
