"""Decompositions of resampling by a factor: to the overload of sizes, which has a row.

torch decomposes `upsample_bilinear2d.vec` and its like to reads at computed indices. Where a factor
is no fraction of few bits, as 1.7, no size expression is the rounded size of the result: torch's
decomposition is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size

from anydim.compiler.frontends.torch.sizes import LARGEST_DENOMINATOR

_NAMES = (
    *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
    *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip


def _by_size(name: str) -> Callable[..., torch.Tensor]:
    packet = getattr(torch.ops.aten, name)
    usual = decomposition_table.get(packet.vec)

    def resampled(x: torch.Tensor, sizes: Any, *rest: Any) -> torch.Tensor:
        *corners, factors = rest
        if not _is_expressible(factors) and usual is not None:
            return usual(x, sizes, *rest)
        made = upsample_compute_output_size(x.size(), sizes, factors)
        scales = factors or [None] * (x.dim() - 2)
        return packet.default(x, made, *corners, *scales)

    return resampled


def _is_expressible(factors: Sequence[float] | None) -> bool:
    return all(Fraction(each).denominator <= LARGEST_DENOMINATOR for each in factors or ())


RESAMPLING: Mapping[Any, Callable[..., torch.Tensor]] = {
    getattr(torch.ops.aten, name).vec: _by_size(name) for name in _NAMES
}
