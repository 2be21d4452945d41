"""Packing of a convolution's operands: windows of x as rows of B, weights as A.

    b[k, p] = x[position(k, p)], 0 out of bounds     k over the channels of a chunk and all taps

Vectors run along the last axis of output positions; per vector and tap, one loop over the channels
loads and stores. Strides up to 4 load the elements they step over too, and shuffle. With larger
strides, rows of windows that are entirely in bounds are matrices of positions and taps, transposed
in registers, and other windows are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from anydim.base.dtypes import boolean
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, index_sum, quotient, quotient_up
from anydim.compiler.kernels.codegen.register_transpose import strided_lanes
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, iota, least, select, shuffle, variable
from anydim.compiler.kernels.matmul.convolution.convolution_variables import PACK, VALID_TAPS
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.transposed import matrix_transpose_library
from anydim.compiler.kernels.matmul.window_geometry import Bound, WindowAxis
from anydim.sizes import product

# Larger strides: positions by taps are transposed in registers (1.2 to 1.9 -> 0.82 to 1.44).
SHUFFLED_STRIDES = 4
ChannelOffset = Callable[[ir.Value], ir.Value]  # the offset of a channel


class WindowPack:
    """Writes the function `windows`: a panel of B from `column` on, rows `row` elements apart.

    `positions` and `taps` map axis names to their indices; `x` and `to` are the offsets of the
    vector of positions in x and in the panel; `load_masks` are the masks of its loads.
    """

    name = "windows"
    first: ir.Value
    x: ir.Value
    to: ir.Value
    load_masks: Sequence[ir.Value]

    def __init__(
        self, form: ConvolutionForm, sizes: SizeParameters, lanes: int, row: int, joined: bool,
        skips_taps: bool,
    ) -> None:  # fmt: skip
        self.form, self.sizes, self.lanes, self.row = form, sizes, lanes, row
        self.joined, self.skips_taps = joined, skips_taps
        self.vector = ir.Type(form.dtype, lanes)
        self.last = form.positions[-1]
        self.stride = int(self.last.x.constant or 1)
        # Positions of a row and adjacent taps are transposed as a matrix: a gather of 16 elements
        # takes 6 to 10 ns (patches of 16: 1.2 to 1.9 -> 0.82 to 1.44).
        steps = self.stride > SHUFFLED_STRIDES and bool(form.taps) and form.taps[-1].x == 1
        self.transpose = matrix_transpose_library(lanes, form.dtype) if steps else None
        self.positions: dict[str, ir.Value] = {}
        self.taps: dict[str, ir.Value] = {}

    def function(self) -> ir.Function:
        """Return the function that writes dst[k, :width] for channels from `x_at` on.

        Call it when the sizes are complete.
        """
        self.code = Writer()
        self._images()
        pointers = (ir.Pointer(name, self.form.dtype) for name in ("x", "dst"))
        own: tuple[ir.Var, ...] = (PACK.x_at, PACK.column, PACK.width, PACK.channels)
        own += (PACK.images, PACK.x_image) * self.joined + VALID_TAPS * self.skips_taps
        scalars = map(ir.Scalar, (*(each.name for each in own), *self.sizes.names))
        return ir.Function(self.name, (*pointers, *scalars), self.code.written)

    def _images(self) -> None:
        """Packs images in order: the excess lanes of an image are overwritten by the next one."""
        with self._each_image() as (x, to):
            self.first, self.begin = PACK.x_at + x, PACK.column - to
            self._rows()

    @contextmanager
    def _each_image(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Loop over the images; yields their offsets in x and in the panel."""
        if not self.joined:
            yield constant(0), constant(0)
            return
        with self.code.range(0, PACK.images) as image:
            x, to = image * PACK.x_image, image * PACK.width
            yield self.code.let(x), self.code.let(to)

    def _rows(self) -> None:
        """Pack the segments of the panel within one row of positions."""
        code, value, axes = self.code, self.sizes.value, self.form.positions
        column, extent = PACK.column, value(self.last.extent)
        end = column + PACK.width
        with code.range(quotient(column, extent), quotient(end - 1, extent) + 1) as line:
            start = code.let(line * extent)
            begin = code.let(greatest(column, start))
            stop = code.let(least(end, start + extent))
            # the index along the last axis is set for each vector
            found = code.split(line, [value(step.extent) for step in axes[1:-1]])
            self.positions = {step.name: index for step, index in zip(axes, found)}
            row = (self.positions[step.name] * value(step.x) for step in axes[:-1])
            x = code.let(index_sum(self.first, *row))
            if self.transpose is not None:
                self.positions[self.last.name] = code.let(begin - start)
                whole = self._whole(stop - 1 - begin)
                with code.when(whole):
                    self.x = code.let(x + self.positions[self.last.name] * self.stride)
                    self._transpose_row(self.transpose.name, begin - self.begin, stop - begin)
                begin = code.let(select(whole, stop, begin))
            with code.range(begin, stop, self.lanes) as at:
                index = self.positions[self.last.name] = code.let(at - start)
                count = code.let(least(stop - at, self.lanes))
                self.x = code.let(x + index * self.stride)
                self.to = code.let(at - self.begin)
                self._vector(count)

    def _whole(self, more: ir.Value) -> ir.Value:
        """Whether the windows of a position and of the next `more` in its row are all in bounds."""
        found, value = constant(True, boolean), self.sizes.value
        extents = {tap.name: value(tap.extent) for tap in self.form.taps}
        self.taps = dict.fromkeys(extents, constant(0))
        for bound in self.form.bounds:
            low = self.code.let(self._position(bound))
            high = low + extents.get(bound.tap, constant(1)) * value(bound.spread)
            high = high - value(bound.spread)
            if bound.position == self.last.name:
                high = high + more * value(bound.stride)
            found = found & (low >= 0) & (high < value(bound.extent))
        return self.code.let(found)

    def _transpose_row(self, function: str, to: ir.Value, count: ir.Value) -> None:
        """Transpose `count` positions of a row, whose innermost taps are contiguous."""
        form, value = self.form, self.sizes.value
        *outer, tap = form.taps
        self.taps = {tap.name: constant(0)}
        with self.code.range(0, PACK.channels) as channel, self._over(outer):
            steps = (self.taps[each.name] * value(each.x) for each in outer)
            x = index_sum(self.x, channel * value(form.channels.x), *steps)
            row = self._tap_number() + channel * self._window
            source, target = ir.Address("x", x), ir.Address("dst", row * self.row + to)
            sizes = constant(self.stride), constant(self.row), count, value(tap.extent)
            self.code.emit(ir.Call(function, (source, target, *sizes)))

    def _vector(self, count: ir.Value) -> None:
        """Pack one vector of positions for all taps; taps that affect masks are the outer loops."""
        lanes = {bound.tap for bound in self.form.bounds if bound.position == self.last.name}
        with self._over([tap for tap in self.form.taps if tap.name in lanes]):
            masks = self._masks(*self._inside(count))
            with self._over([tap for tap in self.form.taps if tap.name not in lanes]):
                self._channels(masks)

    @contextmanager
    def _over(self, taps: Sequence[WindowAxis]) -> Iterator[None]:
        """Loop over some of the taps."""
        with ExitStack() as loops:
            for tap in taps:
                start, stop = constant(0), self.sizes.value(tap.extent)
                if self.skips_taps and tap.name == self.form.taps[0].name:
                    start, stop = VALID_TAPS
                self.taps[tap.name] = loops.enter_context(self.code.range(start, stop))
            yield

    def _tap_number(self) -> ir.Value:
        """Return the number of a tap among the taps of a channel."""
        taps = [self.taps[tap.name] for tap in self.form.taps]
        if self.skips_taps:
            taps[0] = taps[0] - PACK.seen
        return tap_number(self.form, taps, self.sizes)

    @property
    def _window(self) -> ir.Value:
        """Number of taps."""
        if not self.skips_taps:
            return self.sizes.value(self.form.window)
        first, stop = VALID_TAPS
        rest = product(tap.extent for tap in self.form.taps[1:])
        return (stop - first) * self.sizes.value(rest)

    def _channels(self, masks: Sequence[ir.Value] = ()) -> None:
        form, value = self.form, self.sizes.value
        steps = (self.taps[tap.name] * value(tap.x) for tap in form.taps)
        x = self.code.let(index_sum(self.x, *steps))
        self.load_masks = self._load_masks(masks)
        first, window = self._tap_number(), self.code.let(self._window)

        def source(channel: ir.Value) -> ir.Value:
            return x + channel * value(form.channels.x)

        def target(channel: ir.Value) -> ir.Value:
            return self.to + index_sum(first, channel * window) * self.row

        self._each_channel(source, target)

    def _each_channel(self, source: ChannelOffset, target: ChannelOffset) -> None:
        with self.code.range(0, PACK.channels) as channel:
            found = self._load_positions(self.code.let(source(channel)))
            self.code.emit(ir.Store("dst", target(channel), found))

    # ---- masks -----------------------------------------------------------------------------------

    def _inside(self, count: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the range of lanes in bounds along the last axis."""
        low, high = constant(0), count
        for bound in self.form.bounds:
            if bound.position == self.last.name:
                extent, by = self.sizes.value(bound.extent), self.sizes.value(bound.stride)
                at = self.code.let(self._position(bound))
                low = greatest(low, quotient_up(greatest(0 - at, 0), by))
                high = least(high, quotient_up(greatest(extent - at, 0), by))
        return self.code.let(low), self.code.let(high)

    def _load_masks(self, masks: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Return the load masks: all false where another dimension is out of bounds."""
        in_bounds: ir.Value | None = None
        for bound in self.form.bounds:
            if bound.position != self.last.name:
                at = self.code.let(self._position(bound))
                inside = (at >= 0) & (at < self.sizes.value(bound.extent))
                in_bounds = inside if in_bounds is None else in_bounds & inside
        return masks if in_bounds is None else [self.code.let(mask & in_bounds) for mask in masks]

    def _position(self, bound: Bound) -> ir.Value:
        """Return the position of lane 0 along a dimension of x."""
        value = self.sizes.value
        at = value(bound.constant)
        if bound.position:
            at = at + self.positions[bound.position] * value(bound.stride)
        return at + self.taps[bound.tap] * value(bound.spread) if bound.tap else at

    def _masks(self, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        """Return the masks of loads: lanes that are needed and in bounds."""
        code, parts = self.code, self.stride if self.stride <= SHUFFLED_STRIDES else 1
        if parts > 1:
            high = select(high > 0, (high - 1) * self.stride + 1, 0)
            low = low * self.stride
        low, high = code.let(low), code.let(high)
        padded = any(bound.position == self.last.name for bound in self.form.bounds)
        masks = []
        for first in range(0, parts * self.lanes, self.lanes):
            after, before = (first_lanes(end - first, self.lanes) for end in (high, low))
            masks.append(code.let(after & ~before if padded else after))
        return masks

    # ---- loading -------------------------------------------------------------------------------

    def _load_positions(self, source: ir.Value) -> ir.Value:
        """Return a vector of positions that starts at an element of x."""
        code, vector = self.code, self.vector
        if self.stride > SHUFFLED_STRIDES:
            offsets = source + iota(self.lanes) * self.stride
            return code.let(ir.Gather(vector, "x", offsets, self.load_masks[0]))
        found, *parts = (
            code.let(ir.Load(vector, "x", source + number * self.lanes, mask))
            for number, mask in enumerate(self.load_masks)
        )
        for number, part in enumerate(parts, 1):
            found = shuffle(found, part, strided_lanes(number, self.stride, self.lanes))
        return code.let(found)


def tap_number(form: ConvolutionForm, taps: Sequence[ir.Value], sizes: SizeParameters) -> ir.Value:
    """Return the number of a tap in its window, by its indices."""
    inner = (product(tap.extent for tap in form.taps[n + 1 :]) for n in range(len(taps)))
    return index_sum(*(tap * sizes.value(each) for tap, each in zip(taps, inner)))


def weights_function(form: ConvolutionForm, sizes: SizeParameters, rows: int) -> ir.Function:
    """Return the function dst[tile, k, :rows] = w[row, k], in tiles of `rows` rows.

    It packs `channels` channels from `w_at` on. Rows after the last one stay uninitialised: their
    sums are never read.
    """
    code, value, channels = Writer(), sizes.value, variable("channels")
    with code.range(0, variable("rows")) as row:
        tile = code.let(quotient(row, rows))
        source = code.let(variable("w_at") + row * value(form.row_w))
        to = code.let(tile * (channels * value(form.window)) * rows + (row - tile * rows))
        with code.range(0, channels) as channel, ExitStack() as loops:
            taps = [loops.enter_context(code.range(0, value(tap.extent))) for tap in form.taps]
            steps = (each * value(tap.w) for each, tap in zip(taps, form.taps))
            at = index_sum(source, channel * value(form.channels.w), *steps)
            k = index_sum(channel * value(form.window), tap_number(form, taps, sizes))
            code.emit(ir.Store("dst", to + k * rows, ir.Load(ir.Type(form.dtype), "w", at)))
    pointers = (ir.Pointer(name, form.dtype) for name in ("w", "dst"))
    scalars = map(ir.Scalar, ("w_at", "rows", "channels", *sizes.names))
    return ir.Function("weights", (*pointers, *scalars), code.written)
