"""Winograd convolutions of channels-last tensors: vectors run along channels, without shuffles.

for each rectangle of a thread's part (`matmul/work_partition.py`), each block of windows
    the transformed windows of the block: V[36][windows][channels]
    for each panel of columns, which are output channels
        for each of the 36 products, each tile of windows: sums = V U, as in a contraction
        for each window: its results, with the epilogue

Windows are numbered across all images, so that windows of small images share tiles.
"""

from __future__ import annotations

from anydim.base.dtypes import int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant, least, select, variable
from anydim.compiler.kernels.matmul.blocked_loops import Level
from anydim.compiler.kernels.matmul.contraction_micro_kernels import (
    contraction_libraries,
    prefix_of,
)
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.register_tile import (
    GIVEN,
    LINE,
    PrefetchB,
    store_scalar,
    zeros_to_start,
)
from anydim.compiler.kernels.matmul.schedules import WinogradAcross
from anydim.compiler.kernels.matmul.winograd.channels_last_transforms import (
    Shared,
    collect_library,
    collect_values,
    spread_library,
    spread_values,
)
from anydim.compiler.kernels.matmul.winograd.winograd_form import ChannelsLastForm
from anydim.compiler.kernels.matmul.winograd.winograd_kernel import WinogradKernel
from anydim.compiler.kernels.matmul.winograd.winograd_transforms import PRODUCTS, VectorEpilogue
from anydim.compiler.kernels.matmul.work_partition import (
    MAX_STEPS_PACKED,
    RECTANGLE,
    WorkPartition,
    work_of,
)
from anydim.lang.tree import Group, Read
from anydim.lang.tree.affine import affine
from anydim.sizes import Size, align_up, as_size, at_least, ceil_div

_ALONE = 6  # minimum tiles of windows per thread when threads share windows alone
_AGAIN = 2  # columns of weights that cost as much to reload as a window to transform again


class AcrossWriter(WinogradKernel):
    """The kernel of channels-last tensors: lanes are channels."""

    name = "winograd_across"

    def __init__(
        self, group: Group, images: ChannelsLastForm, schedule: WinogradAcross, threads: int
    ) -> None:
        form = images.form
        super().__init__(group, form.outputs, (form.b, form.a), images.epilogue, schedule.tile)
        self.images, self.form, self.schedule = images, form, schedule
        self.lanes = schedule.lanes
        self.libraries = contraction_libraries(self.tile, form.dtype)
        tiles, columns = ceil_div(images.windows, self.tile.rows), form.n.extent
        enough = at_least(tiles, _ALONE * max(threads, 2))
        alone = enough & at_least(images.windows * _AGAIN, columns)
        self.partition = WorkPartition(
            (), tiles, columns, self.tile.width, self.tile.lanes, alone,
            work_of(
                as_size(1), images.windows * PRODUCTS, tiles * PRODUCTS, columns, images.channels
            ),
            MAX_STEPS_PACKED,
        )  # fmt: skip

    @property
    def row(self) -> Size:
        """Elements between transformed windows."""
        return align_up(self.images.channels, self.lanes)

    @property
    def matrix_stride(self) -> Size:
        """Elements between the 36 matrices of transformed windows, in different cache sets."""
        return self.row * self.schedule.block + LINE // self.form.dtype.bytes

    @property
    def sums_stride(self) -> int:
        """Elements between the 36 matrices of sums."""
        return self.tile.width * self.schedule.block + LINE // self.form.dtype.bytes

    @property
    def spread_bytes(self) -> Size:
        return align_up(self.matrix_stride * (PRODUCTS * self.form.dtype.bytes), LINE)

    @property
    def scratch(self) -> Size:
        return self.spread_bytes + PRODUCTS * self.sums_stride * self.form.dtype.bytes

    def _transforms(self) -> tuple[ir.Function, ir.Function]:
        spread = spread_values(self.images, self.sizes, self.row, self.matrix_stride)
        collect = collect_values(self.images, self.sizes)
        dtype, lanes = self.form.dtype, self.lanes
        epilogue = VectorEpilogue.of(self.images.epilogue, dtype, lanes)
        libraries = (
            spread_library(Shared(dtype, lanes, spread)),
            collect_library(
                Shared(dtype, lanes, collect), self.tile.width, self.sums_stride, epilogue
            ),
        )
        for library in libraries:
            self.needs(library)
        return libraries[0].functions[0], libraries[1].functions[0]

    def callees(self) -> tuple[ir.Function, ...]:
        """Return no functions: the transforms are in libraries."""
        super().callees()
        return ()

    def start(self) -> list[ir.Step]:
        tile = self.tile
        channels = self.sizes.role("all_channels", self.images.channels)
        return [
            *zeros_to_start(tile, self.form.dtype),
            ir.Stack("given", int64, len(GIVEN)),
            store_scalar("a_row", self.sizes.role("x_copied", self.row)),
            store_scalar("b_panel", channels * tile.lanes),
            store_scalar("c_row", constant(tile.width)),
        ]

    def enter(self) -> list[ir.Step]:
        stop = RECTANGLE.stop_tile * self.tile.rows
        windows = self.sizes.role("all_windows", self.images.windows)
        return [ir.Let("stop_window", least(stop, windows))]

    def levels(self) -> list[Level]:
        """Return the levels: blocks of windows, panels, products, tiles."""
        width, block = self.tile.width, self.schedule.block
        first = RECTANGLE.first_tile * self.tile.rows
        remaining = variable("stop_window") - variable("first")
        columns = self.sizes.role("all_columns", self.form.n.extent) - variable("column0")
        return [
            Level(
                "first", first, variable("stop_window"), block,
                [
                    ir.Let("count", least(remaining, block)),
                    call(self.spread, dst=ir.Address("scratch", constant(0))),
                ],
            ),
            Level(
                "panel", RECTANGLE.first_panel, RECTANGLE.stop_panel, 1,
                [
                    ir.Let("column0", variable("panel") * width),
                    ir.Let("columns", least(columns, width)),
                    store_scalar("columns", variable("columns")),
                    *self._shares(),
                ],
                self._results(),
            ),
            Level("product", 0, PRODUCTS, 1),
            Level("window", 0, variable("count"), self.tile.rows, self._tile()),
        ]  # fmt: skip

    def _shares(self) -> list[ir.Step]:
        """Divide the prefetches of the next product's weights among the tiles of a product.

        A single tile prefetches a short distance ahead.
        """
        channels = self.sizes.role("all_channels", self.images.channels)
        many, single = variable("many"), variable("many").equals(1)
        return [
            ir.Let("many", (variable("count") + (self.tile.rows - 1)) / self.tile.rows),
            ir.Let("share", channels * self.tile.lanes / (many * self.tile.rows)),
            ir.Let("next", channels * self._padded),
            store_scalar(
                "asks", select(single, constant(PrefetchB.SOON), constant(PrefetchB.NEXT))
            ),
            store_scalar("step", (many + (self.tile.lanes * self.tile.unroll - 1)) / many),
        ]

    @property
    def _padded(self) -> ir.Value:
        """Columns of the weights of a product, with the padding of the last panel."""
        return self.sizes.role("padded_columns", align_up(self.form.n.extent, self.tile.lanes))

    def _tile(self) -> list[ir.Step]:
        """Compute one register tile of one product."""
        role, size, tile = self.sizes.role, self.form.dtype.bytes, self.tile
        channels = role("all_channels", self.images.channels)
        a = (
            variable("product") * role("apart", self.matrix_stride) * size
            + variable("window") * role("x_copied", self.row) * size
        )
        b = (variable("product") * self._padded + variable("column0")) * channels
        row = variable("window") * tile.width
        c = (variable("product") * self.sums_stride + row) * size
        return [
            store_scalar("k", channels),
            store_scalar("rows", least(variable("count") - variable("window"), tile.rows)),
            *(store_scalar(name, constant(0)) for name in ("init_row", "init_step")),
            # The next product's weights, which no cache holds in a network: x 0.75 to 0.92.
            store_scalar("ahead", variable("next") + variable("window") * variable("share")),
            ir.Call(
                f"{prefix_of(tile, self.form.dtype)}_row",
                (
                    ir.Address("scratch", a), ir.Address("w", b),
                    ir.Address("zeros", constant(0)),
                    ir.Address("scratch", role("spread_bytes", self.spread_bytes) + c),
                    ir.Address("given", constant(0)),
                ),
            ),
        ]  # fmt: skip

    def _results(self) -> list[ir.Step]:
        sums = ir.Address("scratch", self.sizes.role("spread_bytes", self.spread_bytes))
        return [call(self.collect, sums=sums, **self._epilogue_addresses())]

    def _bias(self, read: Read) -> ir.Value:
        form = affine(read.indices[0])
        assert form is not None
        return self.sizes.role_or_literal("bias_start", form.constant) + variable("column0")
