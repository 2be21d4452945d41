"""Winograd transforms of channels-last tensors: vectors run along channels, without shuffles.

A function depends on its sizes and little else: layers with equal sizes share one function, which
is written and compiled once, in a library of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, near
from anydim.compiler.kernels.ir import constant, variable
from anydim.compiler.kernels.matmul.window_geometry import SMALL, LayerSizes
from anydim.compiler.kernels.matmul.winograd.winograd_form import ChannelsLastForm
from anydim.compiler.kernels.matmul.winograd.winograd_transforms import (
    REACH,
    STEP,
    Transforms,
    VectorEpilogue,
)
from anydim.compiler.kernels.naming import shared_library
from anydim.sizes import Size

_AXES = ("x_image", "x_down", "x_along")
Values = tuple[tuple[str, ir.Value], ...]  # (name, value) of sizes


def spread_values(
    images: ChannelsLastForm, sizes: LayerSizes, row: Size, matrix_stride: Size
) -> Values:
    """Return the sizes of `spread`; windows are `row` apart, their matrices `matrix_stride`."""
    x = {
        axis: position.x
        for axis, position in zip(_AXES[-len(images.positions) :], images.positions)
    }
    return (
        ("x_start", sizes.role_or_literal("x_start", images.form.a_start)),
        *((name, sizes.role(name, size)) for name, size in x.items()),
        *((f"x_extent{n}", sizes.role(f"x_extent{n}", images.extent(n))) for n in (0, 1)),
        *(
            (f"x_first{n}", sizes.role_or_literal(f"x_first{n}", images.first(n), SMALL))
            for n in (0, 1)
        ),
        ("x_copied", sizes.role("x_copied", row)),
        ("channels", sizes.role("all_channels", images.channels)),
        ("apart", sizes.role("apart", matrix_stride)),
        *_across(images, sizes),
    )


def collect_values(images: ChannelsLastForm, sizes: LayerSizes) -> Values:
    """Return the sizes of `collect`."""
    down, along = images.positions[-2:]
    return (
        ("images", constant(len(images.positions) - 2)),
        ("height", sizes.role("y_height", down.extent)),
        ("width", sizes.role("y_width", along.extent)),
        ("c_row", sizes.role("c_row", images.form.m.c)),
        *_across(images, sizes),
    )


def _across(images: ChannelsLastForm, sizes: LayerSizes) -> Values:
    """Return the windows down and along an image."""
    roles = zip(("windows_down", "windows_along"), images.across)
    return tuple((name, sizes.role(name, size)) for name, size in roles)


@dataclass(frozen=True)
class Shared:
    """The key of a function that layers share: element type and lanes of vectors, sizes."""

    dtype: DType
    lanes: int
    values: Values

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters: sizes that are not constant."""
        return tuple(dict.fromkeys(v.name for _, v in self.values if isinstance(v, ir.Var)))


@lru_cache(maxsize=32)
def spread_library(shared: Shared) -> ir.Library:
    """Return `spread`, which writes V of a block of windows, [36] by `matrix_stride`, to `dst`."""
    return shared_library(_Spread(shared).function(), shared.dtype in ir.PORTABLE)


@lru_cache(maxsize=32)
def collect_library(
    shared: Shared, width: int, matrix_stride: int, epilogue: VectorEpilogue
) -> ir.Library:
    """Return `collect`: the results of a panel of sums, [36] by `matrix_stride`, to y."""
    return shared_library(
        _Collect(shared, width, matrix_stride, epilogue).function(), shared.dtype in ir.PORTABLE
    )


class _Windows(Transforms):
    """A function over the windows of a block."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.dtype, shared.lanes)
        self.names, self.values = shared.names, dict(shared.values)

    def _windows(self, name: str, pointers: str, *own: str) -> ir.Function:
        """Return a function that runs `_window` for each window of a block.

        The pointers from y on may alias.
        """
        code, values = self.code, self.values
        with code.range(0, variable("count")) as at:
            extents = [values[f"windows_{each}"] for each in ("down", "along")]
            number = code.let(variable("first") + at)
            self._window(at, *code.split(number, extents))
        names = pointers.split()
        shared = names[names.index("y") :] if "y" in names else []
        return ir.Function(
            name,
            (
                *(ir.Pointer(each, self.dtype, alias=each in shared) for each in names),
                *map(ir.Scalar, ("first", "count", *own, *self.names)),
            ),
            code.written,
        )

    @abstractmethod
    def _window(self, at: ir.Value, image: ir.Value, down: ir.Value, along: ir.Value) -> None:
        """Emit the code of one window, number `at` of the block."""


class _Spread(_Windows):
    def function(self) -> ir.Function:
        return self._windows("winograd_spread", "x dst")

    def _window(self, at: ir.Value, image: ir.Value, down: ir.Value, along: ir.Value) -> None:
        code, values = self.code, self.values
        steps = zip(_AXES, (image, down, along), (1, STEP, STEP))
        x = (each * values[name] * step for name, each, step in steps if name in values)
        self.x = code.let(index_sum(values["x_start"], *x))
        firsts = [code.let(values[f"x_first{n}"] + at * STEP) for n, at in enumerate((down, along))]
        extents = [values[f"x_extent{n}"] for n in (0, 1)]
        ends = [(a >= 0) & (a + REACH <= extent) for a, extent in zip(firsts, extents)]
        self.to = code.let(at * values["x_copied"])
        # Only windows at the border of an image pay for masks.
        with code.when(ends[0] & ends[1]):
            code.sweep(0, values["channels"], self.lanes, self._one)
        with code.otherwise():
            in_bounds = [
                [code.let((a + i >= 0) & (a + i < extent)) for i in range(REACH)]
                for a, extent in zip(firsts, extents)
            ]
            code.sweep(0, values["channels"], self.lanes, partial(self._one, in_bounds=in_bounds))

    def _one(
        self, channel: ir.Value, rest: ir.Value | None,
        in_bounds: list[list[ir.Value]] | None = None,
    ) -> None:  # fmt: skip
        """Transform one vector of channels of a window; `in_bounds` masks elements in bounds."""
        row, column = self.values["x_down"], self.values["x_along"]
        code, half = self.code, []
        at = code.let(self.x + channel)
        for j in range(REACH):
            loaded = []
            for i in range(REACH):
                offset, mask = at + row * i + column * j, rest
                if in_bounds:
                    both = code.let(in_bounds[0][i] & in_bounds[1][j])
                    offset = near(offset, both)
                    mask = both.spread(self.lanes) if rest is None else both & rest
                loaded.append(self.load("x", offset, mask))
            half.append(self.spread(loaded))
        to = code.let(self.to + channel)
        for i, rows in enumerate(zip(*half)):
            for j, each in enumerate(self.spread(rows)):
                offset = to + self.values["apart"] * (i * REACH + j)
                code.emit(ir.Store("dst", offset, each))


class _Collect(_Windows):
    def __init__(
        self, shared: Shared, width: int, matrix_stride: int, epilogue: VectorEpilogue
    ) -> None:
        super().__init__(shared)
        self.width, self.matrix_stride, self.epilogue = width, matrix_stride, epilogue

    def function(self) -> ir.Function:
        return self._windows("winograd_collect", "sums y bias more", "column0", "columns")

    def _window(self, at: ir.Value, image: ir.Value, down: ir.Value, along: ir.Value) -> None:
        code, values = self.code, self.values
        height, width = values["height"], values["width"]
        before = image * (height * width) if values["images"] != constant(0) else constant(0)
        offset = before + down * STEP * width + along * STEP
        self.rows = code.let(height - down * STEP)
        self.across = code.let(width - along * STEP)
        self.y = code.let(offset * values["c_row"] + variable("column0"))
        self.sums = code.let(at * self.width)
        code.sweep(0, variable("columns"), self.lanes, self._one)

    def _one(self, column: ir.Value, mask: ir.Value | None) -> None:
        """Compute the results of a window within the image, for one vector of columns."""
        code, step, half = self.code, self.values["c_row"], []
        at = code.let(self.sums + column)
        for j in range(REACH):
            offsets = [at + (i * REACH + j) * self.matrix_stride for i in range(REACH)]
            half.append(self.transform_results([self.load("sums", offset) for offset in offsets]))
        bias: ir.Value = ir.Load(self.vector, "bias", column, mask)
        if self.epilogue.bias:
            bias = code.let(bias)
        y = code.let(self.y + column)
        for i, values in enumerate(zip(*half)):
            with code.when(self.rows > i):
                line = self.values["width"] * step * i
                for j, found in enumerate(self.transform_results(values)):
                    with code.when(self.across > j):
                        offset = code.let(y + line + step * j)
                        more = ir.Load(self.vector, "more", offset, mask)
                        done = self.apply_epilogue(self.epilogue, found, bias, more)
                        code.emit(ir.Store("y", offset, done, mask))
