"""The contraction template: matrix products of any layout, batched, with pointwise epilogues.

`contraction_form.py` reads the group, `contraction_loops.py` writes the loops, and
`contraction_micro_kernels.py` holds the shape-independent functions. A constant B is packed into
panels at load time; another B is packed into scratch, a block of columns at a time. Every size is
a run-time argument, block sizes included.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import float32, float64, int32, int64
from anydim.compiler.kernels.knobs import VERSIONS, between, multiple
from anydim.compiler.kernels.launch import Launch, Machine, known_number, known_parts
from anydim.compiler.kernels.matmul.contraction.by_position import form_by_position
from anydim.compiler.kernels.matmul.contraction.contraction_buffers import Blocks
from anydim.compiler.kernels.matmul.contraction.interleaved_accumulators import (
    may_interleave,
    padded_k,
)
from anydim.compiler.kernels.matmul.contraction.unpacked_variants import TALL, ContractionWriter
from anydim.compiler.kernels.matmul.contraction.valid_taps import valid_taps_of
from anydim.compiler.kernels.matmul.contraction_form import (
    ContractionForm,
    along_the_longer,
    contraction_form_of,
)
from anydim.compiler.kernels.matmul.contraction_micro_kernels import THIN
from anydim.compiler.kernels.matmul.panel_columns import BY_POSITION
from anydim.compiler.kernels.matmul.register_tile import TILE_KNOBS, Tile, tile_of
from anydim.compiler.kernels.matmul.schedules import Contraction
from anydim.compiler.kernels.matmul.work_partition import MAX_STEPS_PACKED, WorkPartition, work_of
from anydim.compiler.kernels.schedule import ANY
from anydim.compiler.kernels.template import Task, form_template
from anydim.compiler.kernels.versions import taken_where
from anydim.runtime.panels import Panels
from anydim.sizes import (
    NEVER,
    Condition,
    Size,
    align_up,
    as_size,
    at_least,
    at_most,
    ceil_div,
    maximum,
    minimum,
)

_DTYPES = (float32, float64, int32, int64)
_KEPT = 2  # divisor of the second-level cache for a block of B that the loops share, packed once
_PAGE = 4096  # lines this many bytes apart map to the same set of the first-level cache


def _form(task: Task, version: str = ANY) -> ContractionForm | None:
    form = contraction_form_of(task.group, task.constants, task.machine, task.box)
    if form is None or form.dtype not in _DTYPES:
        return None
    form = along_the_longer(form)
    if valid_taps_of(form.windows, form.k.extent) is None or version not in (ANY, BY_POSITION):
        return form
    return form_by_position(
        form, tile_of(task.machine, form.dtype).rows, task.box, task.machine.limits
    )


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
    tile, version = schedule.tile, schedule.version
    form = form if version == ANY else _form(task, version) or form
    blocks = _blocks(form, schedule, tile, task.machine)
    packing = None if form.in_panels or not schedule.packed else _panels(form, tile)
    writer = ContractionWriter(task.group, form, blocks, schedule, task.machine)
    return writer.launch(schedule, {"b": packing}, form.work, _reason(form, schedule))


_KNOBS = {
    **TILE_KNOBS,
    "rows": TILE_KNOBS["rows"].with_tries(2, 3, 4, 6, 8, 10, 12),
    "unroll": TILE_KNOBS["unroll"].with_tries(1, 2, 4),
    "block_k": multiple(8, 8, 1 << 20),
    "block_columns_bytes": between(1, 1 << 30).with_tries(
        everywhere=tuple(n << 15 for n in (1, 2, 3, 4, 6, 8, 16))
    ),
    "block_rows_bytes": between(1, 1 << 30).with_tries(
        everywhere=tuple(3 << n for n in (15, 16, 17, 18, 19))
    ),
    "version": VERSIONS,
}
TEMPLATE = form_template("contraction", Contraction, _form, _propose, _lower, knobs=_KNOBS)


def _blocks(form: ContractionForm, schedule: Contraction, tile: Tile, machine: Machine) -> Blocks:
    """Return the blocks of a unit of work: rows up to the capacity of the second-level cache.

    Few row tiles prefetch the next panel of B while they use one. More row tiles have several
    panels per block, so that A is read from the second-level cache less often. So has a single row
    tile, which may use two panels at a time, and so have tiles of few k-steps, which run along
    whole rows. Engines of WebAssembly read ahead blocks of several widest tiles.
    """
    size, k, limits = form.dtype.bytes, maximum(form.k.extent, 1), machine.limits
    k = padded_k(k) if may_interleave(form, schedule, machine, tile.lanes) else k
    at_once = minimum(k, schedule.block_k) if schedule.packed else k
    tall = _tall(form, schedule.version, tile, machine)
    usual = ceil_div(form.m.extent, tile.rows)
    tiles, unit = usual - tall.flag, tall.where(tile.width - tile.lanes, tile.width)
    kept = maximum(
        as_size(schedule.block_rows_bytes) // (k * (tile.rows * size)), limits.few_row_tiles
    )
    block_tiles = ceil_div(usual, maximum(ceil_div(usual, kept), 1))
    limit = maximum(as_size(schedule.block_columns_bytes) // (at_once * (tile.width * size)), 1)
    pairs = maximum(limit // 2 * 2, 1)
    alone = at_most(form.m.extent, tile.rows // 2).where(pairs, 1)
    if machine.touches:
        limit = alone = align_up(limit, tile.widest(1) // tile.vectors)
    many = at_least(block_tiles, limits.few_row_tiles + 1) | at_most(form.k.extent, THIN)
    panels = limit if form.same_b and not schedule.packed else many.where(limit, alone)
    whole = k * align_up(form.n.extent, tile.lanes) * size
    b_bytes = minimum(maximum(schedule.block_columns_bytes, k * (tile.width * size)), whole)
    partition = _partition(form, tiles, tile, unit, machine)
    partition = replace(partition, max_steps=MAX_STEPS_PACKED) if schedule.packed else partition
    max_tiles, max_panels = block_tiles, panels
    if form.by_position:  # shorter formulas of upper bounds, for memory
        max_tiles, max_panels = minimum(ceil_div(form.all_rows, tile.rows), kept), limit
    rows = max_tiles * tile.rows
    each = tile.width * tile.rows
    if tall != NEVER:  # the same number of panels of two vectors, with more rows
        each = max(each, (tile.width - tile.lanes) * tile.tall)
    block_tiles, sums = block_tiles - tall.flag, max_panels * each
    return Blocks(tiles, block_tiles, panels, rows, sums, b_bytes, partition, tall)


def _tall(form: ContractionForm, version: str, tile: Tile, machine: Machine) -> Condition:
    """Where all rows fit one tall register tile, two vectors wide.

    Rows whole pages apart have their lines in one set of the first-level cache, which has one way
    per page of its size; B needs one of the ways.
    """
    row, max_rows = form.m.a.constant, tile.tall
    if not form.copies_a and row is not None and row * form.dtype.bytes % _PAGE == 0:
        max_rows = max(min(max_rows, machine.l1_bytes // _PAGE - 1), tile.rows)
    when = at_least(form.m.extent, tile.rows + 1) & at_most(form.m.extent, max_rows)
    return taken_where(version, TALL, when)


def _partition(
    form: ContractionForm, tiles: Size, tile: Tile, unit: Size, machine: Machine
) -> WorkPartition:
    """The partition among threads: by rows alone if each gets enough to hide the latency of B.

    Otherwise each thread has columns of its own, and reads A from the caches of other threads.
    """
    limits = machine.limits
    min_tiles = as_size(limits.thread_row_tiles * max(machine.threads, 2))
    if form.copies_a:
        # Threads that share columns would each copy all rows of A.
        large = at_least(form.k.extent * form.n.extent, limits.large_factor)
        min_tiles = large.where(min_tiles, min_tiles // 2)
    min_tiles = maximum(min_tiles, ceil_div(form.n.extent, limits.wide_columns * tile.rows))
    around, rows, cut = form.around, form.m.extent, tiles
    if form.by_position:
        around, rows, cut = as_size(1), form.all_rows, ceil_div(form.all_rows, tile.rows)
    work = work_of(around, rows, cut, form.n.extent, form.k.extent)
    whole = at_least(tiles, min_tiles)
    return WorkPartition(
        form.extents, tiles, form.n.extent, unit, tile.lanes, whole, work,
        grain=limits.product_steps,
    )  # fmt: skip


def _panels(form: ContractionForm, tile: Tile) -> Panels:
    """Return the packing of a constant B, whose sizes are all known."""

    batch, k, n = (known_parts(part) for part in form.b_parts)
    return Panels(tile.lanes, batch, k, n, known_number(form.b_start))


def _reason(form: ContractionForm, schedule: Contraction) -> str:
    epilogue = "no epilogue" if all(o.is_product for o in form.outputs) else "its epilogue fused"
    start = ", starting from an addend" if form.start is not None else ""
    loops = len(form.loops)
    around = f" in {loops} loop{'s' if loops > 1 else ''}" if form.loops else ""
    where = "a constant B is packed at load time" if schedule.packed else "B is packed on use"
    where = "B is stored in panels" if form.in_panels else where
    convolution = form.windows is not None and schedule.packed
    kind = "a convolution as a matrix product" if convolution else "a matrix product"
    return f"{kind}{around}{start}, {epilogue}; {where}"
