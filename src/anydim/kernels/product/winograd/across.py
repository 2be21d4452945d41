"""Winograd's way for tensors whose channels lie last: vectors of channels, nothing is shuffled.

for each rectangle of a thread's part (`product/sharing.py`), each block of windows
    the transformed windows of the block: V[36][windows][channels]
    for each panel of columns, which are channels of the result
        for each of the 36 products, each tile of windows: sums = V U, as in a contraction
        for each window: its results, with what follows

Windows are counted through all images, so that small ones fill tiles together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.product.contraction.form import COLUMN, ROW, ContractionForm
from anydim.kernels.product.contraction.library import contraction_libraries, prefix_of
from anydim.kernels.product.convolution.ending import Ending
from anydim.kernels.product.kernel import call, main_function, pointers_of, shared_names
from anydim.kernels.product.micro import GIVEN, LINE, TileSchedule, give
from anydim.kernels.product.places import Bound, LayerSizes, WindowAxis
from anydim.kernels.product.sharing import Sharing, from_on, work_of
from anydim.kernels.product.winograd.transforms import PRODUCTS, REACH, STEP, Transforms
from anydim.kernels.schedule import register
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    least,
    loop,
    minus,
    plus,
    round_down,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.values import near, number, operate, splat
from anydim.lang.tree.affine import affine
from anydim.sizes import Size, align_up, as_size, ceil_div

Part = Callable[[ir.Value, "ir.Value | None"], "list[ir.Step]"]  # of a vector and its mask
_ALONE = 8  # blocks of windows that threads share alone: each transforms its own


@dataclass(frozen=True)
class WinogradAcross(TileSchedule):
    """How a Winograd convolution of channels-last tensors runs: `block` windows at once."""

    block: int


register("winograd_across", WinogradAcross)


@dataclass(frozen=True)
class Images:
    """The convolution: its product, what follows, the axes of places (images, rows, columns)."""

    form: ContractionForm
    ending: Ending
    places: tuple[WindowAxis, ...]
    bounds: tuple[Bound, ...]

    @property
    def channels(self) -> Size:
        return self.form.b_parts[1][-1][0]

    @property
    def across(self) -> tuple[Size, Size]:
        """Windows down and along an image."""
        down, along = (ceil_div(place.extent, STEP) for place in self.places[-2:])
        return down, along

    @property
    def windows(self) -> Size:
        down, along = self.across
        images = self.places[0].extent if len(self.places) == 3 else as_size(1)
        return images * down * along

    def first(self, axis: int) -> Size:
        """The position in x of the first window, along rows (0) or columns (1) of an image."""
        name = self.places[axis - 2].name
        return next((b.constant for b in self.bounds if b.place == name), as_size(0))

    def extent(self, axis: int) -> Size:
        """Positions of x; without padding, those that windows reach."""
        place = self.places[axis - 2]
        found = (b.extent for b in self.bounds if b.place == place.name)
        return next(found, place.extent + (REACH - STEP))


class AcrossWriter(Transforms):
    """Writes the functions of one kernel, and collects the sizes it needs."""

    def __init__(self, images: Images, schedule: WinogradAcross) -> None:
        form = images.form
        super().__init__(form.dtype, schedule.lanes)
        self.images, self.form, self.schedule = images, form, schedule
        self.tile, self.sizes = schedule.tile, LayerSizes()
        self.libraries = contraction_libraries(self.tile, form.dtype)
        blocks = ceil_div(images.windows, schedule.block)
        tiles = ceil_div(images.windows, self.tile.rows) * PRODUCTS
        self.sharing = Sharing(
            (),
            blocks,
            form.n.extent,
            self.tile.width,
            self.tile.lanes,
            from_on(blocks, _ALONE),
            work_of(as_size(1), images.windows * PRODUCTS, tiles, form.n.extent, images.channels),
        )
        self.result = form.outputs[0].tensor
        self.in_place = images.ending.in_place((form.a, form.b), self.result)
        self.roles = self._roles()
        self.buffers = {tensor: role for tensor, role in self.roles if role != "w"}

    def _roles(self) -> list[tuple[str, str]]:
        roles = [(self.form.b, "w"), (self.form.a, "x")]
        for read in (self.images.ending.bias, self.images.ending.more):
            if read is not None and read.tensor not in {tensor for tensor, _ in roles[1:]}:
                roles.append((read.tensor, f"r{len(roles)}"))
        return [*roles, (self.result, "y")]

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        return tuple(ir.Operand(role, self.form.dtype, role == "y") for _, role in self.roles)

    @property
    def row(self) -> Size:
        """Elements between transformed windows."""
        return align_up(self.images.channels, self.lanes)

    @property
    def apart(self) -> Size:
        """Elements between the 36 matrices of transformed windows: on unlike lines of a cache."""
        return self.row * self.schedule.block + LINE // self.form.dtype.bytes

    @property
    def sums_apart(self) -> int:
        """Elements between the 36 matrices of sums."""
        return self.tile.width * self.schedule.block + LINE // self.form.dtype.bytes

    @property
    def spread_bytes(self) -> Size:
        return align_up(self.apart * (PRODUCTS * self.form.dtype.bytes), LINE)

    @property
    def scratch(self) -> Size:
        return self.spread_bytes + PRODUCTS * self.sums_apart * self.form.dtype.bytes

    # ---- functions -----------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        """The two transforms and main."""
        self._spread_function(), self._collect_function()  # for all of the sizes they need
        self.spreads, self.collects = self._spread_function(), self._collect_function()
        pointers = pointers_of(self.operands, shared_names(self.in_place, self.buffers))
        body = self._body()
        main = main_function("winograd_across", pointers, self.sizes.names, body)
        return (self.spreads, self.collects, main)

    def _body(self) -> tuple[ir.Step, ...]:
        dtype, value, tile = self.form.dtype, self.sizes.value, self.tile
        zero = number(dtype, 0, tile.lanes)
        channels = value(self.images.channels)
        return (
            ir.Stack("zeros", dtype, tile.width),
            *(ir.Store("zeros", constant(j * tile.lanes), zero) for j in range(tile.vectors)),
            ir.Stack("given", int64, len(GIVEN)),
            give("a_row", value(self.row)),
            give("b_panel", times(channels, tile.width)),
            give("c_row", constant(tile.width)),
            *self.sharing.rectangles(self.sizes.role, self._rectangle()),
        )

    def _rectangle(self) -> list[ir.Step]:
        """Blocks of windows, and of each all panels."""
        first = times(variable("block"), self.schedule.block)
        left = minus(self.sizes.value(self.images.windows), variable("first"))
        width = self.tile.width
        columns = minus(self.sizes.value(self.form.n.extent), variable("column0"))
        return [
            loop(
                "block", variable("first_tile"), variable("stop_tile"), 1,
                ir.Let("first", first),
                ir.Let("count", least(left, self.schedule.block)),
                call(self.spreads, dst=ir.Address("scratch", constant(0))),
                loop(
                    "panel", variable("first_panel"), variable("stop_panel"), 1,
                    ir.Let("column0", times(variable("panel"), width)),
                    ir.Let("columns", least(columns, width)),
                    give("columns", variable("columns")),
                    loop(
                        "product", 0, PRODUCTS, 1,
                        loop("window", 0, variable("count"), self.tile.rows, *self._tile()),
                    ),
                    *self._results(),
                ),
            )
        ]  # fmt: skip

    def _tile(self) -> list[ir.Step]:
        """One register tile of one product."""
        value, size, tile = self.sizes.value, self.form.dtype.bytes, self.tile
        channels, panels = value(self.images.channels), value(self.sharing.panels)
        a = plus(
            times(variable("product"), value(self.apart * size)),
            times(variable("window"), value(self.row * size)),
        )
        panel = plus(times(variable("product"), panels), variable("panel"))
        b = times(panel, times(channels, tile.width))
        row = times(variable("window"), tile.width)
        c = times(plus(times(variable("product"), self.sums_apart), row), size)
        return [
            give("k", channels),
            give("rows", least(minus(variable("count"), variable("window")), tile.rows)),
            *(give(name, constant(0)) for name in ("init_row", "init_panel", "ahead", "step")),
            ir.Call(
                f"{prefix_of(tile, self.form.dtype)}_row",
                (
                    ir.Address("scratch", a), ir.Address("w", b),
                    ir.Address("zeros", constant(0)),
                    ir.Address("scratch", plus(value(self.spread_bytes), c)),
                    ir.Address("given", constant(0)),
                ),
            ),
        ]  # fmt: skip

    def _results(self) -> list[ir.Step]:
        ending = self.images.ending
        bias = more = ir.Address("zeros", constant(0))
        if ending.bias is not None:
            form = affine(ending.bias.indices[0])
            assert form is not None
            at = plus(self.sizes.value(form.constant), variable("column0"))
            bias = ir.Address(self.buffers[ending.bias.tensor], at)
        if ending.more is not None:
            more = ir.Address(self.buffers[ending.more.tensor], constant(0))
        sums = ir.Address("scratch", self.sizes.value(self.spread_bytes))
        return [call(self.collects, sums=sums, bias=bias, more=more)]

    def _function(
        self, name: str, pointers: Sequence[ir.Pointer], own: Sequence[str], *body: ir.Step
    ) -> ir.Function:
        """A function that does `body` for each window of a block."""
        down, along = (self.sizes.value(size) for size in self.images.across)
        scalars = ("first", "count", *own, *self.sizes.names)
        each = loop(
            "at", 0, variable("count"), 1,
            ir.Let("window", plus(variable("first"), variable("at"))),
            *split_index("window", ("along", along), ("down", down)),
            *body,
        )  # fmt: skip
        return ir.Function(name, (*pointers, *map(ir.Scalar, scalars)), (each,))

    def _vectors(
        self,
        name: str,
        extent: ir.Value,
        body: Callable[[ir.Value, ir.Value | None], list[ir.Step]],
    ) -> list[ir.Step]:
        """A loop over whole vectors, and what is left behind them."""
        left = minus(extent, variable("whole"))
        mask = ir.Var(ir.Type(ir.FLAG.dtype, self.lanes), "rest")
        cut = (ir.Let("rest", first_lanes(left, self.lanes)), *body(variable("whole"), mask))
        return [
            ir.Let("whole", round_down(extent, self.lanes)),
            loop(name, 0, variable("whole"), self.lanes, *body(variable(name), None)),
            ir.If(compare("less", variable("whole"), extent), cut),
        ]

    # ---- windows -> V --------------------------------------------------------------------------

    def _spread_function(self) -> ir.Function:
        value, images = self.sizes.value, self.images
        x = [value(self.form.a_start)]
        indices = ("rest1", "down", "along")[-len(images.places) :]
        steps = (1, STEP, STEP)[-len(images.places) :]
        for index, place, step in zip(indices, images.places, steps):
            x.append(times(variable(index), value(place.x * step)))
        body: list[ir.Step] = [ir.Let("x_window", plus(*x))]
        whole: ir.Value | None = None
        for axis, index in enumerate(("down", "along")):
            at = plus(value(images.first(axis)), times(variable(index), STEP))
            body.append(ir.Let(f"at_{axis}", at))
            low = compare("greater_equal", variable(f"at_{axis}"), 0)
            end = plus(variable(f"at_{axis}"), REACH)
            high = compare("less_equal", end, value(images.extent(axis)))
            both = ir.Op(ir.FLAG, "and", (low, high))
            whole = both if whole is None else ir.Op(ir.FLAG, "and", (whole, both))
        assert whole is not None
        body.append(ir.Let("to", times(variable("at"), value(self.row))))
        channels = value(images.channels)
        inside = self._vectors("c", channels, lambda c, mask: self._spread_one(c, mask, {}))
        flags: list[ir.Step] = []
        fine: dict[tuple[int, int], ir.Value] = {}
        for axis in (0, 1):
            for i in range(REACH):
                at = plus(variable(f"at_{axis}"), i)
                parts = (
                    compare("greater_equal", at, 0),
                    compare("less", at, value(images.extent(axis))),
                )
                fine[axis, i] = self.name(flags, ir.Op(ir.FLAG, "and", parts))
        border = self._vectors("c", channels, lambda c, mask: self._spread_one(c, mask, fine))
        body.append(ir.If(whole, tuple(inside), (*flags, *border)))
        pointers = (ir.Pointer("x", self.form.dtype), ir.Pointer("dst", self.form.dtype))
        return self._function("spread", pointers, (), *body)

    def _spread_one(
        self, channel: ir.Value, rest: ir.Value | None, fine: dict[tuple[int, int], ir.Value]
    ) -> list[ir.Step]:
        """One vector of channels of a window; with `fine`, what is outside of x is 0."""
        value, places = self.sizes.value, self.images.places
        steps: list[ir.Step] = []
        at = self.name(steps, plus(variable("x_window"), channel))
        half = []
        for j in range(REACH):
            column = []
            for i in range(REACH):
                place = plus(at, times(value(places[-2].x), i), times(value(places[-1].x), j))
                mask = rest
                if fine:
                    both = self.name(steps, operate("and", fine[0, i], fine[1, j]))
                    place = near(place, both)
                    lanes = splat(both, self.lanes)
                    mask = lanes if rest is None else operate("and", lanes, rest)
                column.append(self.name(steps, ir.Load(self.vector, "x", place, mask)))
            half.append(self.spread(steps, column))
        to = self.name(steps, plus(variable("to"), channel))
        for i in range(REACH):
            row = self.spread(steps, [half[j][i] for j in range(REACH)])
            for j in range(REACH):
                place = plus(to, times(value(self.apart), i * REACH + j))
                steps.append(ir.Store("dst", place, row[j]))
        return steps

    # ---- M -> results --------------------------------------------------------------------------

    def _collect_function(self) -> ir.Function:
        value, images = self.sizes.value, self.images
        height, width = (value(place.extent) for place in images.places[-2:])
        image = times(variable("rest1"), value(images.places[-2].extent * images.places[-1].extent))
        if len(images.places) == 2:
            image = constant(0)
        place = plus(
            image, times(times(variable("down"), STEP), width), times(variable("along"), STEP)
        )
        body: list[ir.Step] = [
            ir.Let("rows", minus(height, times(variable("down"), STEP))),
            ir.Let("across", minus(width, times(variable("along"), STEP))),
            ir.Let("y_window", plus(times(place, value(self.form.m.c)), variable("column0"))),
            ir.Let("from", times(variable("at"), self.tile.width)),
            *self._vectors("n", variable("columns"), self._collect_one),
        ]
        pointers = (
            ir.Pointer("sums", self.form.dtype),
            *(ir.Pointer(name, self.form.dtype, alias=True) for name in ("y", "bias", "more")),
        )
        return self._function("collect", pointers, ("column0", "columns"), *body)

    def _collect_one(self, column: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        """One vector of columns: the results of a window that there are."""
        value, ending = self.sizes.value, self.images.ending
        steps: list[ir.Step] = []
        at = self.name(steps, plus(variable("from"), column))
        half = []
        for j in range(REACH):
            sums = []
            for i in range(REACH):
                place = plus(at, (i * REACH + j) * self.sums_apart)
                sums.append(self.name(steps, ir.Load(self.vector, "sums", place)))
            half.append(self.collected(steps, sums))
        bias: ir.Value | None = None
        if ending.bias is not None:
            bias = self.name(steps, ir.Load(self.vector, "bias", column, mask))
        y = self.name(steps, plus(variable("y_window"), column))
        for i in range(STEP):
            row: list[ir.Step] = []
            results = self.collected(row, [half[j][i] for j in range(REACH)])
            line = times(value(self.images.places[-1].extent * self.form.m.c), i)
            for j in range(STEP):
                one: list[ir.Step] = []
                place = self.name(one, plus(y, line, times(value(self.form.m.c), j)))
                found = self._ended(one, results[j], bias, place, mask)
                one.append(ir.Store("y", place, found, mask))
                row.append(ir.If(compare("greater", variable("across"), j), tuple(one)))
            steps.append(ir.If(compare("greater", variable("rows"), i), tuple(row)))
        return steps

    def _ended(
        self, steps: list[ir.Step], found: ir.Value, bias: ir.Value | None, place: ir.Value,
        mask: ir.Value | None,
    ) -> ir.Value:  # fmt: skip
        ending = self.images.ending
        if bias is not None:
            found = self.name(steps, operate("add", found, bias))
        if ending.more is not None:
            more = ir.Load(self.vector, "more", place, mask)
            found = self.name(steps, operate("add", found, more))
        for function, limit in (("max", ending.low), ("min", ending.high)):
            if limit is not None:
                found = self.name(steps, operate(function, found, self._number(limit)))
        return found


OWN_BIAS = {ROW: as_size(0), COLUMN: as_size(1)}  # how a bias steps
