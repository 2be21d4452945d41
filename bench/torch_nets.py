"""Networks of torch for `bench.torch_compile`: plain modules with the inputs of a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import anydim as ad
from anydim.base.records import dataclass
from tests.torch.nets import Block, Residual
from tests.torch.training_nets import CLASSES, Decoder, Encoder, Images, Perceptron, Series

Inputs = Callable[[int, int], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Network:
    """A network: its module, and its inputs for a batch and a length."""

    module: Callable[[], nn.Module]
    inputs: Inputs


class Decoding(nn.Module):
    """Four causal blocks over embedded tokens, with scores of the next token."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal=True) for _ in range(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x, _ = block(x)
        return x @ self.words.weight.T


class Residuals(nn.Module):
    """Residual blocks of convolutions with batch norm."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3)
        self.body = nn.Sequential(
            Residual(width, width, 1), Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
        )  # fmt: skip
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Separable(nn.Module):
    """Depthwise and pointwise convolutions with batch norm and hardswish."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.body = nn.Sequential(*(
            layer for step in range(4) for layer in (
                nn.Conv2d(width, width, 3, 1 + step % 2, 1, groups=width), nn.BatchNorm2d(width),
                nn.Hardswish(), nn.Conv2d(width, 4 * width, 1), nn.Hardswish(),
                nn.Conv2d(4 * width, width, 1),
            )
        ))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.stem(x)).mean((2, 3))


class Waves(nn.Module):
    """Convolutions over samples, then two blocks of attention."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(1, width, 10, 5), nn.Conv1d(width, width, 4, 4)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.head = nn.Linear(width, 32)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.b(F.gelu(self.a(wave[:, None])))).transpose(1, 2)
        for block in self.blocks:
            x, _ = block(x)
        return self.head(x).log_softmax(-1)


class Tagging(nn.Module):
    """Two layers of LSTM in both directions over embedded tokens."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.lstm = nn.LSTM(width, width, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.words(ids))[0])


_OWN = ad.define("""
def rms_norm(float(...p,C) x, float(C) gain) -> (y) {
  square(...p) +=! x(...p,c) * x(...p,c)
  y(...p,c) = x(...p,c) * rsqrt(square(...p) / C + 1e-5) * gain(c)
}
def decayed(float(B,S,C) x, float(C) decay) -> (y) {
  for t in S { y(b,t,c) = sigmoid(decay(c)) * (y(b,t-1,c) else 0) + x(b,t,c) }
}
""")


class Own(nn.Module):
    """Definitions in the middle: a normalisation, and a recurrence over tokens."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(20, width), nn.Linear(width, width)
        self.gain, self.decay = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.inner(_OWN.rms_norm(self.words(ids), self.gain)))
        return self.head(_OWN.decayed(x, self.decay)[:, -1])


def _minilm() -> nn.Module:
    from bench.torch_minilm import Encoder as MiniLM

    return MiniLM()


def _ids(high: int) -> Inputs:
    return lambda batch, length: (torch.randint(0, high, (batch, length)),)


def _masked(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(0, 30000, (batch, length)), torch.ones(batch, length, dtype=torch.int64)


def _images(side: int) -> Inputs:
    return lambda batch, length: (torch.randn(batch, 3, side + length, side + 2 * length),)


def _layers() -> nn.Module:
    return nn.Sequential(
        nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.SiLU(),
        nn.Linear(1024, 10),
    )  # fmt: skip


CALLED = {
    "MiniLM": Network(_minilm, _masked),
    "decoder": Network(Decoding, _ids(1000)),
    "residual": Network(Residuals, _images(64)),
    "separable": Network(Separable, _images(64)),
    "waves": Network(Waves, lambda b, n: (torch.randn(b, 320 * n),)),
    "tagging": Network(Tagging, _ids(1000)),
    "layers": Network(_layers, lambda b, n: (torch.randn(b, n, 256),)),
}
"""Networks that are called."""

TRAINED = {
    "perceptron": Network(lambda: Perceptron(256), lambda b, n: (torch.randn(4 * b + 1, 8),)),
    "images": Network(lambda: Images(32), _images(24)),
    "encoder": Network(lambda: Encoder(128), _ids(20)),
    "decoder": Network(lambda: Decoder(128), _ids(20)),
    "series": Network(lambda: Series(128), _ids(20)),
    "own": Network(Own, _ids(20)),
}
"""Networks that are trained, with scores of `CLASSES` classes."""


def labels(inputs: tuple[Any, ...]) -> torch.Tensor:
    return torch.randint(0, CLASSES, (inputs[0].shape[0],))
