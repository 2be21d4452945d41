"""Rows of A that are windows of a tensor, as in convolutions of channels-last tensors.

    a[m, k] = x[position(m, k)], 0 out of bounds     m over output positions, k over taps and a run

Reduced axes that are contiguous in x form one run, which is copied in whole vectors: all channels,
and the taps along a line of an image. Where a window is partly out of bounds, the part of a run in
bounds is copied and padded with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product as every

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, least, select
from anydim.compiler.kernels.matmul.window_geometry import (
    SMALL,
    Bound,
    LayerSizes,
    WindowAxis,
    bounds_of,
    merge_positions,
    window_axis,
)
from anydim.lang.tree import Axis, Read
from anydim.lang.tree.affine import Affine, affine
from anydim.sizes import Box, Size, as_size, product

SPOT = "spot"
ONE = as_size(1)
_STRAIGHT = 48  # maximum short runs of a window that are copied without a loop
WINDOW_SCALARS = ("x_at", "first_row", "rows", "dst_row", SPOT)


@dataclass(frozen=True)
class WindowLayout:
    """The layout of rows of A in x: `positions` are the axes of m, `taps` those of k around a run.

    Rows run over all output positions, the last axis the fastest. With `spots` above 1, the number
    of positions of an image, rows are the images at one position, and the loop `SPOT` around the
    product runs over positions. A run has `run` elements; `tap` is its outermost axis where it may
    be out of bounds.
    """

    positions: tuple[WindowAxis, ...]
    taps: tuple[WindowAxis, ...]
    run: Size
    tap: WindowAxis | None
    bounds: tuple[Bound, ...]
    spots: Size = ONE

    @property
    def rows(self) -> Size:
        """Number of rows over all output positions."""
        return product(axis.extent for axis in self.positions)

    @property
    def in_place(self) -> bool:
        """Whether rows have even strides and no padding, as with 1 x 1 windows."""
        return not self.bounds and not self.taps and len(self.positions) == 1

    @property
    def run_bound(self) -> Bound | None:
        """The bound of a run, if it may be out of bounds."""
        return next((b for b in self.bounds if self.tap and b.tap == self.tap.name), None)


def moves(read: Read, rows: Sequence[Axis], reduced: Sequence[Axis]) -> bool:
    """Whether a read is a read of windows: it has padding, or strides over positions."""
    if read.default is not None:
        return True
    own, summed = {axis.name for axis in rows}, {axis.name for axis in reduced}
    for form in () if read.flat else map(affine, read.indices):
        used = own & set(() if form is None else form.indices)
        if form is not None and used:
            if summed & set(form.indices) or any(form.stride(name) != 1 for name in used):
                return True
    return False


def window_layout(
    read: Read, x: Affine, shape: tuple[Size, ...], rows: Sequence[Axis], reduced: Sequence[Axis],
    box: Box,
) -> tuple[WindowLayout, tuple[Axis, ...]] | None:  # fmt: skip
    """Return the windows of rows and the reduced axes in order; None for other reads."""
    extents = {axis.name: axis.extent for axis in (*rows, *reduced)}
    bounds = bounds_of(read, shape, rows, reduced, extents, box)
    if bounds is None or not rows:
        return None
    taps, run, length = list(reduced), list[Axis](), as_size(1)
    tap: WindowAxis | None = None
    while taps and tap is None:
        inner = next((axis for axis in taps if x.stride(axis.name) == length), None)
        if inner is None:
            break
        taps.remove(inner)
        run.insert(0, inner)
        if any(bound.tap == inner.name for bound in bounds):
            tap = window_axis((inner,), x)
        length = length * inner.extent
    layout = WindowLayout(
        merge_positions(rows, bounds, x), tuple(window_axis((a,), x) for a in taps),
        length, tap, bounds,
    )  # fmt: skip
    own = [bound for bound in bounds if tap is not None and bound.tap == tap.name]
    if len(own) > 1 or any(bound.spread != 1 for bound in own):
        return None
    return layout, (*taps, *run)


def window_function(
    layout: WindowLayout, dtype: DType, lanes: int, sizes: LayerSizes
) -> ir.Function:
    """Return the function that writes dst[i, :k] for the rows from `first_row` on.

    It may overwrite elements after a row in dst. Call it when the sizes are complete.
    """
    body = _Windows(layout, ir.Type(dtype, _lanes_of(layout, lanes)), sizes).rows()
    scalars = (*WINDOW_SCALARS, *sizes.names)
    pointers = (ir.Pointer("x", dtype), ir.Pointer("dst", dtype))
    return ir.Function("windows", (*pointers, *map(ir.Scalar, scalars)), body)


def _lanes_of(layout: WindowLayout, lanes: int) -> int:
    """Return the lanes that copy a run: the fewest that hold a short run.

    Stores of more lanes overlap, and most of them cross a cache line.
    """
    run = layout.run.constant
    return lanes if run is None else min(lanes, 1 << max(run - 1, 1).bit_length())


def _parameter(name: str) -> ir.Value:
    return ir.Var(ir.INDEX, name)


class _Windows:
    """Writes the body of the window function."""

    def __init__(self, layout: WindowLayout, vector: ir.Type, sizes: LayerSizes) -> None:
        self.layout, self.vector, self.sizes = layout, vector, sizes
        self.code = Writer()
        self.steps = {
            axis.name: self._size(f"step{n}", axis.x) for n, axis in enumerate(layout.positions)
        }
        self.taps = [self._size(f"tap{n}", tap.x) for n, tap in enumerate(layout.taps)]
        self.extents = {
            bound: self._size(f"bound{n}", bound.extent) for n, bound in enumerate(layout.bounds)
        }
        self.run = self._size("run", layout.run, vector.lanes)

    def _size(self, name: str, size: Size, max_literal: int = 0) -> ir.Value:
        """Return a size by role; a constant up to `max_literal` is a literal."""
        return self.sizes.role_or_literal(f"x_{name}", size, max_literal)

    def rows(self) -> tuple[ir.Step, ...]:
        """Copy row by row; advances the indices of the output position from row to row."""
        code, layout = self.code, self.layout
        extents = [
            code.let(greatest(self._size(f"places{n}", axis.extent), 1))
            for n, axis in enumerate(layout.positions)
        ]
        spots = self._size("spots", layout.spots, 1)
        first = _parameter("first_row") * spots + _parameter(SPOT)
        counters = [code.variable(index) for index in code.split(first, extents[1:])]
        with code.range(0, _parameter("rows")) as row:
            positions = {axis.name: c() for axis, c in zip(layout.positions, counters)}
            self._row(positions, code.let(row * _parameter("dst_row")))
            with ExitStack() as row_by_row:
                if layout.spots != ONE:
                    with code.when(spots > 1):
                        counters[0] += 1
                    row_by_row.enter_context(code.otherwise())
                self._advance(counters, extents)
        return code.written

    def _advance(self, counters: list, extents: list[ir.Value]) -> None:
        code = self.code
        counters[-1] += 1
        if len(counters) > 1:
            with code.when(counters[-1]() >= extents[-1]):
                counters[-1].set(0)
                self._advance(counters[:-1], extents[:-1])

    def _row(self, positions: Mapping[str, ir.Value], to: ir.Value) -> None:
        """Copy one window: without tests where it is in bounds, else run by run."""
        code, layout = self.code, self.layout
        source = _parameter("x_at")
        for axis in layout.positions:
            source = source + positions[axis.name] * self.steps[axis.name]
        source = code.let(source)
        inside: ir.Value | None = None
        bases = {}
        for n, bound in enumerate(layout.bounds):
            base = self._size(f"base{n}", bound.constant, SMALL)
            if bound.position:
                stride = self._size(f"stride{n}", bound.stride, SMALL)
                base = base + positions[bound.position] * stride
            bases[bound] = base = code.let(base)
            last = (self._extent(bound.tap) - 1) * bound.spread if bound.tap else as_size(0)
            reach = self._size(f"reach{n}", last, SMALL)
            in_bounds = (base >= 0) & (base + reach < self.extents[bound])
            inside = in_bounds if inside is None else inside & in_bounds
        if inside is None:
            self._whole(source, to)
            return
        with code.when(inside):
            self._whole(source, to)
        with code.otherwise():
            self._taps(source, to, bases)

    def _extent(self, tap: str) -> Size:
        axes = self.layout.taps if self.layout.tap is None else (*self.layout.taps, self.layout.tap)
        return next(axis.extent for axis in axes if axis.name == tap)

    def _whole(self, source: ir.Value, to: ir.Value) -> None:
        """Copy a whole window, unrolled where runs are short and few."""
        layout, code, lanes = self.layout, self.code, self.vector.lanes
        run, count = layout.run.constant, product(tap.extent for tap in layout.taps).constant
        if run is None or run > lanes or count is None or count > _STRAIGHT:
            self._taps(source, to, {})
            return
        ranges = [range(int(tap.extent.constant or 0)) for tap in layout.taps]
        for number, indices in enumerate(every(*ranges)):
            at = source
            for index, step in zip(indices, self.taps):
                at = at + step * index
            self._copy_short(code.let(at), to + number * run, run)

    def _copy_short(self, source: ir.Value, to: ir.Value, run: int) -> None:
        """Copy a run of up to a vector, as one or as two that overlap.

        A masked load waits for all earlier stores with an address like its own in the lower 12 bits
        (Zen 5: 7 x 7 windows of three channels 7.5 -> 1.2 ms).
        """
        lanes = 1 << (run.bit_length() - 1)
        vector = ir.Type(self.vector.dtype, lanes)
        for at in dict.fromkeys((0, run - lanes)):
            self.code.emit(ir.Store("dst", to + at, ir.Load(vector, "x", source + at)))

    def _copy(self, source: ir.Value, to: ir.Value, mask: ir.Value | None) -> None:
        self.code.emit(ir.Store("dst", to, ir.Load(self.vector, "x", source, mask)))

    def _taps(self, source: ir.Value, to: ir.Value, bases: Mapping[Bound, ir.Value]) -> None:
        """Copy run by run; elements out of bounds are 0."""
        layout, code = self.layout, self.code
        low, high = constant(0), self.run
        own = layout.run_bound
        if layout.tap is not None and own is not None and bases:
            unit, base = self._size("unit", layout.tap.x), bases[own]
            steps = self._size("steps", layout.tap.extent, SMALL)
            first = least(greatest(0 - base, 0), steps)
            low = code.let(first * unit)
            stop = least(greatest(self.extents[own] - base, first), steps)
            high = code.let(stop * unit)
        self._tap(0, source, constant(0), to, (low, high), bases, None)

    def _tap(
        self, number: int, source: ir.Value, at: ir.Value, to: ir.Value,
        ends: tuple[ir.Value, ir.Value], bases: Mapping[Bound, ir.Value],
        in_bounds: ir.Value | None,
    ) -> None:  # fmt: skip
        """Emit the loops over the taps around a run."""
        layout, code = self.layout, self.code
        if number == len(layout.taps):
            self._one(code.let(source), code.let(to + at * self.run), ends, in_bounds, bases)
            return
        tap = layout.taps[number]
        extent = self._size(f"taps{number}", tap.extent, SMALL)
        with code.range(0, extent) as tap_index:
            now = in_bounds
            for bound, base in bases.items():
                if bound.tap == tap.name:
                    spread = self._size(f"spread{number}", bound.spread, SMALL)
                    index = code.let(base + tap_index * spread)
                    here = (index >= 0) & (index < self.extents[bound])
                    now = here if now is None else now & here
            inner = at * extent + tap_index
            moved = source + tap_index * self.taps[number]
            self._tap(number + 1, moved, inner, to, ends, bases, now)

    def _one(
        self, source: ir.Value, to: ir.Value, ends: tuple[ir.Value, ir.Value],
        in_bounds: ir.Value | None, bases: Mapping[Bound, ir.Value],
    ) -> None:  # fmt: skip
        """Copy a run: zeros, the part in bounds, zeros."""
        code, lanes = self.code, self.vector.lanes
        low, high = ends
        for bound, base in bases.items():
            if not bound.tap:
                here = (base >= 0) & (base < self.extents[bound])
                in_bounds = here if in_bounds is None else in_bounds & here
        if in_bounds is not None:
            low = code.let(select(in_bounds, low, self.run))
            high = code.let(select(in_bounds, high, self.run))
        if self.layout.run.constant == 1:
            self._element(source, to, high > low)
            return
        if bases:
            self._zeros(to, constant(0), low)
        code.sweep(low, high, lanes, lambda at, mask: self._copy(source + at, to + at, mask))
        if bases:
            self._zeros(to, high, self.run)

    def _element(self, source: ir.Value, to: ir.Value, in_bounds: ir.Value) -> None:
        """Copy a run of one element."""
        kind, code = ir.Type(self.vector.dtype), self.code
        with code.when(in_bounds):
            code.emit(ir.Store("dst", to, ir.Load(kind, "x", source)))
        with code.otherwise():
            code.emit(ir.Store("dst", to, constant(0, self.vector.dtype)))

    def _zeros(self, to: ir.Value, low: ir.Value, high: ir.Value) -> None:
        zero = constant(0, self.vector.dtype, self.vector.lanes)
        with self.code.range(low, high, self.vector.lanes) as column:
            self.code.emit(ir.Store("dst", (to + column), zero))
