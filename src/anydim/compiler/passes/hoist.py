"""Loop-invariant code motion: moves work out of the body of an ordered loop.

A reduction that reads nothing the loop writes is computed once. If it depends on the iteration, it
is computed for all iterations together (the input part of a recurrent network becomes one matrix
product), in the memory order of its operand, so that its rows are contiguous. A matrix that every
iteration multiplies by is packed into panels once, in the layout that the contraction's tiles read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.register_tile import tile_of
from anydim.compiler.passes.flow import is_product, read_of, unique_name
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Cast,
    Expr,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import Affine, affine, reads, rewrite, to_expr
from anydim.lang.tree.stepping import replace_writes, sizes_of, with_body, writes
from anydim.lang.tree.typing import dtype_of
from anydim.sizes import Size, as_size, ceil_div

_ITERATION = "iteration"  # the axis over all iterations


@dataclass
class Hoist:
    """Takes statements out of a loop's body; `before` has those to run ahead of it, in order.

    `types` has all tensors; new ones are added. `constants` are packed elsewhere. The first two
    axes of `transposed` tensors are exchanged in memory.
    """

    types: dict[str, TensorType]
    constants: frozenset[str]
    machine: Machine
    transposed: frozenset[str] = frozenset()
    before: list[Statement] = field(default_factory=list)
    _panels: dict[tuple[Expr, str, str], str] = field(default_factory=dict)

    def run(
        self, body: Iterable[OrderedStep], counter: str, trips: Size
    ) -> tuple[OrderedStep, ...]:
        """The remaining body."""
        body = tuple(body)
        written = frozenset(step.target for step in writes(body))
        body = tuple(self._early(step, counter, trips, written) for step in body)
        return replace_writes(body, lambda step: self._read_panels(step, written, counter))

    def _tensor(self, stem: str, kind: TensorType) -> str:
        name = unique_name(stem, self.types)
        self.types[name] = kind
        return name

    # ---- hoisted reductions ----

    def _early(
        self, step: OrderedStep, counter: str, trips: Size, written: frozenset[str]
    ) -> OrderedStep:
        """The step with its reduction replaced by a read of its hoisted result, where possible."""
        if isinstance(step, (Branch, Loop)) or not step.reduced:
            return step
        if any(read.tensor in written for read in reads(step.body)):
            return step
        if any(counter in axis.extent.symbols for axis in (*step.axes, *step.reduced)):
            return step
        body: Expr | None = step.body
        axes, own = step.axes, tuple(Index(axis.name) for axis in step.axes)
        indices: tuple[Expr, ...] = own
        if counter in sizes_of(step.body):
            taken = {axis.name for axis in (*step.axes, *step.reduced)}
            iteration = unique_name(_ITERATION, taken)
            at = _index_of(step.body, counter, trips)
            body = _over_all(step.body, counter, at, iteration)
            first = 1 if self._is_transposed(body, iteration, axes) else 0
            axes = (*axes[:first], Axis(iteration, trips), *axes[first:])
            indices = (*own[:first], SizeTerm(at), *own[first:])
        if body is None:
            return step
        kind = TensorType(self.types[step.target].dtype, tuple(axis.extent for axis in axes))
        name = self._tensor(f"{step.target}.early", kind)
        self.before.append(Statement(name, axes, body, step.combine, step.reduced))
        return with_body(step, Read(name, indices))

    def _is_transposed(self, body: Expr | None, iteration: str, axes: tuple[Axis, ...]) -> bool:
        """Whether the operand read at (iteration, first axis) is stored transposed."""
        if body is None or not axes:
            return False
        wanted = (Index(iteration), Index(axes[0].name))
        return any(r.tensor in self.transposed and r.indices[:2] == wanted for r in reads(body))

    # ---- packed matrices ----

    def _read_panels(
        self, step: Statement | Write, written: frozenset[str], counter: str
    ) -> tuple[OrderedStep, ...]:
        """Rewrite a product with a loop-invariant matrix to read its panels."""
        found = self._matrix(step, written, counter)
        if found is None:
            return (step,)
        moving, matrix, column, row = found
        dtype = self.types[step.target].dtype
        width = tile_of(self.machine, dtype).lanes
        panels = self._panel_tensor(matrix, column, row, width)
        panel, lane = (unique_name(name, {a.name for a in step.axes}) for name in ("panel", "lane"))
        count = ceil_div(column.extent, width)
        rows = step.axes[:-1]
        axes = (*rows, Axis(panel, count), Axis(lane, as_size(width)))
        read = Read(panels, (Index(panel), Index(row.name), Index(lane)))
        kind = TensorType(dtype, tuple(axis.extent for axis in axes))
        sums = self._tensor(f"{step.target}.panels", kind)
        product = Statement(sums, axes, Apply("mul", (moving, read)), "add", step.reduced)
        strides: dict[str, Size] = {column.name: as_size(1)}
        inner = count * width
        for axis in reversed(rows):
            strides[axis.name] = inner
            inner = inner * axis.extent
        flat = Read(sums, (to_expr(Affine.of(as_size(0), strides)),), flat=True)
        return product, with_body(step, flat)

    def _matrix(
        self, step: Statement | Write, written: frozenset[str], counter: str
    ) -> tuple[Expr, Expr, Axis, Axis] | None:
        """The factor that changes, the invariant one, and the latter's columns and rows.

        Each is a read or a conversion of one to float32.
        """
        if len(step.reduced) != 1 or not step.axes:
            return None
        if not is_product(Statement("", (), step.body, step.combine)):
            return None
        assert isinstance(step.body, Apply)
        column, row = step.axes[-1], step.reduced[0]
        if column.extent.constant is not None and column.extent.constant < 2:
            return None
        if any(counter in axis.extent.symbols for axis in (column, row)):
            return None
        for factors in (step.body.arguments, step.body.arguments[::-1]):
            moving, matrix = map(read_of, factors)
            if moving.tensor not in written or matrix.tensor in written | self.constants:
                continue
            used = [_names(read) for read in (moving, matrix)]
            if any(names is None for names in used) or matrix.flat or matrix.default is not None:
                continue
            if counter in sizes_of(matrix):  # another matrix in each iteration
                continue
            if used[1] == {column.name, row.name} and column.name not in (used[0] or set()):
                return factors[0], factors[1], column, row
        return None

    def _panel_tensor(self, matrix: Expr, column: Axis, row: Axis, width: int) -> str:
        """Panels of the matrix, converted before the loop if the factor is."""
        key = (matrix, column.name, row.name)
        if key in self._panels:
            return self._panels[key]
        read = read_of(matrix)
        dtype = dtype_of(matrix, self.types)
        names = ("panel", row.name, "lane")
        extents = (ceil_div(column.extent, width), row.extent, as_size(width))
        axes = tuple(Axis(name, extent) for name, extent in zip(names, extents))
        column_index = to_expr(Affine.of(as_size(0), {"panel": as_size(width), "lane": as_size(1)}))

        def change(expr: Expr) -> Expr | None:
            return column_index if expr == Index(column.name) else None

        indices = tuple(rewrite(index, change) for index in read.indices)
        zero = Literal(0, self.types[read.tensor].dtype)
        body: Expr = Read(read.tensor, indices, default=zero)
        if matrix is not read:
            body = Cast(dtype, body)
        name = self._tensor(f"{read.tensor}.panels", TensorType(dtype, extents))
        self.before.append(Statement(name, axes, body))
        self._panels[key] = name
        return name


def _names(read: Read) -> set[str] | None:
    """The axes in the indices of a read; None if one is not affine."""
    forms = [affine(index) for index in read.indices]
    if any(form is None for form in forms):
        return None
    return {name for form in forms if form is not None for name in form.indices}


def _index_of(body: Expr, counter: str, trips: Size) -> Size:
    """Index of an iteration's part among all parts; reversed if the body reads in reverse."""
    used: set[Size] = set()

    def look(expr: Expr) -> None:
        if isinstance(expr, SizeTerm) and counter in expr.size.symbols:
            used.add(expr.size)

    rewrite(body, look)
    backwards = trips - 1 - Size.symbol(counter)
    return backwards if used == {backwards} else Size.symbol(counter)


def _over_all(body: Expr, counter: str, at: Size, iteration: str) -> Expr | None:
    """The body with an axis for index `at`; None if it is not linear in the counter."""
    hard = False

    def change(expr: Expr) -> Expr | None:
        nonlocal hard
        if not isinstance(expr, SizeTerm) or counter not in expr.size.symbols:
            return None
        if expr.size == at:
            return Index(iteration)
        split = expr.size.linear_in((counter,))
        if split is None or counter in split[1].symbols:
            hard = True
            return None
        return to_expr(Affine.of(split[1], {iteration: split[0][counter]}))

    made = rewrite(body, change)
    return None if hard else made
