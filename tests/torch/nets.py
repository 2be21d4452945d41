"""Whole networks, written plainly, with the axes that are free and inputs of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Net:
    """A module, the names of its dims, its inputs at given sizes, and their free axes."""

    name: str
    module: Callable[[], nn.Module]
    inputs: Callable[..., tuple[torch.Tensor, ...]]
    axes: tuple[dict[int, str], ...]
    example: Sizes
    others: tuple[Sizes, ...]
    least: int = 0
    auto: bool = False  # torch finds the bounds

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        names = {name for axes in self.axes for name in axes.values()}
        least = {name: 0 if name == "batch" else self.least for name in names}
        dims = {
            name: Dim.AUTO if self.auto else Dim(name, min=least[name], max=4096)
            for name in sorted(names)
        }
        return tuple({axis: dims[name] for axis, name in axes.items()} for axes in self.axes)


class Block(nn.Module):
    """A transformer block: attention with an optional cache, and a feed-forward part."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: Any = None, past: Any = None) -> Any:
        q, k, v = (self.split(part) for part in self.qkv(self.first(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        made = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal and mask is None
        )
        x = x + self.out(made.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.second(x))))
        return x, (k, v)


class Encoder(nn.Module):
    """Tokens and a mask of real tokens to normalised mean vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList(Block(32, 4) for _ in range(2))
        self.norm = nn.LayerNorm(32)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        allowed = mask[:, None, None, :].bool()
        for block in self.blocks:
            x, _ = block(x, allowed)
        weights = mask[..., None].to(x.dtype)
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=-1)


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.skip = nn.Conv2d(inner, outer, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))


class Classifier(nn.Module):
    """A residual CNN with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.body = nn.Sequential(Residual(8, 16, 1), Residual(16, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.adaptive_avg_pool2d(self.body(self.stem(x)), 1)
        return self.head(x.flatten(1))


class Mobile(nn.Module):
    """Depthwise separable convolutions with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.depth, self.norm = nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16)
        self.down, self.up = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.point = nn.Conv2d(16, 24, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.norm(self.depth(F.relu6(self.stem(x)))))
        scale = F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return self.point(x * scale).mean((2, 3))


class Tagger(nn.Module):
    """A two-layer bidirectional LSTM over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.rnn = nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        made, (last, _) = self.rnn(self.words(ids))
        return self.head(made).log_softmax(-1), last


class Counter(nn.Module):
    """A GRU that reads a series and predicts the next value."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(3, 20, batch_first=True), nn.Linear(20, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made, last = self.rnn(x)
        return self.head(made[:, -1]), last


class Speech(nn.Module):
    """Convolutions over time, group norm, attention, and scores of characters."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv1d(1, 16, 10, 5, bias=False), nn.GroupNorm(16, 16)
        self.b, self.c = nn.Conv1d(16, 16, 3, 2), nn.Conv1d(16, 32, 3, 2)
        self.place = nn.Conv1d(32, 32, 8, padding=4, groups=4)
        self.block, self.head = Block(32, 4), nn.Linear(32, 11)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.a(wave[:, None])))
        x = F.gelu(self.c(F.gelu(self.b(x))))
        x = x + F.gelu(self.place(x)[..., :-1])
        x, _ = self.block(x.transpose(1, 2))
        return self.head(x).log_softmax(-1)


class Segmenter(nn.Module):
    """An encoder and decoder with skips; the result has the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.up, self.mix = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 4, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.silu(self.a(x))
        b = F.silu(self.b(a))
        up = F.interpolate(self.up(b), size=a.shape[-2:], mode="nearest")
        made = self.mix(torch.cat([a, up], 1))
        return F.interpolate(made, size=x.shape[-2:], mode="bilinear", align_corners=False)


class Detector(nn.Module):
    """Boxes and scores of a grid; the best of those above a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 3, 4, 1), nn.Conv2d(8, 6, 1)

    def forward(self, x: torch.Tensor) -> Any:
        made = self.head(F.relu(self.body(x)))
        rows = made.flatten(2).transpose(1, 2)
        scores = rows[..., 4:].sigmoid().amax(-1)
        image, place = torch.nonzero(scores > 0.5, as_tuple=True)
        boxes, kept = rows[image, place, :4], scores[image, place]
        order = kept.argsort(descending=True, stable=True)
        best, at = scores.flatten().topk(3)
        return boxes[order], kept[order], image[order], best, at


class Gpt(nn.Module):
    """A causal decoder with a cache of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, 32), nn.Embedding(128, 32)
        self.blocks = nn.ModuleList(Block(32, 4, causal=True) for _ in range(2))
        self.norm = nn.LayerNorm(32)

    def forward(self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        past, count = keys.shape[3], ids.shape[1]
        place = past + torch.arange(count)
        x = self.words(ids) + self.places(place)
        mask = torch.arange(past + count) <= place[:, None]
        made = []
        for number, block in enumerate(self.blocks):
            x, pair = block(x, mask, (keys[number], values[number]))
            made.append(pair)
        logits = self.norm(x) @ self.words.weight.T
        return logits, torch.stack([k for k, _ in made]), torch.stack([v for _, v in made])


class Vision(nn.Module):
    """Patches of an image with resampled positions, and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.randn(1, 1, 32))
        self.places = nn.Parameter(torch.randn(1, 32, 6, 6))
        self.block, self.head = Block(32, 4), nn.Linear(32, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.patch(x)
        made = made + F.interpolate(
            self.places, size=made.shape[-2:], mode="bicubic", align_corners=False
        )
        rows = made.flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(rows.shape[0], -1, -1), rows], 1)
        x, _ = self.block(x)
        return self.head(x[:, 0])


class Experts(nn.Module):
    """A mixture of experts: each token goes to its best two, by masks."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.gate(x).softmax(-1).topk(2, -1)
        made = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            made = made.index_add(0, row, expert(x[row]) * shares[row, place, None])
        return made


class Recogniser(nn.Module):
    """Lines of text: convolutions, an LSTM over columns in both directions, scores for CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((4, 2)),
        )  # fmt: skip
        self.lstm = nn.LSTM(32, 24, bidirectional=True)
        self.head = nn.Linear(48, 37)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.body(x).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.lstm(columns)[0]).log_softmax(-1)


class Normed(nn.Module):
    """A residual block of a diffusion network: group norm, and a shift by the time of the step."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(4, inner), nn.GroupNorm(4, outer)
        self.a, self.b = nn.Conv2d(inner, outer, 3, 1, 1), nn.Conv2d(outer, outer, 3, 1, 1)
        self.time, self.skip = nn.Linear(32, outer), nn.Conv2d(inner, outer, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        made = self.a(F.silu(self.first(x))) + self.time(time)[..., None, None]
        return self.b(F.silu(self.second(made))) + self.skip(x)


class Denoiser(nn.Module):
    """A step of diffusion: a U-Net with attention over pixels at the bottom."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.time = nn.Conv2d(3, 16, 3, 1, 1), nn.Linear(32, 32)
        self.down, self.middle, self.up = Normed(16, 16), Normed(16, 32), Normed(48, 16)
        self.shrink, self.block = nn.Conv2d(16, 16, 3, 2, 1), Block(32, 4)
        self.head = nn.Conv2d(16, 3, 3, 1, 1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        waves = step[:, None] * torch.exp(torch.arange(16) * (-9.2 / 16))
        time = F.silu(self.time(torch.cat([waves.sin(), waves.cos()], -1)))
        high = self.down(self.stem(x), time)
        low = self.middle(self.shrink(high), time)
        pixels, _ = self.block(low.flatten(2).transpose(1, 2))
        low = pixels.transpose(1, 2).view_as(low)
        low = F.interpolate(low, scale_factor=2, mode="nearest")
        return self.head(self.up(torch.cat([low, high], 1), time))


class Crossing(nn.Module):
    """A block of a decoder: causal attention, attention over the source, a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.own, self.norm = Block(width, heads, causal=True), nn.LayerNorm(width)
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, _ = self.own(x)
        q = self.own.split(self.query(self.norm(x)))
        k, v = (self.own.split(part) for part in self.both(source).chunk(2, -1))
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(made.transpose(1, 2).flatten(2))


class Translator(nn.Module):
    """An encoder of a source with padding, and a decoder of a target of another length."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(80, 32), nn.Embedding(64, 32)
        self.encoder = nn.ModuleList(Block(32, 4) for _ in range(2))
        self.decoder = nn.ModuleList(Crossing(32, 4) for _ in range(2))

    def text_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))

    def forward(self, source: torch.Tensor, mask: torch.Tensor, target: torch.Tensor) -> Any:
        allowed = mask[:, None, None, :].bool()
        x, y = self.text_tokens(source), self.text_tokens(target)
        for block in self.encoder:
            x, _ = block(x, allowed)
        for crossing in self.decoder:
            y = crossing(y, x, allowed)
        return (y @ self.words.weight.T).log_softmax(-1)


def _ids(high: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    return lambda *shape: (torch.randint(0, high, shape),)


def _masked_ids(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    ids, mask = torch.randint(0, 100, (batch, length)), torch.ones(batch, length, dtype=torch.int64)
    mask[1::2, (length + 1) // 2 :] = 0
    return ids, mask


def _cached(batch: int, past: int, count: int) -> tuple[torch.Tensor, ...]:
    keys = torch.randn(2, batch, 4, past, 8)
    return torch.randint(0, 60, (batch, count)), keys, torch.randn_like(keys)


def _images(*sizes: int) -> tuple[torch.Tensor, ...]:
    batch, height, width = sizes
    return (torch.randn(batch, 3, height, width),)


def _lines(batch: int, width: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 16, width),)


def _noisy(batch: int, height: int, width: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 3, height, width), 1000 * torch.rand(batch)


def _pairs(batch: int, source: int, target: int) -> tuple[torch.Tensor, ...]:
    return *(each % 80 for each in _masked_ids(batch, source)), torch.randint(
        0, 80, (batch, target)
    )


_IMAGE = {0: "batch", 2: "height", 3: "width"}
_PICTURES = ((1, 32, 32), (2, 33, 47), (5, 64, 40), (3, 37, 61))

NETS = (
    Net("encoder", Encoder, _masked_ids, ({0: "batch", 1: "length"},) * 2, (2, 9),
        ((1, 1), (3, 17), (8, 33), (5, 2), (0, 4))),
    Net("classifier", Classifier, _images, (_IMAGE,), (2, 64, 64), _PICTURES, 32),
    Net("mobile", Mobile, _images, (_IMAGE,), (2, 48, 32), _PICTURES, 16),
    Net("tagger", Tagger, _ids(50), ({0: "batch", 1: "length"},), (2, 7),
        ((1, 1), (3, 13), (9, 29), (4, 2))),
    Net("counter", Counter, lambda b, n: (torch.randn(b, n, 3),), ({0: "batch", 1: "length"},),
        (2, 7), ((1, 1), (3, 13), (9, 29))),
    Net("speech", Speech, lambda b, n: (torch.randn(b, n),), ({0: "batch", 1: "samples"},),
        (2, 400), ((1, 311), (3, 800), (2, 997)), auto=True),
    Net("segmenter", Segmenter, _images, (_IMAGE,), (2, 32, 48), _PICTURES, 8),
    Net("detector", Detector, _images, (_IMAGE,), (2, 32, 48), _PICTURES, 16),
    Net("gpt", Gpt, _cached, ({0: "batch", 1: "count"}, {1: "batch", 3: "past"},
                              {1: "batch", 3: "past"}), (2, 5, 3),
        ((1, 0, 7), (3, 12, 1), (2, 31, 4))),
    Net("vision", Vision, _images, (_IMAGE,), (2, 24, 32), ((1, 24, 24), (3, 40, 28)), 8),
    Net("experts", Experts, lambda n: (torch.randn(n, 16),), ({0: "tokens"},), (9,),
        ((1,), (23,), (64,), (2,))),
    Net("recogniser", Recogniser, _lines, ({0: "batch", 3: "width"},), (2, 64),
        ((1, 32), (3, 101), (5, 47)), 8),
    Net("denoiser", Denoiser, _noisy, ({0: "batch", 2: "height", 3: "width"}, {0: "batch"}),
        (2, 16, 24), ((1, 16, 16), (3, 20, 32), (2, 36, 28)), auto=True),
    Net("translator", Translator, _pairs,
        ({0: "batch", 1: "source"},) * 2 + ({0: "batch", 1: "target"},), (2, 9, 7),
        ((1, 1, 1), (3, 17, 5), (4, 6, 30))),
)  # fmt: skip
