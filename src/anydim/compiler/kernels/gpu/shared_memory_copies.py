"""Copies of parts of factors to local memory: by 16 bytes, by elements, or through registers.

A factor that is a plain read can be copied asynchronously: in vectors where its rows begin at
multiples of 16 bytes, which the kernel tests, else element by element if these have at least 4
bytes. Values computed on the way (0 around an image, a conversion) pass through registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_indices import Work, remainder
from anydim.compiler.kernels.ir import constant, greatest, least, number, operate, select
from anydim.lang.tree import Axis, Expr, Read
from anydim.lang.tree.affine import Affine, address
from anydim.sizes import Size

_ITEM = ir.Item()
_BYTES = 16  # per vector copy
_MIN_BYTES = 4
LEFT, RIGHT = "left", "right"  # names of the arrays of the factors


@dataclass(frozen=True)
class Factor:
    """A factor: its value before any conversion to the type of the sums, and its own axes.

    `along_depth`: the factor is contiguous in memory along k.
    """

    value: Expr
    dtype: DType
    axes: tuple[Axis, ...]
    along_depth: bool


@dataclass(frozen=True)
class LocalLayout:
    """The layout of parts of a factor in local memory: `width` own indices, `depth` k-steps.

    `along_depth`: k-steps are contiguous, else own indices; rows are `stride` elements apart. There
    are `parts` buffers.
    """

    name: str
    factor: Factor
    first: ir.Value
    extent: Size
    width: int
    depth: int
    along_depth: bool
    stride: int
    parts: int = 1

    @property
    def count(self) -> int:
        """The elements of a part, with the padding between its rows."""
        return (self.width if self.along_depth else self.depth) * self.stride

    @property
    def local(self) -> ir.Local:
        return ir.Local(self.name, self.factor.dtype, self.parts * self.count)

    def offset(self, own: ir.Value, step: ir.Value, part: ir.Value | int = 0) -> ir.Value:
        """Return the offset of the element of an own index and a k-step, in buffer `part`."""
        outer, inner = (own, step) if self.along_depth else (step, own)
        return part * self.count + outer * self.stride + inner


@dataclass(frozen=True)
class CopyLoops:
    """The context of copies: the kernel's writer, a scope with its indices, axes and number of the
    k-steps, work-items of a group."""

    work: Work
    scope: ScalarLowering
    steps: tuple[Axis, ...]
    depth: Size
    items: int


class TileCopy:
    """Writes the copy of a part of a factor to local memory by all work-items, padded with 0.

    Create it before all loops.
    """

    def __init__(self, kernel: CopyLoops, layout: LocalLayout) -> None:
        self.kernel, self.work, self.layout = kernel, kernel.work, layout
        self.read = self._plain()
        self.aligned = self._is_aligned()

    def write(self, k0: ir.Value, part: ir.Value | int) -> None:
        """Emit the steps of a work-item, for k-steps from `k0` on."""
        work, bytes = self.work, self.layout.factor.dtype.bytes
        is_async = work.context.machine.warps and self.read is not None
        with work.block() as single:
            wide = is_async and bytes >= _MIN_BYTES
            self._each(self._copy_async if wide else self._through_registers, 1, k0, part)
        if not is_async or self.aligned is None:
            work.take(single)
            return
        with work.when(self.aligned):
            self._each(self._copy_async, _BYTES // bytes, k0, part)
        with work.otherwise():
            work.take(single)

    def _plain(self) -> Affine | None:
        """Return the address of the factor's elements if it is a plain read, else None."""
        value = self.layout.factor.value
        if not isinstance(value, Read) or value.default is not None:
            return None
        return address(value, self.work.types[value.tensor].shape)

    def _is_aligned(self) -> ir.Value | None:
        """Return whether vectors of the factor are aligned at run time; None if they never are."""
        layout, factor = self.layout, self.layout.factor
        inner = self.kernel.steps if factor.along_depth else factor.axes
        if self.read is None or layout.along_depth != factor.along_depth or not inner:
            return None
        if self.read.stride(inner[-1].name).constant != 1:
            return None
        several = _BYTES // factor.dtype.bytes
        width = layout.depth if layout.along_depth else layout.width
        if width % several or layout.stride % several:
            return None
        steps = [c for name, c in self.read.terms if name != inner[-1].name]
        if len(inner) > 1:  # a vector must not cross the end of a row
            steps.append(inner[-1].extent)
        strides = [size for size in (self.read.constant, *steps) if not _multiple(size, several)]
        if any(size.constant is not None for size in strides):
            return None
        parts = [self.work.sizes.value(size) for size in strides]
        assert isinstance(factor.value, Read)
        at: ir.Value = ir.Address(self.work.buffers[factor.value.tensor], constant(0))
        bits = reduce(or_, (part * factor.dtype.bytes for part in parts), at)
        return self.work.let((bits & _BYTES - 1).equals(0))

    def _each(
        self, copied: Callable[[_Element], None], several: int, k0: ir.Value, part: ir.Value | int
    ) -> None:
        """Loop over the work-item's elements of the part, `several` at a time."""
        work, layout = self.work, self.layout
        along = layout.factor.along_depth
        count, name = layout.width * layout.depth // several, work.fresh(f"{layout.name}_at")
        with work.range(_ITEM, count, self.kernel.items, name) as at:
            inner = (layout.depth if along else layout.width) // several  # coalesced reads
            one, other = work.let(quotient(at, inner)), work.let(remainder(at, inner)) * several
            own, k = (one, other) if along else (other, one)
            row, step = work.let(layout.first + own), work.let(k0 + k)
            copied(_Element(row, step, work.let(layout.offset(own, k, part)), several))

    def _inside(self, at: _Element) -> tuple[ir.Value, ir.Value]:
        """Return whether the own index and the k-step are in bounds."""
        value = self.work.sizes.value
        return (at.row < value(self.layout.extent), at.step < value(self.kernel.depth))

    def _scope_of(self, at: _Element) -> ScalarLowering:
        """Return a scope with the indices of an element."""
        own = self.work.indices(at.row, self.layout.factor.axes)
        return self.kernel.scope.inner(own | self.work.indices(at.step, self.kernel.steps))

    def _through_registers(self, at: _Element) -> None:
        factor = self.layout.factor
        with self.work.block() as then:
            scope = self._scope_of(at)
            found = scope.value(factor.value, factor.dtype)
            self.work.take([*scope.steps, ir.Store(self.layout.name, at.offset, found)])
        zero = ir.Store(self.layout.name, at.offset, number(factor.dtype, 0))
        self.work.emit(ir.If(operate("and", *self._inside(at)), tuple(then), (zero,)))

    def _copy_async(self, at: _Element) -> None:
        """Emit an asynchronous copy of one element, or of `several` contiguous ones."""
        factor = self.layout.factor
        assert isinstance(factor.value, Read) and self.read is not None
        scope = self._scope_of(at)
        offset = scope.offset(self.read)
        own, step = self._inside(at)
        valid: ir.Value = constant(1)
        in_bounds = own & step
        if at.several > 1:
            extent = self.kernel.depth if factor.along_depth else self.layout.extent
            remaining = self.work.sizes.value(extent) - (at.step if factor.along_depth else at.row)
            valid = least(greatest(remaining, 0), at.several)
            in_bounds = own if factor.along_depth else step
        copy = ir.CopyAside(
            self.layout.name, at.offset, self.work.buffers[factor.value.tensor], offset,
            factor.dtype, at.several, select(in_bounds, valid, 0),
        )  # fmt: skip
        self.work.take([*scope.steps, copy])


@dataclass(frozen=True)
class _Element:
    """An element, or `several`: its own index, its k-step, and its offset in local memory."""

    row: ir.Value
    step: ir.Value
    offset: ir.Value
    several: int


def _multiple(size: Size, of: int) -> bool:
    return (size % of).constant == 0
