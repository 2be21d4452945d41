"""Operators that are refused by lot, so that graphs of torch.compile are run in sections."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from anydim.compiler.frontends.torch import sections
from anydim.compiler.frontends.torch.importer import _Importing
from anydim.compiler.frontends.torch.refusal import Refused

_ONE_OF = 4


@contextmanager
def refused_by_lot(seed: int) -> Iterator[None]:
    """Some operators cannot be compiled meanwhile, chosen by their names in a graph; sections of
    one operator are compiled."""
    own = _Importing.build

    def build(importing: Any, node: Any) -> Any:
        is_chosen = zlib.crc32(f"{seed} {node.name}".encode()) % _ONE_OF == 0
        if is_chosen and isinstance(node.target, torch._ops.OpOverload):
            raise Refused("refused by lot")
        return own(importing, node)

    with patch.object(_Importing, "build", build), patch.object(sections, "LEAST_OPERATORS", 1):
        yield
