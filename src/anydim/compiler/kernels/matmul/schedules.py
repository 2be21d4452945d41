"""Schedules of products of floats with register tiles, as templates propose them."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels.matmul.register_tile import TileSchedule
from anydim.compiler.kernels.schedule import any_version


@dataclass(frozen=True)
class Contraction(TileSchedule):
    """Schedule of a contraction; see `contraction/contraction_loops.py` for the loops.

    A block of rows has `block_rows_bytes` of A; a block of columns has `block_columns_bytes` of B,
    at least one panel. All row tiles run before the next `block_k` steps of k, for any number of
    rows: a row has the same bits in every batch.
    A B that is neither `packed` at load time nor stored in panels is packed on use.
    """

    block_k: int
    block_rows_bytes: int
    block_columns_bytes: int
    packed: bool
    version: str = any_version()


@dataclass(frozen=True)
class Convolution(TileSchedule):
    """Schedule of a convolution; see `convolution/convolution_loops.py` for the loops.

    A unit of work has up to `block_tiles` register tiles of rows and `block_panels` panels of
    columns; a chunk has up to `chunk_k` products of each sum. With `direct` the rows of B are read
    from x without a copy. Weights that are not `packed` at load time are packed on use.
    """

    chunk_k: int
    block_tiles: int
    block_panels: int
    direct: bool
    packed: bool
    version: str = any_version()


@dataclass(frozen=True)
class Winograd(TileSchedule):
    """Schedule of a Winograd convolution.

    A unit of work has up to `block_tiles` register tiles of rows.
    """

    block_tiles: int
    version: str = any_version()

    @property
    def block_rows(self) -> int:
        return self.block_tiles * self.rows


@dataclass(frozen=True)
class WinogradAcross(TileSchedule):
    """Schedule of a Winograd convolution of channels-last tensors: `block` windows at once."""

    block: int
    version: str = any_version()
