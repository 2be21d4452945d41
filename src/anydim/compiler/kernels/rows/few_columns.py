"""Reductions across a few columns: a vector holds several rows.

    top(c) max=! x(r,c) where c in 0:3

A row that fills 3 of 16 lanes wastes the others, so a vector holds 5 adjacent rows. Maxima and
minima are combined at the end; sums that round are accumulated row by row, in the same order as
with many columns, so the bits of a column do not depend on the other columns. Code is specialized
for the number of columns only where lanes are shuffled. An expression that uses the row index reads
a vector with the row of each lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from anydim.base.dtypes import int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop
from anydim.compiler.kernels.codegen.reduction import accumulate, terms_of
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.vector_loops import first_lanes
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import (
    Like,
    constant,
    iota,
    least,
    operate,
    select,
    shuffle,
    variable,
)
from anydim.compiler.kernels.partial_rows import limits
from anydim.compiler.kernels.rows.row_body import Cell, Row, RowForm, Setting
from anydim.lang.tree import Apply, Cast, Expr, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import Affine, flat_address, parts, reads

_NUMBER = "number of the row"


def fits_few_columns(form: RowForm, lanes: int) -> bool:
    """Whether rows are adjacent in all elements that a form reads and writes."""
    known = form.lane.extent.constant
    if lanes < 4 or len(form.row) != 1 or form.plan.slots or (known or 0) > lanes // 2:
        return False
    statements = form.group.statements
    stored = (own_address(s) for s in statements if s.target in form.plan.stored)
    return all(_follow(address, form) for address in stored) and all(
        _plain(part, form) for s in statements for part in parts(s.body)
    )


def _follow(address: Affine, form: RowForm) -> bool:
    row, lane = (address.stride(axis.name) for axis in (form.row[0], form.lane))
    return lane == 1 and row == form.lane.extent


def _plain(part: Expr, form: RowForm) -> bool:
    moving = {form.row[0].name, form.lane.name}
    if isinstance(part, Index):
        return part.name != form.lane.name
    if not isinstance(part, Read) or part.tensor in form.plan.kinds or not free_axes(part) & moving:
        return True
    address = flat_address(part)
    return address is not None and _follow(address, form)


def _read_row_index(expr: Expr, row: str) -> Expr:
    """An expression that reads the row index as a tensor, except in indices of reads."""
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(_read_row_index(part, row) for part in expr.arguments))
    if isinstance(expr, Cast):
        return Cast(expr.dtype, _read_row_index(expr.argument, row))
    return Read(_NUMBER, ()) if expr == Index(row) else expr


class FewColumns:
    """The steps at one point of the outer axes, without the columns."""

    def __init__(self, setting: Setting) -> None:
        self.form, self.lanes = setting.form, setting.lanes
        row = self.form.row[0].name
        group = self.form.group
        made = tuple(s.with_body(_read_row_index(s.body, row)) for s in group.statements)
        self.numbered = any(r.tensor == _NUMBER for s in made for r in reads(s.body))
        if self.numbered:
            form = replace(self.form, group=replace(group, statements=made))
            setting = Setting(form, setting.context, self.lanes, setting.unroll)
            setting.elements |= {_NUMBER}
        self.setting = setting
        self.columns = setting.value(setting.form.lane.extent)

    def steps(self, outer: ScalarLowering) -> tuple[ir.Step, ...]:
        """All passes over the rows, and the stores after them."""
        shared = outer.inner({})
        types = {**outer.context.types, _NUMBER: TensorType(int64, ())}
        shared.context = replace(outer.context, types=types)
        lane, zero = self.form.lane.name, constant(0)
        mask = first_lanes(shared, self.columns, self.lanes)
        scope = shared.inner(
            {lane: zero}, lane=lane, lanes=self.lanes, mask=mask, answers=self.setting.scalars
        )
        scope.steps = shared.steps
        if self.numbered:
            self.rows_of_lanes = self._rows_of_lanes(shared)
        row = Row(self.setting, scope, 0)
        for pass_number in range(self.setting.plan.passes):
            row.begin(pass_number, 1)
            self._pass(shared, row, pass_number)
            for name in self.setting.plan.made_by(pass_number):
                self._join(scope, name, row.accumulators[name][0])
            row.end(pass_number)
        row.finish()
        return tuple(shared.steps)

    def _pass(self, shared: ScalarLowering, row: Row, pass_number: int) -> None:
        """Vectors of rows: the maximum number of rows that fits."""
        axis = self.form.row[0]
        part = self.form.part(pass_number)
        rows = self.setting.value(axis.extent)
        first, rows = limits(part, axis.name, shared, rows)
        step = shared.name(constant(self.lanes) // self.columns)  # rows per vector
        at = variable(self.setting.context.fresh("i"))
        uniform = shared.inner({axis.name: at}, certain=not part)
        remaining = uniform.name(least(uniform.name(rows - at), step))
        mask = first_lanes(uniform, uniform.name(remaining * self.columns), self.lanes)
        _FewCell(self, row, uniform, {axis.name: at}, pass_number, 0, mask).emit()
        if self.setting.plan.made_by(pass_number):
            shared.steps.append(loop(at.name, first, rows, step, *uniform.steps))
        else:
            shared.steps.append(interleaved_loop(at, rows, step, uniform.steps, shared))

    def _rows_of_lanes(self, scope: ScalarLowering) -> ir.Value:
        """The row of each lane, relative to the row of lane 0."""
        total = constant(0, lanes=self.lanes)
        for row in range(1, self.lanes):
            begins = self.columns * row
            total = scope.name(select(iota(self.lanes) >= begins, total + 1, total))
        return total

    def _join(self, scope: ScalarLowering, name: str, register: str) -> None:
        """Combine the rows of a vector: every row gets the result of its column."""
        function, dtype = self.setting.accumulation(name)
        old = ir.Get(ir.Type(dtype, self.lanes), register)

        def combine_rows(count: int) -> ir.Value:
            total: ir.Value = old
            for row in range(1, self.lanes // count if self.free_order(name) else 1):
                total = operate(function, total, self.row_of(old, row, count))
            return shuffle(total, total, tuple(lane % count for lane in range(self.lanes)))

        scope.steps.append(self.by_columns(register, combine_rows))

    def free_order(self, name: str) -> bool:
        """Whether the result of a reduction is independent of the order."""
        function, dtype = self.setting.accumulation(name)
        return not dtype.is_float or function not in ("add", "mul")

    def row_of(self, vector: ir.Value, row: int, count: int) -> ir.Value:
        """A row of `count` columns of a vector, in its first lanes."""
        picks = tuple(min(row * count + lane, self.lanes - 1) for lane in range(self.lanes))
        return shuffle(vector, vector, picks)

    def by_columns(self, register: str, value: Callable[[int], ir.Value]) -> ir.Step:
        """Assign a register the value for the actual number of columns."""
        counts = range(1, self.lanes // 2 + 1)
        return ir.Switch(self.columns, tuple((n, (ir.Assign(register, value(n)),)) for n in counts))


class _FewCell(Cell):
    """The elements of several rows in a vector."""

    def __init__(self, few: FewColumns, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.few = few

    def read(self, read: Read) -> ir.Value | None:
        if read.tensor != _NUMBER:
            return super().read(read)
        first = self.scope.indices[self.setting.form.row[0].name]
        return first + self.few.rows_of_lanes

    def _accumulate(self, statement: Statement) -> None:
        name, body = statement.target, statement.body
        function, dtype = self.setting.accumulation(name)
        register, neutral = self.row.accumulators[name][0], self.setting.neutral(name)
        old = ir.Get(neutral.type, register)
        assert self.mask is not None
        terms = terms_of(self.scope, body, function, dtype, self.setting.dtype(name))
        values = [self.scope.name(select(self.mask, term, neutral)) for term in terms]
        if self.few.free_order(name):
            self.scope.steps.append(ir.Assign(register, accumulate(function, old, values)))
            return

        # One row after the other: a column has the same bits beside any number of others.
        def add_rows(count: int) -> ir.Value:
            total: ir.Value = old
            for row in range(self.setting.lanes // count):
                total = accumulate(
                    function, total, [self.few.row_of(v, row, count) for v in values]
                )
            return total

        self.scope.steps.append(self.few.by_columns(register, add_rows))


def interleaved_loop(
    at: ir.Var, end: ir.Value, step: Like, body: Iterable[ir.Step], scope: ScalarLowering
) -> ir.Step:
    """A loop over the even steps up to `end`, then over the odd ones.

    A masked vector store overlaps the bytes where the next vector starts; loading elements kept
    there right afterwards would stall on that store.
    """
    begin, twice = variable(scope.context.fresh("i")), step + step
    return loop(begin.name, 0, twice, step, loop(at.name, begin, end, twice, *body))
