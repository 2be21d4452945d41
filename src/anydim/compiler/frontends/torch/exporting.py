"""Export with recurrent layers kept whole: torch's own export fixes the length of the series."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import rnn

from anydim.compiler.frontends.torch.recurrent_operators import LAYERS, register

_COUNT = 9  # arguments of a layer of padded series; packed series have others


@contextmanager
def whole_layers() -> Iterator[None]:
    """Keep recurrent layers whole in exports within.

        with whole_layers():
            program = torch.export.export(module, arguments, dynamic_shapes=...)

    Not for concurrent exports: it changes what modules call.
    """
    register()
    implementations = {f"RNN_{name[4:].upper()}": name for name in LAYERS if name[:3] == "rnn"}
    kept = {key: rnn._rnn_impls[key] for key in implementations}
    for name in LAYERS:
        setattr(torch._VF, name, _whole(name))
    rnn._rnn_impls.update({key: _whole(name) for key, name in implementations.items()})
    try:
        yield
    finally:
        for name in LAYERS:
            delattr(torch._VF, name)
        rnn._rnn_impls.update(kept)


def _whole(name: str) -> Callable[..., Any]:
    usual = getattr(torch._C._VariableFunctions, name)

    def layer(*arguments: Any) -> Any:
        if len(arguments) == _COUNT and isinstance(arguments[3], bool):
            return getattr(torch.ops.anydim, name)(*arguments)
        return usual(*arguments)

    return layer
