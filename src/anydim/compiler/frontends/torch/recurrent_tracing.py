"""What torch.compile traces of recurrent layers: their operators, a layer at a time.

torch leaves `nn.LSTM`, `nn.GRU` and `nn.RNN` out of its graphs, or unrolls them for one length.
Once `trace_whole` has run, they are calls of `torch.ops.anydim.lstm` and so on in the graphs of
all backends of the process; backends without these operators run torch's layers there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._dynamo.variables import UserFunctionVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from anydim.compiler.frontends.torch.recurrent_operators import LAYERS, register

_COUNT = 9  # arguments of a layer of padded series; packed series have others


@cache
def trace_whole() -> None:
    """Let torch trace recurrent layers as operators with a free length."""
    register()
    torch._dynamo.config.allow_rnn = True
    handlers = TorchInGraphFunctionVariable._get_handlers()
    for name in LAYERS:
        handlers[getattr(torch._C._VariableFunctions, name)] = _handler(_layer_function(name))


def _handler(traced: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces a call of torch's function while it is traced; None for packed series."""

    def handler(_: Any, tx: Any, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != _COUNT or not arguments[3].is_python_constant():
            return None
        return UserFunctionVariable(traced).call_function(tx, list(arguments), {})

    return handler


def _layer_function(name: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.anydim, name)

    def traced(
        x: torch.Tensor, first: Any, weights: Sequence[torch.Tensor], biases: bool, layers: int,
        dropout: float, train: bool, both: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        if layers == 1:
            return operator(x, first, weights, biases, 1, 0.0, train, both, batch_first)
        if batch_first:
            x = x.transpose(0, 1)
        states = [first] if isinstance(first, torch.Tensor) else list(first)
        ends: list[list[torch.Tensor]] = [[] for _ in states]
        rows, count = 1 + both, len(weights) // layers
        for layer in range(layers):
            if layer and dropout and train:
                x = torch.dropout(x, dropout, True)
            own = [each[layer * rows : (layer + 1) * rows] for each in states]
            begin = own[0] if isinstance(first, torch.Tensor) else own
            part = weights[layer * count : (layer + 1) * count]
            x, *last = operator(x, begin, part, biases, 1, 0.0, train, both, False)
            for end, each in zip(ends, last):
                end.append(each)
        return (x.transpose(0, 1) if batch_first else x, *[torch.cat(end) for end in ends])

    return traced
