"""Export with recurrent layers kept whole: torch's own export fixes the length of the series.

torch computes the shape of an LSTM, GRU or RNN by running its steps, one by one. Within
`whole_layers` these layers are operators of their own, `anydim::lstm` and so on, with a size rule.
They run torch's layers when torch runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.modules import rnn

_LAYERS = {"lstm": 2, "gru": 1, "rnn_tanh": 1, "rnn_relu": 1}  # number of states
_ARGUMENTS = (
    "Tensor[] weights, bool biases, int layers, float dropout, bool train, bool both, "
    "bool batch_first"
)
_COUNT = 9  # arguments of a layer of padded series; packed series have others


@cache
def register() -> torch.library.Library:
    """Register the operators with torch; they stay for the life of the process."""
    library = torch.library.Library("anydim", "FRAGMENT")
    for name, states in _LAYERS.items():
        first = "Tensor[] first" if states == 2 else "Tensor first"
        results = ", ".join(["Tensor"] * (1 + states))
        library.define(f"{name}(Tensor x, {first}, {_ARGUMENTS}) -> ({results})")
        own = getattr(torch.ops.aten, name).input
        library.impl(name, _run(own), "CompositeExplicitAutograd")
        torch.library.register_fake(f"anydim::{name}", _shapes(states), lib=library)
    return library


def _run(own: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        return own(*arguments)

    return run


def _shapes(states: int) -> Callable[..., Any]:
    """The size rule: y has a row of hidden elements per direction, last states those of first."""

    def fake(x: Any, first: Any, weights: Any, biases: bool, layers: int, dropout: float,
             train: bool, both: bool, batch_first: bool) -> Any:  # fmt: skip
        begin = list(first) if states == 2 else [first]
        width = begin[0].shape[-1] * (2 if both else 1)
        y = x.new_empty((*x.shape[:-1], width))
        return (y, *(x.new_empty(each.shape) for each in begin))

    return fake


@contextmanager
def whole_layers() -> Iterator[None]:
    """Keep recurrent layers whole in exports within.

        with whole_layers():
            program = torch.export.export(module, arguments, dynamic_shapes=...)

    Not for concurrent exports: it changes what modules call.
    """
    register()
    implementations = {f"RNN_{name[4:].upper()}": name for name in _LAYERS if name[:3] == "rnn"}
    kept = {key: rnn._rnn_impls[key] for key in implementations}
    for name in _LAYERS:
        setattr(torch._VF, name, _whole(name))
    rnn._rnn_impls.update({key: _whole(name) for key, name in implementations.items()})
    try:
        yield
    finally:
        for name in _LAYERS:
            delattr(torch._VF, name)
        rnn._rnn_impls.update(kept)


def _whole(name: str) -> Callable[..., Any]:
    usual = getattr(torch._C._VariableFunctions, name)

    def layer(*arguments: Any) -> Any:
        if len(arguments) == _COUNT and isinstance(arguments[3], bool):
            return getattr(torch.ops.anydim, name)(*arguments)
        return usual(*arguments)

    return layer
