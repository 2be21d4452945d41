"""Code for groups that work row by row: sweeps with vector lanes along or across the rows.

Along: the lanes are neighbours in one row; reductions end with a sum over lanes.
Across: the lanes are neighbouring rows; each lane has its own row, walked element by element.

    along  (softmax over c)          across (mean over s)
    for r:                           for b, block of 64 c:
      for c by 16: top = max(...)      for s: total[64] += x(b, s, block)
      for c by 16: e, total            y(b, block) = total[64] / S
      for c by 16: y = e / total
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from anydim.base.dtypes import DType, boolean, uint8
from anydim.kernels import ir
from anydim.kernels.elements import Context, Elements, add, convert, number, operate
from anydim.kernels.flatten import own_address
from anydim.kernels.loops import (
    START,
    STOP,
    Segment,
    first_lanes,
    index,
    loop,
    parallel_loop,
    run_segment,
    segments,
)
from anydim.kernels.passplan import Plan, needed
from anydim.lang.affine import Affine, affine, reads, row_major_strides
from anydim.lang.tree import Apply, Axis, Group, Read, SizeTerm, Statement
from anydim.sizes import Size, align_up, as_size, ceil_div, product


MOST_AHEAD = 3  # inputs whose next row is asked for ahead of time


@dataclass(frozen=True)
class RowForm:
    """A flattened group with its loops told apart: `outer` ones, and those of a `row`.

    `lane` is the axis along vector lanes: the last of `row`, or one of `outer` (then `across`).
    `scaled` are scalars that stand for a sum whose factors were taken out of it.
    """

    group: Group
    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    lane: Axis
    plan: Plan
    scaled: frozenset[str] = frozenset()

    @property
    def across(self) -> bool:
        return self.lane in self.outer

    @property
    def whole(self) -> bool:
        """Whether there is but one row, of independent elements: then its elements are shared out.

        Otherwise rows are.
        """
        return not self.outer and not self.plan.made and len(self.row) == 1


class RowProgram:
    """Emits the body of a kernel for a form: `lanes` wide, `unroll` vectors side by side."""

    def __init__(self, form: RowForm, context: Context, lanes: int, unroll: int) -> None:
        self.form = form
        self.plan = form.plan
        self.context = context
        self.lanes = lanes
        self.unroll = unroll
        self.statements = {s.target: s for s in form.group.statements}
        self.outputs = frozenset(tensor.name for tensor in form.group.outputs)
        self.scalars = frozenset(n for n, kind in self.plan.kinds.items() if kind != "element")
        self.elements = frozenset(self.plan.kinds) - self.scalars
        self.sweeps: tuple[Segment, ...] = ()
        self.ahead = self._read_ahead()
        self.near: ir.Value = index(0)

    def value(self, size: Size) -> ir.Value:
        return self.context.sizes.value(size)

    # ---- the whole -----------------------------------------------------------------------------

    def body(self, never_empty: bool) -> tuple[ir.Step, ...]:
        """All steps of the main function. `never_empty` says that rows have elements."""
        steps = self._rows(replace(self.context, running=True), empty=False)
        if self.plan.made and not never_empty:
            count = self.value(product(axis.extent for axis in self.form.row))
            nothing = self._rows(self.context, empty=True)
            steps = (ir.If(operate("less", index(0), count), steps, nothing),)
        return (ir.If(operate("less", START, STOP), steps),)

    @property
    def parallel(self) -> Size:
        """The extent of the parallel range."""
        if self.form.whole:
            return self.form.row[0].extent
        if self.form.across:
            rest = product(axis.extent for axis in self._shared())
            return rest * ceil_div(self.form.lane.extent, self.width)
        return product(axis.extent for axis in self.form.outer)

    @property
    def width(self) -> int:
        """Lanes of all vectors side by side."""
        return self.lanes * self.unroll

    @property
    def scratch(self) -> Size:
        """Bytes of the rows kept in scratch."""
        return self._slot_start(len(self.plan.slots))

    def _slot_start(self, slot: int) -> Size:
        total = as_size(0)
        count = product(axis.extent for axis in self.form.row)
        wide = self.width if self.form.across else 1
        for name in self.plan.slots[:slot]:
            size = self.form.group.type_of(name).dtype.bytes
            total = total + align_up(count * (size * wide), 64)
        return total

    def _shared(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.form.outer if axis != self.form.lane)

    def _rows(self, context: Context, empty: bool) -> tuple[ir.Step, ...]:
        kernel = Elements(context)
        if self.form.across:
            self._rows_across(kernel, empty)
        else:
            self._rows_along(kernel, empty)
        return tuple(kernel.steps)

    def _read_ahead(self) -> tuple[tuple[str, Affine, Size], ...]:
        """What the first sweep of the next row will read: buffer, address, distance of rows.

        The second sweep asks for it, where there is one: it has the memory to itself.
        """
        if self.form.across or not self.form.outer or self.plan.sweeps < 2:
            return ()
        roots = {**self.plan.made, **self.plan.stored}
        wanted = needed(0, self.statements, self.plan.kinds, roots, {})
        found: dict[tuple[str, Affine, Size], None] = {}
        for name in self.statements:
            for read in reads(self.statements[name].body) if name in wanted else ():
                form = affine(read.indices[0]) if read.flat else None
                if form is None or read.tensor in self.plan.kinds:
                    continue
                distance = form.stride(self.form.outer[-1].name)
                if distance != 0 and form.stride(self.form.lane.name) == 1:
                    found[self.context.buffers[read.tensor], form, distance] = None
        return tuple(found)[:MOST_AHEAD]

    def _distances(self, kernel: Elements) -> None:
        """Rows too long for two of them to stay in the nearest cache are not read ahead."""
        if self.ahead:
            bytes_of = max(t.type.dtype.bytes for t in self.form.group.inputs)
            most = self.context.machine.l1_bytes // (4 * bytes_of * len(self.ahead))
            self.near = kernel.name(
                operate("less", self.value(self.form.lane.extent), index(most))
            )

    # ---- along ---------------------------------------------------------------------------------

    def _rows_along(self, kernel: Elements, empty: bool) -> None:
        extent = self.value(self.form.lane.extent)
        low, high = (START, STOP) if self.form.whole else (index(0), extent)
        if not empty:
            self.sweeps = segments(kernel, low, high, self.lanes, self.unroll)
            self._distances(kernel)

        def one(scope: Elements) -> None:
            row = Row(self, scope.inner({}, answers=self.scalars), None)
            if empty:
                row.empty()
            for sweep in range(0 if empty else self.plan.sweeps):
                self._sweep_along(row, sweep)
            row.finish()
            scope.steps += row.scope.steps

        if self.form.whole:
            one(kernel)
        else:
            axes = [(axis.name, self.value(axis.extent)) for axis in self.form.outer]
            parallel_loop(kernel, axes, one)

    def _sweep_along(self, row: Row, sweep: int) -> None:
        copies = max(segment.copies for segment in self.sweeps)
        row.begin(sweep, copies)

        def vectors(scope: Elements) -> None:
            for segment in self.sweeps:

                def cell(
                    inner: Elements, at: ir.Value, copy: int, mask: ir.Value | None = segment.mask
                ) -> None:
                    Cell(row, inner, {self.form.lane.name: at}, sweep, copy, mask).emit()

                run_segment(scope, segment, self.lanes, cell)

        self._nested(row.scope, self.form.row[:-1], vectors)
        row.end(sweep)

    def _nested(
        self, scope: Elements, axes: tuple[Axis, ...], body: Callable[[Elements], None]
    ) -> None:
        if not axes:
            body(scope)
            return
        extent = self.value(axes[0].extent)
        loop(scope, axes[0].name, extent, lambda inner: self._nested(inner, axes[1:], body))

    # ---- across --------------------------------------------------------------------------------

    def _rows_across(self, kernel: Elements, empty: bool) -> None:
        lane = self.form.lane
        extent = self.value(lane.extent)
        blocks = self.value(ceil_div(lane.extent, self.width))
        axes = [(axis.name, self.value(axis.extent)) for axis in self._shared()]
        block = "block"

        def one(scope: Elements) -> None:
            first = scope.name(operate("mul", scope.indices[block], index(self.width)))
            constant = lane.extent.constant
            if constant is not None and constant % self.width == 0:
                scope.steps += self._block(scope, first, None, empty)
                return
            left = scope.name(operate("sub", extent, first))
            if empty:
                scope.steps += self._block(scope, first, left, empty)
                return
            full = self._block(scope, first, None, empty)
            part = self._block(scope, first, left, empty)
            fits = operate("less_equal", index(self.width), left)
            scope.steps.append(ir.If(fits, full, part))

        parallel_loop(kernel, [*axes, (block, blocks)], one)

    def _block(
        self, outer: Elements, first: ir.Value, left: ir.Value | None, empty: bool
    ) -> tuple[ir.Step, ...]:
        """`unroll` vectors of rows from `first` on; only `left` rows exist when it is given."""
        shared = outer.inner({})
        rows: list[Row] = []
        for copy in range(self.unroll):
            at = shared.name(add(first, index(copy * self.lanes)))
            mask = None
            if left is not None:
                rest = shared.name(add(left, index(-copy * self.lanes)))
                mask = first_lanes(shared, rest, self.lanes)
            scope = shared.inner(
                {self.form.lane.name: at},
                lane=self.form.lane.name,
                lanes=self.lanes,
                mask=mask,
                answers=self.scalars,
            )
            scope.steps = shared.steps
            rows.append(Row(self, scope, copy))
        for sweep in range(0 if empty else self.plan.sweeps):
            self._sweep_across(shared, rows, sweep)
        for row in rows:
            if empty:
                row.empty()
            row.finish()
        return tuple(shared.steps)

    def _sweep_across(self, shared: Elements, rows: list[Row], sweep: int) -> None:
        for row in rows:
            row.begin(sweep, 1)

        def nest(uniform: Elements, indices: dict[str, ir.Value], axes: tuple[Axis, ...]) -> None:
            if axes:
                variable = ir.Var(ir.INDEX, self.context.fresh("i"))
                inner = uniform.inner({axes[0].name: variable})
                nest(inner, {**indices, axes[0].name: variable}, axes[1:])
                extent = self.value(axes[0].extent)
                step = ir.For(variable.name, index(0), extent, index(1), tuple(inner.steps))
                uniform.steps.append(step)
                return
            for row in rows:
                Cell(row, uniform, indices, sweep, 0, row.scope.mask).emit()

        nest(shared, {}, self.form.row)
        for row in rows:
            row.end(sweep)


class Row:
    """One row (or a vector of rows): its accumulators and the scalars known so far."""

    def __init__(self, program: RowProgram, scope: Elements, copy: int | None) -> None:
        self.program = program
        self.scope = scope
        self.copy = copy
        self.known: dict[str, ir.Value] = {}
        self.accumulators: dict[str, tuple[str, ...]] = {}
        scope.local = self.read

    @property
    def across(self) -> bool:
        return self.copy is not None

    def read(self, read: Read) -> ir.Value | None:
        """A scalar of this row; None for tensors of other kinds."""
        name = read.tensor
        if name not in self.program.scalars:
            return None
        if name not in self.known:
            statement = self.program.statements[name]
            self.known[name] = self.scope.value(statement.body, self.dtype(name))
        return self.known[name]

    def dtype(self, name: str) -> DType:
        return self.program.form.group.type_of(name).dtype

    def begin(self, sweep: int, copies: int) -> None:
        """Declare the accumulators of a sweep."""
        for name, made in self.program.plan.made.items():
            if made != sweep:
                continue
            function, dtype = folding(self.program.statements[name].combine, self.dtype(name))
            start = number(dtype, identity(function, dtype), self.program.lanes)
            names = tuple(self.program.context.fresh("a") for _ in range(copies))
            self.accumulators[name] = names
            self.scope.steps += [ir.Declare(register, start) for register in names]

    def end(self, sweep: int) -> None:
        """Make the reductions of a sweep known."""
        for name, made in self.program.plan.made.items():
            if made != sweep:
                continue
            function, dtype = folding(self.program.statements[name].combine, self.dtype(name))
            vector = ir.Type(dtype, self.program.lanes)
            parts: list[ir.Value] = [ir.Get(vector, a) for a in self.accumulators[name]]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2])
                odd = parts[-1:] if len(parts) % 2 else []
                parts = [operate(function, left, right) for left, right in pairs] + odd
            total = self.scope.name(parts[0])
            if not self.across and vector.lanes > 1:
                total = self.scope.name(ir.Reduce(ir.Type(dtype), function, total))
            self.known[name] = self.scope.name(convert(total, self.dtype(name)))

    def empty(self) -> None:
        """Make the reductions of a row without elements known."""
        for name in self.program.plan.made:
            function, dtype = folding(self.program.statements[name].combine, self.dtype(name))
            self.known[name] = convert(number(dtype, identity(function, dtype)), self.dtype(name))
        for name in self.program.form.scaled:
            self.known[name] = number(self.dtype(name), 0)

    def finish(self) -> None:
        """Store the scalars that are results."""
        for name in self.program.statements:
            if name not in self.program.scalars & self.program.outputs:
                continue
            statement = self.program.statements[name]
            value = self.read(Read(name, (), flat=True))
            assert value is not None
            value = self.scope.spread(value, self.scope.lanes)
            offset = self.scope.offset(own_address(statement))
            buffer = self.program.context.buffers[name]
            self.scope.steps.append(ir.Store(buffer, offset, value, self.scope.mask))


class Cell:
    """The elements of a row at one vector: lanes along the row, or one element of many rows."""

    def __init__(
        self,
        row: Row,
        scope: Elements,
        indices: dict[str, ir.Value],
        sweep: int,
        copy: int,
        mask: ir.Value | None,
    ) -> None:
        self.row = row
        self.program = row.program
        self.sweep = sweep
        self.copy = copy
        self.mask = mask
        self.target = scope
        self.values: dict[str, ir.Value] = {}
        if row.across:
            self.scope = row.scope.inner(
                indices, local=self.read, answers=self.program.elements
            )
            self.scope.uniform = scope
        else:
            self.scope = scope.inner(
                indices,
                lane=self.program.form.lane.name,
                lanes=self.program.lanes,
                mask=mask,
                local=self.read,
                answers=self.program.elements,
            )

    def emit(self) -> None:
        """Everything the sweep does here: fold into accumulators, keep and store elements."""
        plan = self.program.plan
        roots = {**plan.made, **plan.stored}
        first = {name: kept.first for name, kept in plan.kept.items()}
        wanted = needed(self.sweep, self.program.statements, plan.kinds, roots, first)
        for name in self.program.statements:
            if name in wanted and first.get(name, self.sweep) < self.sweep:
                self.element(name)
        for name, made in plan.made.items():
            if made == self.sweep:
                self._fold(self.program.statements[name])
        saved = [name for name, sweep in first.items() if sweep == self.sweep]
        saved = [name for name in saved if name not in self.program.outputs]
        results = [name for name, sweep in plan.stored.items() if sweep == self.sweep]
        values = [self.element(name) for name in (*saved, *results)]
        for name, value in zip((*saved, *results), values):
            buffer, offset = self._place(name)
            self.scope.steps.append(ir.Store(buffer, offset, value, self.mask))
        if self.sweep == 1 and self.mask is None:
            self._prefetch()
        self.target.steps += self.scope.steps

    def _prefetch(self) -> None:
        """Ask for what the next row's first sweep reads here."""
        for buffer, form, distance in self.program.ahead:
            far = self.row.scope.outer
            assert far is not None
            step = far.value(SizeTerm(distance))
            near = far.name(operate("select", self.program.near, step, index(0)))
            offset = self.scope.name(add(self.scope.offset(form), near))
            self.scope.steps.append(ir.Prefetch(buffer, offset))

    def read(self, read: Read) -> ir.Value | None:
        """An element of this row; None for tensors of other kinds."""
        return self.element(read.tensor) if read.tensor in self.program.elements else None

    def element(self, name: str) -> ir.Value:
        """The value of an element statement here: loaded when it was kept, else computed."""
        if name not in self.values:
            kept = self.program.plan.kept.get(name)
            dtype = self.row.dtype(name)
            if kept is not None and kept.first < self.sweep:
                buffer, offset = self._place(name)
                load = ir.Load(ir.Type(dtype, self.scope.lanes), buffer, offset, self.mask)
                self.values[name] = self.scope.name(load)
            else:
                body = self.program.statements[name].body
                self.values[name] = self.scope.value(body, dtype)
        return self.values[name]

    def _place(self, name: str) -> tuple[str, ir.Value]:
        """Where an element is stored: the buffer and the offset of lane 0."""
        kept = self.program.plan.kept.get(name)
        if name in self.program.outputs or (kept is not None and kept.place is not None):
            statement = self.program.statements[name]
            place = name if kept is None or kept.place is None else kept.place
            return self.program.context.buffers[place], self.scope.offset(own_address(statement))
        assert kept is not None
        return "scratch", self.scope.offset(self._slot(kept.slot, self.row.dtype(name)))

    def _slot(self, slot: int, dtype: DType) -> Affine:
        row = self.program.form.row
        strides = row_major_strides(tuple(axis.extent for axis in row))
        form = Affine.of(as_size(0), {axis.name: s for axis, s in zip(row, strides)})
        if self.row.across:
            assert self.row.copy is not None
            form = form.scaled(as_size(self.program.width))
            form = form + Affine(as_size(self.row.copy * self.program.lanes))
        start = self.program._slot_start(slot)
        return form + Affine(start // dtype.bytes)

    def _fold(self, statement: Statement) -> None:
        name = statement.target
        function, dtype = folding(statement.combine, self.row.dtype(name))
        register = self.row.accumulators[name][self.copy]
        old = ir.Get(ir.Type(dtype, self.program.lanes), register)
        body = statement.body
        masked = self.mask is not None and not self.row.across
        if function == "add" and dtype.is_float and not masked and is_product(body):
            assert isinstance(body, Apply)
            if self.scope.dtype(body) == dtype:
                left, right = (self.scope.value(a, dtype) for a in body.arguments)
                step = operate("fma", left, right, old)
                self.scope.steps.append(ir.Assign(register, step))
                return
        value = convert(self.scope.value(body, self.row.dtype(name)), dtype)
        if masked:
            assert self.mask is not None
            nothing = number(dtype, identity(function, dtype), self.program.lanes)
            value = operate("select", self.mask, self.scope.name(value), nothing)
        self.scope.steps.append(ir.Assign(register, operate(function, old, self.scope.name(value))))


def is_product(body: object) -> bool:
    """Whether an expression is a multiplication."""
    return isinstance(body, Apply) and body.function == "mul"


def folding(combine: str, dtype: DType) -> tuple[str, DType]:
    """The function and the type that a reduction accumulates with; bools count as small numbers."""
    if dtype == boolean:
        return {"add": "max", "mul": "min"}.get(combine, combine), uint8
    return combine, dtype


def identity(function: str, dtype: DType) -> int | float:
    """What a reduction over nothing yields."""
    if function in ("add", "mul"):
        return 0 if function == "add" else 1
    if dtype.is_float:
        return float("inf") if function == "min" else float("-inf")
    if dtype.kind == "uint":
        return 2**dtype.bits - 1 if function == "min" else 0
    return 2 ** (dtype.bits - 1) - 1 if function == "min" else -(2 ** (dtype.bits - 1))
