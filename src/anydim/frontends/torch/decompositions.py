"""Which overloads torch decomposes before the import: those without a row.

Attention, normalisations, convolutions, recurrent layers, activations and resampling have rows, and
stay whole. An overload without a row is decomposed by torch's table, composites included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch._refs
from torch._decomp import decomposition_table
from torch._export.utils import _get_decomp_for_cia
from torch.export.decomp_utils import PRESERVED_ATEN_CIA_OPS

from anydim.frontends.torch.fused_layers import FUSED
from anydim.frontends.torch.rows import OVERLOADS


def decompositions(program: Any) -> dict[Any, Callable[..., Any]]:
    """The decompositions for a program, by overload."""
    return dict(_table())


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    core = torch.export.default_decompositions()
    kept = {overload: _get_decomp_for_cia(overload) for overload in PRESERVED_ATEN_CIA_OPS
            if torch._C._dispatch_has_kernel_for_dispatch_key(
                overload.name(), "CompositeImplicitAutograd")}  # fmt: skip
    found = {**decomposition_table, **dict(core.items()), **kept, **FUSED}
    return {overload: made for overload, made in found.items() if str(overload) not in OVERLOADS}
