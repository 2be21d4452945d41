"""Winograd's transforms of tensors whose channels lie last: vectors of channels, none shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.kernels import ir
from anydim.kernels.product.places import SMALL, LayerSizes
from anydim.kernels.product.winograd.form import Images
from anydim.kernels.product.winograd.transforms import REACH, STEP, Transforms
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    loop,
    minus,
    plus,
    round_down,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.values import near, operate, splat
from anydim.sizes import Size


class _Windows(Transforms):
    """A loop over the windows of a block."""

    def __init__(self, images: Images, sizes: LayerSizes, lanes: int) -> None:
        super().__init__(images.form.dtype, lanes)
        self.images, self.form, self.sizes = images, images.form, sizes

    def _function(
        self, name: str, pointers: Sequence[ir.Pointer], own: Sequence[str], *body: ir.Step
    ) -> ir.Function:
        """A function that does `body` for each window of a block."""
        names = ("windows_down", "windows_along")
        down, along = map(self.sizes.role, names, self.images.across)
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


class AcrossSpread(_Windows):
    """The function `spread`: V of a block of windows, [36] `apart` elements each, in `dst`.

    Windows are `row` elements apart.
    """

    def __init__(
        self, images: Images, sizes: LayerSizes, lanes: int, row: Size, apart: Size
    ) -> None:
        super().__init__(images, sizes, lanes)
        self.row, self.apart = row, apart

    def function(self) -> ir.Function:
        known, role, images = self.sizes.known, self.sizes.role, self.images
        x = [known("x_start", self.form.a_start)]
        indices = ("rest1", "down", "along")[-len(images.places) :]
        steps = (1, STEP, STEP)[-len(images.places) :]
        for index, place, step in zip(indices, images.places, steps):
            x.append(times(times(variable(index), role(f"x_{index}", place.x)), step))
        extents = [role(f"x_extent{axis}", images.extent(axis)) for axis in (0, 1)]
        body: list[ir.Step] = [ir.Let("x_window", plus(*x))]
        whole: ir.Value | None = None
        for axis, index in enumerate(("down", "along")):
            at = plus(
                known(f"x_first{axis}", images.first(axis), SMALL), times(variable(index), STEP)
            )
            body.append(ir.Let(f"at_{axis}", at))
            low = compare("greater_equal", variable(f"at_{axis}"), 0)
            end = plus(variable(f"at_{axis}"), REACH)
            high = compare("less_equal", end, extents[axis])
            both = ir.Op(ir.FLAG, "and", (low, high))
            whole = both if whole is None else ir.Op(ir.FLAG, "and", (whole, both))
        assert whole is not None
        body.append(ir.Let("to", times(variable("at"), role("x_copied", self.row))))
        channels = role("all_channels", images.channels)
        inside = self._vectors("c", channels, lambda c, mask: self._one(c, mask, {}))
        flags: list[ir.Step] = []
        fine: dict[tuple[int, int], ir.Value] = {}
        for axis in (0, 1):
            for i in range(REACH):
                at = plus(variable(f"at_{axis}"), i)
                parts = (
                    compare("greater_equal", at, 0),
                    compare("less", at, extents[axis]),
                )
                fine[axis, i] = self.name(flags, ir.Op(ir.FLAG, "and", parts))
        border = self._vectors("c", channels, lambda c, mask: self._one(c, mask, fine))
        body.append(ir.If(whole, tuple(inside), (*flags, *border)))
        pointers = (ir.Pointer("x", self.form.dtype), ir.Pointer("dst", self.form.dtype))
        return self._function("spread", pointers, (), *body)

    def _one(
        self, channel: ir.Value, rest: ir.Value | None, fine: dict[tuple[int, int], ir.Value]
    ) -> list[ir.Step]:
        """One vector of channels of a window; with `fine`, what is outside of x is 0."""
        role, places = self.sizes.role, self.images.places
        row, column = (
            role(f"x_{name}", place.x) for name, place in zip(("down", "along"), places[-2:])
        )
        steps: list[ir.Step] = []
        at = self.name(steps, plus(variable("x_window"), channel))
        half = []
        for j in range(REACH):
            loaded = []
            for i in range(REACH):
                place = plus(at, times(row, i), times(column, j))
                mask = rest
                if fine:
                    both = self.name(steps, operate("and", fine[0, i], fine[1, j]))
                    place = near(place, both)
                    lanes = splat(both, self.lanes)
                    mask = lanes if rest is None else operate("and", lanes, rest)
                loaded.append(self.name(steps, ir.Load(self.vector, "x", place, mask)))
            half.append(self.spread(steps, loaded))
        to = self.name(steps, plus(variable("to"), channel))
        for i in range(REACH):
            spread = self.spread(steps, [half[j][i] for j in range(REACH)])
            for j in range(REACH):
                place = plus(to, times(role("apart", self.apart), i * REACH + j))
                steps.append(ir.Store("dst", place, spread[j]))
        return steps


class AcrossCollect(_Windows):
    """The function `collect`: results of a panel of sums, [36] `apart` elements each, into y."""

    def __init__(
        self, images: Images, sizes: LayerSizes, lanes: int, width: int, apart: int
    ) -> None:
        super().__init__(images, sizes, lanes)
        self.width, self.apart = width, apart

    def function(self) -> ir.Function:
        images = self.images
        height, width = self._sides()
        image = times(variable("rest1"), times(height, width))
        if len(images.places) == 2:
            image = constant(0)
        place = plus(
            image, times(times(variable("down"), STEP), width), times(variable("along"), STEP)
        )
        body: list[ir.Step] = [
            ir.Let("rows", minus(height, times(variable("down"), STEP))),
            ir.Let("across", minus(width, times(variable("along"), STEP))),
            ir.Let(
                "y_window",
                plus(times(place, self.sizes.role("c_row", self.form.m.c)), variable("column0")),
            ),
            ir.Let("from", times(variable("at"), self.width)),
            *self._vectors("n", variable("columns"), self._one),
        ]
        pointers = (
            ir.Pointer("sums", self.form.dtype),
            *(ir.Pointer(name, self.form.dtype, alias=True) for name in ("y", "bias", "more")),
        )
        return self._function("collect", pointers, ("column0", "columns"), *body)

    def _sides(self) -> tuple[ir.Value, ir.Value]:
        """Height and width of the result."""
        down, along = self.images.places[-2:]
        role = self.sizes.role
        return role("y_height", down.extent), role("y_width", along.extent)

    def _one(self, column: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        """One vector of columns: the results of a window that there are."""
        ending, step = self.images.ending, self.sizes.role("c_row", self.form.m.c)
        steps: list[ir.Step] = []
        at = self.name(steps, plus(variable("from"), column))
        half = []
        for j in range(REACH):
            sums = []
            for i in range(REACH):
                place = plus(at, (i * REACH + j) * self.apart)
                sums.append(self.name(steps, ir.Load(self.vector, "sums", place)))
            half.append(self.collected(steps, sums))
        bias: ir.Value = ir.Load(self.vector, "bias", column, mask)
        if ending.bias is not None:
            bias = self.name(steps, bias)
        y = self.name(steps, plus(variable("y_window"), column))
        for i in range(STEP):
            row: list[ir.Step] = []
            results = self.collected(row, [half[j][i] for j in range(REACH)])
            line = times(times(self._sides()[1], step), i)
            for j in range(STEP):
                one: list[ir.Step] = []
                place = self.name(one, plus(y, line, times(step, j)))
                more = ir.Load(self.vector, "more", place, mask)
                found = self.ended(one, ending, results[j], bias, more)
                one.append(ir.Store("y", place, found, mask))
                row.append(ir.If(compare("greater", variable("across"), j), tuple(one)))
            steps.append(ir.If(compare("greater", variable("rows"), i), tuple(row)))
        return steps
