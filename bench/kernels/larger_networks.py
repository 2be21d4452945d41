"""BERT-base and ViT-base of transformers, ResNet50 of onnx, all with random weights, as files."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import torch
import transformers

from bench.light import light_model

NETWORKS = {
    "bert": ((1, 32), (1, 128), (8, 128), (1, 512)),
    "vit": ((1, 3, 224, 224), (8, 3, 224, 224)),
    "resnet50": ((1, 3, 224, 224), (8, 3, 224, 224)),
}
"""The sizes at which each is measured: [batch, seq], or images."""


class _Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.inner(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden


def write_network(name: str, folder: Path) -> Path:
    """Write a network of `NETWORKS` with the default configuration, free in its sizes."""
    path = folder / f"{name}.onnx"
    torch.manual_seed(0)
    if name == "resnet50":
        onnx.save(light_model(name), path)
    elif name == "bert":
        ids = torch.ones((2, 16), dtype=torch.int64)
        _export(_Encoder(), (ids, ids), ["input_ids", "attention_mask"], ["batch", "seq"], path)
    else:
        network = transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False)
        _export(network, (torch.zeros(1, 3, 224, 224),), ["images"], ["batch"], path)
    return path


def _export(
    network: torch.nn.Module, arrays: tuple[torch.Tensor, ...], inputs: list[str],
    dims: list[str], path: Path,
) -> None:  # fmt: skip
    axes = dict(enumerate(dims))
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            network.eval(), arrays, path, input_names=inputs, output_names=["hidden"],
            dynamic_axes=dict.fromkeys([*inputs, "hidden"], axes), dynamo=False, opset_version=17,
        )  # fmt: skip
