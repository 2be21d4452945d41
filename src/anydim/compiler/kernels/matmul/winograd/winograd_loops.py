"""The loops of a Winograd convolution.

for each rectangle of a thread's part (`matmul/work_partition.py`), each panel of windows
    the transformed windows of the panel: V[36][channels]
    for each block of rows
        for each of the 36 products, each strip of rows: sums = U V
        for each row: the results of its windows, with the epilogue
"""

from __future__ import annotations

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, loop
from anydim.compiler.kernels.ir import constant, least, number, variable
from anydim.compiler.kernels.matmul.blocked_loops import Level
from anydim.compiler.kernels.matmul.convolution_micro_kernels import (
    STRIP,
    choose_micro_kernel,
    strip_function,
    strips,
)
from anydim.compiler.kernels.matmul.matmul_kernel import call, packed_at
from anydim.compiler.kernels.matmul.register_tile import LINE
from anydim.compiler.kernels.matmul.schedules import Winograd
from anydim.compiler.kernels.matmul.winograd.winograd_form import ChannelsFirstForm
from anydim.compiler.kernels.matmul.winograd.winograd_kernel import WinogradKernel
from anydim.compiler.kernels.matmul.winograd.winograd_transforms import (
    PRODUCTS,
    Collect,
    Spread,
    windows_across,
)
from anydim.compiler.kernels.matmul.work_partition import (
    MAX_STEPS_PACKED,
    RECTANGLE,
    WorkPartition,
    work_of,
)
from anydim.lang.tree import Group, Read
from anydim.lang.tree.affine import affine
from anydim.sizes import NEVER, Size, align_up, ceil_div


class WinogradWriter(WinogradKernel):
    """The kernel of channels-first tensors: lanes are windows."""

    name = "winograd"

    def __init__(self, group: Group, planes: ChannelsFirstForm, schedule: Winograd) -> None:
        form = planes.form
        super().__init__(group, form.outputs, (form.w, form.x), planes.epilogue, schedule.tile)
        self.form, self.schedule = form, schedule
        micro_kernel, libraries = choose_micro_kernel(self.tile, form.dtype, form.rows)
        self.strips = strips(self.tile, form.dtype, micro_kernel)
        self.libraries = (*libraries, self.strips)
        down, along = windows_across(form)
        self.windows = down * along
        tiles = ceil_div(form.rows, self.tile.rows)
        self.partition = WorkPartition(
            form.extents, tiles, self.windows,
            self.tile.width, self.tile.lanes, NEVER,
            work_of(form.around * PRODUCTS, form.rows, tiles, self.windows, form.channels.extent),
            MAX_STEPS_PACKED,
        )  # fmt: skip

    @property
    def spread_bytes(self) -> Size:
        """Bytes of the transformed windows of a panel."""
        each = PRODUCTS * self.tile.width * self.form.dtype.bytes
        return align_up(self.form.channels.extent * each, LINE)

    @property
    def scratch(self) -> Size:
        """Bytes of transformed windows and of a block's sums, with room for one more vector."""
        sums = PRODUCTS * self.schedule.block_rows * self.tile.width + self.tile.lanes
        return self.spread_bytes + sums * self.form.dtype.bytes

    def _transforms(self) -> tuple[ir.Function, ir.Function]:
        def make_functions() -> tuple[ir.Function, ir.Function]:
            spread = Spread(self.form, self.sizes, self.tile.lanes, self.tile.width)
            collect = Collect(self.form, self.sizes, self.tile.lanes, self.epilogue)
            return spread.function(), collect.function()

        make_functions()  # a first pass collects the sizes
        return make_functions()

    def start(self) -> list[ir.Step]:
        zero = number(self.form.dtype, 0)
        return [ir.Stack("zeros", self.form.dtype, 1), ir.Store("zeros", constant(0), zero)]

    def enter(self) -> list[ir.Step]:
        form = self.form
        stop = least(RECTANGLE.stop_tile * self.tile.rows, self.sizes.value(form.rows))
        return [
            ir.Let("row_stop", stop),
            ir.Let("x_unit", self.at(form.x_start, ((walk.name, walk.x) for walk in form.loops))),
            ir.Let("y_unit", self.at(0, ((walk.name, walk.y) for walk in form.loops))),
        ]

    def levels(self) -> list[Level]:
        """Return the levels: panels of windows, blocks of rows, products, strips."""
        rows, tile = self.schedule.block_rows, self.tile
        remaining = self.sizes.value(self.windows) - variable("column")
        rows_left = variable("row_stop") - variable("row0")
        results = loop("m", 0, variable("rows"), 1, *self._results())
        return [
            Level(
                "panel", RECTANGLE.first_panel, RECTANGLE.stop_panel, 1,
                [
                    ir.Let("column", variable("panel") * tile.width),
                    ir.Let("width", least(remaining, tile.width)),
                    call(self.spread, dst=ir.Address("scratch", constant(0))),
                ],
            ),
            Level(
                "row0", RECTANGLE.first_tile * tile.rows, variable("row_stop"), rows,
                [ir.Let("rows", least(rows_left, rows)), ir.Let("w_unit", self._weights())],
                [results],
            ),
            Level("product", 0, PRODUCTS, 1),
            Level("row", 0, variable("rows"), tile.rows * STRIP, self._strip()),
        ]  # fmt: skip

    def _weights(self) -> ir.Value:
        """Return the offset of the first product's first weight of the block of rows."""
        value, form = self.sizes.value, self.form
        group = align_up(form.rows, self.tile.rows) * form.channels.extent * PRODUCTS
        row = variable("row0") * value(form.channels.extent)
        loops = [(walk.name, walk.extent) for walk in form.loops if walk.w != 0]
        return index_sum(row, *packed_at(loops, group, self.sizes.role))

    def _strip(self) -> list[ir.Step]:
        """Compute several tiles of one product."""
        value, form = self.sizes.value, self.form
        channels = form.channels.extent
        each = value(align_up(form.rows, self.tile.rows) * channels)
        a = variable("w_unit") + variable("product") * each + variable("row") * value(channels)
        b = variable("product") * value(channels * self.tile.width * form.dtype.bytes)
        row = variable("product") * self.schedule.block_rows + variable("row")
        c = row * (self.tile.width * form.dtype.bytes)
        sums = ir.Address("scratch", value(self.spread_bytes) + c)
        zeros, zero = ir.Address("zeros", constant(0)), number(form.dtype, 0)
        none, width = constant(0), constant(self.tile.width)
        return [
            call(
                strip_function(self.strips.name, form.dtype), a=ir.Address("w", a),
                b=ir.Address("scratch", b), bias=zeros, more=sums, low=zero, high=zero,
                c=sums, k=value(channels), span=value(channels), gap=none,
                b_row=width, c_row=width, bias_step=none, start=constant(1), finish=none,
                rows=least(variable("rows") - variable("row"), self.tile.rows * STRIP),
                columns=variable("width"), a_row=value(channels),
            )
        ]  # fmt: skip

    def _results(self) -> list[ir.Step]:
        value, form = self.sizes.value, self.form
        row = variable("row0") + variable("m")
        y_at = variable("y_unit") + variable("channel") * value(form.row_y)
        sums = variable("m") * (self.tile.width * form.dtype.bytes)
        return [
            ir.Let("channel", row),
            ir.Let("y_at", y_at),
            call(
                self.collect, sums=ir.Address("scratch", value(self.spread_bytes) + sums),
                more_at=variable("y_at"),
                sums_step=constant(self.schedule.block_rows * self.tile.width),
                **self._epilogue_addresses(),
            ),
        ]  # fmt: skip

    def _bias(self, read: Read) -> ir.Value:
        form = affine(read.indices[0])
        assert form is not None
        loops = ((w.name, form.stride(w.name)) for w in self.form.loops)
        channel = variable("channel") * self.sizes.value(form.stride("m"))
        return self.at(form.constant, loops) + channel
