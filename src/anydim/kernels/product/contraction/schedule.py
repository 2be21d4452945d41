"""How a contraction runs: the schedule that its template proposes."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.kernels.product.micro import TileSchedule
from anydim.kernels.schedule import register


@dataclass(frozen=True)
class Contraction(TileSchedule):
    """How a contraction runs; see `loops.py` for the loops.

    A block of rows has `block_rows_bytes` of A, a block of columns at least a panel, else
    `block_columns_bytes` of B; `block_k` steps of k run over a row tile before it moves on. Where
    sums are so long that a panel of B does not fit the second cache, all row tiles take turns every
    `long_k` steps, on several panels at once. Neither depends on the number of rows: a row has the
    same bits in every batch.
    A B that is not `packed` when it is loaded, or comes in panels, is packed as it is used.
    """

    block_k: int
    long_k: int
    block_rows_bytes: int
    block_columns_bytes: int
    packed: bool


register("contraction", Contraction)
