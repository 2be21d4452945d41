"""Storage of a contraction kernel: its operands, its scratch, the counts of its loops."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels.matmul.contraction.interleaved_accumulators import is_long, padded_k
from anydim.compiler.kernels.matmul.contraction.matrix_vector import WIDE
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm
from anydim.compiler.kernels.matmul.epilogue import Output
from anydim.compiler.kernels.matmul.register_tile import LINE, Tile
from anydim.compiler.kernels.matmul.work_partition import WorkPartition
from anydim.lang.tree import Group
from anydim.lang.tree.affine import Affine, address, reads
from anydim.sizes import Condition, Size, align_up, as_size, maximum


@dataclass(frozen=True)
class Blocks:
    """Loop counts: row tiles in total and per block, panels per block.

    `rows` of a block, `sums` of a tile over its columns and `b_bytes` are upper bounds, which have
    shorter formulas. Where `tall` holds, all rows are one higher tile of fewer columns.
    """

    tiles: Size
    block_tiles: Size
    panels: Size
    rows: Size
    sums: Size
    b_bytes: Size
    partition: WorkPartition
    tall: Condition


def startable_in_place(
    group: Group, form: ContractionForm, target: Output | None
) -> tuple[tuple[str, str], ...]:
    """Return the pair (result, start) where the sums may start in place; see `Launch.in_place`.

    The start must be read at the offsets of the sums only, and by nothing else.
    """
    if target is None or form.start is None:
        return ()
    start = form.start.tensor
    others = {r.tensor for output in form.outputs for r in reads(output.value)}
    own = {walk.name: walk.c for walk in form.loops} | {
        form.m.name: form.m.c,
        form.n.name: form.n.c,
    }
    at = address(form.start, group.type_of(start).shape)
    alone = start not in {form.a, form.b, *others}
    return ((target.tensor, start),) if alone and at == Affine.of(as_size(0), own) else ()


@dataclass(frozen=True)
class Scratch:
    """Byte offsets in scratch: a block of A at 0, a block of B, a tile of sums; and total bytes."""

    holds_a: bool
    holds_b: bool
    k_padded: Size
    b_offset: Size
    sums_offset: Size
    bytes: Size


def scratch_of(
    form: ContractionForm, tile: Tile, blocks: Blocks, packed: bool, sums: bool, interleaves: bool
) -> Scratch:
    """Return the scratch layout.

    A is copied where its elements along k are not all contiguous, or with interleaved accumulators;
    B is packed unless it was packed before.
    """
    size = form.dtype.bytes
    k_padded = align_up(padded_k(form.k.extent) if interleaves else form.k.extent, tile.lanes)
    holds_a = form.copies_a
    if form.cuts_a or form.windows:
        k_padded = k_padded + tile.lanes  # a piece is copied in whole vectors
    a_bytes = b_bytes = sum_bytes = as_size(0)
    if holds_a or interleaves:
        a_bytes = align_up(blocks.rows * k_padded * size, LINE)
        a_bytes = is_long(form).where(a_bytes, 0) if interleaves else a_bytes
    if not packed:
        b_bytes = align_up(blocks.b_bytes, LINE)
    if sums:
        sum_bytes = (blocks.sums if packed else maximum(blocks.sums, WIDE)) * size
    total = a_bytes + b_bytes + sum_bytes
    return Scratch(holds_a, not packed, k_padded, a_bytes, a_bytes + b_bytes, total)
