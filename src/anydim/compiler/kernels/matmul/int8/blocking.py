"""Partition of an int8 product: blocks of rows, panels of columns, shares of threads."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.int8.im2col import Image
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Form, Int8Walk
from anydim.compiler.kernels.matmul.int8.packed_layout import Layout
from anydim.compiler.kernels.matmul.int8.stride_phases import Phases
from anydim.compiler.kernels.matmul.int8.word_types import BYTES, WORD
from anydim.compiler.kernels.matmul.panel_columns import Columns, joined_columns
from anydim.compiler.kernels.matmul.register_tile import LINE, Tile
from anydim.compiler.kernels.matmul.work_partition import WorkPartition, work_of
from anydim.compiler.kernels.schedule import ANY
from anydim.sizes import (
    ALWAYS,
    Size,
    align_up,
    as_size,
    at_least,
    at_most,
    ceil_div,
    maximum,
    minimum,
    product,
)

MAX_ROWS = 256  # maximum rows of a block
_FASTER, _TILED = 4, 20  # speed relative to floats; with tile instructions and packed words
_PAIRS = 2  # bytes' speed relative to that of bfloat16


@dataclass(frozen=True)
class ByteBlocks:
    """Rows of a block, columns in panels, bytes of scratch, shares of threads.

    `panels` is the number of panels of a packed b, `images` the maximum images of a panel.
    """

    rows: Size
    columns: Columns[Int8Walk]
    panels: Size
    images: Size
    b_offset: Size
    image_offset: Size
    scratch: Size
    partition: WorkPartition


def joinable(form: Int8Form, layout: Layout) -> Int8Walk | None:
    """Return the innermost loop over images that are multiplied by the same rows."""
    own, rows = free_axes(form.b.read), free_axes(form.a.read)
    for walk in reversed(form.loops):
        if walk.name in own - rows and not layout.b_packed:
            return walk if walk.extent.constant != 1 else None
    return None


def cut_of(
    form: Int8Form, layout: Layout, tile: Tile, machine: Machine, image: Image | Phases | None,
    version: str = ANY,
) -> ByteBlocks:  # fmt: skip
    """Return panels of even width and blocks of even height; packed rows fill part of a cache."""
    row_bytes, limits = layout.row * WORD, machine.limits
    panels = ceil_div(form.n.extent, layout.width)
    columns = as_size(layout.width)
    if not layout.b_packed:
        columns = align_up(ceil_div(form.n.extent, maximum(panels, 1)), tile.lanes)
        columns = maximum(columns, tile.lanes)
    joined = joined_columns(
        joinable(form, layout), form.n.extent, layout.width, columns, form.loops, version
    )
    width = align_up(maximum(joined.width, 1), tile.lanes)
    whole = joined.joined.where(joined.panels * width, joined.all)  # counts full panels
    around = product(extent for _, extent in joined.loops)
    tiles = ceil_div(form.m.extent, tile.rows)
    blocks, max_tiles = as_size(1), tiles  # an upper bound of a block's tiles
    if not layout.a_packed:
        kept = maximum(as_size(machine.l2_bytes * 3 // 8) // maximum(row_bytes * tile.rows, 1), 1)
        limit = minimum(kept * tile.rows, MAX_ROWS)
        blocks = maximum(ceil_div(form.m.extent, limit), 1)
        max_tiles = minimum(tiles, ceil_div(limit, tile.rows))
    a_bytes = max_tiles * align_up(row_bytes * tile.rows, LINE) + 2 * LINE
    if not layout.a_copied:
        a_bytes = as_size(0)
    b_bytes = as_size(0) if layout.b_packed else layout.panel * WORD
    work = work_of(around, form.m.extent, tiles, joined.all, form.tap_count * form.k)
    only_rows = layout.b_packed and not layout.a_packed  # columns would make each thread pack a
    speed = _TILED if layout.depth > 1 and layout.b_packed else _FASTER
    few_panels = ALWAYS if only_rows else at_most(joined.panels, limits.byte_panels)
    min_rows = max(machine.threads, 2) * tile.rows if only_rows else limits.byte_rows
    partition = WorkPartition(
        joined.loops, tiles, whole, width,
        tile.lanes, few_panels & at_least(form.m.extent, min_rows),
        ceil_div(work, speed if layout.word == BYTES else speed // _PAIRS),
        grain=limits.product_steps,
    )  # fmt: skip
    rows = ceil_div(tiles, blocks) * tile.rows
    images = maximum(joined.width // maximum(joined.positions, 1), 1)
    images = joined.joined.where(images, 1)
    scratch = a_bytes + b_bytes + (as_size(0) if image is None else image.bytes(images))
    return ByteBlocks(rows, joined, panels, images, a_bytes, a_bytes + b_bytes, scratch, partition)
