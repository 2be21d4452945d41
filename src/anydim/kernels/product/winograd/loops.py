"""The loops of a Winograd convolution.

for each rectangle of a thread's part (`product/sharing.py`), each panel of windows
    the transformed windows of the panel: V[36][channels]
    for each block of rows
        for each of the 36 products, each tile of rows: sums = U V
        for each row: the results of its windows, with what follows
"""

from __future__ import annotations

from anydim.kernels import ir
from anydim.kernels.product.convolution.ending import Ending
from anydim.kernels.product.convolution.form import Windows
from anydim.kernels.product.convolution.library import TILE_SCALARS, called
from anydim.kernels.product.kernel import call, packed_at
from anydim.kernels.product.micro import LINE
from anydim.kernels.product.sharing import Sharing, work_of
from anydim.kernels.product.winograd.kernel import WinogradKernel
from anydim.kernels.product.winograd.schedule import Winograd
from anydim.kernels.product.winograd.transforms import (
    PRODUCTS,
    Collect,
    Spread,
    windows_across,
)
from anydim.kernels.write.arithmetic import (
    constant,
    least,
    loop,
    minus,
    plus,
    times,
    variable,
)
from anydim.kernels.write.values import number
from anydim.lang.tree import Read
from anydim.lang.tree.affine import affine
from anydim.sizes import Size, align_up, as_size, ceil_div, product


class WinogradWriter(WinogradKernel):
    """The kernel of tensors whose channels lie first: lanes are windows."""

    name = "winograd"

    def __init__(self, form: Windows, ending: Ending, schedule: Winograd) -> None:
        super().__init__(
            (form.w, form.x), form.outputs[0].tensor, form.dtype, ending, schedule.tile
        )
        self.form, self.schedule = form, schedule
        self.micro_kernel, self.libraries = called(self.tile, form.dtype, form.rows)
        down, along = windows_across(form)
        self.windows = down * along
        tiles = ceil_div(form.rows, self.tile.rows)
        around = product(walk.extent for walk in form.loops) * PRODUCTS
        self.sharing = Sharing(
            tuple((walk.name, walk.extent) for walk in form.loops), tiles, self.windows,
            self.tile.width, self.tile.lanes, as_size(0),
            work_of(around, form.rows, tiles, self.windows, form.channels.extent),
        )  # fmt: skip

    @property
    def spread_bytes(self) -> Size:
        """Bytes of the transformed windows of a panel."""
        each = PRODUCTS * self.tile.width * self.form.dtype.bytes
        return align_up(self.form.channels.extent * each, LINE)

    @property
    def scratch(self) -> Size:
        """Those, and the sums of a block of rows; a vector may reach over the last ones."""
        sums = PRODUCTS * self.schedule.block_rows * self.tile.width + self.tile.lanes
        return self.spread_bytes + sums * self.form.dtype.bytes

    def _spread(self) -> ir.Function:
        return Spread(self.form, self.sizes, self.tile.lanes, self.tile.width).function()

    def _collect(self) -> ir.Function:
        return Collect(self.form, self.sizes, self.tile.lanes, self.ending).function()

    def _body(self) -> tuple[ir.Step, ...]:
        return (
            ir.Stack("zeros", self.form.dtype, 1),
            ir.Store("zeros", constant(0), number(self.form.dtype, 0)),
            *self.sharing.rectangles(self.sizes.role, self._rectangle()),
        )

    def _rectangle(self) -> list[ir.Step]:
        """Panels, and of each all blocks of rows."""
        value, form, rows = self.sizes.value, self.form, self.schedule.block_rows
        stop = least(times(variable("stop_tile"), self.tile.rows), value(form.rows))
        left = minus(value(self.windows), variable("column"))
        x = [times(variable(walk.name), value(walk.x)) for walk in form.loops]
        y = [times(variable(walk.name), value(walk.y)) for walk in form.loops]
        return [
            ir.Let("row_stop", stop),
            ir.Let("x_unit", plus(value(form.x_start), *x)),
            ir.Let("y_unit", plus(constant(0), *y)),
            loop(
                "panel", variable("first_panel"), variable("stop_panel"), 1,
                ir.Let("column", times(variable("panel"), self.tile.width)),
                ir.Let("width", least(left, self.tile.width)),
                call(self.spread, dst=ir.Address("scratch", constant(0))),
                loop(
                    "row0", times(variable("first_tile"), self.tile.rows), variable("row_stop"),
                    rows,
                    ir.Let("rows", least(minus(variable("row_stop"), variable("row0")), rows)),
                    *self._block(),
                ),
            ),
        ]  # fmt: skip

    def _block(self) -> list[ir.Step]:
        """One block of rows."""
        return [
            ir.Let("w_unit", self._weights()),
            loop(
                "product", 0, PRODUCTS, 1,
                loop("row", 0, variable("rows"), self.tile.rows, *self._tile()),
            ),
            loop("m", 0, variable("rows"), 1, *self._results()),
        ]  # fmt: skip

    def _weights(self) -> ir.Value:
        """The first weight of the block of rows, of the first product."""
        value, form = self.sizes.value, self.form
        group = align_up(form.rows, self.tile.rows) * form.channels.extent * PRODUCTS
        row = times(variable("row0"), value(form.channels.extent))
        loops = [(walk.name, walk.extent) for walk in form.loops if walk.w != 0]
        return plus(row, *packed_at(loops, group, self.sizes.role))

    def _tile(self) -> list[ir.Step]:
        value, form = self.sizes.value, self.form
        channels = form.channels.extent
        each = value(align_up(form.rows, self.tile.rows) * channels)
        a = plus(
            variable("w_unit"),
            times(variable("product"), each),
            times(variable("row"), value(channels)),
        )
        b = times(variable("product"), value(channels * self.tile.width * form.dtype.bytes))
        row = plus(times(variable("product"), self.schedule.block_rows), variable("row"))
        c = times(row, self.tile.width * form.dtype.bytes)
        scalars: dict[str, ir.Value] = {
            "k": value(channels),
            "b_row": constant(self.tile.width),
            "c_row": constant(self.tile.width),
            "bias_step": constant(0),
            "rows": least(minus(variable("rows"), variable("row")), self.tile.rows),
            "columns": variable("width"),
            "start": constant(1),
            "finish": constant(0),
        }
        zeros, zero = ir.Address("zeros", constant(0)), number(form.dtype, 0)
        sums = ir.Address("scratch", plus(value(self.spread_bytes), c))
        return [
            ir.Call(
                self.micro_kernel,
                (
                    ir.Address("w", a), ir.Address("scratch", b), sums, zeros, zeros,
                    *(scalars[name] for name in TILE_SCALARS), zero, zero,
                ),
            )
        ]  # fmt: skip

    def _results(self) -> list[ir.Step]:
        value, form = self.sizes.value, self.form
        row = plus(variable("row0"), variable("m"))
        y_at = plus(variable("y_unit"), times(variable("channel"), value(form.row_y)))
        sums = times(variable("m"), self.tile.width * form.dtype.bytes)
        return [
            ir.Let("channel", row),
            ir.Let("y_at", y_at),
            call(
                self.collect, sums=ir.Address("scratch", plus(value(self.spread_bytes), sums)),
                more_at=variable("y_at"),
                sums_step=constant(self.schedule.block_rows * self.tile.width),
                **self._added(),
            ),
        ]  # fmt: skip

    def _bias(self, read: Read) -> ir.Value:
        form = affine(read.indices[0])
        assert form is not None
        value = self.sizes.value
        terms = [times(variable(w.name), value(form.stride(w.name))) for w in self.form.loops]
        terms.append(times(variable("channel"), value(form.stride("m"))))
        return plus(value(form.constant), *terms)
