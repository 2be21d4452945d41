"""How products run: the schedules that templates of register tiles of floats propose."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.kernels.matmul.register_tile import TileSchedule


@dataclass(frozen=True)
class Contraction(TileSchedule):
    """How a contraction runs; see `contraction/contraction_loops.py` for the loops.

    A block of rows has `block_rows_bytes` of A, a block of columns at least a panel, else
    `block_columns_bytes` of B; all row tiles take turns every `block_k` steps of k, whatever number
    of rows there is: a row has the same bits in every batch.
    A B that is not `packed` when it is loaded, or comes in panels, is packed as it is used.
    """

    block_k: int
    block_rows_bytes: int
    block_columns_bytes: int
    packed: bool


@dataclass(frozen=True)
class Convolution(TileSchedule):
    """How a convolution runs; see `convolution/convolution_loops.py` for the loops.

    A piece of work has up to `block_tiles` register tiles of rows and `block_panels` panels of
    columns; a chunk up to `chunk_k` products of each sum. With `direct` the rows of B are read
    where they lie in x. Weights that are not `packed` when they are loaded are packed as used.
    """

    chunk_k: int
    block_tiles: int
    block_panels: int
    direct: bool
    packed: bool


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
