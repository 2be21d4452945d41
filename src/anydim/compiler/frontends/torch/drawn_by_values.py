"""Decompositions of random numbers by the values of a tensor, for torch.compile.

Each draws numbers that depend on shapes alone, as eager torch does on the CPU. So a call of the
graph draws other numbers than the last, and a seed gives the numbers of eager torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ATEN = torch.ops.aten


def _expect(holds: torch.Tensor, message: str) -> None:
    """Let every call raise an error where a condition does not hold, as eager torch does."""
    _ATEN._assert_async.msg(holds.all(), message)


def _expect_chances(p: torch.Tensor) -> None:
    _expect((p >= 0) & (p <= 1), "bernoulli: a probability is outside 0..1")


def _bernoulli(p: torch.Tensor) -> torch.Tensor:
    _expect_chances(p)
    return (torch.rand_like(p) < p).to(p.dtype)


def _bernoulli_like(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    _expect_chances(p)
    return (torch.rand_like(x, dtype=p.dtype) < p).to(x.dtype)


def _around_means(mean: torch.Tensor, std: float = 1) -> torch.Tensor:
    return torch.randn_like(mean) * std + mean


def _of_widths(mean: float, std: torch.Tensor) -> torch.Tensor:
    _expect(std >= 0, "normal: a standard deviation is below 0, or not a number")
    return torch.randn_like(std) * std + mean


def _normal(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    _expect(std >= 0, "normal: a standard deviation is below 0, or not a number")
    shape = torch.broadcast_shapes(mean.shape, std.shape)
    return torch.randn(shape, dtype=mean.dtype, device=mean.device) * std + mean


def _multinomial(p: torch.Tensor, count: int, replacement: bool = False) -> torch.Tensor:
    """Classes by their weights in each row [..., count]; raises RuntimeError without a class."""
    torch._check(p.shape[-1] > 0, lambda: "multinomial: a distribution without a class")
    _expect((p >= 0) & p.isfinite(), "multinomial: a weight is below 0, infinite or not a number")
    _expect(p.sum(-1) > 0, "multinomial: all weights of a row are 0")
    if count == 1 or not replacement:
        scores = p / _ATEN.exponential.default(torch.empty_like(p))
        return scores.argmax(-1, keepdim=True) if count == 1 else scores.topk(count)[1]
    sums = p.cumsum(-1)
    drawn = torch.rand((*p.shape[:-1], count), dtype=torch.float64, device=p.device)
    found = torch.searchsorted((sums / sums[..., -1:]).double(), drawn)
    return found.clamp(max=p.shape[-1] - 1)


def _by_default(draw: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The decomposition, unless a call has a generator of its own."""

    def drawn(*arguments: Any, generator: Any = None, **named: Any) -> Any:
        return draw(*arguments, **named) if generator is None else NotImplemented

    return drawn


_DRAWS: dict[Any, Callable[..., torch.Tensor]] = {
    _ATEN.bernoulli.default: _bernoulli, _ATEN.bernoulli.Tensor: _bernoulli_like,
    _ATEN.normal.Tensor_float: _around_means, _ATEN.normal.float_Tensor: _of_widths,
    _ATEN.normal.Tensor_Tensor: _normal, _ATEN.multinomial.default: _multinomial,
}  # fmt: skip
DRAWN_BY_VALUES = {overload: _by_default(draw) for overload, draw in _DRAWS.items()}
