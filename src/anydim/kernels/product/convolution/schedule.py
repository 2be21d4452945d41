"""How a convolution runs: the schedule that its template proposes."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.kernels.product.micro import TileSchedule


@dataclass(frozen=True)
class Convolution(TileSchedule):
    """How a convolution runs; see `loops.py` for the loops.

    A piece of work has up to `block_tiles` register tiles of rows and `block_panels` panels of
    columns; a chunk up to `chunk_k` products of each sum. With `direct` the rows of B are read
    where they lie in x. Weights that are not `packed` when they are loaded are packed as used.
    """

    chunk_k: int
    block_tiles: int
    block_panels: int
    direct: bool
    packed: bool
