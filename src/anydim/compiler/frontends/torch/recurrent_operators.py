"""Recurrent layers as operators of torch: `torch.ops.anydim.lstm`, `gru`, `rnn_tanh`, `rnn_relu`.

torch computes the shape of an LSTM, GRU or RNN by running its steps, one by one, which fixes the
length of the series. These operators have a size rule instead, and a gradient: the operators
`lstm_backward` and so on. Where torch runs them, they run torch's layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

LAYERS = {"lstm": 2, "gru": 1, "rnn_tanh": 1, "rnn_relu": 1}
"""Name of a layer -> number of states."""

_FLAGS = "bool biases, int layers, float dropout, bool train, bool both, bool batch_first"


@cache
def register() -> torch.library.Library:
    """Register the operators with torch; they stay for the life of the process."""
    library = torch.library.Library("anydim", "FRAGMENT")
    for name, states in LAYERS.items():
        first = "Tensor[] first" if states == 2 else "Tensor first"
        results = ", ".join(["Tensor"] * (1 + states))
        library.define(f"{name}(Tensor x, {first}, Tensor[] weights, {_FLAGS}) -> ({results})")
        library.impl(name, _run(name), "CompositeExplicitAutograd")
        torch.library.register_fake(f"anydim::{name}", _shapes(states), lib=library)
        library.define(
            f"{name}_backward(Tensor[] cotangents, Tensor y, Tensor x, {first}, "
            f"Tensor[] weights, {_FLAGS}) -> Tensor[]"
        )
        library.impl(f"{name}_backward", _run_backward(name), "CompositeExplicitAutograd")
        torch.library.register_fake(f"anydim::{name}_backward", _gradient_shapes, lib=library)
        torch.library.register_autograd(
            f"anydim::{name}", _backward(name), setup_context=_keep, lib=library
        )
    return library


def _run(name: str) -> Callable[..., Any]:
    own = getattr(torch.ops.aten, name).input

    def run(*arguments: Any) -> Any:
        return tuple(each.contiguous() for each in own(*arguments))

    return run


def _shapes(states: int) -> Callable[..., Any]:
    """The size rule: y has a row of hidden elements per direction, last states those of first."""

    def fake(x: Any, first: Any, weights: Any, biases: bool, layers: int, dropout: float,
             train: bool, both: bool, batch_first: bool) -> Any:  # fmt: skip
        begin = _as_list(first)
        width = begin[0].shape[-1] * (2 if both else 1)
        y = x.new_empty((*x.shape[:-1], width))
        return (y, *(x.new_empty(each.shape) for each in begin))

    return fake


def _as_list(first: Any) -> list[Any]:
    return [first] if isinstance(first, torch.Tensor) else list(first)


# ---- gradients


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, first, weights, *flags = inputs
    ctx.flags, ctx.states = flags, len(_as_list(first))
    ctx.save_for_backward(output[0], x, *_as_list(first), *weights)
    ctx.shapes = [tuple(each.shape) for each in output]


def _backward(name: str) -> Callable[..., Any]:
    """The gradients of x, of the first states and of the weights."""

    def backward(ctx: Any, *cotangents: Any) -> Any:
        y, x, *rest = ctx.saved_tensors
        first, weights = rest[: ctx.states], rest[ctx.states :]
        given = [
            y.new_zeros(shape) if each is None else each
            for each, shape in zip(cotangents, ctx.shapes)
        ]
        states = first if name == "lstm" else first[0]
        operator = getattr(torch.ops.anydim, f"{name}_backward")
        dx, *made = operator(given, y, x, states, weights, *ctx.flags)
        ends = made[: ctx.states]
        return (
            dx, ends if name == "lstm" else ends[0], made[ctx.states :],
            *[None] * len(ctx.flags),
        )  # fmt: skip

    return backward


def _gradient_shapes(
    cotangents: Any, y: Any, x: Any, first: Any, weights: Any, *flags: Any
) -> list[torch.Tensor]:
    return [each.new_empty(each.shape) for each in (x, *_as_list(first), *weights)]


def _run_backward(name: str) -> Callable[..., list[torch.Tensor]]:
    """The gradients by torch's own layer, run again."""
    own = getattr(torch.ops.aten, name).input

    def run(
        cotangents: Sequence[torch.Tensor], y: Any, x: Any, first: Any, weights: Any, *flags: Any
    ) -> list[torch.Tensor]:
        with torch.enable_grad():
            begin = [each.detach().requires_grad_() for each in _as_list(first)]
            x, *weights = (each.detach().requires_grad_() for each in (x, *weights))
            made = own(x, begin if name == "lstm" else begin[0], weights, *flags)
            found = torch.autograd.grad(made, [x, *begin, *weights], list(cotangents))
            return [each.contiguous() for each in found]

    return run
