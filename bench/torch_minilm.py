"""MiniLM as a torch module with the same weights, for torch.compile."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from examples.minilm.model import load_config, load_weights


class Encoder(torch.nn.Module):
    """ids, mask -> hidden states and unit-length sentence embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.config = load_config()
        for name, array in load_weights().items():
            weight = torch.nn.Parameter(torch.from_numpy(array.copy()), requires_grad=False)
            self.register_parameter(name.replace(".", "_"), weight)

    def weight(self, name: str) -> torch.Tensor:
        return getattr(self, name.replace(".", "_"))

    def dense(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return layer_norm(x, (x.shape[-1],), scale, bias, 1e-12)

    def layer(self, x: torch.Tensor, bias: torch.Tensor, name: str) -> torch.Tensor:
        batch, seq, width = x.shape
        heads = self.config.heads
        parts = [
            self.dense(x, f"{name}.attention.self.{part}")
            .view(batch, seq, heads, width // heads)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        ]
        mixed = scaled_dot_product_attention(*parts, attn_mask=bias)
        mixed = mixed.transpose(1, 2).reshape(batch, seq, width)
        x = self.norm(
            self.dense(mixed, f"{name}.attention.output.dense") + x,
            f"{name}.attention.output.LayerNorm",
        )
        hidden = gelu(self.dense(x, f"{name}.intermediate.dense"))
        return self.norm(self.dense(hidden, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.weight("embeddings.word_embeddings.weight")[ids]
        x = x + self.weight("embeddings.position_embeddings.weight")[: ids.shape[1]]
        x = x + self.weight("embeddings.token_type_embeddings.weight")[0]
        x = self.norm(x, "embeddings.LayerNorm")
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for number in range(self.config.layers):
            x = self.layer(x, bias, f"encoder.layer.{number}")
        weight = mask[:, :, None].to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return x, mean / mean.norm(dim=1, keepdim=True).clamp(min=1e-12)


def compiled_encoder() -> Any:
    """The module under torch.compile with every size dynamic."""
    return torch.compile(Encoder().eval(), dynamic=True)
