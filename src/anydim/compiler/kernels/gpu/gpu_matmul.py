"""The common part of products by work-groups: form, tiles, copies of factors, results.

    C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n],  y = f(C, ...)

A and B are any expressions: m are the axes of A alone, n those of B alone, batch those of both, k
the reduced axes. A convolution is therefore a product whose A reads windows, 0 out of bounds of the
image. A work-group computes a tile of m x n; parts of A and B are copied to local memory, padded
with zeros. If a factor is a conversion from 16 bits, the 16-bit values are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import ClassVar

from anydim.base.dtypes import DType, bfloat16, float16, float32, float64, int32, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_indices import Work, plain, remainder
from anydim.compiler.kernels.gpu.shared_memory_copies import (
    LEFT,
    RIGHT,
    CopyLoops,
    Factor,
    LocalLayout,
    TileCopy,
)
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.kernels.ir import constant, number
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.matmul.epilogue import (
    PRODUCT,
    Output,
    element_offset,
    epilogue_of,
    outside_reads,
    product_of,
)
from anydim.compiler.kernels.matmul.product_axes import merge_axes, merged_extent, product_axes
from anydim.lang.tree import Axis, Cast, Expr, Group, Read, TensorType
from anydim.lang.tree.affine import Affine, address, reads, rewrite, to_expr
from anydim.sizes import ceil_div, product

_DTYPES = (float32, float64, int32, int64)
_NARROW = (float16, bfloat16)
_START = ir.START


@dataclass(frozen=True)
class ProductForm:
    """The factors of a product, its axes by the factors that use them, and its epilogue."""

    dtype: DType
    a: Factor
    b: Factor
    batch: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    outputs: tuple[Output, ...]
    offset: Affine  # the offset of results


@dataclass(frozen=True)
class Tiled:
    """A work-group computes `rows` x `columns` sums; local memory holds `depth` k-steps at a time.

    A part of the group, `together` work-items, computes `part_rows` x `part_columns` sums.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 16
    part_rows: int = 4
    part_columns: int = 4
    together: ClassVar[int] = 1

    @property
    def across(self) -> int:
        """Parts side by side in a row of the tile."""
        return self.columns // self.part_columns

    @property
    def items(self) -> int:
        return self.together * self.across * (self.rows // self.part_rows)


@lru_cache(maxsize=512)
def product_form(group: Group) -> ProductForm | None:
    """Return the group as a product; None if it is not one."""
    found = product_of(group)
    if found is None or not plain(group):
        return None
    statement, (a, b) = found
    dtype = group.type_of(statement.target).dtype
    outputs = epilogue_of(group, statement)
    if outputs is None or dtype not in _DTYPES:
        return None
    axes = product_axes(statement.axes, statement.reduced, free_axes(a), free_axes(b))
    rows, columns = axes.rows, axes.columns
    if rows and rows[-1] is axes.result[-1]:
        a, b, rows, columns = b, a, columns, rows
    if not columns or not statement.reduced:
        return None
    types = {tensor.name: tensor.type for tensor in group.inputs}
    if not {read.tensor for factor in (a, b) for read in reads(factor)} <= types.keys():
        return None  # a factor that the group computes
    batch = tuple(axis for axis in statement.axes if axis not in rows and axis not in columns)
    values = (a, b, *(output.value for output in outputs))
    offset = element_offset(statement)
    streams, pinned = _streams(values, types)
    groups = [
        merge_axes(each, [offset, *streams], pinned)
        for each in (rows, columns, batch, statement.reduced)
    ]
    rows, columns, batch, depth = (tuple(map(_whole_axis, each)) for each in groups)
    merged = [group for group in chain(*groups) if len(group) > 1]
    a, b, *results = (_over_merged(value, merged, types) for value in values)
    outputs = tuple(Output(old.tensor, value) for old, value in zip(outputs, results))
    left, right = _factor(a, dtype, rows, depth, types), _factor(b, dtype, columns, depth, types)
    outer = (axis.name for group in merged for axis in group[:-1])
    return ProductForm(dtype, left, right, batch, depth, outputs, offset.without(*outer))


def _factor(
    value: Expr, dtype: DType, axes: tuple[Axis, ...], depth: tuple[Axis, ...],
    types: Mapping[str, TensorType],
) -> Factor:  # fmt: skip
    """Return a factor of a product with sums of `dtype`."""
    inner = value.argument if isinstance(value, Cast) else value
    inner_dtype = dtype_of(inner, types)
    if inner is not value and inner_dtype in _NARROW:
        value, dtype = inner, inner_dtype
    found = reads(value)
    form = address(found[-1], types[found[-1].tensor].shape) if found else None
    along = form is None or form.stride(depth[-1].name).constant == 1
    return Factor(value, dtype, axes, along and bool(axes))


# ---- contiguous axes ----------------------------------------------------------------------------

# A work-item computes the indices of its row by divisions, one for each axis but the first: merging
# batch and sequence of an activation, which most reads do not distinguish, saves them.


def _streams(
    values: Iterable[Expr], types: Mapping[str, TensorType]
) -> tuple[list[Affine], set[str]]:
    """The addresses of reads, and the axes that are used in other ways: these are not merged."""
    streams: list[Affine] = []
    pinned: set[str] = set()
    for value in values:
        pinned |= free_axes(outside_reads(value))
        for read in reads(value):
            form = _address(read, types)
            if form is not None:
                streams.append(form)
            elif read.tensor != PRODUCT:
                pinned |= free_axes(read)
    return streams, pinned


def _address(read: Read, types: Mapping[str, TensorType]) -> Affine | None:
    """The address of a read of a tensor that is never out of bounds; None without one."""
    if read.tensor == PRODUCT or read.default is not None:
        return None
    return address(read, types[read.tensor].shape)


def _whole_axis(axes: tuple[Axis, ...]) -> Axis:
    """Merged axes as one, with the name of the innermost."""
    return Axis(axes[-1].name, merged_extent(axes))


def _over_merged(
    value: Expr, merged: Sequence[Sequence[Axis]], types: Mapping[str, TensorType]
) -> Expr:
    """An expression over merged axes: reads that use them become flat."""
    outer = {axis.name for axes in merged for axis in axes[:-1]}
    names = {axis.name for axes in merged for axis in axes}

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or not free_axes(expr) & names:
            return None
        form = _address(expr, types)
        if form is None:
            return None
        return Read(expr.tensor, (to_expr(form.without(*outer)),), flat=True)

    return rewrite(value, change)


# ---- code ----------------------------------------------------------------------------------------


class ProductWriter:
    """Writes the body of one kernel; a subclass multiplies the parts of both factors.

    `multiply` adds to the `sums` of a work-item, and `finish` computes its results.
    """

    sums: tuple[str, ...]

    def multiply(self, left: LocalLayout, right: LocalLayout, part: ir.Value | int) -> None:
        """Add one block of both factors to the sums of a work-item."""
        raise NotImplementedError

    def finish(self) -> None:
        """Store the results of a work-item, if they are in bounds."""
        raise NotImplementedError

    def __init__(self, group: Group, form: ProductForm, schedule: Tiled, machine: Machine) -> None:
        self.form, self.tile = form, schedule
        self.work = Work(group, machine, {PRODUCT: TensorType(form.dtype, ())})
        self.rows, self.columns, self.depth, self.batches = (
            product(axis.extent for axis in axes)
            for axes in (form.a.axes, form.b.axes, form.depth, form.batch)
        )
        self.tiles_down = ceil_div(self.rows, schedule.rows)
        self.tiles_across = ceil_div(self.columns, schedule.columns)
        self.outside = ScalarLowering(self.work.context)
        work, value = self.work, self.work.sizes.value
        across, down = value(self.tiles_across), value(self.tiles_down)
        outer, tile = work.let(quotient(_START, across)), work.let(remainder(_START, across))
        self.column0 = work.let(tile * schedule.columns)
        self.row0 = work.let(work.let(remainder(outer, down)) * schedule.rows)
        batch = work.let(quotient(outer, down))
        self.scope = self.outside.inner(work.indices(batch, form.batch))

    def body(self, left: LocalLayout, right: LocalLayout) -> list[ir.Step]:
        """Return the steps of a work-item."""
        work, form = self.work, self.form
        around = CopyLoops(work, self.scope, form.depth, self.depth, self.tile.items)
        fillings = [TileCopy(around, layout) for layout in (left, right)]
        begun = work.here
        for name in self.sums:
            work.emit(ir.Declare(name, number(form.dtype, 0)))
        self._blocks(fillings, left, right)
        self.finish()
        work.take(self.scope.steps, begun)
        return [*self.outside.steps, *work.written]

    def layouts(
        self, stride: Callable[[bool, int], int], own: bool = True
    ) -> tuple[LocalLayout, LocalLayout]:
        """Return the layouts of both factors in local memory.

        `stride` takes whether k-steps are contiguous, and the number of contiguous elements.
        Without `own` k-steps are never contiguous, whatever the layout of the tensors.
        """
        form, tile = self.form, self.tile
        parts = 2 if self.work.context.machine.warps else 1
        made = []
        for name, factor, first, extent, width in (
            (LEFT, form.a, self.row0, self.rows, tile.rows),
            (RIGHT, form.b, self.column0, self.columns, tile.columns),
        ):
            along = own and factor.along_depth
            pitch = stride(along, tile.depth if along else width)
            made.append(
                LocalLayout(name, factor, first, extent, width, tile.depth, along, pitch, parts)
            )
        return made[0], made[1]

    def launch(
        self, name: str, body: Sequence[ir.Step], layouts: Sequence[LocalLayout], reason: str
    ) -> Launch:
        """Return the launch of the kernel with that body."""
        return self.work.launch(
            name, body, self.tile.items, [layout.local for layout in layouts],
            parallel=self.batches * self.tiles_down * self.tiles_across,
            flops=2 * self.batches * self.rows * self.columns * self.depth,
            schedule=self.tile, reason=reason,
        )  # fmt: skip

    # ---- factors -------------------------------------------------------------------------------

    def _blocks(self, fillings: Sequence[TileCopy], left: LocalLayout, right: LocalLayout) -> None:
        """Emit the loop over k-steps, with one block of them in local memory at a time.

        If local memory holds two blocks, the next one is copied while one is multiplied.
        """
        work, depth, step = self.work, self.work.sizes.value(self.depth), self.tile.depth

        def fill(first: ir.Value, part: ir.Value | int) -> None:
            for filling in fillings:
                filling.write(first, part)

        before, several = work.here, left.parts > 1
        with work.range(0, depth, step, "k0") as k0:
            now: ir.Value | int = 0
            if several:
                now = work.let(remainder(work.let(quotient(k0, step)), 2))
                following = k0 + step
                with work.when(following < depth):
                    fill(following, 1 - now)
                work.take([ir.CopiesEnd(), ir.CopiesWait(1)])
            else:
                fill(k0, 0)
            work.emit(ir.Barrier())
            self.multiply(left, right, now)
            work.emit(ir.Barrier())
        if several:
            with work.block() as first:
                fill(constant(0), 0)
            work.take([*first, ir.CopiesEnd()], before)

    # ---- epilogue ------------------------------------------------------------------------------

    @contextmanager
    def inside_row(self, row: ir.Value) -> Iterator[dict[str, ir.Value]]:
        """Run the block for a row of sums if it is in bounds; yields its indices."""
        with self.work.when(row < self.work.sizes.value(self.rows)):
            yield self.work.indices(row, self.form.a.axes)

    def store(self, rows: dict[str, ir.Value], column: ir.Value, total: ir.Value) -> None:
        """Store the results of a sum, if its column is in bounds."""
        work = self.work

        def sum_of(read: Read) -> ir.Value | None:
            return total if read.tensor == PRODUCT else None

        with work.when(column < work.sizes.value(self.columns)):
            total = work.let(total)
            columns = work.indices(column, self.form.b.axes)
            inner = self.scope.inner(
                {**rows, **columns}, local=sum_of, answers=frozenset((PRODUCT,))
            )
            values = [
                (o.tensor, inner.value(o.value, work.types[o.tensor].dtype))
                for o in self.form.outputs
            ]
            offset = inner.offset(self.form.offset)
            stores = [ir.Store(work.buffers[name], offset, value) for name, value in values]
            work.take([*inner.steps, *stores])
