"""Networks for images, written plainly after the ones that torchvision has, at small widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from tests.torch.nets import Block, Net

CLASSES = 10
Make = Callable[..., nn.Module]


class Unit(nn.Sequential):
    """A convolution, batch norm and an activation."""

    def __init__(
        self, inner: int, outer: int, kernel: int = 3, stride: int = 1, groups: int = 1,
        activation: Make | None = nn.ReLU,
    ) -> None:  # fmt: skip
        super().__init__(
            nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outer),
            nn.Identity() if activation is None else activation(),
        )


class Head(nn.Sequential):
    """The mean over the image, and scores."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class Sum(nn.Module):
    """The sum of a body and a skip, then an activation."""

    def __init__(self, body: nn.Module, skip: nn.Module | None = None, last: bool = False) -> None:
        super().__init__()
        self.body, self.skip = body, skip or nn.Identity()
        self.last = nn.ReLU() if last else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x) + self.skip(x))


class Joined(nn.Module):
    """Branches, with their channels one after the other."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Excited(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int, gate: Make = nn.Sigmoid, inner: Make = nn.ReLU) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)
        self.gate, self.inner = gate(), inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.up(self.inner(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Tokens(nn.Module):
    """A layer over the channels of each position."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def alexnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(),
        nn.Dropout(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for inner, outer in ((3, 16), (16, 32), (32, 32)):
        layers += [Unit(inner, outer), nn.Conv2d(outer, outer, 3, padding=1), nn.ReLU(),
                   nn.MaxPool2d(2, 2)]  # fmt: skip
    return nn.Sequential(*layers, Head(32))


def bottleneck(inner: int, width: int, stride: int = 1, groups: int = 1) -> nn.Module:
    body = nn.Sequential(
        Unit(inner, width, 1), Unit(width, width, 3, stride, groups),
        Unit(width, 4 * width, 1, activation=None),
    )  # fmt: skip
    plain = inner == 4 * width and stride == 1
    skip = None if plain else Unit(inner, 4 * width, 1, stride, activation=None)
    return Sum(body, skip, last=True)


def residual(groups: int = 1) -> nn.Module:
    return nn.Sequential(
        Unit(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), bottleneck(16, 8, 1, groups),
        bottleneck(32, 8, 1, groups), bottleneck(32, 16, 2, groups), Head(64),
    )  # fmt: skip


class Dense(nn.Module):
    """Layers that read the results of all layers before them."""

    def __init__(self, width: int, growth: int, count: int) -> None:
        super().__init__()
        wide = 4 * growth
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, wide, 1, bias=False),
                nn.BatchNorm2d(wide), nn.ReLU(), nn.Conv2d(wide, growth, 3, padding=1, bias=False),
            ) for inner in range(width, width + count * growth, growth)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for layer in self.layers:
            made.append(layer(torch.cat(made, 1)))
        return torch.cat(made, 1)


def densenet() -> nn.Module:
    return nn.Sequential(
        Unit(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), Dense(16, 8, 3), Unit(40, 20, 1),
        nn.AvgPool2d(2, 2), Dense(20, 8, 3), nn.BatchNorm2d(44), nn.ReLU(), Head(44),
    )  # fmt: skip


def inception_block(inner: int) -> nn.Module:
    return Joined(
        Unit(inner, 8, 1), nn.Sequential(Unit(inner, 8, 1), Unit(8, 12)),
        nn.Sequential(Unit(inner, 4, 1), Unit(4, 8, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), Unit(inner, 8, 1)),
    )  # fmt: skip


def googlenet() -> nn.Module:
    return nn.Sequential(
        Unit(3, 16, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True), inception_block(16),
        inception_block(36), nn.MaxPool2d(3, 2, ceil_mode=True), inception_block(36), Head(36),
    )  # fmt: skip


class Factored(nn.Sequential):
    """A convolution along rows, then one along columns."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(
            nn.Conv2d(inner, outer, (1, 7), padding=(0, 3), bias=False), nn.BatchNorm2d(outer),
            nn.ReLU(), nn.Conv2d(outer, outer, (7, 1), padding=(3, 0), bias=False),
            nn.BatchNorm2d(outer), nn.ReLU(),
        )  # fmt: skip


def inception() -> nn.Module:
    pooled = nn.Sequential(nn.AvgPool2d(3, 1, 1), Unit(16, 8, 1))
    smaller = nn.Sequential(Unit(32, 8, 1), Unit(8, 16, 3, 2))
    return nn.Sequential(
        Unit(3, 16, 3, 2), Joined(Unit(16, 8, 1), Factored(16, 8), Unit(16, 8, 5), pooled),
        Joined(smaller, nn.MaxPool2d(3, 2, 1)), Head(48),
    )  # fmt: skip


def inverted(
    inner: int, outer: int, stride: int = 1, kernel: int = 3, excited: Make | None = None,
    activation: Make = nn.ReLU6,
) -> nn.Module:  # fmt: skip
    wide = 4 * inner
    layers = [Unit(inner, wide, 1, activation=activation),
              Unit(wide, wide, kernel, stride, wide, activation)]  # fmt: skip
    layers += [] if excited is None else [excited(wide)]
    body = nn.Sequential(*layers, Unit(wide, outer, 1, activation=None))
    return Sum(body) if inner == outer and stride == 1 else body


def mobile_net_2() -> nn.Module:
    return nn.Sequential(
        Unit(3, 8, 3, 2, activation=nn.ReLU6), inverted(8, 12, 2), inverted(12, 12),
        inverted(12, 16, 2), Unit(16, 32, 1, activation=nn.ReLU6), Head(32),
    )  # fmt: skip


def _hard(width: int) -> nn.Module:
    return Excited(width, nn.Hardsigmoid)


def mobile_net_3() -> nn.Module:
    return nn.Sequential(
        Unit(3, 8, 3, 2, activation=nn.Hardswish), inverted(8, 12, 2, 3, _hard, nn.ReLU),
        inverted(12, 12, 1, 5, _hard, nn.Hardswish), Unit(12, 32, 1, activation=nn.Hardswish),
        Head(32),
    )  # fmt: skip


class Shuffled(nn.Module):
    """Half of the channels through a branch, then channels of both halves alternately."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            Unit(half, half, 1), Unit(half, half, 3, 1, half, None), Unit(half, half, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, given = x.chunk(2, 1)
        made = torch.cat([kept, self.body(given)], 1)
        batch, channels, height, width = made.shape
        turned = made.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return turned.reshape(batch, channels, height, width)


def shufflenet() -> nn.Module:
    return nn.Sequential(
        Unit(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), Shuffled(16), Shuffled(16), Unit(16, 32, 1),
        Head(32),
    )  # fmt: skip


def fire(inner: int, squeezed: int, outer: int) -> nn.Module:
    both = Joined(
        nn.Sequential(nn.Conv2d(squeezed, outer, 1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(squeezed, outer, 3, padding=1), nn.ReLU()),
    )
    return nn.Sequential(nn.Conv2d(inner, squeezed, 1), nn.ReLU(), both)


def squeezenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), fire(16, 4, 16),
        fire(32, 4, 16), nn.MaxPool2d(3, 2, ceil_mode=True), fire(32, 8, 24), nn.Dropout(),
        nn.Conv2d(48, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def _smooth(width: int) -> nn.Module:
    return Excited(width, nn.Sigmoid, nn.SiLU)


def efficientnet() -> nn.Module:
    return nn.Sequential(
        Unit(3, 8, 3, 2, activation=nn.SiLU), inverted(8, 12, 2, 3, _smooth, nn.SiLU),
        inverted(12, 12, 1, 5, _smooth, nn.SiLU), Unit(12, 32, 1, activation=nn.SiLU), Head(32),
    )  # fmt: skip


def mnasnet() -> nn.Module:
    return nn.Sequential(
        Unit(3, 8, 3, 2), Unit(8, 8, 3, 1, 8), Unit(8, 8, 1, activation=None),
        inverted(8, 12, 2, 5, None, nn.ReLU), inverted(12, 12, 1, 5, None, nn.ReLU),
        Unit(12, 32, 1), Head(32),
    )  # fmt: skip


def regnet() -> nn.Module:
    def block(inner: int, outer: int, stride: int) -> nn.Module:
        body = nn.Sequential(
            Unit(inner, outer, 1), Unit(outer, outer, 3, stride, outer // 8), Excited(outer),
            Unit(outer, outer, 1, activation=None),
        )  # fmt: skip
        return Sum(body, Unit(inner, outer, 1, stride, activation=None), last=True)

    return nn.Sequential(Unit(3, 16, 3, 2), block(16, 24, 2), block(24, 24, 1), Head(24))


def convnext() -> nn.Module:
    def block(width: int) -> nn.Module:
        inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        return Sum(nn.Sequential(nn.Conv2d(width, width, 7, padding=3, groups=width),
                                 Tokens(inner)))  # fmt: skip

    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 4), Tokens(nn.LayerNorm(16)), block(16), block(16),
        Tokens(nn.LayerNorm(16)), nn.Conv2d(16, 32, 2, 2), block(32), Head(32),
    )  # fmt: skip


class Patches(nn.Module):
    """A transformer over patches and a class token; positions are those of a grid."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.rows, self.columns = nn.Embedding(32, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).permute(0, 2, 3, 1)
        places = self.rows.weight[: x.shape[1], None] + self.columns.weight[None, : x.shape[2]]
        x = (x + places).flatten(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        for block in self.blocks:
            x, _ = block(x)
        return self.head(self.norm(x[:, 0]))


class Windows(nn.Module):
    """Attention within windows of 4 x 4 tokens, shifted by half a window or not."""

    def __init__(self, width: int, shift: int) -> None:
        super().__init__()
        self.block, self.shift = Block(width, 4), shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        x = F.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        down, across = x.shape[1] // 4, x.shape[2] // 4
        parts = x.view(batch, down, 4, across, 4, channels).permute(0, 1, 3, 2, 4, 5)
        made, _ = self.block(parts.reshape(batch * down * across, 16, channels))
        made = made.view(batch, down, across, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        made = made.reshape(batch, down * 4, across * 4, channels)
        if self.shift:
            made = torch.roll(made, (self.shift, self.shift), (1, 2))
        return made[:, :height, :width]


class Swin(nn.Module):
    """Blocks of windows, merged patches, blocks of windows."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        self.first = nn.Sequential(Windows(width, 0), Windows(width, 2))
        self.merge = nn.Linear(4 * width, 2 * width, bias=False)
        self.second = nn.Sequential(Windows(2 * width, 0), Windows(2 * width, 2))
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.norm(self.patch(x).permute(0, 2, 3, 1)))
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        corners: Sequence[torch.Tensor] = (
            x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]
        )  # fmt: skip
        x = self.second(self.merge(torch.cat(tuple(corners), -1)))
        return self.head(x.mean((1, 2)))


def _images(batch: int, height: int, width: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, height, width),)


def _trained(module: nn.Module) -> nn.Module:
    """The module with statistics and scales as training leaves them, not those of nothing."""
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.normal_(each.running_mean, 0, 0.2)
            nn.init.normal_(each.bias, 0, 0.2)
            nn.init.uniform_(each.running_var, 0.5, 1.5)
            nn.init.uniform_(each.weight, 0.5, 1.5)
    return module


def _net(name: str, module: Callable[[], nn.Module]) -> Net:
    return Net(
        name, lambda: _trained(module()), _images, ({0: "batch", 2: "height", 3: "width"},),
        (2, 64, 96), ((1, 64, 64), (3, 71, 83), (2, 128, 96), (4, 97, 66)), auto=True,
    )  # fmt: skip


IMAGE_NETS = tuple(
    _net(name, module) for name, module in {
        "alexnet": alexnet, "vgg": vgg, "resnet": residual, "resnext": lambda: residual(4),
        "densenet": densenet, "googlenet": googlenet, "inception": inception,
        "mobilenet v2": mobile_net_2, "mobilenet v3": mobile_net_3, "shufflenet": shufflenet,
        "squeezenet": squeezenet, "efficientnet": efficientnet, "mnasnet": mnasnet,
        "regnet": regnet, "convnext": convnext, "vit": Patches, "swin": Swin,
    }.items()
)  # fmt: skip
