"""Decompositions of `torch.nn.functional.linear_cross_entropy` with options for chunks of rows.

The loss and the gradients that torch computes with it, from the logits of all rows at once. torch
has the operators from 2.13 on, and registers them with the first such call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

_MODULE = "torch.nn.modules.linear_cross_entropy"


def _class_weights(
    target: torch.Tensor, weight: torch.Tensor | None, ignored: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the class of each row, its weight: 0 in rows to ignore, of which the class is 0)."""
    kept = target != ignored
    classes = torch.where(kept, target, 0)
    own = kept.to(dtype) if weight is None else weight.to(dtype)[classes] * kept
    return classes, own


def _logarithms(
    x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """The logarithms of the probabilities of all classes [loss_of_rows, classes]."""
    own = None if bias is None else bias.to(dtype)
    return functional.log_softmax(functional.linear(x.to(dtype), matrix.to(dtype), own), dim=1)


def loss_of_rows(
    x: torch.Tensor, matrix: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None,
    weight: torch.Tensor | None, ignored: int, chunk: int, policy: str, dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    """The loss of each row."""
    classes, scale = _class_weights(target, weight, ignored, dtype)
    found = _logarithms(x, matrix, bias, dtype).gather(1, classes[:, None])[:, 0]
    return (-scale * found).to(x.dtype)


def reduced_loss(
    x: torch.Tensor, matrix: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None,
    weight: torch.Tensor | None, reduction: str, ignored: int, smoothing: float, chunk: int,
    policy: str, dtype: torch.dtype, retain: bool, by_x: bool, by_matrix: bool, by_bias: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """(loss, gradients by x, matrix and bias); those that are not wanted are empty."""
    classes, scale = _class_weights(target, weight, ignored, dtype)
    if reduction == "mean":
        scale = scale / scale.sum()
    found = _logarithms(x, matrix, bias, dtype)
    loss = -(scale * found.gather(1, classes[:, None])[:, 0]).sum()
    ones = functional.one_hot(classes, matrix.shape[0])
    inner = scale[:, None] * (found.exp() - ones)
    by = (
        inner @ matrix.to(dtype) if by_x else inner.new_zeros(0, 0),
        inner.T @ x.to(dtype) if by_matrix else inner.new_zeros(0, 0),
        inner.sum(0) if by_bias else inner.new_zeros(0),
    )
    return tuple(each.to(x.dtype) for each in (loss, *by))


def chunked_losses() -> dict[Any, Callable[..., Any]]:
    """The decompositions by overload; empty while torch has not registered the operators."""
    if _MODULE not in sys.modules:
        return {}
    stem = "_linear_cross_entropy_batch_chunked"
    known = torch.ops.torch_nn
    return {
        getattr(known, stem).default: reduced_loss,
        getattr(known, f"{stem}_no_reduction").default: loss_of_rows,
    }
