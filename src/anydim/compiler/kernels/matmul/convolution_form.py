"""The convolution form of a group: a matrix product whose B consists of windows of a tensor.

    for every loop:  y[m, p] = sum over k of w[m, k] * x[position(k, p)],  then the epilogue

m are the output channels of a group, p the output positions along the last axes (one index, as they
are contiguous), k the channels of x and the taps of the window. Positions out of bounds of x count
as 0. Everything is strides and size expressions, so one form serves every size.

A channel of x that depends on the group, `m // share * inner + c`, makes the group a loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.launch import are_known
from anydim.compiler.kernels.matmul.epilogue import (
    COLUMN,
    PRODUCT,
    ROW,
    Output,
    Renamed,
    epilogue_of,
    outside_reads,
    product_of,
)
from anydim.compiler.kernels.matmul.product_axes import (
    Parts,
    is_one_axis,
    product_axes,
    strided_parts,
)
from anydim.compiler.kernels.matmul.window_geometry import (
    Bound,
    InLoops,
    Walk,
    WindowAxis,
    bounds_of,
    merge_positions,
    split_groups,
    window_axis,
    without,
)
from anydim.lang.tree import Axis, Group, Read, Statement
from anydim.lang.tree.affine import Affine, address, reads, row_major_strides
from anydim.sizes import Box, Size, product


@dataclass(frozen=True)
class OuterLoop(Walk):
    """A loop around the product, with its strides in x, w and y."""

    x: Size
    w: Size
    y: Size


@dataclass(frozen=True)
class ConvolutionForm(InLoops):
    """A convolution; see the module's docstring.

    `positions` are the axes of p, the last one along vectors; `channels` and `taps` those of k.
    `w_parts` are the axes of w as (extent, stride), for packing: loops, k, m. `row_y` and `row_w`
    are the strides of m in y and w. Outputs are expressions over the names of the loops, m and n (n
    is p).
    """

    dtype: DType
    x: str
    w: str
    x_start: Size
    w_start: Size
    loops: tuple[OuterLoop, ...]
    rows: Size
    row_y: Size
    row_w: Size
    positions: tuple[WindowAxis, ...]
    channels: WindowAxis
    taps: tuple[WindowAxis, ...]
    bounds: tuple[Bound, ...]
    w_parts: tuple[Parts, ...]
    outputs: tuple[Output, ...]

    @property
    def columns(self) -> Size:
        """Number of output positions."""
        return product(step.extent for step in self.positions)

    @property
    def window(self) -> Size:
        """Number of taps."""
        return product(step.extent for step in self.taps)

    @property
    def k(self) -> Size:
        """Products per sum."""
        return self.channels.extent * self.window

    @property
    def work(self) -> Size:
        """Multiply-adds in total."""
        return self.around * self.rows * self.columns * self.k

    @property
    def is_plain(self) -> bool:
        """Whether it is a matrix product: rows of B are contiguous in x, without padding."""
        alone = len(self.positions) == 1 and self.positions[0].x == 1
        return alone and not self.taps and not self.bounds


def convolution_form_of(
    group: Group, box: Box, constants: frozenset[str]
) -> ConvolutionForm | None:
    """Return the group as a convolution with an epilogue; None when it is not one."""
    sums = product_of(group)
    if sums is None or not sums[0].reduced:
        return None
    statement, factors = sums
    outputs: tuple[Output, ...] | None = None
    for x, w in (factors, factors[::-1]):
        if not (isinstance(x, Read) and isinstance(w, Read)) or x.tensor == w.tensor:
            return None
        if w.default is not None or (x.default is None and w.tensor not in constants):
            continue
        outputs = outputs or epilogue_of(group, statement)
        if outputs is None:
            return None
        found = _Reading.of(group, statement, x, w, outputs, box)
        form = None if found is None else found.form(w.tensor in constants)
        if form is not None:
            return form
    return None


@dataclass(frozen=True)
class _Reading:
    """A group with its factors assigned to x and w, and channel groups as an axis of their own."""

    group: Group
    box: Box
    axes: tuple[Axis, ...]
    strides: tuple[Size, ...]
    reduced: tuple[Axis, ...]
    read: Read
    x: Affine
    w: Affine
    w_tensor: str
    outputs: tuple[Output, ...]

    @staticmethod
    def of(
        group: Group, statement: Statement, x: Read, w: Read, outputs: tuple[Output, ...], box: Box
    ) -> _Reading | None:
        """Return None where a factor has no address, or another element type than the result."""
        inputs = {tensor.name: tensor.type for tensor in group.inputs}
        dtype = group.type_of(statement.target).dtype
        if any(r.tensor not in inputs or inputs[r.tensor].dtype != dtype for r in (x, w)):
            return None
        if not any(group.type_of(o.tensor).dtype == dtype for o in outputs):
            return None
        strides = row_major_strides(statement.shape)
        split = split_groups(statement.axes, strides, x)
        if split is None:
            return None
        axes, strides, change = split
        units = {a.name for a in (*axes, *statement.reduced) if a.extent.constant == 1}
        x, w = without(change(x), units), without(change(w), units)
        outputs = tuple(Output(o.tensor, change(o.value)) for o in outputs)
        at_x, at_w = (address(read, inputs[read.tensor].shape) for read in (x, w))
        if at_x is None or at_w is None:
            return None
        kept = [(a, s) for a, s in zip(axes, strides) if a.extent.constant != 1]
        reduced = tuple(a for a in statement.reduced if a.extent.constant != 1)
        return _Reading(
            group, box, tuple(a for a, _ in kept), tuple(s for _, s in kept), reduced,
            x, at_x, at_w, w.tensor, outputs,
        )  # fmt: skip

    def form(self, packed: bool) -> ConvolutionForm | None:
        """Return the form if the addresses are those of a convolution, else None."""
        in_x, in_w = free_axes(self.read), self.w.indices
        kinds = product_axes(self.axes, self.reduced, in_w, in_x)
        if len(kinds.rows) != 1 or kinds.alone:
            return None
        (row,) = kinds.rows
        at = self.axes.index(row)
        columns = self.axes[at + 1 :]
        if not columns or any(a not in kinds.columns for a in columns):
            return None
        shape, extents = self._shape(), self._extents()
        found = bounds_of(self.read, shape, columns, self.reduced, extents, self.box)
        outputs = self._rename_outputs(at)
        if found is None or outputs is None:
            return None
        bounded = {b.tap for b in found if b.tap}
        free = [a for a in self.reduced if a.name not in bounded]
        taps = [a for a in self.reduced if a not in free[:1]]
        channel = window_axis(free[:1], self.x, self.w)
        positions = merge_positions(columns, found, self.x, self.w)
        form = ConvolutionForm(
            dtype=self.group.type_of(self.read.tensor).dtype,
            x=self.read.tensor,
            w=self.w_tensor,
            x_start=self.x.constant,
            w_start=self.w.constant,
            loops=tuple(self._loop(number) for number in range(at)),
            rows=row.extent,
            row_y=self.strides[at],
            row_w=self.w.stride(row.name),
            positions=positions,
            channels=channel,
            taps=tuple(window_axis((tap,), self.x, self.w) for tap in taps),
            bounds=found,
            w_parts=(
                strided_parts([a for a in self.axes[:at] if a.name in in_w], self.w),
                strided_parts((*free[:1], *taps), self.w),
                strided_parts((row,), self.w),
            ),
            outputs=outputs,
        )
        return self._usable(form, packed)

    def _usable(self, form: ConvolutionForm, packed: bool) -> ConvolutionForm | None:
        """Return the form, or None if its packing needs sizes that are not constant."""
        if form.positions[-1].x.constant is None or form.positions[-1].x.constant < 1:
            return None
        if packed and not are_known(*form.w_parts):
            return None
        return form

    def _shape(self) -> tuple[Size, ...]:
        return self.group.type_of(self.read.tensor).shape

    def _extents(self) -> dict[str, Size]:
        return {axis.name: axis.extent for axis in (*self.axes, *self.reduced)}

    def _loop(self, number: int) -> OuterLoop:
        axis = self.axes[number]
        strides = (self.x.stride(axis.name), self.w.stride(axis.name), self.strides[number])
        return OuterLoop(f"loop{number}", axis.extent, *strides)

    def _rename_outputs(self, at: int) -> tuple[Output, ...] | None:
        """Return outputs over loops, m and n; None unless each has one stride over positions."""
        columns = self.axes[at + 1 :]
        several = {axis.name for axis in columns} if len(columns) > 1 else set()
        for output in self.outputs:
            if free_axes(outside_reads(output.value)) & several:
                return None
            for read in reads(output.value):
                if read.tensor == PRODUCT:
                    continue
                form = address(read, self.group.type_of(read.tensor).shape)
                assert form is not None, "epilogues hold flat reads with affine addresses"
                if not is_one_axis(columns, form):
                    return None
        names: dict[str, Sequence[Axis]]
        names = {f"loop{number}": (axis,) for number, axis in enumerate(self.axes[:at])}
        renamed = Renamed({**names, ROW: (self.axes[at],), COLUMN: columns}, self.group)
        return tuple(Output(o.tensor, renamed.expr(o.value)) for o in self.outputs)
