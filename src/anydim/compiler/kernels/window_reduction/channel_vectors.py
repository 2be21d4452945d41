"""Windows over narrow channels-first images, vectorized along channels.

A narrow image does not fill a vector along its rows, and much of a window is out of bounds.
`transposed_strips.py` transposes its planes, a strip of rows at a time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import and_

from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.window_reduction.channels_last import can_skip_taps
from anydim.compiler.kernels.window_reduction.window_form import Window, WindowForm, window_form_of
from anydim.lang.tree import Axis, Expr, Group, Index, Literal, Read, TensorType
from anydim.lang.tree.affine import Affine, address, affine, reads
from anydim.sizes import NEVER, Box, Condition, Size, as_size, at_least, at_most, ceil_div, product

FLAT = 2  # rows of an image whose windows share few loads
STRIP = 192  # elements of a plane in the rows of a strip
LARGEST = 512  # largest number of plane elements read for one row of the result, and of a row
_UNROLLED = 9  # taps
_FEW = 9  # taps


@dataclass(frozen=True)
class Source:
    """Channel planes to transpose: `tensor` from offset `start`, `plane` elements per channel, of
    `bytes` bytes each.

    A row of the result reads `reach` rows of a plane, starting at `first` and moving `by` rows per
    result row; a row has `width` elements. Reads of rows out of bounds yield `outside`. If `by` is
    0, every result reads the whole plane.
    """

    tensor: str
    bytes: int
    start: Affine
    plane: Size
    by: int = 0
    first: Size = as_size(0)
    reach: Size = as_size(1)
    extent: Size = as_size(1)
    width: Size = as_size(1)
    outside: Literal | None = None

    @property
    def held(self) -> Size:
        """Elements of a plane that one row of the result needs."""
        return self.reach * self.width if self.by else self.plane

    @property
    def low(self) -> str:
        """The name of the first row in scratch."""
        return f"first row of {self.tensor}"


@dataclass(frozen=True)
class ChannelPlanes:
    """A reduction over windows of planes: some taps of `form` are unrolled, none of `looped`.

    `outer` are the axes of images, `channels` the vectorized axis, `image_axes` the axes of a
    result image, the first of which is split into strips.
    """

    form: WindowForm
    looped: WindowForm
    outer: tuple[Axis, ...]
    channels: Axis
    image_axes: tuple[Axis, ...]
    sources: tuple[Source, ...]
    lanes: int

    @property
    def rows(self) -> Axis:
        return self.image_axes[0]

    @property
    def width(self) -> Size:
        """Positions in a row of the result."""
        return product(axis.extent for axis in self.image_axes[1:])

    @property
    def pays(self) -> Condition:
        """Where images are so narrow that vectors along rows take longer.

        Decided for a single image, so that results have the same bits in every batch.
        """
        many = at_least(2 * self.channels.extent, self.lanes)
        return (self._few | self._narrow) & many & self.fits

    @property
    def fits(self) -> Condition:
        """Where rows fit the scratch of a thread."""
        held = (self.width, *(source.held for source in self.sources))
        return reduce(and_, (at_most(each, LARGEST) for each in held))

    @property
    def _few(self) -> Condition:
        """Where an image has few positions: up to four vectors if rows fill at most half a
        vector, else up to two, except for one or two rows that fill their vectors, or small windows
        of stride 1."""
        positions, lanes = self.rows.extent * self.width, self.lanes
        width = self.image_axes[-1].extent
        short = at_most(positions, 4 * lanes) & at_most(width, lanes // 2)
        wide = at_most(positions, 2 * lanes)
        if not self._steps and (self._taps or _FEW) <= _FEW:
            filled = at_least(width, 3 * lanes // 4) & at_least(positions - width, 1)
            wide = wide & ~(filled & at_least(positions, 3 * lanes // 2 + 1))
        least = (7 if self._steps else 6) * lanes // 8
        full = at_least(width, least) & at_least(4 * width, 3 * lanes * ceil_div(width, lanes))
        if not self._steps_over_bytes:
            wide = wide & ~(full & at_most(self.rows.extent, 1 if self._steps else FLAT))
        return short | wide

    @property
    def _steps_over_bytes(self) -> bool:
        """Whether windows are strided over bytes, for which no processor has a gather."""
        return self._steps and any(source.by and source.bytes == 1 for source in self.sources)

    @property
    def _steps(self) -> bool:
        """Whether the window stride along a row is above 1."""
        return any(window.stride > 1 for _, windows in self.form.bodies for window in windows)

    @property
    def _taps(self) -> int | None:
        """The number of taps of a window, where known."""
        loops = product(axis.extent for axis in self.form.loops)
        return (loops * len(self.form.bodies)).constant

    @property
    def _narrow(self) -> Condition:
        """Where rows of the result leave many lanes unused, or the window stride skips many
        elements.

        Measured on a Zen 4: vectors along rows lose from half a vector on for windows of up to 9
        taps, from 5 of 8 lanes on for larger ones and those that write padding. Few taps with
        stride 1 pay where rows would be gathered alone; otherwise a quarter of the lanes may be
        unused. Strided windows over bytes, for which no processor has a gather, lose along rows
        wherever a quarter of the lanes is unused.
        """
        width, lanes, channels = self.image_axes[-1].extent, self.lanes, self.channels.extent
        windows = [window for _, found in self.form.bodies for window in found]
        large = (self._taps or _FEW + 1) > _FEW
        if large or (self.form.combine != "add" and any(window.limits for window in windows)):
            narrow = at_least(5 * lanes * ceil_div(width, lanes), 8 * width)
        else:
            narrow = at_most(width, lanes // 2)
        whole = lanes * ceil_div(channels, lanes)
        if self._steps:
            partly = at_least(3 * lanes * ceil_div(width, lanes), 4 * width)
            partly = partly & at_least(8 * channels, 7 * whole)
            return narrow | partly if self._steps_over_bytes else narrow
        gathered = any(s.by and s.width * s.by != self.width for s in self.sources)
        alone = at_most(width, lanes // 4) if gathered else NEVER
        filled = at_least(4 * channels, 3 * whole)
        return alone | narrow & filled if (self._taps or _FEW) >= _FEW else alone


def planes_of(group: Group, box: Box, lanes: int) -> ChannelPlanes | None:
    """A group that reads channel planes, with enough channels for vectors; else None."""
    loops, form = window_form_of(group, box, 1), window_form_of(group, box, _UNROLLED)
    if loops is None or form is None or not loops.bodies:  # windows of extent 0
        return None
    types = {tensor.name: tensor.type for tensor in group.inputs}
    body, _ = loops.bodies[0]
    for position in reversed(range(len(form.outer))):
        axis = form.outer[position]
        known = axis.extent.constant or (lanes if position < len(form.outer) - 1 else 0)
        if 2 * known < lanes:  # a last axis of unknown extent is more likely spatial
            continue
        made = ChannelPlanes(
            form,
            loops,
            form.outer[:position],
            axis,
            (*form.outer[position + 1 :], form.lane),
            (),
            lanes,
        )
        moving = {each.name for each in (axis, *made.image_axes, *loops.loops)}
        own = [read for read in reads(body) if free_axes(read) & moving]
        found = [_source(read, made, loops, types[read.tensor]) for read in own]
        sources = tuple(dict.fromkeys(source for source in found if source is not None))
        if len({source.tensor for source in sources}) < len(sources) or None in found:
            continue
        made = replace(made, sources=sources)
        return made if made.pays != NEVER and can_skip_taps(walk_strip(made, form)) else None
    return None


def _source(
    read: Read, planes: ChannelPlanes, loops: WindowForm, kind: TensorType
) -> Source | None:
    """The planes that a read walks over; None if its channels are not planes."""
    channel = Index(planes.channels.name)
    form = address(read, kind.shape)
    if read.flat or channel not in read.indices or form is None:
        return None
    dimension = read.indices.index(channel)
    before = {name for index in read.indices[:dimension] for name in free_axes(index)}
    behind = [free_axes(index) for index in read.indices[dimension + 1 :]]
    taps = {axis.name for axis in loops.loops}
    spatial = {axis.name for axis in planes.image_axes}
    if before - {axis.name for axis in planes.outer} or not set().union(*behind) <= taps | spatial:
        return None
    start = Affine(as_size(0), form.without(*taps, *spatial, channel.name).terms)
    source = Source(read.tensor, kind.dtype.bytes, start, product(kind.shape[dimension + 1 :]))
    if not spatial & set().union(*behind):
        return source if read.default is None and not before else None
    return _in_strips(source, read, dimension + 1, planes, loops, kind)


def _in_strips(
    source: Source, read: Read, dimension: int, planes: ChannelPlanes, loops: WindowForm,
    kind: TensorType,
) -> Source | None:  # fmt: skip
    """A source of which each result row reads some rows; None where those are unknown."""
    rows, spans = planes.rows.name, {axis.name: axis.extent - 1 for axis in loops.loops}
    while kind.shape[dimension].constant == 1 and rows not in free_axes(read.indices[dimension]):
        dimension += 1
    index, others = affine(read.indices[dimension]), read.indices[dimension + 1 :]
    if index is None or any(rows in free_axes(other) for other in others):
        return None
    by, steps = index.stride(rows).constant or 0, [(spans.get(n), c) for n, c in index.terms]
    if by < 1 or not set(index.indices) <= {rows, *spans}:
        return None
    if any((step.constant or 0) < 1 for _, step in steps):
        return None
    reach = sum((span * step for span, step in steps if span is not None), as_size(1))
    width = product(kind.shape[dimension + 1 :])
    outside = read.default if isinstance(read.default, Literal) else None
    if read.default is not None and outside is None:
        return None
    return replace(
        source, by=by, first=index.constant, reach=reach, extent=kind.shape[dimension],
        width=width, outside=outside,
    )  # fmt: skip


def walk_strip(planes: ChannelPlanes, form: WindowForm, along: int = -2) -> WindowForm:
    """The form of a strip, channels last: windows walk along an axis, down a column by default.

    Taps that share their place off this axis are adjacent, as they are in bounds under the same
    conditions. So the order of a sum does not depend on which conditions are known to hold.
    """
    columns = [*planes.image_axes]
    walk = columns.pop(max(along, -len(columns)))
    read_there = {source.tensor for source in planes.sources}
    by_place: dict[object, list[tuple[Expr, tuple[Window, ...]]]] = {}
    for expr, windows in form.bodies:
        limits = {window.read: window.limits for window in windows}
        found = [read for read in reads(expr) if read.tensor in read_there]
        made = tuple(Window(r, Affine(as_size(0)), 1, limits.get(r, ())) for r in found)
        moving = [read for read in found if walk.name in free_axes(read)]
        place = tuple(i for read in moving for i in read.indices if walk.name not in free_axes(i))
        by_place.setdefault(place, []).append((expr, made))
    bodies = tuple(body for run in by_place.values() for body in run)
    return replace(form, outer=(*columns, walk), lane=planes.channels, bodies=bodies)
