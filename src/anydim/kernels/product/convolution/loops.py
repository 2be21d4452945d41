"""The loops of a convolution kernel.

    for each rectangle of a thread's part (`product/sharing.py`)
        for each block of rows, each block of columns
            for each chunk of channels
                pack the weights, unless they came packed
                for each panel of columns of the block (`joined.py`)
                    windows of x -> a panel of B in the first cache, or a band (`bands.py`)
                    for each strip of rows: sums += A B; after the last chunk, the epilogue

A panel is used by all tiles of rows while it is in the first cache; the weights of a block of rows
and a chunk stay in the second one for all panels of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import constant, greatest, least, number, select, variable
from anydim.kernels.launch import Machine
from anydim.kernels.product.blocked import Blocked, Level
from anydim.kernels.product.convolution.bands import Band, BandPack, band_of
from anydim.kernels.product.convolution.by_place import (
    MOST,
    NEVER,
    place_of,
    rows_function,
    start_of,
)
from anydim.kernels.product.convolution.cropped import (
    FIRST,
    KEPT,
    cropped,
    first_taps,
    kept_weights_function,
)
from anydim.kernels.product.convolution.ending import Ending
from anydim.kernels.product.convolution.form import OuterLoop, Windows
from anydim.kernels.product.convolution.joined import Columns, columns_of
from anydim.kernels.product.convolution.library import (
    STRIP,
    banded_libraries,
    called,
    images,
    strip_function,
    strips,
)
from anydim.kernels.product.convolution.merged import MergedPack, can_merge
from anydim.kernels.product.convolution.micro import ADDS, CAPS, ENTRY, FLOORS, Banded, Micro
from anydim.kernels.product.convolution.packing import WindowPack, weights_function
from anydim.kernels.product.convolution.schedule import Convolution
from anydim.kernels.product.epilogue import read_by, target_of
from anydim.kernels.product.kernel import call, packed_at, roles_of
from anydim.kernels.product.micro import LINE
from anydim.kernels.product.places import LayerSizes
from anydim.kernels.product.sharing import Sharing, from_on, work_of
from anydim.kernels.product.turned import turned_library
from anydim.kernels.write.arithmetic import loop, quotient, quotient_up, summed
from anydim.kernels.write.writer import Writer
from anydim.lang.tree import Group, Read
from anydim.lang.tree.affine import affine
from anydim.sizes import Size, align_up, as_size, ceil_div, maximum, minimum, product

_NARROW = 4  # times as many products of a chunk, where panels are narrow; or are none
_FEW_PANELS, _MANY_TILES = 4, 16  # then each thread reads weights of its own, all of the windows


@dataclass(frozen=True)
class WindowBlocks:
    """How the work is cut: rows of a block, channels of a chunk, shares of threads."""

    rows: Size
    channels: Size
    sharing: Sharing


def cut_of(
    form: Windows, columns: Columns[OuterLoop], schedule: Convolution, more: bool,
    band: Band | None,
) -> WindowBlocks:  # fmt: skip
    """Blocks of even size, none larger than the schedule says.

    Chunks decide when `more` is added, so where there is `more` no batch changes them.
    """
    tile = schedule.tile
    tiles = ceil_div(form.rows, tile.rows)
    row_blocks = ceil_div(tiles, schedule.block_tiles)
    panels = columns.panels
    narrow = minimum(
        as_size(tile.width) // maximum(minimum(columns.all, columns.width), 1), _NARROW
    )
    by_place = columns.by_place
    times = 1 if more else maximum(narrow, by_place * _NARROW, 1)
    window = maximum(form.window, by_place * form.channels.x, 1)
    most = maximum(schedule.chunk_k * times // window, 1)
    chunks = maximum(ceil_div(form.channels.extent, most), 1)
    around = product(extent for _, extent in columns.loops)
    few = from_on(_FEW_PANELS - panels, 0) * from_on(tiles, _MANY_TILES)
    return WindowBlocks(
        rows=ceil_div(tiles, maximum(row_blocks, 1)) * tile.rows,
        channels=maximum(ceil_div(form.channels.extent, chunks), 1),
        sharing=Sharing(
            columns.loops, tiles,
            columns.all + columns.joined * (panels * tile.width - columns.all),  # as if all full
            tile.width, tile.lanes, few, work_of(around, form.rows, tiles, columns.all, form.k),
        ),
    )  # fmt: skip


class ConvolutionWriter(Blocked):
    """The kernel of a convolution: rows are channels of the result, columns its places."""

    name = "convolution"
    sizes: LayerSizes

    def __init__(
        self, group: Group, form: Windows, ending: Ending | None, schedule: Convolution,
        machine: Machine,
    ) -> None:  # fmt: skip
        super().__init__(group, form.outputs, form.dtype, schedule.tile, LayerSizes())
        self.given = form
        form = cropped(form)
        self.form, self.schedule, self.machine = form, schedule, machine
        self.ending = ending
        micro_kernel, libraries = called(self.tile, form.dtype, form.rows)
        self.strips = strips(self.tile, form.dtype, micro_kernel)
        self.libraries = (*libraries, self.strips)
        self.columns = columns_of(form, self.given, ending, schedule)
        self.joins = self.columns.joined.constant != 0
        self.by_place = self.columns.by_place
        self.copied = as_size(1)
        if schedule.packed:
            less = from_on(self.given.window - form.window, 1)
            self.copied = minimum(less, 1 - self.by_place)
        self.band = None if schedule.direct or machine.most_lanes else self._band()
        if self.band is not None:
            filled = self.band.used * (self.band.rows * self.band.width - self.columns.places)
            self.columns = replace(self.columns, all=self.columns.all + filled)
        more = ending is not None and ending.more is not None
        self.cut = cut_of(form, self.columns, schedule, more, self.band)
        self.sharing, self.held = self.cut.sharing, self._held()
        target = target_of(form.outputs, group, form.dtype)
        assert target is not None, "forms have a result of the type of the sums"
        self.target = target
        if ending is not None:
            self.in_place = ending.in_place((form.x, form.w), form.outputs[0].tensor)
        self.finished = ending is not None or [o.is_product for o in form.outputs] == [True]
        if schedule.packed:
            self.packed = {"w": form.dtype}
        self.roles, self.buffers = roles_of(
            ((form.w, "w"), (form.x, "x")), self.packed, read_by(form.outputs),
            (output.tensor for output in form.outputs),
        )  # fmt: skip

    def _band(self) -> Band | None:
        """What is read of x instead of panels where rows of the result fill vectors."""
        most = self.schedule.chunk_k * _NARROW, self.band_bytes
        return band_of(self.form, self.given, self.tile, self.schedule.block_panels, *most)

    @property
    def band_bytes(self) -> int:
        """Most bytes of a band: weights of a chunk stay in the second cache beside it."""
        return self.machine.l2_bytes // 4

    @property
    def panel_row(self) -> int:
        """Elements between the rows of a packed panel: a vector may reach over the last column."""
        return self.tile.width + self.tile.lanes

    def _or_band(self, panel: Size) -> Size:
        """Bytes that hold a panel, and a band; vectors reach over its last row."""
        return panel if self.band is None else maximum(panel, self.band_bytes + LINE)

    def _held(self) -> tuple[Size, Size, Size, Size]:
        """Bytes of a panel, of weights that are not read as they came, of sums of joined images,
        and of what is read by place.

        Where images may be joined, the most that blocks have: the formula of the arena has the
        scratch of many layers, and would have places hundreds of times for each.
        """
        schedule, tile, bytes = self.schedule, self.tile, self.form.dtype.bytes
        row, window = self.panel_row * bytes, self.given.window
        if not self.joins:
            k = self.cut.channels * self.form.window
            panel = self._or_band(NEVER if schedule.direct else align_up(k * row, LINE))
            if self.band is not None:
                k = maximum(k, self.band.channels * window)
            weights = self.cut.rows * k * bytes
            return panel, self.copied * align_up(weights, LINE), NEVER, NEVER
        most = schedule.chunk_k * _NARROW
        k = minimum(self.given.channels.extent * window, maximum(most, window))
        tiles = minimum(ceil_div(self.form.rows, tile.rows), schedule.block_tiles)
        rows, columns, turned = tiles * tile.rows, schedule.block_panels * tile.width, NEVER
        if self.by_place != 0:
            columns = max(columns, MOST * tile.width)
            turned = minimum(self.given.channels.extent * MOST, maximum(most, MOST)) * row
        weights = align_up(rows * k * bytes, LINE) if self._copies else NEVER
        return self._or_band(align_up(k * row, LINE)), weights, rows * columns * bytes, turned

    @property
    def _copies(self) -> bool:
        """Whether there are sizes at which weights are not read as they came."""
        return self.copied != 0 or self.by_place != 0

    @property
    def _sums_at(self) -> Size:
        return self.held[0] + self.held[1]

    @property
    def scratch(self) -> Size:
        return sum(self.held, NEVER)

    def role(self, name: str, size: Size) -> ir.Value:
        return self.sizes.role(name, size)

    def made(self) -> list[ir.Function]:
        """The epilogue where the tile does not do it, and the packing."""
        made = []
        if not self.finished:
            self.finish = self.finish_function(self.form, self.machine)
            made.append(self.finish)
        if self.joins or not self.schedule.direct:
            made += self._packing()
        if self.band is not None:
            pack = BandPack(self.form, self.band, self.sizes)
            steps, head = (partial(w, self.tile.vectors) for w in (pack.steps, pack.head))
            self.banding = [self.sized(pack.function), self.sized(steps), self.sized(head)]
            made += self.banding
            for library in banded_libraries(self.tile, self.form.dtype):
                self.needs(library)
        given = (self.form, self.sizes, self.tile.rows)
        weights = partial(weights_function, *given)
        if self.schedule.packed:
            weights = partial(kept_weights_function, self.given, *given[1:], self.tile.lanes)
        if self._copies:
            self.weights = self.sized(weights)
            made.append(self.weights)
        if self.by_place != 0:
            rows = partial(rows_function, self.given, self.sizes, self.tile.lanes, self.panel_row)
            self.rows = self.sized(rows)
            made.append(self.rows)
        return made

    def _packing(self) -> list[ir.Function]:
        """What brings windows into a panel, and what does so where rows have few places."""
        given = (self.form, self.sizes, self.tile.lanes, self.panel_row, self.joins)
        pack = WindowPack(*given)
        self.windows = [self.sized(pack.function)]
        if pack.turned is not None:
            self.needs(pack.turned)
        if can_merge(self.form):
            merged = MergedPack(*given)
            self.worth_merging = merged.worth_it()
            self.windows.append(self.sized(merged.function))
        return self.windows

    def start(self) -> list[ir.Step]:
        zero = number(self.form.dtype, 0)
        start: list[ir.Step] = [
            ir.Stack("zeros", self.form.dtype, 1),
            ir.Store("zeros", constant(0), zero),
        ]
        if self.band is None:
            return start
        steps = (self.band.channels * self.given.window).constant or 0
        return [ir.Stack("table", int64, ENTRY * self.tile.vectors + steps), *start]

    # ---- the loops -----------------------------------------------------------------------------

    def enter(self) -> list[ir.Step]:
        row_stop = variable("stop_tile") * self.tile.rows
        column_stop = variable("stop_panel") * self._width
        rows, columns = self.role("all_rows", self.form.rows), self.sizes.value(self.columns.all)
        band = self.band
        used = [] if band is None else [ir.Let("banded", self.sizes.value(band.used).differs(0))]
        panels = self.role("panels", self.sharing.panels)
        most: ir.Value = constant(self.schedule.block_panels)
        if band is not None:
            most = select(
                self.sizes.value(band.used).differs(0), self.sizes.value(band.panels), most
            )
        if self.by_place != 0:
            most = select(self._goes_by_place, 1, most)
        blocks = greatest(quotient_up(panels, greatest(most, 1)), 1)
        return [
            *used,
            ir.Let("block_columns", quotient_up(panels, blocks) * self._width),
            ir.Let("row_stop", least(row_stop, rows)),
            ir.Let("column_stop", least(column_stop, columns)),
        ]

    def _banded(self, band: Sequence[ir.Step], panels: Sequence[ir.Step]) -> list[ir.Step]:
        """Steps where a band is read, and where panels are."""
        known = as_size(0) if self.band is None else self.band.used
        if known.constant is not None:
            return [*(band if known == 1 else panels)]
        return [ir.If(ir.Var(ir.FLAG, "banded"), tuple(band), tuple(panels))]

    @property
    def _width(self) -> ir.Value:
        """Columns of a panel."""
        width = self.columns.width
        return self.role("panel", width) if self.joins else constant(self.tile.width)

    def levels(self) -> list[Level]:
        """Blocks of rows, of columns, chunks of channels, panels, strips."""
        tile, form = self.tile, self.form
        rows = self.role("block_rows", self.cut.rows)
        columns = variable("block_columns")
        first_row = variable("first_tile") * tile.rows
        first_column = variable("first_panel") * self._width
        left = variable("row_stop") - variable("row0")
        end = least(variable("column0") + columns, variable("column_stop"))
        all_channels, channels = greatest(self._channels, 1), self._chunk_channels
        width = least(variable("columns") - variable("column"), self._width)
        place = self._panel()
        strips: ir.Value = variable("rows")
        if self.by_place != 0:
            used = self._goes_by_place
            place = [ir.If(used, tuple(self._by_place()), tuple(place))]
            strips = select(used, 0, strips)
        return [
            Level(
                "row0", first_row, variable("row_stop"), rows, [ir.Let("rows", least(left, rows))]
            ),
            Level(
                "column0", first_column, variable("column_stop"), columns,
                [
                    ir.Let("columns", end),
                    ir.Let("x_unit", self.at(form.x_start, ((w.name, w.x) for w in form.loops))),
                    ir.Let("y_unit", self.at(0, ((w.name, w.y) for w in form.loops))),
                    ir.Let("w_unit", self._weights_start()),
                ],
            ),
            Level("channel0", 0, all_channels, channels, self._chunk()),
            Level(
                "column", variable("column0"), variable("columns"), self._width,
                [ir.Let("width", width), *self._images(), *place],
            ),
            Level("row", 0, strips, tile.rows * STRIP, self._strip()),
        ]  # fmt: skip

    @property
    def _channels(self) -> ir.Value:
        return self.role("all_channels", self.form.channels.extent)

    @property
    def _chunk_channels(self) -> ir.Value:
        channels = self.cut.channels
        if self.band is not None:
            channels = channels + self.band.used * (self.band.channels - channels)
        return self.role("chunk", channels)

    @property
    def all_k(self) -> ir.Value:
        """Elements between rows of packed weights."""
        return self.role("all_k", self.given.k)

    def _weights_start(self) -> ir.Value:
        """The first weight of the block of rows."""
        value, form = self.sizes.value, self.form
        if not self.schedule.packed:
            first = self.at(form.w_start, ((walk.name, walk.w) for walk in form.loops))
            return first + variable("row0") * value(form.row_w)
        group = align_up(form.rows, self.tile.rows) * self.given.k
        row = variable("row0") * self.all_k
        loops = [(walk.name, walk.extent) for walk in form.loops if walk.w != 0]
        return summed(row, *packed_at(loops, group, self.sizes.role))

    def _chunk(self) -> list[ir.Step]:
        """What all panels and tiles know of a chunk of channels."""
        value, form = self.sizes.value, self.form
        channels = least(self._channels - variable("channel0"), self._chunk_channels)
        end = variable("channel0") + self._chunk_channels
        last = end >= self._channels
        first = select(variable("channel0").equals(0), 1, constant(0))
        x = variable("x_unit") + variable("channel0") * value(form.channels.x)
        return [
            ir.Let("channels", channels),
            ir.Let("k", variable("channels") * value(form.window)),
            ir.Let("first", first),
            ir.Let("last", last),
            ir.Let("x_at", x),
            *self._pack_weights(),
            *self._banded(self._make_band(), ()),
        ]

    def _make_band(self) -> list[ir.Step]:
        """The rows of x that a block of columns reads, and its table."""
        if self.band is None:
            return []
        band, table, _ = self.banding
        rows = quotient(variable("columns") - 1, self._filled) + 1 - self._first_row
        return [
            ir.Let("lines", rows + self.band.further),
            call(band, dst=ir.Address("scratch", constant(0)), row=self._first_row),
            call(table),
        ]

    @property
    def _filled(self) -> ir.Value:
        """Columns of a row that is filled up."""
        assert self.band is not None
        return self.sizes.value(self.band.width)

    def _place(self, column: ir.Value) -> ir.Value:
        """Places of the result before a column of filled rows."""
        row = quotient(column, self._filled)
        extent = self.sizes.value(self.form.places[-1].extent)
        return row * extent + least(column - row * self._filled, extent)

    @property
    def _first_row(self) -> ir.Value:
        """The first row of a block of columns."""
        return quotient(variable("column0"), self._filled)

    def _pack_weights(self) -> list[ir.Step]:
        if self.copied == 0:
            return []
        value = self.sizes.value
        dst = ir.Address("scratch", value(self.held[0]))
        if not self.schedule.packed:
            at = variable("channel0") * value(self.form.channels.w)
            return [call(self.weights, dst=dst, w_at=variable("w_unit") + at)]
        at = variable("w_unit") + variable("channel0") * value(self.given.window * self.tile.rows)
        starts = first_taps(self.given, self.form)
        own = {f"{FIRST}{n}": value(start) for n, start in enumerate(starts)}
        own |= {f"{KEPT}{n}": value(tap.extent) for n, tap in enumerate(self.form.taps)}
        step = call(self.weights, dst=dst, w_at=at, w_row=self.all_k, **own)
        return [
            ir.Let("copied", value(self.copied).differs(0)),
            ir.If(ir.Var(ir.FLAG, "copied"), (step,)),
        ]

    def _images(self) -> list[ir.Step]:
        """The images that a panel has columns of: the first one's number, how many, of each `run`.

        Where images are not joined that is a part of the only one.
        """
        if not self.joins:
            return []
        value, loop = self.sizes.value, self.columns.loop
        assert loop is not None, "images that are joined have a loop"
        places = greatest(value(self.columns.places), 1)
        return [
            ir.Let("image", variable("column") / places),
            ir.Let("place", variable("column") - variable("image") * places),
            ir.Let("images", greatest(variable("width") / places, 1)),
            ir.Let("run", least(variable("width"), places)),
            ir.Let("joined", value(self.columns.joined).differs(0)),
            ir.Let("x_image", value(loop.x)),
            ir.Let("y_image", value(loop.y)),
        ]

    @property
    def _goes_by_place(self) -> ir.Value:
        return self.sizes.value(self.by_place).differs(0)

    @property
    def _joined(self) -> ir.Value:
        return ir.Var(ir.FLAG, "joined")

    def _pack_windows(self) -> list[ir.Step]:
        if self.schedule.direct and not self.joins:
            return []
        own = {}
        if self.joins:
            x = variable("x_at") + variable("image") * variable("x_image")
            own = {"x_at": x, "column": variable("place"), "width": variable("run")}
        rows, *merged = (
            call(made, dst=ir.Address("scratch", constant(0)), **own) for made in self.windows
        )
        worth = self.worth_merging if merged else None
        steps: ir.Step = rows if worth is None else ir.If(worth, tuple(merged), (rows,))
        return [ir.If(self._joined, (steps,))] if self.schedule.direct else [steps]

    def _panel(self) -> list[ir.Step]:
        """Where its vectors are in a band, or its windows, packed."""
        head = [] if self.band is None else [call(self.banding[2], row=self._first_row)]
        return self._banded(head, self._pack_windows())

    def _strip(self) -> list[ir.Step]:
        """Some tiles; after the last chunk of channels, what follows the sums."""
        value, tile = self.sizes.value, self.tile
        place: ir.Value = variable("column")
        if self.joins:
            place = variable("image") * variable("y_image") + variable("place")
        row_y = value(self.form.row_y)
        row = variable("y_unit") + variable("m") * row_y
        y = self.buffers[self.target.tensor]
        left = variable("rows") - variable("row")
        sums = ir.Address(y, variable("y_at"))
        apart = tuple(self._sums(sums, row_y, self._b(self.schedule.direct), y))
        if self.joins:
            apart = (ir.If(self._joined, tuple(self._joined_sums(y)), apart),)
        apart = (ir.Let("y_at", row + place), *apart)
        band = ir.Address("scratch", constant(0)), constant(1)
        banded = [] if self.band is None else self._sums(sums, row_y, band, y, Banded)
        return [
            ir.Let("m", variable("row0") + variable("row")),
            ir.Let("height", least(left, tile.rows * STRIP)),
            *self._banded([ir.Let("y_at", row), *banded], apart),
        ]

    def _by_place(self) -> list[ir.Step]:
        """All of a panel whose columns are the images of one place after the other."""
        code, form, tile, value = Writer("place_"), self.given, self.tile, self.sizes.value
        turn = turned_library(tile.lanes, form.dtype)
        self.needs(turn)
        bytes, row, images = form.dtype.bytes, constant(self.panel_row), variable("images")
        channels, places = variable("channels"), value(form.columns)
        start = value(start_of(form) - self.form.x_start)
        x = variable("x_at") + variable("image") * variable("x_image") + start
        turned = ir.Address("scratch", value(sum(self.held[:3], NEVER)))
        panel, weights = (
            ir.Address("scratch", offset) for offset in (constant(0), value(self.held[0]))
        )
        elements = value(form.channels.x)
        x_shape = variable("x_image"), row, images, channels * elements
        code.emit(ir.Call(turn.name, (ir.Address("x", x), turned, *x_shape)))
        sums, sums_row = value(self._sums_at), variable("block_columns")
        wide = code.let(sums_row / places)
        w = variable("w_unit") + variable("channel0") * value(form.window * tile.rows)
        y = self.buffers[self.target.tensor]
        with code.range(0, places) as number:
            place = place_of(form, number, code, self.sizes)
            k, all_of = code.let(channels * place.window), place.window.equals(elements)
            code.emit(call(self.weights, dst=weights, w_at=w, w_row=self.all_k, **place.taps))
            with code.when(~all_of):
                own = {n: at for n, at in place.taps.items() if n.startswith(KEPT)}
                code.emit(call(self.rows, src=turned, dst=panel, x_row=place.row, **own))
            b = ir.Address("scratch", code.let(select(all_of, turned.offset, 0)))
            with code.range(0, variable("rows"), tile.rows * STRIP) as at:
                code.emit(ir.Let("m", variable("row0") + at))
                code.emit(ir.Let("height", least(variable("rows") - at, tile.rows * STRIP)))
                c = ir.Address("scratch", sums + (at * sums_row + number * wide) * bytes)
                a = ir.Address("scratch", weights.offset + at * k * bytes)
                strip = self.strip(c, sums_row, y, b=b, b_row=row)
                code.emit(strip(a=a, a_row=k, k=k, columns=images))
        to = variable("y_unit") + variable("row0") * places
        to = ir.Address(y, to + variable("image") * variable("y_image"))
        y_shape = wide, variable("y_image"), variable("rows") * places, images
        with code.when(ir.Var(ir.FLAG, "last")):
            code.emit(ir.Call(turn.name, (ir.Address("scratch", sums), to, *y_shape)))
        return list(code.written)

    def _joined_sums(self, y: str) -> list[ir.Step]:
        """Those of a strip in scratch, and from there to their images."""
        row = variable("block_columns")
        at = variable("row") * row + variable("column") - variable("column0")
        at = at * self.form.dtype.bytes + self.sizes.value(self._sums_at)
        sums = ir.Address("scratch", at)

        def copied(into: bool, tensor: str) -> ir.If:
            library = images(self.form.dtype, self.tile.lanes, into)
            self.needs(library)
            (function,) = library.functions
            own: dict[str, ir.Value] = {"rows": variable("height"), "c_row": row}
            own |= {"y_row": self.sizes.value(self.form.row_y)}
            step = call(function, sums=sums, y=ir.Address(tensor, variable("y_at")), **own)
            return (
                ir.If(variable("first").differs(0), (step,))
                if into
                else ir.If(ir.Var(ir.FLAG, "last"), (step,))
            )

        more = None if self.ending is None else self.ending.more
        before = [] if more is None else [copied(True, self.buffers[more.tensor])]
        steps = self._sums(sums, row, self._b(False), y)
        return [*before, *steps, *([copied(False, y)] if self.finished else [])]

    def _sums(
        self, sums: ir.Address, sums_row: ir.Value, b: tuple[ir.Address, ir.Value], y: str,
        kind: type[Micro] = Micro,
    ) -> list[ir.Step]:  # fmt: skip
        """The sums of a strip, and what follows them: see `joined` images."""
        joined = sums.buffer == "scratch"
        strip = self.strip(sums, sums_row, y, kind, b=b[0], b_row=b[1], columns=variable("width"))
        copied, came = (strip(a=a, a_row=row) for a, row in self._a())
        step: ir.Step = copied if self.copied == 1 else came
        if self.copied.constant is None:
            step = ir.If(ir.Var(ir.FLAG, "copied"), (copied,), (came,))
        if self.finished:
            return [step]
        behind = self._finish(sums, sums_row, joined, kind is Banded)
        return [step, ir.If(ir.Var(ir.FLAG, "last"), (behind,))]

    def strip(
        self, sums: ir.Address, sums_row: ir.Value, y: str, kind: type[Micro] = Micro,
        **own: ir.Value | ir.Address,
    ) -> Callable[..., ir.Call]:  # fmt: skip
        """What calls the function of a strip with the rest of its arguments."""
        form = self.form
        ending = self.ending or Ending()
        bias, bias_step, finish = ir.Address("zeros", constant(0)), constant(0), constant(0)
        more = sums
        if ending.bias is not None:
            bias, bias_step = self._bias(ending.bias)
        if ending.more is not None:  # before y holds sums: it may lie where `more` does
            if sums.buffer != "scratch":
                more = ir.Address(self.buffers[ending.more.tensor], variable("y_at"))
            finish = variable("first") * ADDS
        limits = FLOORS * (ending.low is not None) + CAPS * (ending.high is not None)
        if limits:
            finish = finish + select(ir.Var(ir.FLAG, "last"), limits, constant(0))
        strips = self.strips
        if kind is Banded:
            *_, strips = banded_libraries(self.tile, form.dtype)
        return partial(
            call, strip_function(strips.name, form.dtype, kind=kind), c=sums,
            bias=bias, more=more, bias_step=bias_step, finish=finish, c_row=sums_row,
            rows=variable("height"), start=variable("first"),
            low=number(form.dtype, 0 if ending.low is None else ending.low),
            high=number(form.dtype, 0 if ending.high is None else ending.high), **own,
        )  # fmt: skip

    def _a(self) -> list[tuple[ir.Address, ir.Value]]:
        """Weights that were copied, and as they came packed; how far their rows are apart."""
        value = self.sizes.value
        at = variable("row") * variable("k") * self.form.dtype.bytes
        k0 = variable("channel0") * value(self.given.window * self.tile.rows)
        return [
            (ir.Address("scratch", at + value(self.held[0])), variable("k")),
            (ir.Address("w", variable("w_unit") + variable("row") * self.all_k + k0), self.all_k),
        ]

    def _b(self, direct: bool) -> tuple[ir.Address, ir.Value]:
        """A panel, and how far its rows are apart."""
        if direct:
            at = variable("x_at") + variable("column")
            return ir.Address("x", at), self.sizes.value(self.form.channels.x)
        return ir.Address("scratch", constant(0)), constant(self.panel_row)

    def _bias(self, read: Read) -> tuple[ir.Address, ir.Value]:
        form = affine(read.indices[0])
        assert form is not None
        value = self.sizes.value
        step = value(form.stride("m"))
        loops = ((w.name, form.stride(w.name)) for w in self.form.loops)
        at = self.at(form.constant, loops) + variable("m") * step
        return ir.Address(self.buffers[read.tensor], at), step

    def _finish(
        self, sums: ir.Address, sums_row: ir.Value, joined: bool, banded: bool
    ) -> ir.Step:  # fmt: skip
        """The epilogue of a strip, image by image where they are joined."""
        own: dict[str, ir.Value | ir.Address] = {
            "sums_row": sums_row, "out_row": self.sizes.value(self.form.row_y),
            "row0": variable("m"), "rows": variable("height"),
        }  # fmt: skip
        if not joined:
            first: ir.Value = variable("column")
            count: ir.Value = variable("width")
            out: ir.Value = variable("y_at")
            if banded:
                first, stop = self._place(first), self._place(first + count)
                count, out = stop - first, out + first
            own |= {"column0": first, "columns": count, "out_at": out}
            return call(self.finish, sums=ir.Address(sums.buffer, out), **own)
        images_of = self.columns.loop
        assert images_of is not None, "images that are joined have a loop"
        image, run = variable("number"), variable("run")
        own |= {"column0": constant(0), "columns": run, images_of.name: variable("image") + image}
        at = ir.Address("scratch", sums.offset + image * run * self.form.dtype.bytes)
        out = variable("y_at") + image * variable("y_image")
        return loop(
            "number", 0, variable("images"), 1, call(self.finish, sums=at, out_at=out, **own)
        )
