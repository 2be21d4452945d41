"""Elements by work-items: groups without reductions, and the common part of rows (`group_rows.py`).

A work-item makes `lanes` adjacent elements, by accesses of 16 bytes where these are aligned
(`wide_access.py`); other elements are made one at a time. Values that are not results are computed
where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import round_down
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.gpu.group_indices import Work
from anydim.compiler.kernels.gpu.wide_access import (
    Access,
    access,
    copy,
    is_aligned,
    read_access,
)
from anydim.compiler.kernels.ir import least, select
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.epilogue import element_offset
from anydim.lang.tree import Axis, Group, Read, Statement
from anydim.lang.tree.affine import address, reads
from anydim.sizes import Size, ceil_div, product

START, ITEM = ir.START, ir.Item()


@dataclass(frozen=True)
class Teams:
    """A work-group has `items` work-items, which access `lanes` adjacent elements together.

    Without reductions a work-item computes `each` elements, or `lanes` if these are several. In a
    reduction it holds up to `held` elements of a row in registers; 0: all passes over a row read
    memory.
    """

    items: int = 128
    each: int = 4
    lanes: int = 1
    held: int = 0


@dataclass(frozen=True)
class RowsForm:
    """The axes of all statements, with one row per position, and the axes of a row."""

    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    reduces: bool


def rows_form(group: Group) -> RowsForm | None:
    """Return the form of a group for work-groups, or None."""
    if group.steps or not _reads_own_indices(group):
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
    made: dict[str, Statement] = {}
    for statement in group.statements:
        for read in reads(statement.body):
            own = made.get(read.tensor)
            if own is None:
                continue
            if not _at_own(read, own, own.shape):
                return False
        made[statement.target] = statement
    return True


def _at_own(read: Read, statement: Statement, shape: tuple[Size, ...]) -> bool:
    """Whether a read of a tensor of `shape` is at the element that a statement makes."""
    return read.default is None and address(read, shape) == own_address(statement)


class RowWriter:
    """The common part of the writers of a kernel: values, statements, tensors."""

    def __init__(self, group: Group, form: RowsForm, schedule: Teams, machine: Machine) -> None:
        self.group, self.form, self.schedule = group, form, schedule
        self.work = Work(group, machine)
        self.lanes = schedule.lanes
        self.statements = {statement.target: statement for statement in group.statements}
        self.computed = frozenset(self.statements)
        self.whole: dict[str, ir.Value] = {}  # values per row
        self.arrays: dict[Read, tuple[str, ir.Value]] = {}  # loaded elements, the current index
        self.locals: list[ir.Local] = []
        self.last = self.work.sizes.value(product(axis.extent for axis in form.row))

    def dtype(self, statement: Statement) -> DType:
        return self.work.types[statement.target].dtype

    def store(self, inner: ScalarLowering, statement: Statement, value: ir.Value) -> ir.Store:
        offset = inner.offset(element_offset(statement))
        return ir.Store(self.work.buffers[statement.target], offset, value)

    def inputs(self, statement: Statement) -> Iterator[Read]:
        """Yield the reads of operands for a statement and the statements that it inlines."""
        for read in reads(statement.body):
            if read.tensor not in self.computed:
                yield read
            elif not self.statements[read.tensor].combine:
                yield from self.inputs(self.statements[read.tensor])

    def array(self, dtype: DType, count: int) -> str:
        """Declare an array of a work-item."""
        name = self.work.fresh("held")
        self.work.emit(ir.Stack(name, dtype, count))
        return name

    def inside(self, row: ScalarLowering, indices: dict[str, ir.Value]) -> ScalarLowering:
        """Return a scope where reads of computed tensors inline their statements."""

        def local(read: Read) -> ir.Value | None:
            if read.tensor in self.whole:
                return self.whole[read.tensor]
            if read in self.arrays:
                array, at = self.arrays[read]
                kind = ir.Type(self.work.types[read.tensor].dtype)
                return inner.name(ir.Load(kind, array, at))
            if read.tensor in self.computed:
                return self.inline_value(inner, self.statements[read.tensor])
            return None

        inner = row.inner(indices, local=local, answers=self.computed)
        return inner

    def inline_value(self, inner: ScalarLowering, statement: Statement) -> ir.Value:
        """Return the value of a statement, computed where it is used."""
        return inner.value(statement.body, self.dtype(statement))


class ElementWriter(RowWriter):
    """Writes the kernel of a group without reductions: a flat range of elements."""

    @property
    def each(self) -> int:
        """Elements of a work-item."""
        return self.schedule.lanes if self.schedule.lanes > 1 else self.schedule.each

    def body(self) -> list[ir.Step]:
        """Return the steps of a work-item."""
        work, items = self.work, self.schedule.items
        self.row = ScalarLowering(work.context)
        share = items * self.each
        begin = START * share
        last = least(self.last, begin + share)
        first = begin
        results = [s for s in self.group.statements if s.target in work.results]
        wide = self._wide(results)
        if wide is not None:
            begin, last = work.let(begin), work.let(last)
            whole = begin + round_down(last - begin, self.lanes)
            first = work.let(select(wide, whole, begin))
            own = work.let(begin + ITEM * self.lanes)
            with work.when(own < first):
                self._lanes(own, results)
        with work.range(first + ITEM, last, items, work.fresh("at")) as at:
            inner = self.inside(self.row, work.indices(at, self.form.row))
            inner.steps += [self.store(inner, s, self.inline_value(inner, s)) for s in results]
            work.take(inner.steps)
        return [*self.row.steps, *work.written]

    @property
    def parallel(self) -> Size:
        """The work-groups of all elements."""
        elements = product(axis.extent for axis in self.form.row)
        return ceil_div(elements, self.schedule.items * self.each)

    @property
    def in_place(self) -> tuple[tuple[str, str], ...]:
        """The only result and the operands that are read at its elements alone."""
        results = [s for s in self.group.statements if s.target in self.work.results]
        if len(results) != 1:
            return ()
        (result,) = results
        used = {read for s in self.group.statements for read in reads(s.body)}
        bytes = self.dtype(result).bytes
        return tuple(
            (result.target, tensor.name)
            for tensor in self.group.inputs
            if tensor.type.dtype.bytes == bytes
            and all(
                _at_own(read, result, tensor.type.shape)
                for read in used
                if read.tensor == tensor.name
            )
        )

    def _wide(self, results: list[Statement]) -> ir.Value | None:
        """Return whether adjacent elements are aligned; None if they never are."""
        self.loads: dict[Read, Access] = {}
        self.stores: dict[str, Access] = {}
        if self.lanes == 1 or not self.form.row:
            return None
        *outer, axis = self.form.row
        inputs = (read for s in results for read in self.inputs(s))
        for read in dict.fromkeys(inputs):
            found = read_access(self.work, read, axis, self.lanes)
            if found is not None:
                self.loads[read] = found
        for statement in results:
            found = access(statement.target, element_offset(statement), axis, self.lanes)
            if found is not None:
                self.stores[statement.target] = found
        extents = [axis.extent] if any(a.extent.constant != 1 for a in outer) else []
        never = any(e.constant is not None and e.constant % self.lanes for e in extents)
        if never or not self.stores:
            return None
        accesses = [*self.loads.values(), *self.stores.values()]
        return is_aligned(self.work, accesses, axis, self.lanes, extents)

    def _lanes(self, at: ir.Value, results: list[Statement]) -> None:
        """Emit `lanes` adjacent elements from the flat index `at` on."""
        work, axis = self.work, self.form.row[-1].name
        indices = work.indices(at, self.form.row)

        def move(each: Access, array: str, store: bool = False) -> None:
            scope = self.row.inner(indices)
            copy(work, scope, each, array, 0, self.lanes, store)

        made = {name: self.array(work.types[name].dtype, self.lanes) for name in self.stores}
        loaded: dict[Read, str] = {}
        for read, each in self.loads.items():
            loaded[read] = self.array(work.types[read.tensor].dtype, self.lanes)
            move(each, loaded[read])
        with work.range(0, self.lanes, unrolled=True) as lane:
            self.arrays = {read: (array, lane) for read, array in loaded.items()}
            own = indices | {axis: work.let(indices[axis] + lane)}
            inner = self.inside(self.row, own)
            for statement in results:
                value = self.inline_value(inner, statement)
                array = made.get(statement.target)
                step = (
                    ir.Store(array, lane, value) if array else self.store(inner, statement, value)
                )
                inner.steps.append(step)
            work.take(inner.steps)
        self.arrays = {}
        for name, each in self.stores.items():
            move(each, made[name], store=True)
