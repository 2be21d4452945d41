"""The contraction form of a group: a matrix product in loops, and its epilogue.

    for every loop index:  C[m, n] = sum over k of A[m, k] * B[k, n],  y[m, n] = f(C[m, n], ...)

Axes that are contiguous in every tensor are merged: batch and sequence of an activation are one m.
Other axes become loops around the product. Only strides remain, so a transposed operand is just
another pair of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.launch import Machine, are_known
from anydim.compiler.kernels.matmul.epilogue import (
    COLUMN,
    PRODUCT,
    ROW,
    Output,
    Renamed,
    element_offset,
    epilogue_of,
    product_of,
    split_start,
    streams_of,
)
from anydim.compiler.kernels.matmul.product_axes import (
    Factor,
    Parts,
    is_one_axis,
    matrix_axes,
    merge_axes,
    merged_extent,
    merged_stride,
    strided_parts,
)
from anydim.compiler.kernels.matmul.register_tile import tile_of
from anydim.compiler.kernels.matmul.window_geometry import InLoops, Walk, without
from anydim.compiler.kernels.matmul.window_rows import ONE, WindowLayout, moves, window_layout
from anydim.lang.tree import Axis, Expr, Group, Read, Statement
from anydim.lang.tree.affine import address, rewrite
from anydim.sizes import NEVER, Box, Condition, Size, as_size, condition


@dataclass(frozen=True)
class MatrixWalk(Walk):
    """An axis with its strides in A, B and C, in elements."""

    a: Size
    b: Size
    c: Size


@dataclass(frozen=True)
class Pieces:
    """`count` pieces of k, each of `length`, and the strides between pieces in A and B."""

    count: Size
    length: Size
    a: Size
    b: Size


@dataclass(frozen=True)
class ContractionForm(InLoops):
    """A contraction as a matrix product; see the module's docstring.

    `b_parts` are B's axes as (extent, stride) before merging, for packing: loops, k, n.
    `in_panels`: B is stored in panels of a vector's width, the last one padded, as a tile reads it.
    `pieces` are the pieces of a k that is not contiguous in an operand; strides of k are within
    one. `start` is the flat read that the sums start from; without it they start from 0. `windows`:
    rows of A are windows of a tensor, and are gathered on use; where `position_when` holds, they
    are the windows at one output position. Expressions are over the indices m, n and the names of
    the loops.
    """

    dtype: DType
    a: str
    b: str
    a_start: Size
    b_start: Size
    m: MatrixWalk
    n: MatrixWalk
    k: MatrixWalk
    loops: tuple[MatrixWalk, ...]
    b_parts: tuple[Parts, ...]
    outputs: tuple[Output, ...]
    start: Read | None
    in_panels: bool = False
    pieces: Pieces | None = None
    windows: WindowLayout | None = None
    position_when: Condition = NEVER

    @property
    def work(self) -> Size:
        """Multiply-adds in total."""
        return self.all_rows * self.n.extent * self.k.extent

    @property
    def by_position(self) -> bool:
        """Whether some sizes use rows of images at one output position."""
        return self.windows is not None and self.windows.spots != ONE

    @property
    def all_rows(self) -> Size:
        """Rows of all iterations of the loops."""
        rows = self.around * self.m.extent
        return self.windows.rows if self.windows is not None and self.by_position else rows

    @property
    def copies_a(self) -> bool:
        """Whether rows of A are copied before use."""
        return self.k.a != 1 or self.cuts_a or self.windows is not None

    @property
    def same_b(self) -> bool:
        """Whether all iterations of the loops around the product share one B."""
        return bool(self.loops) and all(walk.b == 0 for walk in self.loops)

    @property
    def cuts_a(self) -> bool:
        """Whether k has pieces along A."""
        pieces = self.pieces
        return pieces is not None and pieces.a != pieces.length * self.k.a

    @property
    def cuts_b(self) -> bool:
        """Whether k has pieces along B."""
        pieces = self.pieces
        return pieces is not None and pieces.b != pieces.length * self.k.b


def contraction_form_of(
    group: Group, constants: frozenset[str], machine: Machine, box: Box | None = None,
    starts: bool = True,
) -> ContractionForm | None:  # fmt: skip
    """Return the group as a matrix product with an epilogue; None when it is not one.

    With a box, rows of A may be windows of a tensor. With `starts`, sums may start from an addend.
    """
    found = product_of(group)
    if found is None:
        return None
    statement, parts = found
    factors = _factors(parts, statement, group)
    outputs = epilogue_of(group, statement)
    if factors is None or outputs is None:
        return None
    for a, b in (factors, factors[::-1]):
        width = tile_of(machine, group.type_of(statement.target).dtype).lanes
        packed = b.tensor in constants
        form = Reading(group, statement, a, b, width, packed, starts, box).form(outputs)
        if form is not None:
            return form
    return None


def _factors(
    parts: Sequence[Expr], statement: Statement, group: Group
) -> tuple[Factor, Factor] | None:
    """Return the two reads of the product, if they have addresses and C's element type."""
    inputs = {tensor.name: tensor.type for tensor in group.inputs}
    dtype = group.type_of(statement.target).dtype
    found = []
    for read in parts:
        if not isinstance(read, Read) or read.tensor not in inputs:
            return None
        form = address(read, inputs[read.tensor].shape)
        if form is None or inputs[read.tensor].dtype != dtype:
            return None
        found.append(Factor(read.tensor, form, read))
    return (found[0], found[1])


@dataclass(frozen=True)
class Reading:
    """A group with its factors assigned to A and B, and the packing of B.

    `width` is the width of a panel. `packed`: B is packed at load time. `starts`: sums may start
    from an addend.
    """

    group: Group
    statement: Statement
    a: Factor
    b: Factor
    width: int
    packed: bool = True
    starts: bool = True
    box: Box | None = None

    def form(self, outputs: tuple[Output, ...]) -> ContractionForm | None:
        in_a, in_b = self.a.address.indices, self.b.address.indices
        axes = matrix_axes(self.statement, in_a, in_b)
        if axes is None:
            return None
        rows = [x for x in axes.result if x.name not in in_b]
        columns, batch, sums = axes.columns, axes.batch, axes.sums
        start: Read | None = None
        if self.starts:
            factors = (self.a.tensor, self.b.tensor)
            own = element_offset(self.statement)
            start, outputs = split_start(outputs, self.group, columns[-1].name, own, factors)
        values = [output.value for output in outputs] + ([] if start is None else [start])
        streams, pinned = streams_of(self.group, self.statement, values)
        together = len(merge_axes(rows, streams, pinned)) == 1
        windows, sums = self._windows(rows, sums) if together else (None, sums)
        if windows is not None and windows.in_place:
            windows = None
        elif not windows and any(f.read and f.read.default for f in (self.a, self.b)):
            return None
        in_panels = not self.packed and not batch and self._in_panels(columns, sums)
        of_b = () if self.packed or in_panels else (self.b.address,)
        m_groups = merge_axes(rows, streams if windows else [*streams, self.a.address], pinned)
        if sums and not windows and self.a.address.stride(sums[-1].name) != 1:
            # rows are then the axis along which A is contiguous, whatever C's layout
            m_groups.sort(key=lambda axes: self.a.address.stride(axes[-1].name) == 1)
        n_groups = merge_axes(columns, [*streams, *of_b], pinned)
        k_groups = [sums] if windows else merge_axes(sums, [self.a.address, *of_b], pinned)
        loop_groups = merge_axes(batch, [*streams, self.a.address, *of_b], pinned)
        pieces = None
        if len(k_groups) == 2 and not in_panels:
            strides = (merged_stride(k_groups[0], each.address) for each in (self.a, self.b))
            pieces = Pieces(*map(merged_extent, k_groups), *strides)
        elif len(k_groups) > 1:
            return None
        outside = (*loop_groups, *m_groups[:-1], *n_groups[:-1])
        names = {f"loop{number}": axes for number, axes in enumerate(outside)}
        names[ROW] = m_groups[-1] if m_groups else ()
        names[COLUMN] = n_groups[-1]
        renamed = Renamed(names, self.group)
        return self._usable(
            ContractionForm(
                dtype=self.group.type_of(self.statement.target).dtype,
                a=self.a.tensor,
                b=self.b.tensor,
                a_start=self.a.address.constant,
                b_start=self.b.address.constant,
                m=self._walk(ROW, names[ROW]),
                n=self._walk(COLUMN, names[COLUMN]),
                k=self._walk("k", sums),
                loops=tuple(self._walk(f"loop{i}", axes) for i, axes in enumerate(outside)),
                b_parts=(
                    strided_parts([x for x in chain(*outside) if x.name in in_b], self.b.address),
                    strided_parts(sums, self.b.address),
                    strided_parts(names[COLUMN], self.b.address),
                ),
                outputs=tuple(Output(o.tensor, renamed.expr(o.value)) for o in outputs),
                start=None if start is None else renamed.read(start),
                in_panels=in_panels and len(n_groups) == 1,
                pieces=pieces,
                windows=windows,
            )
        )

    def _windows(
        self, rows: Sequence[Axis], sums: tuple[Axis, ...]
    ) -> tuple[WindowLayout | None, tuple[Axis, ...]]:
        """Return rows of A as windows if they are windows, and the reduced axes in their order."""
        read = self.a.read
        if self.box is None or read is None or moves(read, rows, sums) != self.packed:
            return None, sums
        form = self.a.address
        if not self.packed and (
            is_one_axis(rows, form) or len(sums) != 1 or form.stride(sums[0].name) != 1
        ):
            return None, sums
        units = {a.name for a in (*self.statement.axes, *self.statement.reduced)}
        units -= {axis.name for axis in (*rows, *sums)}
        shape = self.group.type_of(read.tensor).shape
        found = window_layout(without(read, units), self.a.address, shape, rows, sums, self.box)
        return (None, sums) if found is None else found

    def _in_panels(self, columns: Sequence[Axis], sums: Sequence[Axis]) -> bool:
        """Whether B(panel, k, lane) has the layout of a packed constant."""
        if len(sums) != 1 or not 1 <= len(columns) <= 2 or self.b.address.constant.constant != 0:
            return False
        stride = self.b.address.stride
        lane, k = columns[-1], sums[0]
        if lane.extent.constant != self.width or stride(lane.name) != 1:
            return False
        if stride(k.name) != self.width:
            return False
        return all(stride(panel.name) == k.extent * self.width for panel in columns[:-1])

    def _walk(self, name: str, axes: tuple[Axis, ...]) -> MatrixWalk:
        """Return merged axes as one; no axes as one of extent 1, with arbitrary strides."""
        if not axes:
            return MatrixWalk(name, as_size(1), as_size(1), as_size(1), as_size(1))
        streams = (self.a.address, self.b.address, element_offset(self.statement))
        strides = (merged_stride(axes, stream) for stream in streams)
        return MatrixWalk(name, merged_extent(axes), *strides)

    def _usable(self, form: ContractionForm) -> ContractionForm | None:
        """Return the form if the library can copy or pack its operands, else None."""
        if self.packed and not are_known(*form.b_parts):
            return None
        a_ready = form.windows is not None or form.k.a == 1 or form.m.a == 1
        # else rows are gathered, unless vectors may run along the loop that is contiguous in A
        a_ready = a_ready or (not form.cuts_a and all(walk.a != 1 for walk in form.loops))
        b_ready = self.packed or form.in_panels or form.n.b == 1
        b_ready = b_ready or (form.k.b == 1 and form.m.extent != 1)
        return form if a_ready and b_ready else None


def along_the_longer(form: ContractionForm) -> ContractionForm:
    """Selects m per call: of two axes of rows, the longer is m, the other a loop.

    The epilogue may not depend on which axis is which.
    """
    others = [walk for walk in form.loops if walk.b == 0 and walk.a != 0]
    if len(others) != 1 or form.windows is not None or form.cuts_a:
        return form
    (other,) = others
    values = [each.value for each in form.outputs] + ([form.start] if form.start else [])
    if {form.m.name, other.name} & set().union(*map(dependent_axes, values)):
        return form
    longer = condition(other.extent, ">", form.m.extent)

    def choose_walk(own: MatrixWalk, alternative: MatrixWalk) -> MatrixWalk:
        def size(name: str) -> Size:
            return longer.where(getattr(alternative, name), getattr(own, name))

        return MatrixWalk(own.name, *map(size, ("extent", "a", "b", "c")))

    loops = tuple(choose_walk(walk, form.m) if walk is other else walk for walk in form.loops)
    return replace(form, m=choose_walk(form.m, other), loops=loops)


def dependent_axes(value: Expr) -> frozenset[str]:
    """Return the axes that a value depends on, other than through the product's indices."""

    def change(part: Expr) -> Expr | None:
        if isinstance(part, Read) and part.tensor == PRODUCT:
            return replace(part, indices=())
        return None

    return frozenset(free_axes(rewrite(value, change)))
