"""What the sliding template sees in a group: one reduction over windows, and what follows it.

    y[..., v] combine= body(x[..., v * stride + tap ...], ...),  then pointwise statements

Vectors run along v, the last axis of the result. Reads that step along v by a small constant are
windows; all others are the same for all lanes or left to `Elements`.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.dtypes import DType, float32, float64, int32, int64
from anydim.base.records import dataclass
from anydim.kernels.inference import dtype_of, free_axes
from anydim.kernels.product.epilogue import Output, epilogue_of
from anydim.kernels.product.places import inside_always
from anydim.lang.tree import Axis, Expr, Group, Index, Read, SizeTerm, Statement, TensorType
from anydim.lang.tree.affine import Affine, address, affine, reads, rewrite, row_major_strides
from anydim.lang.tree.bounds_checks import checked
from anydim.sizes import Box, Size, as_size

DTYPES = (float32, float64, int32, int64)
LARGEST_STRIDE = 4  # of lanes: what is stepped over is loaded too
UNROLLED_TAPS = 16


@dataclass(frozen=True)
class Limit:
    """A dimension that a read may leave: inside is 0 <= index < extent."""

    index: Affine
    extent: Size


@dataclass(frozen=True)
class Window:
    """A read along the lanes: its address, the elements between lanes, and what it may leave."""

    read: Read
    address: Affine
    stride: int
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class Sliding:
    """A group of this form.

    `bodies` are what is reduced for each of the unrolled taps, with the windows in it; `loops` the
    reduced axes that are loops. Outputs are expressions over `outer` and `lane`.
    """

    dtype: DType
    combine: str
    outer: tuple[Axis, ...]
    lane: Axis
    loops: tuple[Axis, ...]
    bodies: tuple[tuple[Expr, tuple[Window, ...]], ...]
    outputs: tuple[Output, ...]

    @property
    def own(self) -> Affine:
        """Where an element of the result lies."""
        axes = (*self.outer, self.lane)
        strides = row_major_strides(tuple(axis.extent for axis in axes))
        return Affine.of(as_size(0), {a.name: by for a, by in zip(axes, strides)})


def sliding_of(group: Group, box: Box) -> Sliding | None:
    """The group as a reduction over windows; None when it is not one."""
    sums = [s for s in group.statements if s.combine]
    if len(sums) != 1 or not sums[0].reduced or any(checked(s.body) for s in group.statements):
        return None
    statement = sums[0]
    inputs = {tensor.name: tensor.type for tensor in group.inputs}
    dtype = group.type_of(statement.target).dtype
    if dtype not in DTYPES or not _slides(statement):
        return None
    if any(read.tensor not in inputs for read in reads(statement.body)):
        return None
    axes = [axis for axis in statement.axes if axis.extent.constant != 1]
    if not axes or dtype_of(statement.body, inputs) != dtype:
        return None
    reduced = [axis for axis in statement.reduced if axis.extent.constant != 1]
    units = [a for a in (*statement.axes, *statement.reduced) if a.extent.constant == 1]
    body = _placed(statement.body, {axis.name: 0 for axis in units})
    outputs = epilogue_of(group, statement)
    if outputs is None:
        return None
    loops, taps = _unrolled(reduced)
    extents = {axis.name: axis.extent for axis in (*axes, *loops)}
    bodies = []
    for places in taps:
        part = _placed(body, places)
        windows = [_window(read, inputs, axes[-1], extents, box) for read in reads(part)]
        if any(window is None for window in windows):
            return None
        found = tuple(dict.fromkeys(w for w in windows if w is not None and w.stride))
        if not found:
            return None
        bodies.append((part, found))
    return Sliding(
        dtype, statement.combine, tuple(axes[:-1]), axes[-1], loops, tuple(bodies), outputs
    )


def _slides(statement: Statement) -> bool:
    """Whether some read combines an axis of the result with one that is reduced, in one index."""
    written = {axis.name for axis in statement.axes if axis.extent.constant != 1}
    reduced = {axis.name for axis in statement.reduced}
    return any(
        free_axes(index) & written and free_axes(index) & reduced
        for read in reads(statement.body)
        if not read.flat
        for index in read.indices
    )


def _unrolled(
    reduced: list[Axis],
) -> tuple[tuple[Axis, ...], tuple[Mapping[str, int], ...]]:
    """The reduced axes that stay loops, and the places of the others, one after another."""
    taps: list[dict[str, int]] = [{}]
    kept = list(reduced)
    while kept:
        extent = kept[-1].extent.constant
        if extent is None or extent * len(taps) > UNROLLED_TAPS:
            break
        name = kept.pop().name
        taps = [{**places, name: place} for place in range(extent) for places in taps]
    return tuple(kept), tuple(taps)


def _placed(expr: Expr, places: Mapping[str, int]) -> Expr:
    """The expression at given places of some axes."""
    if not places:
        return expr

    def change(part: Expr) -> Expr | None:
        if isinstance(part, Index) and part.name in places:
            return SizeTerm(as_size(places[part.name]))
        return None

    return rewrite(expr, change)


def _window(
    read: Read, inputs: Mapping[str, TensorType], lane: Axis, extents: Mapping[str, Size], box: Box
) -> Window | None:
    """A read as a window, of stride 0 when it is the same for all lanes; None when neither."""
    shape = inputs[read.tensor].shape
    if lane.name not in free_axes(read):
        return Window(read, Affine(as_size(0)), 0, ())
    form = address(read, shape)
    stride = None if form is None else form.stride(lane.name).constant
    if form is None or stride is None or not 1 <= stride <= LARGEST_STRIDE:
        return None
    if read.default is None:
        return Window(read, form, stride, ())
    if read.flat or lane.name in free_axes(read.default) or reads(read.default):
        return None
    limits = []
    for index, extent in zip(read.indices, shape):
        place = affine(index)
        if place is None:
            return None
        if inside_always(place, extent, extents, box):
            continue
        by = place.stride(lane.name).constant
        if by is None or by < 0:
            return None
        limits.append(Limit(place, extent))
    return Window(read, form, stride, tuple(limits))
