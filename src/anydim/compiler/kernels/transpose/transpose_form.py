"""Matches transposed copies: contiguous axes of source and target, and the copied element."""

from __future__ import annotations

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels.flatten import flatten
from anydim.compiler.kernels.inference import free_axes
from anydim.lang.tree import Axis, Expr, Group, Literal, Read, Statement
from anydim.lang.tree.affine import Affine, address, affine, reads, rewrite, row_major_strides
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Box, Size, Truth, as_size, maximum, minimum, prove

_BLOCK = 128  # contiguous bytes of the source; each element belongs to another target row
_PIECE = 1 << 14  # elements of a chunk where target rows are short
LANES = 4096  # lanes of a chunk where target rows are long


@dataclass(frozen=True)
class TransposeForm:
    """The target is contiguous along `lane`, the source along `row`.

    `source` and `target` are flat offsets. Lanes from `inside` on (over the outer axes) are 0.
    """

    outer: tuple[Axis, ...]
    row: Axis
    lane: Axis
    source: Affine
    target: Affine
    inside: Affine | None
    value: Expr
    read: Read

    @property
    def adjacent(self) -> tuple[Axis, ...]:
        """The axis just outside the lanes in the target, unless it is the row axis."""
        return tuple(a for a in self.outer if self.target.stride(a.name) == self.lane.extent)


def transpose_form_of(group: Group, box: Box) -> TransposeForm | None:
    """The form of a group that is one transposed copy; else None."""
    if len(group.statements) != 1 or len(group.outputs) != 1:
        return None
    (statement,) = group.statements
    if statement.combine or len({read.tensor for read in reads(statement.body)}) != 1:
        return None  # flattening keeps both
    group = flatten(group)
    (statement,) = group.statements
    read = _only_read(statement)
    if read is None:
        return None
    shape = group.type_of(read.tensor).shape
    source = address(read, shape)
    axes = [axis for axis in statement.axes if axis.extent.constant != 1]
    if source is None or len(axes) < 2:
        return None
    lane, rows = axes[-1], [axis for axis in axes[:-1] if source.stride(axis.name) == 1]
    if source.stride(lane.name).constant in (0, 1) or len(rows) != 1:
        return None
    inside = None
    if read.default is not None:
        if read.flat or not isinstance(read.default, Literal) or read.default.value != 0:
            return None
        limits = [
            limit
            for index, size in zip(read.indices, shape)
            if (limit := _limit(affine(index), size, axes, lane, rows[0], box)) is not None
        ]
        if len(limits) > 1 or "" in limits:
            return None
        inside = limits[0] if limits and isinstance(limits[0], Affine) else None
    strides = row_major_strides(statement.shape)
    target = {axis.name: stride for axis, stride in zip(statement.axes, strides) if axis in axes}
    outer = tuple(axis for axis in axes[:-1] if axis is not rows[0])
    flat_target = Affine.of(as_size(0), target)
    return TransposeForm(outer, rows[0], lane, source, flat_target, inside, statement.body, read)


def block_of(form: TransposeForm, dtype: DType) -> Size:
    """Contiguous source elements in a chunk, each of another target row."""
    block = _BLOCK // dtype.bytes
    return maximum(1, as_size(_PIECE) // maximum(1, block * form.lane.extent)) * block


def blocks_of(form: TransposeForm, dtype: DType) -> Size:
    """Chunks along the rows; the last one is up to half a block longer or shorter."""
    return _chunks(form.row.extent, block_of(form, dtype))


def parts_of(form: TransposeForm) -> Size:
    """Chunks along the lanes, of `LANES` each; the last one is up to half of that longer or
    shorter.

    Splits a few long target rows (as of channels-last images) over all threads. If the target has
    an axis just outside the lanes, chunks along it suffice.
    """
    return as_size(1) if form.adjacent else _chunks(form.lane.extent, as_size(LANES))


def grain_of(form: TransposeForm, dtype: DType) -> Size:
    """Chunks that are worth a thread: about 8000 elements."""
    elements = maximum(minimum(form.lane.extent, LANES) * block_of(form, dtype), 1)
    return maximum(as_size(8192) // elements, 1)


def _chunks(extent: Size, each: Size) -> Size:
    return maximum(1, (extent + each // 2) // each)


def _only_read(statement: Statement) -> Read | None:
    """The only read of a function of one element; None for other statements."""
    found = set(reads(statement.body))
    if statement.combine or len(found) != 1 or has_checks(statement.body):
        return None
    (read,) = found

    def without(part: Expr) -> Expr | None:
        return Literal(0) if part == read else None

    return None if free_axes(rewrite(statement.body, without)) else read


def _limit(
    index: Affine | None, size: Size, axes: list[Axis], lane: Axis, row: Axis, box: Box
) -> Affine | str | None:
    """The first lane out of bounds; None if always in bounds, '' if unknown."""
    assert index is not None
    extents = {axis.name: axis.extent for axis in axes}
    top = index.constant
    for name, coefficient in index.terms:
        if prove(coefficient, ">=", 0, box) is not Truth.PROVED:
            return ""
        top = top + coefficient * (extents[name] - 1)
    if prove(index.constant, ">=", 0, box) is not Truth.PROVED:
        return ""
    if prove(top, "<", size, box) is Truth.PROVED:
        return None
    if index.stride(lane.name) != 1 or index.stride(row.name) != 0:
        return ""
    rest = {name: -stride for name, stride in index.terms if name != lane.name}
    return Affine.of(size - index.constant, rest)
