"""Windows over small images whose channels lie apart: vectors along channels.

    for each block of channels: what all images read, as weights, transposed
        for each image: its planes, transposed
            for each place of the result: the taps that are inside, what follows, stores

An image of a few places fills no vector along its rows, and most of a window lies outside of it.
Taps outside are left out: what they would read changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.inference import free_axes
from anydim.kernels.ir import greatest, least, select
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.naming import named_kernel
from anydim.kernels.operands import Operands, assemble
from anydim.kernels.product.epilogue import PRODUCT, Output
from anydim.kernels.product.sharing import from_on
from anydim.kernels.sliding.block import changes_nothing, combined
from anydim.kernels.sliding.columns import narrowed
from anydim.kernels.sliding.form import UNROLLED_TAPS, Sliding, Window, sliding_of
from anydim.kernels.write.arithmetic import first_lanes, quotient, quotient_up
from anydim.kernels.write.elements import Context, Elements, SizeParameters
from anydim.kernels.write.folding import nothing_of
from anydim.kernels.write.loops import START, STOP, nested, over, parallel_loop, under
from anydim.kernels.write.squares import transposed
from anydim.kernels.write.writer import SCRATCH
from anydim.lang.tree import Axis, Expr, Group, Index, Read, TensorType
from anydim.lang.tree.affine import Affine, affine, reads, row_major_strides
from anydim.sizes import Box, Size, align_up, as_size, ceil_div, minimum, product

_LANE_BYTES = 8


@dataclass(frozen=True)
class Planes:
    """A reduction over windows of planes: `form` with all taps in loops.

    `outer` are the axes of images, `channels` that of vectors, `places` those of an image of the
    result. `windows` read planes of so many elements, `shared` is the same for all images.
    """

    form: Sliding
    outer: tuple[Axis, ...]
    channels: Axis
    places: tuple[Axis, ...]
    windows: tuple[tuple[Window, Size], ...]
    shared: tuple[Read, ...]
    lanes: int

    @property
    def body(self) -> Expr:
        return self.form.bodies[0][0]

    @property
    def pays(self) -> Size:
        """1 where images are so small that vectors along rows take longer, else 0.

        As for a single image, so that it has the same bits in every batch. Measured on a Zen 4: an
        image of two vectors, but for small windows that step by one over rows that fill a vector;
        what is transposed in and out is at most four vectors and a half.
        """
        lanes, width = self.lanes, self.places[-1].extent
        places = product(axis.extent for axis in self.places)
        moved = (from_on(self.most - plane - places, 0) for _, plane in self.windows)
        pays = from_on(lanes * 2 - places, 0) * product(moved)
        taps = product(axis.extent for axis in self.form.loops).constant or UNROLLED_TAPS + 1
        if taps > UNROLLED_TAPS or any(window.stride > 1 for window, _ in self.windows):
            return pays
        filled = from_on(width, lanes * 3 // 4) * from_on(places - width, 1)
        return pays * (1 - filled * from_on(places, lanes * 3 // 2 + 1))

    @property
    def most(self) -> int:
        """Elements of a plane that is read, and of one of the result."""
        return self.lanes * 9 // 2


def planes_of(group: Group, box: Box, lanes: int) -> Planes | None:
    """A group that reads planes of channels, of which there are enough for vectors; else None."""
    form = sliding_of(group, box, 1)
    if form is None:
        return None
    types = {tensor.name: tensor.type for tensor in group.inputs}
    body, windows = form.bodies[0]
    taps = {axis.name for axis in form.loops}
    for place in reversed(range(len(form.outer))):
        axis, outer = form.outer[place], form.outer[:place]
        places = (*form.outer[place + 1 :], form.lane)
        inner = taps | {each.name for each in places}
        found = [(w, _plane(w, axis, inner, types[w.read.tensor])) for w in windows]
        planes = tuple((window, plane) for window, plane in found if plane is not None)
        if len(planes) < len(windows) or 2 * (axis.extent.constant or 0) < lanes:
            continue
        if not all(_left_out(window, body, form, inner) for window in windows):
            return None
        own = {window.read for window in windows}
        shared = tuple(dict.fromkeys(read for read in reads(body) if read not in own))
        if not all(_steady(read, taps | {axis.name}, types[read.tensor]) for read in shared):
            return None
        made = Planes(form, outer, axis, places, planes, shared, lanes)
        return None if made.pays.constant == 0 else made
    return None


def _plane(window: Window, channels: Axis, inner: set[str], kind: TensorType) -> Size | None:
    """The elements of a plane that a window moves in; None where channels are not of planes."""
    read = window.read
    if read.flat or Index(channels.name) not in read.indices:
        return None
    dimension = read.indices.index(Index(channels.name))
    before = {name for index in read.indices[:dimension] for name in free_axes(index)}
    behind = {name for index in read.indices[dimension + 1 :] for name in free_axes(index)}
    if before & (inner | {channels.name}) or not behind <= inner:
        return None
    return product(kind.shape[dimension + 1 :])


def _left_out(window: Window, body: Expr, form: Sliding, inner: set[str]) -> bool:
    """Whether taps that are outside can be left out: one loop for each of its limits."""
    taps = {axis.name for axis in form.loops}
    return (not window.limits or changes_nothing(window.read, body, form)) and all(
        set(limit.index.indices) <= inner
        and len(taps & set(limit.index.indices)) == 1
        and all((by.constant or 0) > 0 for name, by in limit.index.terms if name in taps)
        for limit in window.limits
    )


def _steady(read: Read, axes: set[str], kind: TensorType) -> bool:
    """Whether a read is the same for all images and places, and never outside."""
    known = all(affine(index) is not None for index in read.indices)
    return known and read.default is None and free_axes(read) <= axes


class PlanesWriter:
    """Writes one kernel. `slots` are where scratch has what is transposed, in vectors."""

    def __init__(self, planes: Planes, machine: Machine, touched: Operands) -> None:
        self.planes, self.form, self.lanes = planes, planes.form, planes.lanes
        self.sizes, self.touched = SizeParameters(), touched
        types = {**touched.types, PRODUCT: TensorType(planes.form.dtype, ())}
        self.context = Context(types, self.sizes, machine, touched.buffers)
        self.value = self.sizes.value
        self.slots: dict[Read, Size] = {}  # of what is read, as `results` of what is written
        self.vectors = as_size(0)
        taps = product(axis.extent for axis in self.form.loops)
        for read in planes.shared:
            self.slots[read], self.vectors = self.vectors, self.vectors + taps
        for window, plane in planes.windows:
            self.slots[window.read] = self.vectors
            self.vectors = self.vectors + align_up(minimum(plane, planes.most), self.lanes)
        places = minimum(product(axis.extent for axis in planes.places), planes.most)
        self.results: dict[str, Size] = {}
        for output in self.form.outputs:
            self.results[output.tensor] = self.vectors
            self.vectors = self.vectors + align_up(places, self.lanes)

    def launch(self, other: Launch) -> Launch:
        """The launch that does the same as another one."""
        images = product(axis.extent for axis in self.planes.outer)
        body = self._body()
        kernel = assemble("sliding", self.touched.operands, self.sizes.names, body)
        main = replace(kernel.main, name="planes")  # the other one may lie beside it
        return replace(
            other,
            kernel=named_kernel("sliding", kernel.operands, kernel.sizes, (main,)),
            sizes=self.sizes.sizes,
            parallel=images * ceil_div(self.planes.channels.extent, self.lanes),
            scratch=self.vectors * (self.lanes * _LANE_BYTES),
            reason="a reduction over windows of small images, vectors along channels",
        )

    def _body(self) -> tuple[ir.Step, ...]:
        """Blocks of channels from start to stop, of each its images."""
        scope, channels, lanes = Elements(self.context), self.planes.channels, self.lanes
        axes = [(axis.name, self.value(axis.extent)) for axis in self.planes.outer]
        images = self.value(product(axis.extent for axis in self.planes.outer))
        first, last = quotient(START, images), quotient_up(STOP, images)
        with over(scope, last, first, letter="block") as (block, number):
            at, before = block.name(number * lanes), block.name(number * images)
            self.left = block.name(least(self.value(channels.extent) - at, lanes))
            self.mask = block.name(first_lanes(self.left, lanes))
            part = block.inner({channels.name: at}, lane=channels.name, lanes=lanes, mask=self.mask)
            for read in self.planes.shared:
                self._transpose_shared(part, read)
            low, high = greatest(START - before, 0), least(STOP - before, images)
            parallel_loop(part, axes, self._image, part.name(low), part.name(high))
            block.steps += part.steps
        return (ir.If(START < STOP, tuple(scope.steps)),)

    def _transpose_shared(self, part: Elements, read: Read) -> None:
        spans = [(axis.name, 0, self.value(axis.extent)) for axis in self.form.loops]
        with nested(part, spans, letter="k") as tap:
            place = self._slot(tap, read.tensor, self.slots[read], self._tap)
            tap.steps.append(ir.Store(SCRATCH, place, tap.value(read)))

    @property
    def _tap(self) -> Affine:
        """The number of a tap."""
        strides = row_major_strides(tuple(axis.extent for axis in self.form.loops))
        return Affine.of(as_size(0), {a.name: by for a, by in zip(self.form.loops, strides)})

    def _slot(self, scope: Elements, tensor: str, slot: Size, index: Affine) -> ir.Value:
        """Where scratch has a vector, in elements."""
        wide = _LANE_BYTES // self.context.types[tensor].dtype.bytes
        return scope.offset((Affine(slot * wide) + index).scaled(as_size(self.lanes)))

    def _image(self, image: Elements) -> None:
        """An image: its planes, then place by place, then its results."""
        for window, plane in self.planes.windows:
            self._transpose(image, window, plane)
        spans = {a.name: (ir.constant(0), self.value(a.extent)) for a in self.form.loops}
        self._narrow(image, spans, "")
        with ExitStack() as loops:
            scope = image
            for axis in self.planes.places:
                inside = over(scope, self.value(axis.extent), axis=axis.name, letter="place")
                scope, _ = loops.enter_context(inside)
                self._narrow(scope, spans, axis.name)
            register = self.context.fresh("a")
            start = nothing_of(self.form.combine, self.form.dtype, self.lanes)
            scope.steps.append(ir.Declare(register, start))
            found = ir.Get(ir.Type(self.form.dtype, self.lanes), register)
            with nested(scope, ((n, *span) for n, span in spans.items()), letter="k") as tap:
                self._know(tap)
                total = combined(self.form, tap, self.planes.body, found)
                tap.steps.append(ir.Assign(register, total))
            self._finish(scope, found)
        for output in self.form.outputs:
            self._transpose_back(image, output)

    def _transpose(self, image: Elements, window: Window, plane: Size) -> None:
        """A plane of each channel, by squares: the rest of the last one is zeros."""
        read, lanes = window.read, self.lanes
        vector = ir.Type(self.context.types[read.tensor].dtype, lanes)
        inner = {axis.name for axis in (*self.planes.places, *self.form.loops)}
        start = Affine(as_size(0), window.address.without(*inner).terms)
        first, extent = image.name(image.offset(start)), self.value(plane)
        slot = self._slot(image, read.tensor, self.slots[read], Affine(as_size(0)))
        one = ir.Load(vector, self.context.buffers[read.tensor], first, self.mask)
        single = extent.equals(1)  # then channels are neighbours
        with under(image, single) as alone:
            alone.steps.append(ir.Store(SCRATCH, slot, one))
        with over(image, select(single, 0, extent), step=lanes, letter="e") as (square, at):
            rows = []
            for place, inside, exists in self._channels(square, first + at, extent, extent - at):
                here = select(exists, place, 0)
                rows.append(ir.Load(vector, self.context.buffers[read.tensor], here, inside))
            for number, column in enumerate(transposed(vector, rows, square.name)):
                to = slot + (at + number) * lanes
                square.steps.append(ir.Store(SCRATCH, to, column))

    def _channels(
        self, square: Elements, first: ir.Value, apart: ir.Value, left: ir.Value
    ) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Of each channel of a vector where it has its part of a square, the lanes that are there,
        and whether there are any."""
        for channel in range(self.lanes):
            exists = square.name(self.left > channel)
            inside = first_lanes(select(exists, left, 0), self.lanes)
            yield first + apart * channel, square.name(inside), exists

    def _transpose_back(self, image: Elements, output: Output) -> None:
        """The results of an image, by squares."""
        lanes, names = self.lanes, {axis.name for axis in self.planes.places}
        buffer = self.context.buffers[output.tensor]
        vector = ir.Type(self.context.types[output.tensor].dtype, lanes)
        extent = self.value(product(axis.extent for axis in self.planes.places))
        first = image.name(image.offset(self.form.own.without(*names)))
        slot = self._slot(image, output.tensor, self.results[output.tensor], Affine(as_size(0)))
        single = extent.equals(1)
        with under(image, single) as alone:
            one = ir.Load(vector, SCRATCH, slot)
            alone.steps.append(ir.Store(buffer, first, one, self.mask))
        with over(image, select(single, 0, extent), step=lanes, letter="e") as (square, at):
            places = (slot + (at + number) * lanes for number in range(lanes))
            rows = [ir.Load(vector, SCRATCH, place) for place in places]
            columns = transposed(vector, rows, square.name)
            parts = self._channels(square, first + at, extent, extent - at)
            for column, (place, inside, exists) in zip(columns, parts):
                square.steps.append(ir.If(exists, (ir.Store(buffer, place, column, inside),)))

    def _narrow(
        self, scope: Elements, spans: dict[str, tuple[ir.Value, ir.Value]], axis: str
    ) -> None:
        """The taps that are inside of the limits of which an axis of places is the last one."""
        for limit in dict.fromkeys(x for window, _ in self.planes.windows for x in window.limits):
            names = [a.name for a in self.planes.places if a.name in limit.index.indices]
            if (names or [""])[-1] != axis:
                continue
            (tap,) = (a.name for a in self.form.loops if a.name in limit.index.indices)
            first = scope.name(scope.offset(limit.index.without(tap)))
            room, by = self.value(limit.extent) - first, self.value(limit.index.stride(tap))
            spans[tap] = narrowed(scope, *spans[tap], first, room, by)

    def _know(self, tap: Elements) -> None:
        """What a tap reads lies in scratch."""
        outer = {axis.name for axis in (*self.planes.outer, self.planes.channels)}
        places = dict.fromkeys(self.planes.shared, self._tap)
        places |= {w.read: w.address.without(*outer) for w, _ in self.planes.windows}
        for read, place in places.items():
            vector = ir.Type(self.context.types[read.tensor].dtype, self.lanes)
            load = ir.Load(vector, SCRATCH, self._slot(tap, read.tensor, self.slots[read], place))
            tap.know(read, tap.name(load))

    def _finish(self, place: Elements, found: ir.Value) -> None:
        """What follows the reduction at a place."""
        total = place.name(found)
        scope = place.inner(
            {}, answers=frozenset({PRODUCT}),
            local=lambda read: total if read.tensor == PRODUCT else None,
        )  # fmt: skip
        names = [axis.name for axis in self.planes.places]
        own = Affine.of(as_size(0), {name: self.form.own.stride(name) for name in names})
        for output in self.form.outputs:
            value = scope.value(output.value, self.context.types[output.tensor].dtype)
            to = self._slot(scope, output.tensor, self.results[output.tensor], own)
            scope.steps.append(ir.Store(SCRATCH, to, value))
        place.steps += scope.steps
