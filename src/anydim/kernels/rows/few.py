"""Reductions across a few columns: vectors hold several rows.

    top(c) max=! x(r,c) where c in 0:3

A row that fills 3 of 16 lanes wastes the rest, so a vector takes 5 rows, which follow each other.
Largest and smallest elements are joined at the end; what rounds is added up one row after the
other, as where columns are many, so a column has the same bits beside others and alone. How many
columns there are is told apart where lanes move, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.kernels import ir
from anydim.kernels.inference import free_axes
from anydim.kernels.rows.cells import Cell, Row, RowForm, Setting, identity, is_product
from anydim.kernels.rows.flatten import own_address
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.loops import first_lanes, index
from anydim.kernels.write.values import convert, number, operate
from anydim.lang.tree import Apply, Expr, Index, Read, Statement
from anydim.lang.tree.affine import Affine, affine, parts


def takes_few(form: RowForm, lanes: int) -> bool:
    """Whether rows of a form follow each other in all that it reads and writes by elements."""
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
        return part.name not in moving
    if not isinstance(part, Read) or part.tensor in form.plan.kinds or not free_axes(part) & moving:
        return True
    address = affine(part.indices[0]) if part.flat and part.default is None else None
    return address is not None and _follow(address, form)


class FewColumns:
    """The steps for one place of the outer axes but the columns."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.form = setting.form
        self.lanes = setting.lanes
        self.columns = setting.value(setting.form.lane.extent)

    def steps(self, outer: Elements) -> tuple[ir.Step, ...]:
        """All sweeps over the rows, and what is stored after them."""
        shared = outer.inner({})
        lane = self.form.lane.name
        mask = first_lanes(shared, self.columns, self.lanes)
        scope = shared.inner(
            {lane: index(0)}, lane=lane, lanes=self.lanes, mask=mask, answers=self.setting.scalars
        )
        scope.steps = shared.steps
        row = Row(self.setting, scope, 0)
        for sweep in range(self.setting.plan.sweeps):
            row.begin(sweep, 1)
            self._sweep(shared, row, sweep)
            for name, made in self.setting.plan.made.items():
                if made == sweep:
                    self._join(scope, name, row.accumulators[name][0])
            row.end(sweep)
        row.finish()
        return tuple(shared.steps)

    def _sweep(self, shared: Elements, row: Row, sweep: int) -> None:
        """Vectors of rows, as many as there is room for."""
        axis = self.form.row[0]
        rows, step = self.setting.value(axis.extent), self._rows_of_a_vector(shared)
        at = ir.Var(ir.INDEX, self.setting.context.fresh("i"))
        uniform = shared.inner({axis.name: at})
        left = uniform.name(operate("min", uniform.name(operate("sub", rows, at)), step))
        mask = first_lanes(uniform, uniform.name(operate("mul", left, self.columns)), self.lanes)
        _FewCell(self, row, uniform, {axis.name: at}, sweep, 0, mask).emit()
        body = tuple(uniform.steps)
        if sweep in self.setting.plan.made.values():
            shared.steps.append(ir.For(at.name, index(0), rows, step, body))
            return
        shared.steps.append(every_other(at, rows, step, body, shared))

    def _rows_of_a_vector(self, scope: Elements) -> ir.Value:
        return scope.name(operate("floordiv", index(self.lanes), self.columns))

    def _join(self, scope: Elements, name: str, register: str) -> None:
        """Every row of a vector gets the result of its column."""
        function, dtype = self.setting.folding(name)
        vector = ir.Type(dtype, self.lanes)
        old = ir.Get(vector, register)

        def joined(count: int) -> ir.Value:
            total: ir.Value = old
            for row in range(1, self.lanes // count if self.free_order(name) else 1):
                total = operate(function, total, self.row_of(old, row, count))
            places = tuple(lane % count for lane in range(self.lanes))
            return ir.Shuffle(vector, total, total, places)

        scope.steps.append(self.by_columns(register, joined))

    def free_order(self, name: str) -> bool:
        """Whether a reduction has the same bits in any order."""
        function, dtype = self.setting.folding(name)
        return not dtype.is_float or function not in ("add", "mul")

    def row_of(self, vector: ir.Value, row: int, count: int) -> ir.Value:
        """A row of `count` columns of a vector, in its first lanes."""
        places = tuple(min(row * count + lane, self.lanes - 1) for lane in range(self.lanes))
        return ir.Shuffle(vector.type, vector, vector, places)

    def by_columns(self, register: str, value: Callable[[int], ir.Value]) -> ir.Step:
        """A register becomes what `value` says for the number of columns."""
        counts = range(1, self.lanes // 2 + 1)
        return ir.Switch(self.columns, tuple((n, (ir.Assign(register, value(n)),)) for n in counts))


class _FewCell(Cell):
    """The elements of several rows in a vector."""

    def __init__(self, few: FewColumns, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.few = few

    def _fold(self, statement: Statement) -> None:
        name, body = statement.target, statement.body
        function, dtype = self.setting.folding(name)
        vector = ir.Type(dtype, self.setting.lanes)
        register = self.row.accumulators[name][0]
        old = ir.Get(vector, register)
        fused = function == "add" and dtype.is_float and is_product(body)
        fused = fused and self.scope.dtype(body) == dtype
        bodies = body.arguments if fused and isinstance(body, Apply) else (body,)
        kind = dtype if fused else self.setting.dtype(name)
        nothing = number(dtype, identity(function, dtype), self.setting.lanes)
        assert self.mask is not None
        values = []
        for each in bodies:
            found = self.scope.name(convert(self.scope.value(each, kind), dtype))
            values.append(self.scope.name(operate("select", self.mask, found, nothing)))
        if self.few.free_order(name):
            both = (values[0], old) if function == "fast_max" else (old, values[0])
            self.scope.steps.append(ir.Assign(register, operate(function, *both)))
            return

        def added(count: int) -> ir.Value:
            total: ir.Value = old
            for row in range(self.setting.lanes // count):
                terms = [self.few.row_of(value, row, count) for value in values]
                total = operate("fma", *terms, total) if fused else operate(function, total, *terms)
            return total

        self.scope.steps.append(self.few.by_columns(register, added))


def every_other(
    at: ir.Var, end: ir.Value, step: ir.Value, body: tuple[ir.Step, ...], scope: Elements
) -> ir.Step:
    """A loop that goes to every other place up to `end`, and then to those between.

    A vector's store ends, by its mask, in bytes with which the next one begins: where that loads
    what was kept there, it would wait for the store.
    """
    begin = ir.Var(ir.INDEX, scope.context.fresh("i"))
    twice = scope.name(operate("add", step, step))
    inner = ir.For(at.name, begin, end, twice, body)
    return ir.For(begin.name, index(0), twice, step, (inner,))
