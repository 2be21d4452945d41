"""The loops of a convolution kernel.

    for each rectangle of a thread's part (`matmul/work_partition.py`)
        for each block of rows, each block of columns
            for each chunk of channels
                pack the weights, unless packed at load time
                for each panel of columns of the block (`batched_columns.py`)
                    windows of x -> a panel of B in L1, or a line buffer (`line_buffer.py`)
                    for each strip of rows: sums += A B; after the last chunk, the epilogue

All tiles of rows use a panel while it is in the first-level cache; the weights of a block of rows
and a chunk stay in the second-level cache for all panels of a block.
"""

from __future__ import annotations

from functools import partial

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient_up
from anydim.compiler.kernels.ir import constant, greatest, least, let, number, select, variable
from anydim.compiler.kernels.matmul.blocked_loops import Blocked, Level
from anydim.compiler.kernels.matmul.convolution.batched_columns import images_of
from anydim.compiler.kernels.matmul.convolution.by_position import position_steps, rows_function
from anydim.compiler.kernels.matmul.convolution.convolution_packing import WindowPack
from anydim.compiler.kernels.matmul.convolution.convolution_plan import Plan
from anydim.compiler.kernels.matmul.convolution.convolution_variables import JOINED, LAST, LOOP
from anydim.compiler.kernels.matmul.convolution.line_buffer import line_buffer_steps
from anydim.compiler.kernels.matmul.convolution.merged_rows import MergedPack, can_merge
from anydim.compiler.kernels.matmul.convolution.tile_strips import Strips, libraries
from anydim.compiler.kernels.matmul.convolution.valid_taps import valid_taps_of
from anydim.compiler.kernels.matmul.convolution.weight_blocks import weights_of
from anydim.compiler.kernels.matmul.convolution_micro_kernels import STRIP
from anydim.compiler.kernels.matmul.epilogue import read_by
from anydim.compiler.kernels.matmul.matmul_kernel import call, roles_of
from anydim.compiler.kernels.matmul.panel_columns import BY_POSITION
from anydim.compiler.kernels.matmul.window_geometry import ALL_TAPS, LayerSizes
from anydim.compiler.kernels.matmul.work_partition import RECTANGLE
from anydim.compiler.kernels.versions import Listed, checked_version, taken_where
from anydim.lang.tree import Group
from anydim.sizes import ALWAYS, NEVER, Condition, Size, product


class ConvolutionWriter(Blocked):
    """The kernel of a convolution: rows are output channels, columns output positions."""

    name = "convolution"
    sizes: LayerSizes

    def __init__(self, group: Group, plan: Plan) -> None:
        form, epilogue = plan.form, plan.epilogue
        super().__init__(group, form.outputs, form.dtype, plan.tile, LayerSizes())
        self.plan, self.form, self.columns = plan, form, plan.columns
        self.merging: Condition = NEVER
        self.libraries, self.partition = libraries(plan), plan.blocks.partition
        if epilogue is not None:
            self.in_place = epilogue.in_place((form.x, form.w), form.outputs[0].tensor)
        if plan.schedule.packed:
            self.packed = {"w": form.dtype}
        self.roles, self.buffers = roles_of(
            ((form.w, "w"), (form.x, "x")), self.packed, read_by(form.outputs),
            (output.tensor for output in form.outputs),
        )  # fmt: skip

    @property
    def scratch(self) -> Size:
        return self.plan.scratch.all

    def role(self, name: str, size: Size) -> ir.Value:
        return self.sizes.role(name, size)

    def callees(self) -> list[ir.Function]:
        """Return the epilogue, unless the tile computes it, and the packing functions."""
        plan, epilogue = self.plan, None
        if not plan.finished:
            epilogue = self.make_epilogue(self.form, plan.machine)
        self.windows = self._packing() if plan.joins or not plan.schedule.direct else []
        self.buffer_steps = line_buffer_steps(
            plan.line_buffer, self.form, self, plan.valid_taps is not None
        )
        self.versions = self._versions()
        self.weights = weights_of(plan, self)
        self.strips = Strips(plan, self, self.buffer_steps, self.weights, epilogue)
        self.rows = []
        if plan.runs_by_position:
            own = plan.given, self.sizes, plan.tile.lanes, plan.panel_row
            self.rows = [self.with_all_sizes(partial(rows_function, *own))]
        made = *self.windows, *self.buffer_steps.functions, *self.weights.functions, *self.rows
        return [*made] if epilogue is None else [epilogue, *made]

    def _versions(self) -> Listed:
        """The versions: how windows are read and packed."""
        columns, line_buffer = self.columns, self.plan.line_buffer
        buffered = NEVER if line_buffer is None else line_buffer.used
        skipping = NEVER if valid_taps_of(self.plan.form) is None else ALWAYS
        return checked_version(self.plan.schedule.version, (
            (BY_POSITION, columns.by_position), ("joined", columns.joined),
            ("line_buffer", buffered), ("merged_rows", self.merging),
            (ALL_TAPS, taken_where(self.plan.schedule.version, ALL_TAPS, NEVER, skipping)),
            ("direct" if self.plan.schedule.direct else "panels", ALWAYS),
        ))  # fmt: skip

    def _packing(self) -> list[ir.Function]:
        """Return the functions that pack windows into a panel, and merged rows of few positions."""
        plan = self.plan
        skips_taps = plan.valid_taps is not None
        given = self.form, self.sizes, plan.tile.lanes, plan.panel_row, plan.joins, skips_taps
        pack = WindowPack(*given)
        windows = [self.with_all_sizes(pack.function)]
        if pack.transpose is not None:
            self.needs(pack.transpose)
        if can_merge(self.form):
            x = product(self.group.type_of(self.form.x).shape)
            merged = MergedPack(*given, x if plan.machine.permutes else None,
                                plan.schedule.version, plan.machine.limits)  # fmt: skip
            self.merging, self.merges = merged.when, merged.used()
            windows.append(self.with_all_sizes(merged.function))
        return windows

    def start(self) -> list[ir.Step]:
        zero = ir.Store("zeros", constant(0), number(self.form.dtype, 0))
        return [*self.buffer_steps.start(), ir.Stack("zeros", self.form.dtype, 1), zero]

    # ---- the loops -----------------------------------------------------------------------------

    def enter(self) -> list[ir.Step]:
        plan, row_stop = self.plan, RECTANGLE.stop_tile * self.tile.rows
        column_stop = RECTANGLE.stop_panel * self._width
        rows, columns = self.role("all_rows", self.form.rows), self.sizes.value(self.columns.all)
        banded, max_panels = self.buffer_steps.enter(constant(plan.schedule.block_panels))
        panels = self.role("panels", self.partition.panels)
        if plan.runs_by_position:
            max_panels = select(self._runs_by_position, 1, max_panels)
        blocks = greatest(quotient_up(panels, greatest(max_panels, 1)), 1)
        return [
            *banded,
            let(LOOP.block_columns, quotient_up(panels, blocks) * self._width),
            ir.Let("row_stop", least(row_stop, rows)),
            ir.Let("column_stop", least(column_stop, columns)),
        ]

    @property
    def _width(self) -> ir.Value:
        """Columns of a panel."""
        width = self.columns.width
        return self.role("panel", width) if self.plan.joins else constant(self.tile.width)

    def levels(self) -> list[Level]:
        """Return the levels: blocks of rows, of columns, chunks of channels, panels, strips."""
        tile, form = self.tile, self.form
        rows = self.role("block_rows", self.plan.blocks.rows)
        columns = LOOP.block_columns
        first_row = RECTANGLE.first_tile * tile.rows
        first_column = RECTANGLE.first_panel * self._width
        remaining = variable("row_stop") - LOOP.row0
        end = least(LOOP.column0 + columns, variable("column_stop"))
        all_channels, channels = greatest(self._channels, 1), self._chunk_channels
        width = least(LOOP.columns - LOOP.column, self._width)
        pack = self.buffer_steps.choose(self.buffer_steps.head(), self._pack_windows())
        strips: ir.Value = LOOP.rows
        if self.plan.runs_by_position:
            used = self._runs_by_position
            pack = [ir.If(used, tuple(position_steps(self.strips, *self.rows)), tuple(pack))]
            # By position, the strips run within `position_steps`.
            strips = select(used, 0, strips)
        return [
            Level(
                LOOP.row0, first_row, variable("row_stop"), rows,
                [let(LOOP.rows, least(remaining, rows))],
            ),
            Level(
                LOOP.column0, first_column, variable("column_stop"), columns,
                [
                    let(LOOP.columns, end),
                    ir.Let("x_unit", self.at(form.x_start, ((w.name, w.x) for w in form.loops))),
                    let(LOOP.y_unit, self.at(0, ((w.name, w.y) for w in form.loops))),
                    let(LOOP.w_unit, self.weights.start()),
                ],
            ),
            Level(LOOP.channel0, 0, all_channels, channels, self._chunk()),
            Level(
                LOOP.column, LOOP.column0, LOOP.columns, self._width,
                [
                    let(LOOP.width, width), *images_of(self.columns, self.sizes),
                    *self._taps(), *pack,
                ],
            ),
            Level(LOOP.row, 0, strips, tile.rows * STRIP, self.strips.steps()),
        ]  # fmt: skip

    @property
    def _channels(self) -> ir.Value:
        return self.role("all_channels", self.form.channels.extent)

    @property
    def _chunk_channels(self) -> ir.Value:
        channels, line_buffer = self.plan.blocks.channels, self.plan.line_buffer
        if line_buffer is not None:
            channels = line_buffer.used.where(line_buffer.channels, channels)
        return self.role("chunk", channels)

    def _chunk(self) -> list[ir.Step]:
        """Return the variables of a chunk of channels, for all panels and tiles."""
        value, form = self.sizes.value, self.form
        channels = least(self._channels - LOOP.channel0, self._chunk_channels)
        end = LOOP.channel0 + self._chunk_channels
        last = end >= self._channels
        first = select(LOOP.channel0.equals(0), 1, constant(0))
        x = variable("x_unit") + LOOP.channel0 * value(form.channels.x)
        return [
            let(LOOP.channels, channels),
            let(LOOP.first, first),
            let(LAST, last),
            let(LOOP.x_at, x),
            *self.weights.copy(),
            *self.buffer_steps.unknown(),
            *self.buffer_steps.choose(self.buffer_steps.make(), ()),
        ]

    def _taps(self) -> list[ir.Step]:
        """Return the range of taps of a panel."""
        valid_taps, value = self.plan.valid_taps, self.sizes.value
        if valid_taps is None:
            k = LOOP.channels * value(self.form.window)
            return [let(LOOP.k, k), let(LOOP.span, LOOP.k)]
        first, width = LOOP.column, LOOP.width
        if self.plan.joins:
            first, width = select(JOINED, 0, first), select(JOINED, LOOP.run, width)
        row = self.buffer_steps.row(value(product(step.extent for step in self.form.positions[1:])))
        return valid_taps.range(value, first, width, row)

    @property
    def _runs_by_position(self) -> ir.Value:
        return self.sizes.holds(self.columns.by_position)

    def _pack_windows(self) -> list[ir.Step]:
        if not self.windows:
            return []
        own = {}
        if self.plan.joins:
            x = LOOP.x_at + LOOP.image * LOOP.x_image
            own = {"x_at": x, "column": LOOP.place, "width": LOOP.run}
        rows, *merged = (
            call(made, dst=ir.Address("scratch", constant(0)), **own) for made in self.windows
        )
        worth = self.merges if merged else None
        steps: ir.Step = rows if worth is None else ir.If(worth, tuple(merged), (rows,))
        return [ir.If(JOINED, (steps,))] if self.plan.schedule.direct else [steps]
