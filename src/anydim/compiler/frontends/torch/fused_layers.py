"""Decompositions of layers that eager torch runs as one operator while no gradient is needed.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` call them; torch has no decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

_KEYS, _GENERAL = 1, 2  # types of a mask: of keys, and one for each batch and head


def _attention(
    x: torch.Tensor, heads: int, weight: torch.Tensor, bias: torch.Tensor,
    mask: torch.Tensor | None, kind: int | None,
) -> torch.Tensor:  # fmt: skip
    """Attention [batch, length, width] of x to itself, without the output projection."""
    batch, length, width = x.shape
    projected = functional.linear(x, weight, bias).view(batch, length, 3, heads, width // heads)
    q, k, v = projected.permute(2, 0, 3, 1, 4)
    kept = None if mask is None else ~_spread(mask.to(torch.bool), kind)
    made = functional.scaled_dot_product_attention(q, k, v, kept)
    return made.transpose(1, 2).reshape(batch, length, width)


def _spread(mask: torch.Tensor, kind: int | None) -> torch.Tensor:
    """A mask with axes for batch, head, query and key."""
    if kind == _GENERAL:
        return mask
    return mask[:, None, None, :] if kind == _KEYS else mask[None, None]


def encoder_layer(
    x: torch.Tensor, width: int, heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
    out_weight: torch.Tensor, out_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: torch.Tensor, norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor, ffn_weight_1: torch.Tensor, ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor, mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """`aten._transformer_encoder_layer_fwd`: attention and a feed-forward net, both residual."""

    def first(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)

    def attend(x: torch.Tensor) -> torch.Tensor:
        made = _attention(x, heads, qkv_weight, qkv_bias, mask, mask_type)
        return functional.linear(made, out_weight, out_bias)

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        active = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(active, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attend(first(x))
        return x + feed_forward(second(x))
    x = first(x + attend(x))
    return second(x + feed_forward(x))


FUSED: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer
}
