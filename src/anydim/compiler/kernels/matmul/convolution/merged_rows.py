"""Packs windows into panels by vectors that run across rows of the result.

Rows of 3, 7 or 17 positions fill vectors badly. Where the result is as wide as x and the stride is
one, adjacent output positions read adjacent elements of x across row ends, so that a vector is one
load; other rows of few positions are gathered, or permuted out of the vectors that contain them.
The masks of a tap are computed once for all channels; taps with no valid lane are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from operator import and_

from anydim.base.dtypes import float32, int32, int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, index_sum, quotient
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.ir import constant, greatest, least, select
from anydim.compiler.kernels.limits import Limits
from anydim.compiler.kernels.matmul.convolution.convolution_packing import ChannelOffset, WindowPack
from anydim.compiler.kernels.matmul.convolution.convolution_variables import PACK
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.lane_select import SELECT_VECTORS, select_lanes, within_vectors
from anydim.compiler.kernels.matmul.window_geometry import Bound, LayerSizes
from anydim.compiler.kernels.versions import taken_where
from anydim.sizes import Condition, Size, at_most, product

_MAX_POSITIONS = 1 << 24  # maximum positions along an axis and of the outer axes: they are int32
_STRIDE = 32
_FAR = 1 << 30


def is_contiguous(form: ConvolutionForm) -> bool:
    """Whether adjacent output positions read adjacent elements of x, across row ends too."""
    return all(
        step.x == product(later.extent for later in form.positions[number + 1 :])
        for number, step in enumerate(form.positions)
    )


def can_merge(form: ConvolutionForm) -> bool:
    """Whether there are rows to merge, with supported strides."""
    strides = [bound.stride.constant for bound in form.bounds if bound.position]
    return len(form.positions) > 1 and all(s is not None and 0 < s <= _STRIDE for s in strides)


class MergedPack(WindowPack):
    """Writes the function `windows_merged`, with the same effect as `windows`."""

    name = "windows_merged"

    def __init__(
        self, form: ConvolutionForm, sizes: SizeParameters, lanes: int, row: int, joined: bool,
        skips_taps: bool, elements: Size | None, version: str,
        limits: Limits,
    ) -> None:  # fmt: skip
        super().__init__(form, sizes, lanes, row, joined, skips_taps)
        self.gathered = not is_contiguous(form)
        self.elements = elements if self.gathered and form.dtype.bits == 32 else None
        self.whole = ir.Type(int32, lanes)
        self.limits = limits
        self.when = taken_where(version, "merged_rows", self._pays() & self._right(), self._right())

    def used(self) -> ir.Value:
        """Return the flag of their use; a parameter, for layers of any sizes."""
        assert isinstance(self.sizes, LayerSizes)
        found = self.sizes.role("merged_rows", self.when.flag).differs(0)
        if self.gathered and self.joined:
            found = found & (PACK.images <= 1)
        return found

    def _right(self) -> Condition:
        """Return the condition under which positions fit int32."""
        extents = (step.extent for step in self.form.positions[:-1])
        return reduce(and_, (at_most(extent, _MAX_POSITIONS - 1) for extent in extents))

    def _pays(self) -> Condition:
        """Return the condition under which merged rows are faster."""
        last, before = self.last.extent, self.form.positions[-2]
        least = self.limits.merged_panel_channels
        few = (self.form.channels.extent.constant or least) < least
        gathers = self.lanes // self.limits.merged_panel_gathers
        max_extent = gathers if self.gathered else self.lanes if few else _MAX_POSITIONS
        found = at_most(last, max_extent)
        if self.elements is not None and not few:
            few_positions = at_most(last, self.lanes // self.limits.merged_panel_rows)
            found |= at_most(before.x, SELECT_VECTORS * last) & few_positions
        return found

    def _images(self) -> None:
        """Pack vectors of positions across rows, of all images at once, the last vector first.

        A vector may write past the end of its image; the first vector of the next image overwrites
        it.
        """
        code, lanes = self.code, self.lanes
        end = code.let(PACK.column + PACK.width)
        last = code.let((PACK.width - 1) / lanes * lanes + PACK.column)
        with code.range(0, PACK.width, lanes) as before, ExitStack() as loops:
            at = code.let(last - before)
            self._lane_positions(at)
            self.valid_lanes = code.let(first_lanes(end - at, self.lanes))
            self._start(at)
            self.within: dict[Bound, ir.Value] = {}
            self._inside_of("")
            for tap in reversed(self.form.taps):
                loops.enter_context(self._over([tap]))
                self._inside_of(tap.name)
            self._channels()

    def _lane_positions(self, at: ir.Value) -> None:
        """Compute the first lane's index on each axis, and the `lane_offsets` of other lanes."""
        let = self.code.let
        further: ir.Value = ir.Iota(self.whole)
        self.lane_offsets: dict[str, ir.Value] = {}
        for step in reversed(self.form.positions[1:]):
            extent = self.sizes.value(step.extent)
            outer = let(quotient(at, extent))
            index = self.positions[step.name] = let(at - outer * extent)
            few, remaining = let(least(extent, self.lanes)), let(least(extent - index, self.lanes))
            ends = let(self._count_row_ends(further, few, remaining))
            self.lane_offsets[step.name] = let(further - self._scale_lanes(ends, extent))
            at, further = outer, ends
        first = self.form.positions[0].name
        self.positions[first], self.lane_offsets[first] = at, further

    def _count_row_ends(self, offsets: ir.Value, few: ir.Value, remaining: ir.Value) -> ir.Value:
        """Return the number of ends of rows of `few` positions before each lane.

        `remaining` positions of the first row remain. The numbers are small: quotients of float32,
        rounded down, are exact.
        """
        shifted = offsets + self._spread(few - remaining)
        return (shifted.as_(float32) / self._spread(few).as_(float32)).as_(int32)

    def _spread(self, value: ir.Value) -> ir.Value:
        return value.as_(int32).spread(self.lanes)

    def _scale_lanes(self, lanes: ir.Value, by: ir.Value) -> ir.Value:
        return lanes if by == constant(1) else lanes * self._spread(by)

    def _start(self, at: ir.Value) -> None:
        """Compute the offset in x of the first lane, and the distances of the other lanes."""
        strides = [(step.name, self.sizes.value(step.x)) for step in self.form.positions]
        if self.gathered:
            first, *more = (self.lane_offsets[name].as_(int64) * step for name, step in strides)
            self.offsets = self.code.let(sum(more, first))
            self.near = self.code.let(within_vectors(self.offsets, self.valid_lanes))
        steps = (self.positions[name] * step for name, step in strides)
        self.x = self.code.let(index_sum(PACK.x_at, *steps))
        self.to = self.code.let(at - PACK.column)
        if self.joined:  # the next image overwrites zeros after a vector
            short = PACK.width <= self.lanes
            self.step = self.code.let(select(short, constant(self.lanes), PACK.width))

    def _inside_of(self, tap: str) -> None:
        """Compute the lanes that are in bounds along the bounds of a tap."""
        value = self.sizes.value
        for bound in self.form.bounds:
            if bound.tap != tap:
                continue
            base = self.code.let(self._position(bound))
            low, high = (
                self._spread(greatest(least(end - base, _FAR), -_FAR))
                for end in (constant(0), value(bound.extent))
            )
            lane: ir.Value = ir.Const(self.whole, 0)
            if bound.position:
                lane = self._scale_lanes(self.lane_offsets[bound.position], value(bound.stride))
            self.within[bound] = self.code.let((lane >= low) & (lane < high))

    def _load_masks(self, masks: Sequence[ir.Value]) -> Sequence[ir.Value]:
        mask = self.valid_lanes
        for bound in self.form.bounds:
            mask = mask & self.within[bound]
        return [self.code.let(mask)]

    def _each_channel(self, source: ChannelOffset, target: ChannelOffset) -> None:
        if not self.form.bounds:
            self._channels_of_images(source, target)
            return
        with self.code.when(self.load_masks[0].any):
            self._channels_of_images(source, target)
        with self.code.otherwise(), self.code.range(0, PACK.channels) as channel:
            self._zeros(self.code.let(target(channel)))

    def _channels_of_images(self, source: ChannelOffset, target: ChannelOffset) -> None:
        with self._each_image() as (x, to):
            super()._each_channel(lambda c: source(c) + x, lambda c: target(c) + to)

    def _zeros(self, to: ir.Value) -> None:
        zero = ir.Const(self.vector, 0)
        if not self.joined:
            self.code.emit(ir.Store("dst", to, zero))
            return
        end = self.code.let(to + PACK.images * PACK.width)
        with self.code.range(to, end, self.step) as at:
            self.code.emit(ir.Store("dst", at, zero))

    def _load_positions(self, source: ir.Value) -> ir.Value:
        mask = self.load_masks[0]
        if not self.gathered:
            return self.code.let(ir.Load(self.vector, "x", source, mask))
        gathered = ir.Gather(self.vector, "x", self.offsets + source, mask)
        if self.elements is None:
            return self.code.let(gathered)
        last = self.sizes.value(self.elements) - SELECT_VECTORS * self.lanes
        fits = self.near & (source >= 0) & (source <= last)
        return select_lanes(self.code, gathered, source, self.offsets, fits)
