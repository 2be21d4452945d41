"""How a contraction runs: the schedule that its template proposes."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.kernels.product.micro import TileSchedule


@dataclass(frozen=True)
class Contraction(TileSchedule):
    """How a contraction runs; see `loops.py` for the loops.

    A block of rows has `block_rows_bytes` of A, a block of columns at least a panel, else
    `block_columns_bytes` of B; all row tiles take turns every `block_k` steps of k, whatever number
    of rows there is: a row has the same bits in every batch.
    A B that is not `packed` when it is loaded, or comes in panels, is packed as it is used.
    """

    block_k: int
    block_rows_bytes: int
    block_columns_bytes: int
    packed: bool
