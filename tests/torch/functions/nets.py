"""A module that drawn functions call: nested, with shared parameters, buffers that a call writes,
hooks and a parametrization. All of its parts take tensors of floats of any shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils import parametrize


class Net(torch.nn.Module):
    """Parts by name; `first` and `second` share a weight."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(1, 4), torch.nn.Linear(1, 4, bias=False)
        self.second.weight = self.first.weight
        self.counted = _Counted()
        self.hooked = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Sigmoid())
        self.hooked.register_forward_pre_hook(lambda _, given: (given[0] + 1,))
        self.hooked[0].register_forward_hook(lambda _, given, made: made * 2 - given[0])
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(2))
        self.named = torch.nn.ModuleDict({"up": torch.nn.Linear(1, 3), "down": _Counted()})
        self.bounded = torch.nn.Linear(1, 2)
        parametrize.register_parametrization(self.bounded, "weight", _Bounded())
        self.norm = torch.nn.BatchNorm1d(1)
        self.dropped = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.PReLU())
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.steps = 0
        with torch.no_grad():
            for place, each in enumerate(self.parameters()):
                each.copy_(torch.arange(each.numel()).view(each.shape) / 4 - place % 3)
        self.to(dtype)
        self.first_state = [each.clone() for each in self.tensors()]

    def tensors(self) -> Iterator[torch.Tensor]:
        """Parameters and buffers."""
        yield from (each.detach() for each in self.parameters())
        yield from self.buffers()

    def begin(self, is_recorded: bool) -> None:
        """The state before a call."""
        self.steps = 0
        with torch.no_grad():
            for own, value in zip(self.tensors(), self.first_state):
                own.copy_(value)
        for each in self.parameters():
            each.requires_grad_(is_recorded)
            each.grad = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Calls parts in a loop, and changes a number of its own."""
        self.steps += 1
        for layer in self.layers:
            x = x + layer(x[..., None])[..., 0] * self.steps
        return x * self.scale


class _Counted(torch.nn.Module):
    """Writes its buffers at each call, in place and by a name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last[0] = self.last[1]
        self.last[1].add_(x.detach().sum().nan_to_num().clamp(-9, 9))
        return x * self.calls + self.last.sum().to(x.dtype)


class _Bounded(torch.nn.Module):
    def forward(self, weight: Any) -> Any:
        return torch.tanh(weight)
