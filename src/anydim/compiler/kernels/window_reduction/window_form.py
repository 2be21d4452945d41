"""Matches reductions over windows with an epilogue.

    y[..., v] combine= body(x[..., v * stride + tap ...], ...),  then pointwise statements

Vectors run along v, the last axis of the result. Reads that move along v by a small constant stride
are windows; all others are uniform over the lanes, or lowered by `ScalarLowering`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

from anydim.base.dtypes import DType, float32, float64, int32, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.kernels.matmul.epilogue import Output, epilogue_of
from anydim.compiler.kernels.matmul.window_geometry import inside_always
from anydim.lang.tree import Axis, Expr, Group, Read, SizeTerm, Statement, TensorType
from anydim.lang.tree.affine import Affine, address, affine, reads, row_major_strides, substitute
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Box, Size, as_size

DTYPES = (float32, float64, int32, int64)
LARGEST_STRIDE = 4  # of lanes: skipped elements are loaded too
UNROLLED_TAPS = 16
# Unrolling 49 gains nothing.
UNROLLED_BELOW = 25  # taps unrolled for vectors in adjacent rows, which share loads


@dataclass(frozen=True)
class Limit:
    """A dimension in which a read may be out of bounds: in bounds is 0 <= index < extent."""

    index: Affine
    extent: Size

    def shift(self, axis: str, by: int) -> Limit:
        """The limit `by` indices further along an axis."""
        return Limit(_shift_affine(self.index, axis, by), self.extent) if by else self


@dataclass(frozen=True)
class Window:
    """A read along the lanes: its address, its stride between lanes, and its limits.

    Only windows of rows past the end of the result exceed the limits `beyond`.
    """

    read: Read
    address: Affine
    stride: int
    limits: tuple[Limit, ...]
    beyond: tuple[Limit, ...] = ()

    def shift(self, axis: str, by: int) -> Window:
        """The window of the position `by` further along an axis."""
        if not by:
            return self
        limits, beyond = (
            tuple(limit.shift(axis, by) for limit in found) for found in (self.limits, self.beyond)
        )
        return Window(self.read, _shift_affine(self.address, axis, by), self.stride, limits, beyond)


def _shift_affine(form: Affine, axis: str, by: int) -> Affine:
    return Affine(form.constant + form.stride(axis) * by, form.terms)


@dataclass(frozen=True)
class WindowForm:
    """A reduction over windows, with its taps unrolled as far as wanted.

    `bodies` are the reduced expressions of the unrolled taps, with their windows; `loops` the
    reduced axes that remain loops. Outputs are expressions over `outer` and `lane`. If windows also
    move along the rows, those of adjacent rows `share` their loads.
    """

    dtype: DType
    combine: str
    outer: tuple[Axis, ...]
    lane: Axis
    loops: tuple[Axis, ...]
    bodies: tuple[tuple[Expr, tuple[Window, ...]], ...]
    outputs: tuple[Output, ...]
    share: bool = False

    @property
    def own(self) -> Affine:
        """The offset of an element of the result."""
        axes = (*self.outer, self.lane)
        strides = row_major_strides(tuple(axis.extent for axis in axes))
        return Affine.of(as_size(0), {a.name: by for a, by in zip(axes, strides)})


def window_form_of(
    group: Group, box: Box, unrolled: int = UNROLLED_TAPS, below: bool = True
) -> WindowForm | None:
    """The group as a reduction over windows, with up to `unrolled` taps unrolled; None if it is not
    one.

    With `below`, taps along rows are unrolled before taps within a row.
    """
    sums = [s for s in group.statements if s.combine]
    if len(sums) != 1 or not sums[0].reduced or any(has_checks(s.body) for s in group.statements):
        return None
    statement = sums[0]
    inputs = {tensor.name: tensor.type for tensor in group.inputs}
    read = {each.tensor for each in reads(statement.body)}
    if not _slides(statement) or not read <= inputs.keys():
        return None
    outputs = epilogue_of(group, statement)
    if outputs is None:
        return None
    types = tuple((name, inputs[name]) for name in sorted(read))
    dtype = group.type_of(statement.target).dtype
    found = _reduction(statement, types, dtype, box, unrolled, below)
    return None if found is None else replace(found, outputs=outputs)


@lru_cache(maxsize=512)
def _reduction(
    statement: Statement, types: tuple[tuple[str, TensorType], ...], dtype: DType, box: Box,
    unrolled: int, below: bool,
) -> WindowForm | None:  # fmt: skip
    """The form without outputs, of a statement that reads tensors of these types.

    Fusion matches a reduction with one epilogue after the other.
    """
    inputs = dict(types)
    axes = [axis for axis in statement.axes if axis.extent.constant != 1]
    if dtype not in DTYPES or not axes or dtype_of(statement.body, inputs) != dtype:
        return None
    reduced = [axis for axis in statement.reduced if axis.extent.constant != 1]
    units = [a for a in (*statement.axes, *statement.reduced) if a.extent.constant == 1]
    body = _at_indices(statement.body, {axis.name: 0 for axis in units})
    rows = axes[-2].name if len(axes) > 1 else ""
    overlapping = _along(statement, rows) & {axis.name for axis in reduced}
    loops, taps = _unroll_taps(reduced, overlapping if below else set(), unrolled)
    extents = {axis.name: axis.extent for axis in (*axes, *loops)}
    bodies = []
    for indices in taps:
        part = _at_indices(body, indices)
        windows = [_window(read, inputs, axes[-1], rows, extents, box) for read in reads(part)]
        if any(window is None for window in windows):
            return None
        found = tuple(dict.fromkeys(w for w in windows if w is not None and w.stride))
        if not found:
            return None
        bodies.append((part, found))
    share = bool(rows) and all(
        _steady(window, rows) and _by_windows(body, windows, rows)
        for body, windows in bodies
        for window in windows
    )
    lane, combine = axes[-1], statement.combine
    return WindowForm(dtype, combine, tuple(axes[:-1]), lane, loops, tuple(bodies), (), share)


def _by_windows(body: Expr, windows: tuple[Window, ...], rows: str) -> bool:
    """Whether the reduced expression depends on rows only through windows."""
    known = {window.read for window in windows}
    return not any(rows in free_axes(read) for read in reads(body) if read not in known)


def _along(statement: Statement, axis: str) -> set[str]:
    """The axes that share an index expression with an axis."""
    found = [free_axes(i) for read in reads(statement.body) if not read.flat for i in read.indices]
    return {name for names in found if axis in names for name in names}


def _steady(window: Window, rows: str) -> bool:
    """Whether limits are known for all rows: strides along rows are constant and nonnegative."""
    strides = [limit.index.stride(rows).constant for limit in (*window.limits, *window.beyond)]
    return not window.read.flat and all(by is not None and by >= 0 for by in strides)


def _slides(statement: Statement) -> bool:
    """Whether an index of a read combines an axis of the result with a reduced one."""
    written = {axis.name for axis in statement.axes if axis.extent.constant != 1}
    reduced = {axis.name for axis in statement.reduced}
    return any(
        free_axes(index) & written and free_axes(index) & reduced
        for read in reads(statement.body)
        if not read.flat
        for index in read.indices
    )


def _unroll_taps(
    reduced: list[Axis], overlapping: set[str], most: int
) -> tuple[tuple[Axis, ...], tuple[Mapping[str, int], ...]]:
    """The reduced axes that remain loops, and the indices of the unrolled ones in program order.

    Axes along which windows of adjacent rows overlap are unrolled first.
    """
    extents: dict[str, int] = {}
    last_first = {axis.name: -position for position, axis in enumerate(reduced)}
    for axis in sorted(reduced, key=lambda a: (a.name not in overlapping, last_first[a.name])):
        extent = axis.extent.constant
        if extent is None or extent * prod(extents.values()) > most:
            break
        extents[axis.name] = extent
    names = [axis.name for axis in reduced if axis.name in extents]
    indices = product(*(range(extents[name]) for name in names))
    kept = tuple(axis for axis in reduced if axis.name not in extents)
    return kept, tuple(dict(zip(names, each)) for each in indices)


def _at_indices(expr: Expr, indices: Mapping[str, int]) -> Expr:
    """The expression at given indices of some axes."""
    return substitute(expr, {name: SizeTerm(as_size(index)) for name, index in indices.items()})


def _window(
    read: Read, inputs: Mapping[str, TensorType], lane: Axis, rows: str,
    extents: Mapping[str, Size], box: Box,
) -> Window | None:  # fmt: skip
    """A read as a window, of stride 0 when uniform over the lanes; None when it is neither."""
    shape = inputs[read.tensor].shape
    if lane.name not in free_axes(read):
        return Window(read, Affine(as_size(0)), 0, ())
    form = address(read, shape)
    stride = None if form is None else form.stride(lane.name).constant
    if form is None or stride is None or not 1 <= stride <= LARGEST_STRIDE:
        return None
    if read.flat:
        return Window(read, form, stride, ()) if read.default is None else None
    default = read.default
    if default is not None and (lane.name in free_axes(default) or reads(default)):
        return None
    limits, beyond = [], []
    for index, extent in zip(read.indices, shape):
        form_index = affine(index)
        if form_index is None:
            return None
        if read.default is None or inside_always(form_index, extent, extents, box):
            if form_index.stride(rows).constant != 0:
                beyond.append(Limit(form_index, extent))
            continue
        by = form_index.stride(lane.name).constant
        if by is None or by < 0:
            return None
        limits.append(Limit(form_index, extent))
    return Window(read, form, stride, tuple(limits), tuple(beyond))
