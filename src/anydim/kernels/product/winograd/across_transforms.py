"""Winograd's transforms of tensors whose channels lie last: vectors of channels, none shuffled.

A function is made of the values of its sizes and little else: layers for which these are alike
share one that is written and compiled once, in a library of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.naming import shared_library
from anydim.kernels.product.places import SMALL, LayerSizes
from anydim.kernels.product.winograd.form import Images
from anydim.kernels.product.winograd.transforms import REACH, STEP, End, Transforms
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

_AXES = ("rest1", "down", "along")  # images, and windows of one
Values = tuple[tuple[str, ir.Value], ...]  # of sizes, by what they are


def spread_values(images: Images, sizes: LayerSizes, row: Size, apart: Size) -> Values:
    """The sizes of `spread`: transformed windows are `row` elements apart, their matrices
    `apart`."""
    x = {f"x_{axis}": place.x for axis, place in zip(_AXES[-len(images.places) :], images.places)}
    return (
        ("x_start", sizes.known("x_start", images.form.a_start)),
        *((name, sizes.role(name, size)) for name, size in x.items()),
        *((f"x_extent{n}", sizes.role(f"x_extent{n}", images.extent(n))) for n in (0, 1)),
        *((f"x_first{n}", sizes.known(f"x_first{n}", images.first(n), SMALL)) for n in (0, 1)),
        ("x_copied", sizes.role("x_copied", row)),
        ("channels", sizes.role("all_channels", images.channels)),
        ("apart", sizes.role("apart", apart)),
        *_across(images, sizes),
    )


def collect_values(images: Images, sizes: LayerSizes) -> Values:
    """The sizes of `collect`."""
    down, along = images.places[-2:]
    return (
        ("images", constant(len(images.places) - 2)),
        ("height", sizes.role("y_height", down.extent)),
        ("width", sizes.role("y_width", along.extent)),
        ("c_row", sizes.role("c_row", images.form.m.c)),
        *_across(images, sizes),
    )


def _across(images: Images, sizes: LayerSizes) -> Values:
    """Windows down and along an image."""
    roles = zip(("windows_down", "windows_along"), images.across)
    return tuple((name, sizes.role(name, size)) for name, size in roles)


@dataclass(frozen=True)
class Shared:
    """What layers share that have one function: the type and lanes of its vectors, its sizes."""

    dtype: DType
    lanes: int
    values: Values

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters: the sizes that are no constants."""
        return tuple(dict.fromkeys(v.name for _, v in self.values if isinstance(v, ir.Var)))


@lru_cache(maxsize=32)
def spread_library(shared: Shared) -> ir.Library:
    """The function `spread`: V of a block of windows, [36] `apart` elements each, in `dst`."""
    return shared_library(_Spread(shared).function())


@lru_cache(maxsize=32)
def collect_library(shared: Shared, width: int, apart: int, end: End) -> ir.Library:
    """The function `collect`: results of a panel of sums, [36] `apart` elements each, into y."""
    return shared_library(_Collect(shared, width, apart, end).function())


class _Windows(Transforms):
    """A loop over the windows of a block."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.dtype, shared.lanes)
        self.dtype, self.names = shared.dtype, shared.names
        self.values: Mapping[str, ir.Value] = dict(shared.values)

    def _function(
        self, name: str, pointers: Sequence[ir.Pointer], own: Sequence[str], *body: ir.Step
    ) -> ir.Function:
        """A function that does `body` for each window of a block."""
        down, along = self.values["windows_down"], self.values["windows_along"]
        scalars = ("first", "count", *own, *self.names)
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


class _Spread(_Windows):
    def function(self) -> ir.Function:
        values = self.values
        x = [values["x_start"]]
        for name, step in zip(_AXES, (1, STEP, STEP)):
            if f"x_{name}" in values:
                x.append(times(times(variable(name), values[f"x_{name}"]), step))
        extents = [values[f"x_extent{axis}"] for axis in (0, 1)]
        body: list[ir.Step] = [ir.Let("x_window", plus(*x))]
        whole: ir.Value | None = None
        for axis, index in enumerate(("down", "along")):
            at = plus(values[f"x_first{axis}"], times(variable(index), STEP))
            body.append(ir.Let(f"at_{axis}", at))
            low = compare("greater_equal", variable(f"at_{axis}"), 0)
            end = plus(variable(f"at_{axis}"), REACH)
            high = compare("less_equal", end, extents[axis])
            both = ir.Op(ir.FLAG, "and", (low, high))
            whole = both if whole is None else ir.Op(ir.FLAG, "and", (whole, both))
        assert whole is not None
        body.append(ir.Let("to", times(variable("at"), values["x_copied"])))
        channels = values["channels"]
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
        pointers = (ir.Pointer("x", self.dtype), ir.Pointer("dst", self.dtype))
        return self._function("winograd_spread", pointers, (), *body)

    def _one(
        self, channel: ir.Value, rest: ir.Value | None, fine: dict[tuple[int, int], ir.Value]
    ) -> list[ir.Step]:
        """One vector of channels of a window; with `fine`, what is outside of x is 0."""
        row, column = self.values["x_down"], self.values["x_along"]
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
                place = plus(to, times(self.values["apart"], i * REACH + j))
                steps.append(ir.Store("dst", place, spread[j]))
        return steps


class _Collect(_Windows):
    def __init__(self, shared: Shared, width: int, apart: int, end: End) -> None:
        super().__init__(shared)
        self.width, self.apart, self.end = width, apart, end

    def function(self) -> ir.Function:
        values = self.values
        height, width = values["height"], values["width"]
        image = times(variable("rest1"), times(height, width))
        if values["images"] == constant(0):
            image = constant(0)
        place = plus(
            image, times(times(variable("down"), STEP), width), times(variable("along"), STEP)
        )
        body: list[ir.Step] = [
            ir.Let("rows", minus(height, times(variable("down"), STEP))),
            ir.Let("across", minus(width, times(variable("along"), STEP))),
            ir.Let("y_window", plus(times(place, values["c_row"]), variable("column0"))),
            ir.Let("from", times(variable("at"), self.width)),
            *self._vectors("n", variable("columns"), self._one),
        ]
        pointers = (
            ir.Pointer("sums", self.dtype),
            *(ir.Pointer(name, self.dtype, alias=True) for name in ("y", "bias", "more")),
        )
        return self._function("winograd_collect", pointers, ("column0", "columns"), *body)

    def _one(self, column: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        """One vector of columns: the results of a window that there are."""
        step = self.values["c_row"]
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
        if self.end.bias:
            bias = self.name(steps, bias)
        y = self.name(steps, plus(variable("y_window"), column))
        for i in range(STEP):
            row: list[ir.Step] = []
            results = self.collected(row, [half[j][i] for j in range(REACH)])
            line = times(times(self.values["width"], step), i)
            for j in range(STEP):
                one: list[ir.Step] = []
                place = self.name(one, plus(y, line, times(step, j)))
                more = ir.Load(self.vector, "more", place, mask)
                found = self.ended(one, self.end, results[j], bias, more)
                one.append(ir.Store("y", place, found, mask))
                row.append(ir.If(compare("greater", variable("across"), j), tuple(one)))
            steps.append(ir.If(compare("greater", variable("rows"), i), tuple(row)))
        return steps
