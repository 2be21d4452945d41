"""The contraction template: matrix products of any layout, batched, with pointwise epilogues.

`contraction_form.py` reads the group, `contraction_loops.py` writes the loops, and what no model
changes is in `contraction_micro_kernels.py`. A constant B is packed into panels when it is loaded;
another B is packed into scratch, a block of columns at a time. Every size is a run-time argument,
block sizes included.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import float32, float64, int32, int64
from anydim.kernels.launch import Launch, Machine, Panels, known_number, known_parts
from anydim.kernels.matmul.contraction.by_position import place_by_place
from anydim.kernels.matmul.contraction.contraction_buffers import Blocks
from anydim.kernels.matmul.contraction.contraction_form import (
    ContractionForm,
    along_the_longer,
    form_of,
)
from anydim.kernels.matmul.contraction.contraction_micro_kernels import THIN
from anydim.kernels.matmul.contraction.interleaved_accumulators import filled, may_take_turns
from anydim.kernels.matmul.contraction.unpacked_variants import ContractionWriter
from anydim.kernels.matmul.contraction.valid_taps import seen_of
from anydim.kernels.matmul.register_tile import Tile, tile_of
from anydim.kernels.matmul.schedules import Contraction
from anydim.kernels.matmul.work_partition import MOST_PACKED, Sharing, from_on, work_of
from anydim.kernels.template import Task, form_template
from anydim.sizes import Size, align_up, as_size, ceil_div, maximum, minimum

_DTYPES = (float32, float64, int32, int64)
_FEW_TILES = 12  # row tiles that one panel of B at a time is enough for, and the least of a block
_ROWS = 6  # row tiles of each thread where they share these alone; half of them if A is copied
_LARGE = 1 << 18  # elements of B that do not stay in the second cache
_KEPT = 2  # a part of the second cache: a block of B that loops around share, packed once
_PAGE = 4096  # bytes after which lines come to the same set of the first cache
_WIDE = 16  # columns for each row that are better shared


def _form(task: Task) -> ContractionForm | None:
    form = form_of(task.group, task.constants, task.machine, task.box)
    if form is None or form.dtype not in _DTYPES:
        return None
    form = along_the_longer(form)
    if seen_of(form.windows, form.k.extent) is None:
        return form
    return place_by_place(form, tile_of(task.machine, form.dtype).rows, task.box)


def _propose(form: ContractionForm, task: Task) -> Contraction:
    machine = task.machine
    tile = tile_of(machine, form.dtype)
    packed = form.b in task.constants or form.in_panels
    return Contraction(
        *tile.options,
        block_k=machine.l1_bytes // (4 * tile.rows * form.dtype.bytes) // 8 * 8,
        block_rows_bytes=machine.l2_bytes * 3 // 8,
        block_columns_bytes=machine.l2_bytes // (_KEPT if form.same_b and not packed else 8),
        packed=packed,
    )


def _lower(form: ContractionForm, schedule: Contraction, task: Task) -> Launch:
    tile = schedule.tile
    blocks = _blocks(form, schedule, tile, task.machine)
    packing = None if form.in_panels or not schedule.packed else _panels(form, tile)
    writer = ContractionWriter(task.group, form, blocks, schedule, task.machine)
    return writer.launch(schedule, {"b": packing}, form.work, _reason(form, schedule))


TEMPLATE = form_template("contraction", Contraction, _form, _propose, _lower)


def _blocks(form: ContractionForm, schedule: Contraction, tile: Tile, machine: Machine) -> Blocks:
    """Rows and columns of a piece of work: as many rows as stay in the second cache.

    Few row tiles ask for the next panel of B while they use one; more of them have several panels,
    so that A comes from the second cache less often, and so has one alone, which may take two of
    them at a time, and so have those of few steps, which go along whole rows.
    """
    size, k = form.dtype.bytes, maximum(form.k.extent, 1)
    k = filled(k) if may_take_turns(form, schedule.packed, machine, tile.lanes) else k
    at_once = minimum(k, schedule.block_k) if schedule.packed else k
    tall = _tall(form, tile, machine)
    usual = ceil_div(form.m.extent, tile.rows)
    tiles, unit = usual - tall, tile.width - tile.lanes * tall
    kept = maximum(as_size(schedule.block_rows_bytes) // (k * (tile.rows * size)), _FEW_TILES)
    block_tiles = ceil_div(usual, maximum(ceil_div(usual, kept), 1))
    most = maximum(as_size(schedule.block_columns_bytes) // (at_once * (tile.width * size)), 1)
    pairs = maximum(most // 2 * 2, 1)
    alone = 1 - from_on(form.m.extent, tile.rows // 2 + 1)
    panels = 1 + from_on(block_tiles, _FEW_TILES + 1) * (most - 1) + alone * (pairs - 1)
    shares = form.same_b and not schedule.packed
    panels = most if shares else maximum(panels, most * (1 - from_on(form.k.extent, THIN + 1)))
    whole = k * align_up(form.n.extent, tile.lanes) * size
    b_bytes = minimum(maximum(schedule.block_columns_bytes, k * (tile.width * size)), whole)
    sharing = _sharing(form, tiles, tile, unit, machine.threads)
    sharing = replace(sharing, most=MOST_PACKED) if schedule.packed else sharing
    most_tiles, most_panels = block_tiles, panels
    if form.by_place:  # memory has what is no less, in short
        most_tiles, most_panels = minimum(ceil_div(form.all_rows, tile.rows), kept), most
    rows = most_tiles * tile.rows
    each = tile.width * tile.rows
    if tall.constant != 0:  # panels of two vectors, as many of them, with more rows
        each = max(each, (tile.width - tile.lanes) * tile.tall)
    return Blocks(tiles, block_tiles - tall, panels, rows, most_panels * each, b_bytes, sharing)


def _tall(form: ContractionForm, tile: Tile, machine: Machine) -> Size:
    """1 where all rows are those of a tile of two vectors that is higher than others, else 0.

    Rows that lie whole pages apart have their lines in one set of the first cache, which holds as
    many as the cache has pages; B needs one of them.
    """
    row, most = form.m.a.constant, tile.tall
    if not form.copies_a and row is not None and row * form.dtype.bytes % _PAGE == 0:
        most = max(min(most, machine.l1_bytes // _PAGE - 1), tile.rows)
    return from_on(form.m.extent, tile.rows + 1) - from_on(form.m.extent, most + 1)


def _sharing(form: ContractionForm, tiles: Size, tile: Tile, unit: Size, threads: int) -> Sharing:
    """Rows alone where each thread has enough of them to hide how long B takes to come.

    Else each has columns of its own, and what others wrote of A comes from their caches.
    """
    fewest = as_size(_ROWS * max(threads, 2))
    if form.copies_a:
        large = from_on(form.k.extent * form.n.extent, _LARGE)
        fewest = fewest // 2 * (1 + large)
    fewest = maximum(fewest, ceil_div(form.n.extent, _WIDE * tile.rows))
    around, rows, cut = form.around, form.m.extent, tiles
    if form.by_place:
        around, rows, cut = as_size(1), form.all_rows, ceil_div(form.all_rows, tile.rows)
    work = work_of(around, rows, cut, form.n.extent, form.k.extent)
    whole = from_on(tiles, fewest)
    return Sharing(form.extents, tiles, form.n.extent, unit, tile.lanes, whole, work)


def _panels(form: ContractionForm, tile: Tile) -> Panels:
    """How a constant B is packed; all of its sizes are known."""

    batch, k, n = (known_parts(part) for part in form.b_parts)
    return Panels(tile.lanes, batch, k, n, known_number(form.b_start))


def _reason(form: ContractionForm, schedule: Contraction) -> str:
    epilogue = "no epilogue" if all(o.is_product for o in form.outputs) else "its epilogue fused"
    start = ", starting from what is added" if form.start is not None else ""
    loops = len(form.loops)
    around = f" in {loops} loop{'s' if loops > 1 else ''}" if form.loops else ""
    where = "a constant B is packed when loaded" if schedule.packed else "B is packed as it is used"
    where = "B comes in panels" if form.in_panels else where
    convolution = form.windows is not None and schedule.packed
    what = "a convolution as a matrix product" if convolution else "a matrix product"
    return f"{what}{around}{start}, {epilogue}; {where}"
