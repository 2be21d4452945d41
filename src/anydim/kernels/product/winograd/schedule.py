"""How a convolution by Winograd's algorithm runs: the schedules that its templates propose."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.kernels.product.micro import TileSchedule


@dataclass(frozen=True)
class Winograd(TileSchedule):
    """How a Winograd convolution runs: a piece of work has up to `block_tiles` register tiles of
    rows."""

    block_tiles: int

    @property
    def block_rows(self) -> int:
        return self.block_tiles * self.rows


@dataclass(frozen=True)
class WinogradAcross(TileSchedule):
    """How one of channels-last tensors runs: `block` windows at once."""

    block: int
