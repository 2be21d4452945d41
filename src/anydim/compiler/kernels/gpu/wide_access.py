"""Adjacent elements of a tensor, loaded or stored by accesses of up to 16 bytes.

A work-item holds `lanes` adjacent elements in a small array, which its target keeps in registers.
Whether the elements of a tensor are aligned depends on its address and strides at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from anydim.base.dtypes import boolean
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_indices import Work
from anydim.compiler.kernels.ir import constant
from anydim.lang.tree import Axis, Read, Tensor
from anydim.lang.tree.affine import Affine, address
from anydim.sizes import Size

_BYTES = 16  # of one access
_MAX_LANES = 8


@dataclass(frozen=True)
class Access:
    """The elements of a tensor along an axis, by their offset, which counts that axis with 1."""

    tensor: str
    form: Affine


def lanes_for(tensors: Iterable[Tensor]) -> int:
    """Elements that a work-item accesses together: 16 bytes of the narrowest type, at most 8."""
    bytes = min((tensor.type.dtype.bytes for tensor in tensors), default=_BYTES)
    return min(_MAX_LANES, _BYTES // bytes)


def read_access(work: Work, read: Read, axis: Axis, lanes: int) -> Access | None:
    """Return the access of a read whose elements along an axis are adjacent, or None."""
    if read.default is not None:
        return None
    return access(read.tensor, address(read, work.types[read.tensor].shape), axis, lanes)


def access(tensor: str, form: Affine | None, axis: Axis, lanes: int) -> Access | None:
    """Return an access if its elements are adjacent along an axis and may be aligned, or None."""
    if lanes == 1 or form is None or form.stride(axis.name).constant != 1:
        return None
    sizes = form.without(axis.name).sizes
    never = any(s.constant is not None and s.constant % lanes for s in sizes)
    return None if never else Access(tensor, form)


def is_aligned(
    work: Work, accesses: Sequence[Access], axis: Axis, lanes: int, extents: Sequence[Size]
) -> ir.Value:  # fmt: skip
    """Return whether all accesses are aligned and all extents are multiples of the lanes."""
    found: ir.Value | None = None
    for each in accesses:
        bytes = work.types[each.tensor].dtype.bytes
        sizes = each.form.without(axis.name).sizes
        at: ir.Value = ir.Address(work.buffers[each.tensor], constant(0))
        parts = [work.sizes.value(size) * bytes for size in sizes if not _is_multiple(size, lanes)]
        flag = (reduce(or_, parts, at) & min(_BYTES, lanes * bytes) - 1).equals(0)
        found = flag if found is None else found & flag
    for size in extents:
        if not _is_multiple(size, lanes):
            flag = (work.sizes.value(size) & lanes - 1).equals(0)
            found = flag if found is None else found & flag
    return constant(True, boolean) if found is None else work.let(found)


def _is_multiple(size: Size, of: int) -> bool:
    return (size % of).constant == 0


def copy(
    work: Work, scope: ScalarLowering, each: Access, array: str, first: ir.Value | int,
    lanes: int, store: bool = False,
) -> None:  # fmt: skip
    """Emit the load of the elements at the indices of a scope to an array from `first` on.

    With `store`, the elements of the array are stored in the tensor.
    """
    dtype = work.types[each.tensor].dtype
    offset = scope.offset(each.form)
    work.take(scope.steps)
    count = min(lanes, _BYTES // dtype.bytes)
    for start in range(0, lanes, count):
        sides = (array, constant(start) + first), (work.buffers[each.tensor], offset + start)
        (source, source_at), (target, at) = sides if store else sides[::-1]
        work.emit(ir.CopyWide(target, at, source, source_at, dtype, count))
