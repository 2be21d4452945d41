"""Rows and elements by work-groups: one group reduces a row, or one work-item makes an element.

    top(r) max=! x(r,c);  e(r,c) = exp(x(r,c) - top(r));  total(r) +=! e(r,c);  y(r,c) = e / total

In a reduction each work-item reduces every `items`th element of the row, then the group combines
halves in local memory. Values that are not results are recomputed on use, except values per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.reduction import accumulator_of, neutral_element
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_indices import Work, plain
from anydim.compiler.kernels.ir import constant, convert, least, operate
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.matmul.epilogue import element_offset
from anydim.compiler.kernels.template import Task, form_template
from anydim.lang.tree import Axis, Group, Index, Read, Statement
from anydim.lang.tree.affine import reads
from anydim.sizes import ceil_div, product

_START, _ITEM = ir.START, ir.Item()


@dataclass(frozen=True)
class Teams:
    """A work-group has `items` work-items; without reductions each computes `each` elements."""

    items: int = 128
    each: int = 4


@dataclass(frozen=True)
class RowsForm:
    """The axes of all statements, with one work-group per position, and the axes of a row."""

    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    reduces: bool


def rows_form(group: Group) -> RowsForm | None:
    """Return the form of a group for work-groups, or None."""
    if not plain(group) or not _reads_own_indices(group):
        return None
    reduced = [s for s in group.statements if s.combine]
    if not reduced:
        first = group.statements[0]
        same = all(set(s.axes) == set(first.axes) for s in group.statements)
        return RowsForm((), first.axes, False) if same else None
    outer, row = reduced[0].axes, reduced[0].reduced
    for statement in group.statements:
        if statement.combine:
            fits = set(statement.axes) == set(outer) and set(statement.reduced) == set(row)
        else:
            fits = set(statement.axes) in (set(outer), {*outer, *row})
        if not fits:
            return None
    return RowsForm(outer, row, True)


def _reads_own_indices(group: Group) -> bool:
    """Whether later statements read a statement's result only at their own indices."""
    made: dict[str, tuple[Index, ...]] = {}
    for statement in group.statements:
        for read in reads(statement.body):
            if read.tensor in made and (read.indices != made[read.tensor] or read.flat):
                return False
        made[statement.target] = tuple(Index(axis.name) for axis in statement.axes)
    return True


def _lower(form: RowsForm, schedule: Teams, task: Task) -> Launch:
    writer = _Writer(task.group, form, schedule, task.machine)
    body = writer.body()
    total = product(axis.extent for axis in form.outer)
    elements = product(axis.extent for axis in form.row)
    if not form.reduces:
        total = ceil_div(elements, schedule.items * schedule.each)
    kind = "rows, one work-group each" if form.reduces else "elements, one per work-item"
    flops = len(task.group.statements) * product(a.extent for a in (*form.outer, *form.row))
    return writer.work.launch(
        "teams", body, schedule.items, writer.locals,
        parallel=total, flops=flops, schedule=schedule, reason=kind,
    )  # fmt: skip


TEMPLATE = form_template(
    "teams", Teams, lambda task: rows_form(task.group), lambda *_: Teams(), _lower
)


class _Writer:
    """Writes the body of one kernel."""

    def __init__(self, group: Group, form: RowsForm, schedule: Teams, machine: Machine) -> None:
        self.group, self.form, self.schedule = group, form, schedule
        self.work = Work(group, machine)
        self.statements = {statement.target: statement for statement in group.statements}
        self.computed = frozenset(self.statements)
        self.whole: dict[str, ir.Value] = {}  # values per row
        self.locals: list[ir.Local] = []

    def body(self) -> list[ir.Step]:
        """Return the steps of a work-item."""
        work = self.work
        outside = ScalarLowering(work.context)
        row = outside.inner(work.indices(_START, self.form.outer))
        before = work.here
        self.last = work.sizes.value(product(axis.extent for axis in self.form.row))
        pending: list[Statement] = []  # results of one pass over the row
        for statement in self.group.statements:
            if statement.combine:
                self._sweep(row, pending)
                self._fold(row, statement)
                pending = []
            elif self.form.reduces and set(statement.axes) == set(self.form.outer):
                self._scalar(row, statement)
            elif statement.target in work.results:
                pending.append(statement)
        self._sweep(row, pending)
        work.take(row.steps, before)
        return [*outside.steps, *work.written]

    # ---- statements ----------------------------------------------------------------------------

    def _fold(self, row: ScalarLowering, statement: Statement) -> None:
        """Emit a reduction: by work-items, then by halves of the group."""
        work, dtype = self.work, self._dtype(statement)
        function, wide = accumulator_of(statement.combine, dtype)
        kind = ir.Type(wide)
        name, shared = work.fresh("a"), work.fresh("shared")
        self.locals.append(ir.Local(shared, wide, self.schedule.items))
        total = ir.Get(kind, name)
        work.emit(ir.Declare(name, neutral_element(function, wide)))
        with self._elements(row) as inner:
            value = convert(inner.value(statement.body, dtype), wide)
            inner.steps.append(ir.Assign(name, operate(function, total, value)))
        work.take(work.group_reduction(function, total, shared, self.schedule.items))
        whole = work.let(convert(ir.Load(kind, shared, constant(0)), dtype))
        self._set_result(row, statement, whole)

    def _scalar(self, row: ScalarLowering, statement: Statement) -> None:
        """Emit a value per row; every work-item computes it."""
        inner = self._inside(row, {})
        found = inner.value(statement.body, self._dtype(statement))
        self.work.take(inner.steps)
        self._set_result(row, statement, self.work.let(found))

    def _set_result(self, row: ScalarLowering, statement: Statement, value: ir.Value) -> None:
        self.whole[statement.target] = value
        if statement.target in self.work.results:
            with self.work.when(_ITEM.equals(0)):
                inner = self._inside(row, {})
                store = self._store(inner, statement, value)
                self.work.take([*inner.steps, store])

    def _sweep(self, row: ScalarLowering, statements: list[Statement]) -> None:
        """Emit one pass that stores results per element of the row."""
        if not statements:
            return
        with self._elements(row) as inner:
            inner.steps += [
                self._store(inner, s, inner.value(s.body, self._dtype(s))) for s in statements
            ]

    def _dtype(self, statement: Statement) -> DType:
        return self.work.types[statement.target].dtype

    def _store(self, inner: ScalarLowering, statement: Statement, value: ir.Value) -> ir.Store:
        offset = inner.offset(element_offset(statement))
        return ir.Store(self.work.buffers[statement.target], offset, value)

    # ---- elements ------------------------------------------------------------------------------

    @contextmanager
    def _elements(self, row: ScalarLowering) -> Iterator[ScalarLowering]:
        """Loop over the work-item's elements of the row, or of all elements."""
        work, items, last = self.work, self.schedule.items, self.last
        first: ir.Value = _ITEM
        if not self.form.reduces:
            share = items * self.schedule.each
            begin = _START * share
            first, last = begin + _ITEM, least(last, begin + share)
        with work.range(first, last, items, work.fresh("at")) as at:
            inner = self._inside(row, work.indices(at, self.form.row))
            yield inner
            work.take(inner.steps)

    def _inside(self, row: ScalarLowering, indices: dict[str, ir.Value]) -> ScalarLowering:
        """Return a scope where reads of computed tensors inline their statements."""

        def local(read: Read) -> ir.Value | None:
            if read.tensor in self.whole:
                return self.whole[read.tensor]
            if read.tensor in self.computed:
                statement = self.statements[read.tensor]
                return inner.value(statement.body, self._dtype(statement))
            return None

        inner = row.inner(indices, local=local, answers=self.computed)
        return inner
