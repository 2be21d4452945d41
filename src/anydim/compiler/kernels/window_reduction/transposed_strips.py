"""Narrow images transposed in strips: vectors along channels.

    for each block of channels: pack the operands shared by all images, such as weights, transposed
        for each image, a strip of its rows at a time: pack the rows it reads, transposed
            each column of the result, as for channels-last images (`channels_last.py`)
            the strip of the result, transposed back

Taps in columns out of bounds are skipped: they do not change the result. Rows out of bounds are
filled with padding in scratch, so that several rows of the result are computed at a time; where a
strip has too few rows, their taps are skipped too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from functools import reduce
from typing import Any

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient, quotient_up
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering, SizeParameters
from anydim.compiler.kernels.codegen.vector_loops import (
    START,
    STOP,
    for_loop,
    if_block,
    parallel_loop,
)
from anydim.compiler.kernels.codegen.writer import SCRATCH
from anydim.compiler.kernels.ir import constant, greatest, least, number
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output
from anydim.compiler.kernels.matmul.transposed import matrix_transpose_library
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.kernels.operands import Operands, assemble
from anydim.compiler.kernels.window_reduction.channel_vectors import (
    LARGEST,
    STRIP,
    ChannelPlanes,
    Source,
    walk_strip,
)
from anydim.compiler.kernels.window_reduction.channels_last import AcrossWriter, ChannelVector, Row
from anydim.compiler.kernels.window_reduction.window_form import Window, WindowForm
from anydim.lang.tree import Read, TensorType
from anydim.lang.tree.affine import Affine, address, row_major_strides, to_expr
from anydim.sizes import Size, as_size, ceil_div, product

_LANE_BYTES = 8
_POSITIONS = 4  # positions of a column whose windows share loads
_FIRST = "first row of the result"


class StripWriter(AcrossWriter):
    """Emits one kernel. `slots` maps tensors to their start in scratch, in vectors."""

    def __init__(self, planes: ChannelPlanes, machine: Machine, touched: Operands) -> None:
        self.planes, self.touched, self.sizes = planes, touched, SizeParameters()
        types = {**touched.types, PRODUCT: TensorType(planes.form.dtype, ())}
        context = Context(types, self.sizes, machine, touched.buffers)
        positions = _POSITIONS if machine.registers >= 32 else _POSITIONS // 2
        super().__init__(walk_strip(planes, planes.form), planes.lanes, positions, context, machine)
        self.slots: dict[str, Size] = {}
        self.scratch_vectors = as_size(0)
        held = {source.tensor: source.held for source in planes.sources}
        held |= {output.tensor: planes.width for output in planes.form.outputs}
        for tensor, elements in held.items():  # upper bounds, to keep the memory formulas short
            self.slots[tensor] = self.scratch_vectors
            self.scratch_vectors = self.scratch_vectors + (
                min(elements.constant or LARGEST, LARGEST) + STRIP
            )
        self.libraries: dict[DType, ir.Library] = {}
        self.form = self._from_scratch(self.form)
        self.flat = copy(self)  # variant for images of few rows
        if self.form.loops:
            self.flat.form = self._from_scratch(walk_strip(planes, planes.looped))
        else:
            flat = walk_strip(planes, planes.form, -1)
            self.flat.form, self.flat.walk = self._from_scratch(flat), planes.image_axes[-1]

    def _from_scratch(self, form: WindowForm) -> WindowForm:
        """A form whose windows read scratch."""
        bodies = tuple(
            (expr, tuple(replace(w, address=self._inside_scratch(w.read)) for w in windows))
            for expr, windows in form.bodies
        )
        return replace(form, bodies=bodies)

    # ---- layout of scratch -----------------------------------------------------------------------

    @property
    def held(self) -> tuple[Window, ...]:
        return self.still

    def source(self, window: Window) -> str:
        return SCRATCH

    def target(self, output: Output) -> tuple[str, Affine]:
        """The buffer and offset of a result in scratch, to be transposed back later."""
        axes = self.planes.image_axes
        strides = row_major_strides(tuple(axis.extent for axis in axes))
        own = Affine.of(as_size(0), {axis.name: by for axis, by in zip(axes, strides)})
        first = Affine.of(as_size(0), {_FIRST: self.planes.width})
        return SCRATCH, self._slot(output.tensor, own - first)

    def _inside_scratch(self, read: Read) -> Affine:
        """Offset in scratch of the vector of channels that a read loads."""
        found = address(read, self.context.types[read.tensor].shape)
        source = next(s for s in self.planes.sources if s.tensor == read.tensor)
        assert found is not None
        outer = (axis.name for axis in (*self.planes.outer, self.planes.channels))
        first = Affine.of(as_size(0), {source.low: source.width if source.by else as_size(0)})
        return self._slot(read.tensor, found.without(*outer) - first)

    def _slot(self, tensor: str, index: Affine) -> Affine:
        """Offset of a vector in scratch, in elements."""
        wide = _LANE_BYTES // self.context.types[tensor].dtype.bytes
        return (Affine(self.slots[tensor] * wide) + index).scale(as_size(self.lanes))

    # ---- the loops -------------------------------------------------------------------------------

    def launch(self, schedule: Any, grain: Size | int, estimates: tuple[Size, Size]) -> Launch:
        """The launch, with estimates of its operations and moved bytes."""
        name, body, libraries = "window_reduction", self.body(), self.libraries.values()
        kernel = assemble(name, self.touched.operands, self.sizes.names, body)
        main = replace(kernel.main, name="planes")  # both may be variants of one kernel
        return self.touched.launch(
            name, self.sizes, body, schedule,
            "a reduction over windows of narrow images, vectors along channels",
            parallel=self._each * ceil_div(self.planes.channels.extent, self.lanes),
            work=estimates, grain=grain, scratch=self.scratch_vectors * (self.lanes * _LANE_BYTES),
            kernel=named_kernel(name, kernel.operands, kernel.sizes, (main,), libraries),
        )  # fmt: skip

    @property
    def _each(self) -> Size:
        """Rows of the result per vector of channels, over all images."""
        return product(axis.extent for axis in (*self.planes.outer, self.planes.rows))

    def body(self) -> tuple[ir.Step, ...]:
        """Blocks of channels from start to stop, each with the rows of its images."""
        scope, channels, lanes = ScalarLowering(self.context), self.planes.channels, self.lanes
        each = self.value(self._each)
        first, last = quotient(START, each), quotient_up(STOP, each)
        with for_loop(scope, last, first, letter="block") as (block, number):
            at, before = block.name(number * lanes), block.name(number * each)
            self.remaining = block.name(least(self.value(channels.extent) - at, lanes))
            mask = block.name(first_lanes(self.remaining, lanes))
            part = block.inner({channels.name: at}, lane=channels.name, lanes=lanes, mask=mask)
            for source in self.planes.sources:
                if not source.by:
                    self._pack(part, source, constant(0), constant(0), self.value(source.plane))
            low, high = greatest(START - before, 0), least(STOP - before, each)
            self._images(part, part.name(low), part.name(high))
            block.steps += part.steps
        return (ir.If(START < STOP, tuple(scope.steps)),)

    def _images(self, part: ScalarLowering, low: ir.Value, high: ir.Value) -> None:
        """The rows from low to high of all images of a block, image by image."""
        outer, rows = self.planes.outer, self.value(self.planes.rows.extent)
        strides = row_major_strides(tuple(axis.extent for axis in (*outer, self.planes.rows)))
        number = Affine.of(as_size(0), {axis.name: by for axis, by in zip(outer, strides)})

        def image(scope: ScalarLowering) -> None:
            before = scope.scalar(to_expr(number))
            first, last = greatest(low - before, 0), least(high - before, rows)
            with for_loop(
                scope, scope.name(last), scope.name(first), self._strip, letter="strip"
            ) as (strip, row):
                self._rows(strip, row, strip.name(least(row + self._strip, last)))

        wide = (self.planes.width, *(source.width * source.by for source in self.planes.sources))
        most = greatest(reduce(greatest, map(self.value, wide)), 1)
        self._strip = part.name(greatest(quotient(constant(STRIP), most), 1))
        axes = [(axis.name, self.value(axis.extent)) for axis in outer]
        parallel_loop(part, axes, image, quotient(low, rows), quotient_up(high, rows))

    def _rows(self, scope: ScalarLowering, first: ir.Value, last: ir.Value) -> None:
        """One strip: pack its inputs, compute its columns, unpack its results."""
        indices = {_FIRST: first}
        for source in (source for source in self.planes.sources if source.by):
            begin = scope.name(first * source.by + self.value(source.first))
            end = scope.name((last - 1) * source.by + self.value(source.first + source.reach))
            indices[source.low] = begin
            self._strip_of(scope, source, begin, end)
        strip = scope.inner(indices)
        self._columns(strip, first, last)
        scope.steps += strip.steps
        width = self.value(self.planes.width)
        for output in self.form.outputs:
            self._unpack(scope, output, scope.name((last - first) * width), first * width)

    def _strip_of(
        self, scope: ScalarLowering, source: Source, begin: ir.Value, end: ir.Value
    ) -> None:
        """Pack rows begin to end of a source; rows out of bounds are filled with the default."""
        width = self.value(source.width)
        low, high = begin, end
        if source.outside is not None:
            kind = ir.Type(self.context.types[source.tensor].dtype, self.lanes)
            low = scope.name(least(greatest(begin, 0), end))
            high = scope.name(least(greatest(low, self.value(source.extent)), end))
            for start, stop in ((begin, low), (high, end)):
                one, other = scope.name((start - begin) * width), scope.name((stop - begin) * width)
                with for_loop(scope, other, one, letter="e") as (each, at):
                    offset = each.offset(self._slot(source.tensor, Affine(as_size(0))))
                    fill = number(kind.dtype, source.outside.value, self.lanes)
                    each.steps.append(ir.Store(SCRATCH, offset + at * self.lanes, fill))
        inside = scope.name((low - begin) * width), scope.name((high - low) * width)
        self._pack(scope, source, low * width, *inside)

    def _columns(self, strip: ScalarLowering, first: ir.Value, last: ir.Value) -> None:
        """Walk down each column, or along each row where rows and taps are few."""
        own = first, last
        if self.walk != self.planes.rows:
            self._walk(strip, self, own, Row.emit)
            return
        few = self.value(self.walk.extent) < self.positions
        with if_block(strip, few) as scope:
            self._walk(scope, self.flat, own, Row.emit_checked if self.form.loops else Row.emit)
        with if_block(strip, ~few) as scope:
            self._walk(scope, self, own, Row.emit_padded)

    def _walk(
        self, strip: ScalarLowering, writer: StripWriter, own: tuple[ir.Value, ir.Value],
        emit: Callable[[Row, ChannelVector], None],
    ) -> None:  # fmt: skip
        """All positions of a strip; `own` are its rows."""
        rows = self.planes.rows
        with ExitStack() as loops:
            scope = strip
            for axis in writer.form.outer[:-1]:
                ends = own if axis == rows else (constant(0), self.value(axis.extent))
                inside = for_loop(scope, ends[1], ends[0], axis=axis.name, letter="place")
                scope, _ = loops.enter_context(inside)
            row = Row(writer, scope, own, own if writer.walk == rows else None)
            emit(row, ChannelVector(scope, constant(0), None))

    # ---- packing ---------------------------------------------------------------------------------

    def _pack(
        self, scope: ScalarLowering, source: Source, at: ir.Value, to: ir.Value, count: ir.Value
    ) -> None:
        """Pack `count` elements of the planes of a source, from element `at`, to vector `to` of
        scratch."""
        dtype = self.context.types[source.tensor].dtype
        plane = self.value(source.plane)
        first = scope.offset(source.start) + scope.indices[self.planes.channels.name] * plane + at
        scratch = self._scratch(source.tensor, to * (self.lanes * dtype.bytes))
        image = ir.Address(self.touched.buffers[source.tensor], first)
        self._transpose(
            scope, dtype, image, scratch, plane, constant(self.lanes), self.remaining, count
        )

    def _unpack(self, scope: ScalarLowering, output: Output, count: ir.Value, at: ir.Value) -> None:
        """Unpack `count` elements into the planes of the result, from element `at` on."""
        plane = self.value(product(axis.extent for axis in self.planes.image_axes))
        moving = (axis.name for axis in (self.planes.channels, *self.planes.image_axes))
        start = scope.offset(self.planes.form.own.without(*moving))
        first = start + scope.indices[self.planes.channels.name] * plane + at
        scratch = self._scratch(output.tensor, constant(0))
        result = ir.Address(self.touched.buffers[output.tensor], first)
        dtype = self.context.types[output.tensor].dtype
        self._transpose(
            scope, dtype, scratch, result, constant(self.lanes), plane, count, self.remaining
        )

    def _scratch(self, tensor: str, offset: ir.Value) -> ir.Address:
        """The address `offset` bytes after the start of a tensor in scratch."""
        start = self.value(self.slots[tensor] * (self.lanes * _LANE_BYTES))
        return ir.Address(SCRATCH, start + offset)

    def _transpose(self, scope: ScalarLowering, dtype: DType, *arguments: ir.Value) -> None:
        library = self.libraries.setdefault(dtype, matrix_transpose_library(self.lanes, dtype))
        scope.steps.append(ir.Call(library.name, arguments))
