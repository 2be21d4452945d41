"""Networks to train at changing sizes, written plainly: the tests and a benchmark use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5


@dataclass(frozen=True)
class Net:
    """A network, the inputs of a batch of a size, and how many graphs torch makes of it.

    `inputs` takes the batch size and a length.
    """

    name: str
    module: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]
    graphs: int = 1

    def batch(self, step: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """The inputs and labels of a step; batch and length change with it."""
        count = 4 + step * 5 % 7
        return self.inputs(count, 6 + step * 3 % 8), torch.randint(0, CLASSES, (count,))


class Perceptron(nn.Module):
    """Linear layers with dropout and layer norm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width), nn.SiLU(),
            nn.LayerNorm(width), nn.Linear(width, CLASSES),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Images(nn.Module):
    """Convolutions, plain, strided and depthwise, with batch norm and pooling."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(2 * width)
        self.depth = nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.first_norm(self.first(x))), 2)
        x = F.relu(self.second_norm(self.second(x)))
        x = x + F.silu(self.depth(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Encoder(nn.Module):
    """Two transformer layers with dropout over embedded tokens."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(20, width)
        layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.1, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(ids)).mean(1))


class Decoder(nn.Module):
    """Causal attention with dropout, group norm and a maximum over time."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.qkv = nn.Embedding(20, width), nn.Linear(width, 3 * width)
        self.norm, self.groups = nn.LayerNorm(width), nn.GroupNorm(4, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        x = self.groups((x + mixed.transpose(1, 2).flatten(2)).transpose(1, 2))
        return self.head(F.dropout(x, 0.2).amax(2))


class Series(nn.Module):
    """Two layers of LSTM in both directions with dropout between, then a GRU."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(20, width)
        self.lstm = nn.LSTM(width, width, 2, dropout=0.1, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.words(ids))
        return self.head(self.gru(x)[1][-1])


def _vectors(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 8),)


def _images(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 4 * length, 4 * length + 4),)


def _tokens(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 20, (batch, length)),)


NETS = (
    Net("perceptron", Perceptron, _vectors),
    Net("images", Images, _images),
    Net("encoder", Encoder, _tokens),
    Net("decoder", Decoder, _tokens),
    Net("series", Series, _tokens),
)
