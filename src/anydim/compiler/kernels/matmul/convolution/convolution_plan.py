"""The plan of a convolution: decisions before its loops are written, and its scratch layout."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.limits import Limits
from anydim.compiler.kernels.matmul.convolution.batched_columns import (
    MAX_POSITIONS,
    Columns,
    columns_of,
)
from anydim.compiler.kernels.matmul.convolution.cropped_taps import crop_taps
from anydim.compiler.kernels.matmul.convolution.line_buffer import LineBuffer, line_buffer_of
from anydim.compiler.kernels.matmul.convolution.valid_taps import ValidTaps, rest_of, valid_taps_of
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm, OuterLoop
from anydim.compiler.kernels.matmul.epilogue import target_of
from anydim.compiler.kernels.matmul.register_tile import LINE, Tile
from anydim.compiler.kernels.matmul.schedules import Convolution
from anydim.compiler.kernels.matmul.tile_epilogue import TileEpilogue, tile_epilogue_of
from anydim.compiler.kernels.matmul.window_geometry import ALL_TAPS
from anydim.compiler.kernels.matmul.work_partition import (
    MAX_STEPS,
    MAX_STEPS_PACKED,
    WorkPartition,
    work_of,
)
from anydim.lang.tree import Group
from anydim.sizes import (
    ALWAYS,
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
    product,
)

_NARROW = 2  # factor of a chunk's products where panels are narrow
_NOTHING = as_size(0)


@dataclass(frozen=True)
class WindowBlocks:
    """The partition of the work: rows of a block, channels of a chunk, shares of threads."""

    rows: Size
    channels: Size
    partition: WorkPartition


@dataclass(frozen=True)
class Scratch:
    """Sizes in bytes of the parts of scratch, in order.

    A panel or a line buffer, weights that are copied, sums of joined images, and transposed images
    of the variant by position.
    """

    panel: Size
    weights: Size
    sums: Size = _NOTHING
    transposed: Size = _NOTHING

    @property
    def sums_at(self) -> Size:
        return self.panel + self.weights

    @property
    def transposed_at(self) -> Size:
        return self.sums_at + self.sums

    @property
    def all(self) -> Size:
        return self.transposed_at + self.transposed


@dataclass(frozen=True)
class Plan:
    """A convolution for its loops: `given`, and `form` without taps that are never in bounds.

    The memory of `target` holds the sums. Where `copied` holds, weights are copied before use.
    """

    given: ConvolutionForm
    form: ConvolutionForm
    epilogue: TileEpilogue | None
    schedule: Convolution
    machine: Machine
    target: str
    columns: Columns[OuterLoop]
    copied: Condition
    line_buffer: LineBuffer | None
    valid_taps: ValidTaps | None
    blocks: WindowBlocks

    @property
    def tile(self) -> Tile:
        return self.schedule.tile

    @property
    def panel_row(self) -> int:
        """Elements between the rows of a packed panel: a vector may extend past the last column."""
        return self.tile.width + self.tile.lanes

    @property
    def finished(self) -> bool:
        """Whether register tiles compute the whole epilogue."""
        return self.epilogue is not None or [o.is_product for o in self.form.outputs] == [True]

    @property
    def joins(self) -> bool:
        """Whether images are joined at some sizes."""
        return self.columns.joined != NEVER

    @property
    def runs_by_position(self) -> bool:
        """Whether some sizes run position by position."""
        return self.columns.by_position != NEVER

    @property
    def copies(self) -> bool:
        """Whether weights are copied at some sizes."""
        return self.copied != NEVER or self.runs_by_position

    @cached_property
    def scratch(self) -> Scratch:
        """The scratch of a thread."""
        scratch = self._joined_scratch() if self.joins else self._own_scratch()
        if self.line_buffer is None:
            return scratch
        reached = _line_buffer_bytes(self.machine) + LINE  # vectors may extend past its last row
        return replace(scratch, panel=maximum(scratch.panel, reached))

    def _own_scratch(self) -> Scratch:
        """Return the scratch without joined images."""
        bytes, k = self.form.dtype.bytes, self.blocks.channels * self.form.window
        panel = _NOTHING if self.schedule.direct else align_up(k * (self.panel_row * bytes), LINE)
        if self.line_buffer is not None:
            k = maximum(k, self.line_buffer.channels * self.given.window)
        weights = align_up(self.blocks.rows * k * bytes, LINE)
        return Scratch(panel, self.copied.where(weights, 0))

    def _joined_scratch(self) -> Scratch:
        """Return the maximum scratch with joined images.

        The formula of the arena contains the scratch of many layers, and exact terms would repeat
        the number of positions hundreds of times for each.
        """
        schedule, tile, bytes = self.schedule, self.tile, self.form.dtype.bytes
        window, channels = self.given.window, self.given.channels.extent
        row, max_k = self.panel_row * bytes, schedule.chunk_k * _NARROW
        k = minimum(channels * window, maximum(max_k, window))
        tiles = minimum(ceil_div(self.form.rows, tile.rows), schedule.block_tiles)
        rows, columns, transposed = tiles * tile.rows, schedule.block_panels * tile.width, _NOTHING
        if self.runs_by_position:
            columns = max(columns, MAX_POSITIONS * tile.width)
            transposed = minimum(channels * MAX_POSITIONS, maximum(max_k, MAX_POSITIONS)) * row
        weights = align_up(rows * k * bytes, LINE) if self.copies else _NOTHING
        return Scratch(align_up(k * row, LINE), weights, rows * columns * bytes, transposed)


def _line_buffer_bytes(machine: Machine) -> int:
    """Return the maximum bytes of a line buffer; a chunk's weights share the second-level cache."""
    return machine.l2_bytes // 4


def plan_of(group: Group, given: ConvolutionForm, schedule: Convolution, machine: Machine) -> Plan:
    """Return the plan of a group's convolution on a machine."""
    form, epilogue, tile = crop_taps(given), tile_epilogue_of(given, group), schedule.tile
    columns = columns_of(form, given, epilogue, schedule)
    copied, line_buffer = ALWAYS, None
    every = machine.max_lanes or schedule.version == ALL_TAPS
    valid_taps = None if every else valid_taps_of(form)
    if schedule.packed:
        skipped = (
            given.window - form.window if valid_taps is None else rest_of(given) - valid_taps.rest
        )
        # Tiles read weights in order, so those of skipped taps are removed by a copy (1 to 6 %).
        copied = at_least(skipped, 1) & ~columns.by_position
    if not (schedule.direct or machine.max_lanes):
        limits = schedule.chunk_k, _line_buffer_bytes(machine)
        line_buffer = line_buffer_of(
            form, given, tile, schedule.block_panels, *limits, schedule.version
        )
    if line_buffer is not None:
        buffered = maximum(columns.all, line_buffer.rows * line_buffer.width)
        columns = replace(columns, all=line_buffer.used.where(buffered, columns.all))
    more = epilogue is not None and epilogue.more is not None
    target = target_of(form.outputs, group, form.dtype)
    assert target is not None, "forms have a result of the type of the sums"
    return Plan(
        given, form, epilogue, schedule, machine, target.tensor, columns, copied, line_buffer,
        valid_taps, _cut(form, columns, schedule, more, machine.limits),
    )  # fmt: skip


def _cut(
    form: ConvolutionForm, columns: Columns[OuterLoop], schedule: Convolution, more: bool,
    limits: Limits,
) -> WindowBlocks:  # fmt: skip
    """Return blocks of even size, within the limits of the schedule.

    The chunk determines when `more` is added, so with `more` it does not depend on the batch.
    """
    tile = schedule.tile
    tiles = ceil_div(form.rows, tile.rows)
    row_blocks = ceil_div(tiles, schedule.block_tiles)
    panels = columns.panels
    images = as_size(1) if columns.loop is None else columns.loop.extent
    filled = minimum(images * columns.positions, tile.width)
    # A narrow panel holds more channels in the same cache: masks serve more of them, and sums
    # cross memory less often.
    narrow = minimum(as_size(tile.width) // maximum(filled, 1), _NARROW)
    by_position = columns.by_position
    # `more` is added after a chunk: chunks that depend on the batch would change its bits.
    times = 1 if more else by_position.where(_NARROW, maximum(narrow, 1))
    window = maximum(by_position.where(maximum(form.window, form.channels.x), form.window), 1)
    limit = maximum(schedule.chunk_k * times // window, 1)
    chunks = maximum(ceil_div(form.channels.extent, limit), 1)
    around = product(extent for _, extent in columns.loops)
    full = panels * tile.width
    few = at_most(panels, limits.window_panels) & at_least(tiles, limits.window_tiles)
    return WindowBlocks(
        rows=ceil_div(tiles, maximum(row_blocks, 1)) * tile.rows,
        channels=maximum(ceil_div(form.channels.extent, chunks), 1),
        partition=WorkPartition(
            columns.loops, tiles,
            columns.joined.where(maximum(columns.all, full), columns.all),
            tile.width, tile.lanes, few, work_of(around, form.rows, tiles, columns.all, form.k),
            MAX_STEPS_PACKED if schedule.packed else MAX_STEPS, limits.product_steps,
        ),
    )  # fmt: skip
