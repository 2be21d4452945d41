"""The forms of Winograd's templates: a 3 x 3 convolution, and whether the transform pays.

Tensors are channels-first (`ChannelsFirstForm`) or channels-last (`ChannelsLastForm`). A plain
convolution is faster for small images, and for rows of few windows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm, contraction_form_of
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm, convolution_form_of
from anydim.compiler.kernels.matmul.epilogue import COLUMN, ROW
from anydim.compiler.kernels.matmul.tile_epilogue import (
    TileEpilogue,
    tile_epilogue,
    tile_epilogue_of,
)
from anydim.compiler.kernels.matmul.window_geometry import Bound, WindowAxis
from anydim.compiler.kernels.matmul.winograd.winograd_transforms import (
    PRODUCTS,
    STEP,
    first_position,
    input_extent,
    windows_across,
)
from anydim.compiler.kernels.template import Task
from anydim.lang.tree import Group
from anydim.lang.tree.affine import Affine
from anydim.sizes import (
    NEVER,
    Condition,
    Size,
    align_up,
    as_size,
    at_least,
    ceil_div,
    maximum,
    product,
)

_MIN_CHANNELS = 16  # in and out: with fewer the transforms cost more than they save
_VECTOR, _PANEL = 16, 48  # windows or channels
_READ, _TRANSFORM, _PACK = 12, 9_000, 10  # costs in multiply-adds: a number, a vector, a window
_TRANSFORM_LAST, _COPY = 8_000, 10  # of a vector of a window, of a copied number
_KEPT, _FROM_MEMORY = ((1 << 19, 0), (1 << 21, 7), (1 << 22, 20)), 26  # see `_read`
_BLOCK, _LARGE_BLOCK = 32, 64  # windows of a block; with weights read from memory
_MANY_WEIGHTS = 1 << 22
_OWN_BIAS = {ROW: as_size(0), COLUMN: as_size(1)}  # strides of a bias in channels-last tensors


@dataclass(frozen=True)
class ChannelsFirstForm:
    """A channels-first convolution and its epilogue."""

    form: ConvolutionForm
    epilogue: TileEpilogue

    @property
    def pays(self) -> Condition:
        """Where it is faster than a plain convolution.

        Costs in multiply-adds: products of whole vectors; weights, read from memory for each panel
        of windows; both transforms, one row of a vector's windows at a time. Measured on a Xeon
        with AVX-512 (16 to 512 channels, 5 x 5 to 56 x 56, 3 x 100, 200 x 3): where the choice is
        wrong, it is at most 1.07 times slower.
        """
        form = self.form
        down, along = windows_across(form)
        channels, rows, windows = form.channels.extent, form.rows, down * along
        weights = channels * rows
        products = align_up(windows, _VECTOR) + _READ * ceil_div(windows, _PANEL)
        transforms = _TRANSFORM * down * ceil_div(along, _VECTOR) * (channels + rows)
        taps = 9 * align_up(form.columns, _VECTOR)
        plain = taps * weights * 9 // 10 + _PACK * taps * channels
        return at_least(plain, PRODUCTS * products * weights + transforms)


@dataclass(frozen=True)
class ChannelsLastForm:
    """A channels-last convolution: product, epilogue, output axes (images, rows, columns)."""

    form: ContractionForm
    epilogue: TileEpilogue
    positions: tuple[WindowAxis, ...]
    bounds: tuple[Bound, ...]

    @property
    def channels(self) -> Size:
        return self.form.b_parts[1][-1][0]

    @property
    def across(self) -> tuple[Size, Size]:
        """Windows down and along an image."""
        down, along = (ceil_div(axis.extent, STEP) for axis in self.positions[-2:])
        return down, along

    @property
    def windows(self) -> Size:
        down, along = self.across
        images = self.positions[0].extent if len(self.positions) == 3 else as_size(1)
        return images * down * along

    def first(self, axis: int) -> Size:
        """Return the position in x of the first window along rows (0) or columns (1)."""
        return first_position(self.bounds, self.positions[axis - 2])

    def extent(self, axis: int) -> Size:
        """Return the positions of x along rows (0) or columns (1)."""
        return input_extent(self.bounds, self.positions[axis - 2])

    @property
    def block(self) -> int:
        """Windows that share one pass over the weights."""
        weights = (PRODUCTS * self.channels * self.form.n.extent).constant or 0
        return _LARGE_BLOCK if weights > _MANY_WEIGHTS else _BLOCK

    @property
    def pays(self) -> Condition:
        """Where it is faster than a plain product of windows.

        Evaluated for a single image, so that an image has the same bits in every batch. Costs in
        multiply-adds: products, weights that exceed the caches, both transforms. Measured on a Xeon
        with AVX-512 (16 to 512 channels, 2 x 2 to 28 x 28): where the choice is wrong for one
        image, it is at most 1.18 times slower. Large weights count as read from memory, as in a
        network of such layers.
        """
        channels, columns, windows = self.channels, self.form.n.extent, product(self.across)
        positions = product(axis.extent for axis in self.positions[-2:])
        weights = channels * columns
        vectors = ceil_div(channels, _VECTOR) + ceil_div(columns, _VECTOR)
        transformed = PRODUCTS * weights
        blocks = ceil_div(windows, self.block)
        load_scalars = transformed * (maximum(windows, 4) + _read(transformed) * blocks)
        plain = 9 * positions * (weights * 9 // 10 + _COPY * channels)
        plain = plain + 9 * weights * _read(9 * weights)
        return at_least(plain, load_scalars + _TRANSFORM_LAST * windows * vectors)


def channels_first_form_of(task: Task) -> ChannelsFirstForm | None:
    """Return the group as a supported convolution of channels-first tensors, else None."""
    if not _may_be_3x3(task.group):
        return None
    form = convolution_form_of(task.group, task.box, task.constants)
    if form is None or form.w not in task.constants or form.dtype != float32:
        return None
    if len(form.positions) != 2 or [tap.extent.constant for tap in form.taps] != [3, 3]:
        return None
    if any(position.x != tap.x for position, tap in zip(form.positions, form.taps)):
        return None
    pairs = [(position.name, tap.name) for position, tap in zip(form.positions, form.taps)]
    if form.positions[1].x != 1 or not _plain(form.bounds, pairs):
        return None
    if min(form.channels.extent.constant or 0, form.rows.constant or 0) < _MIN_CHANNELS:
        return None
    last = tile_epilogue_of(form, task.group)
    found = None if last is None else ChannelsFirstForm(form, last)
    return None if found is None or found.pays == NEVER else found


def _may_be_3x3(group: Group) -> bool:
    """Whether a sum has two axes of 3; spares most groups the search for a form."""
    sums = ([axis.extent.constant for axis in each.reduced] for each in group.statements)
    return any(extents.count(3) >= 2 for extents in sums)


def _plain(bounds: Sequence[Bound], pairs: Collection[tuple[str, str]]) -> bool:
    """Whether each bound has a position and its own tap, one bound per position, strides of one."""
    steps = all(b.stride == 1 and b.spread == 1 and (b.position, b.tap) in pairs for b in bounds)
    return steps and len({b.position for b in bounds}) == len(bounds)


def channels_last_form_of(task: Task) -> ChannelsLastForm | None:
    """Return the group as a supported convolution of channels-last tensors, else None."""
    if not _may_be_3x3(task.group):
        return None
    form = contraction_form_of(task.group, task.constants, task.machine, task.box, starts=False)
    layout = None if form is None else form.windows
    if form is None or layout is None or form.dtype != float32 or form.loops:
        return None
    sums = [extent.constant for extent, _ in form.b_parts[1]]
    if sums[:2] != [3, 3] or len(sums) != 3 or len(layout.taps) != 1:
        return None
    if len(layout.positions) not in (2, 3):
        return None
    rows, columns = layout.positions[-2:]
    channels = form.b_parts[1][-1][0]
    if rows.x != layout.taps[0].x or columns.x != channels or layout.run != 3 * channels:
        return None
    tap = "" if layout.tap is None else layout.tap.name
    pairs = ((rows.name, layout.taps[0].name), (columns.name, tap))
    if not _plain(layout.bounds, pairs):
        return None
    if min(channels.constant or 0, form.n.extent.constant or 0) < _MIN_CHANNELS:
        return None
    own = Affine.of(as_size(0), {ROW: form.m.c, COLUMN: as_size(1)})
    last = tile_epilogue(form.outputs, form.dtype, task.group, own, _OWN_BIAS)
    found = None if last is None else ChannelsLastForm(form, last, layout.positions, layout.bounds)
    return None if found is None or found.pays == NEVER else found


def _read(weights: Size) -> int:
    """Return the cost of loading a weight, in multiply-adds."""
    return next((each for limit, each in _KEPT if (weights.constant or 0) <= limit), _FROM_MEMORY)
