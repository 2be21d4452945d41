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

from anydim.compiler.frontends.torch.chunked_losses import chunked_losses
from anydim.compiler.frontends.torch.drawn_by_values import DRAWN_BY_VALUES
from anydim.compiler.frontends.torch.drawn_numbers import DRAWN_BY_SHAPE
from anydim.compiler.frontends.torch.fused_layers import FUSED
from anydim.compiler.frontends.torch.resampling import RESAMPLING
from anydim.compiler.frontends.torch.rows import COMPLEX_OVERLOADS, OVERLOADS


def decompositions(is_exported: bool) -> dict[Any, Callable[..., Any]]:
    """The decompositions of an exported program, or of a graph of torch.compile, by overload."""
    found = {**_table(is_exported), **chunked_losses()}
    return found if is_exported else {**found, **DRAWN_BY_VALUES}


@cache
def _table(is_exported: bool) -> dict[Any, Callable[..., Any]]:
    """torch.compile decomposes below its pass that removes writes in place.

    There torch's decompositions in C++ may write in place, and those in Python come first.
    """
    core = torch.export.default_decompositions()
    kept = {overload: _get_decomp_for_cia(overload) for overload in PRESERVED_ATEN_CIA_OPS
            if torch._C._dispatch_has_kernel_for_dispatch_key(
                overload.name(), "CompositeImplicitAutograd")}  # fmt: skip
    composite = {**dict(core.items()), **kept}
    tables = (decomposition_table, composite) if is_exported else (composite, decomposition_table)
    found = {**tables[0], **tables[1], **FUSED, **RESAMPLING}
    own = OVERLOADS.keys() | COMPLEX_OVERLOADS.keys()
    if not is_exported:
        own |= {str(overload) for overload in DRAWN_BY_SHAPE}
    return {overload: made for overload, made in found.items() if str(overload) not in own}
