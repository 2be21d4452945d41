"""Rows by work-groups: a team of work-items reduces a row, by shuffles of warps.

    top(r) max=! x(r,c);  e(r,c) = exp(x(r,c) - top(r));  total(r) +=! e(r,c);  y(r,c) = e / total

A group has a row per team; the number of columns chooses the size of teams. A work-item takes
chunks of `lanes` elements: adjacent ones if the columns are a multiple of the lanes, else one team
apart. Short rows stay in registers between passes; passes over longer rows read memory again. Where
rows, not columns, are adjacent in memory, the items of a warp take adjacent rows and reduce through
local memory. On a machine without warps a group has one row, reduced through local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop, quotient
from anydim.compiler.kernels.codegen.reduction import accumulator_of, neutral_element
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_elements import (
    ITEM,
    START,
    ElementWriter,
    RowsForm,
    RowWriter,
    Teams,
    rows_form,
)
from anydim.compiler.kernels.gpu.group_indices import remainder
from anydim.compiler.kernels.gpu.wide_access import (
    Access,
    access,
    copy,
    is_aligned,
    lanes_for,
    read_access,
)
from anydim.compiler.kernels.ir import constant, convert, least, operate, select, variable
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.matmul.epilogue import element_offset
from anydim.compiler.kernels.template import Task, form_template
from anydim.lang.tree import Read, Statement
from anydim.lang.tree.affine import address, reads
from anydim.sizes import Size, as_size, at_most, ceil_div, product

_WARP = 32
_TEAMS = (8, 32, 128)  # sizes of teams below a whole group
_ADJACENT = 8  # rows of a group whose work-items take adjacent rows


@dataclass(frozen=True)
class _Pass:
    """One pass over a row: results that it stores, then a reduction."""

    stored: tuple[Statement, ...]
    reduction: Statement | None

    @property
    def statements(self) -> tuple[Statement, ...]:
        return self.stored if self.reduction is None else (*self.stored, self.reduction)


class TeamWriter(RowWriter):
    """Writes the kernel of a group with reductions."""

    def body(self) -> list[ir.Step]:
        """Return the steps of a work-item."""
        work = self.work
        outside = ScalarLowering(work.context)
        self.order = list(self._passes())
        self.strided = _takes_adjacent_rows(self)
        self.columns = product(axis.extent for axis in self.form.row)
        self._find_wide()
        self.team = self._team()
        number = self._place()
        self.row = outside.inner(work.indices(number, self.form.outer))
        before = work.here
        self._chunks()
        held = at_most(self.columns, self.schedule.items * self.schedule.held)
        if not self.schedule.held or self.strided or held.constant is False:
            self._each_pass(0)
        elif held.constant:
            self._each_pass(self._held_chunks())
        else:
            with work.when(work.sizes.condition_flag(held)):
                self._each_pass(self._held_chunks())
            with work.otherwise():
                self._each_pass(0)
        work.take(self.row.steps, before)
        return [*outside.steps, *work.written]

    def _team(self) -> Size:
        """Return the work-items of a row."""
        items, lanes = self.schedule.items, self.lanes
        if not self.work.context.machine.warps:
            return as_size(items)
        if self.strided:
            return as_size(items // _ADJACENT)
        team = as_size(items)
        for size in reversed([size for size in _TEAMS if size < items]):
            most = size * (lanes if size < _WARP else max(self.schedule.held, lanes))
            team = at_most(self.columns, most).where(size, team)
        return team

    @property
    def parallel(self) -> Size:
        """The work-groups of all rows."""
        rows = product(axis.extent for axis in self.form.outer)
        return ceil_div(rows * self.team, self.schedule.items)

    @property
    def in_place(self) -> tuple[tuple[str, str], ...]:
        """None: a later pass may read an operand again."""
        return ()

    def _passes(self) -> Iterator[_Pass | Statement]:
        """Yield the passes over a row and the statements per row, in order."""
        pending: list[Statement] = []
        for statement in self.group.statements:
            if statement.combine:
                yield _Pass(tuple(pending), statement)
                pending = []
            elif set(statement.axes) == set(self.form.outer):
                yield statement
            elif statement.target in self.work.results:
                pending.append(statement)
        if pending:
            yield _Pass(tuple(pending), None)

    def _place(self) -> ir.Value:
        """Emit the work-item's number in its team; return the number of its row.

        Teams beyond the last row read that row, and store nothing.
        """
        work, items = self.work, self.schedule.items
        self.size = work.sizes.value(self.team)
        self.own: ir.Value = ITEM
        self.live: ir.Value | None = None
        if self.team.constant == items:
            return START
        teams = work.let(quotient(constant(items), self.size))
        by = teams if self.strided else self.size
        one = work.let(quotient(ITEM, by))
        other = work.let(ITEM - one * by)
        self.own, self.slot = (one, other) if self.strided else (other, one)
        number = work.let(START * teams + self.slot)
        rows = work.sizes.value(product(axis.extent for axis in self.form.outer))
        self.live = work.let(number < rows)
        self.last = work.let(select(self.live, self.last, 0))
        return work.let(least(number, rows - 1))

    # ---- chunks --------------------------------------------------------------------------------

    def _find_wide(self) -> None:
        """Find the tensors whose elements are adjacent, and whether they are aligned."""
        work, lanes = self.work, self.lanes
        self.wide: dict[object, Access] = {}
        row = [axis for axis in self.form.row if axis.extent.constant != 1]
        if lanes == 1 or self.strided or len(row) != 1:
            self.lanes = 1
            return
        for each in self.order:
            for statement in each.statements if isinstance(each, _Pass) else ():
                for read in self.inputs(statement):
                    found = read_access(work, read, row[0], lanes)
                    if found is not None:
                        self.wide[read] = found
                if not statement.combine:
                    form = element_offset(statement)
                    found = access(statement.target, form, row[0], lanes)
                    if found is not None:
                        self.wide[statement.target] = found
        count = row[0].extent.constant
        if not self.wide or (count is not None and count % lanes):
            self.lanes, self.wide = 1, {}
            return
        self.together = is_aligned(work, [], row[0], lanes, [row[0].extent])
        self.aligned = is_aligned(work, list(self.wide.values()), row[0], lanes, [row[0].extent])

    def _chunks(self) -> None:
        """Emit the distances between the elements of a work-item."""
        work = self.work
        self.apart: ir.Value = self.size
        self.first: ir.Value = self.own
        self.span: ir.Value = self.size
        if self.lanes > 1:
            self.apart = work.let(select(self.together, 1, self.size))
            self.first = work.let(self.own * select(self.together, constant(self.lanes), 1))
            self.span = work.let(self.size * self.lanes)

    def _held_chunks(self) -> int:
        """Chunks of a work-item in registers."""
        count, team = self.columns.constant, self.team.constant
        most = max(1, self.schedule.held // self.lanes)
        if count is None or team is None:
            return most
        return max(1, min(most, -(-count // (team * self.lanes))))

    # ---- passes --------------------------------------------------------------------------------

    def _each_pass(self, chunks: int) -> None:
        """Emit all passes, with rows in registers if there are `chunks`."""
        self.whole = {}
        self.held: dict[Read, str] = {}  # arrays of operands of several passes
        self.kept: dict[str, tuple[str, bool]] = {}  # of values, and whether they are computed
        self.made: set[str] = set()
        self.chunks, self.used = chunks, 0
        if chunks:
            self._hold()
        for each in self.order:
            if isinstance(each, _Pass):
                self._pass(each)
            else:
                inner = self.inside(self.row, {})
                found = self.inline_value(inner, each)
                self.work.take(inner.steps)
                self._set_result(each, self.work.let(found))

    def _hold(self) -> None:
        """Emit the loads of operands that several passes read, and arrays for values."""
        used: dict[object, int] = {}
        for each in self.order:
            if isinstance(each, _Pass):
                for key in set(self._used(each)):
                    used[key] = used.get(key, 0) + 1
        several = [key for key, count in used.items() if count > 1]
        for read in (key for key in several if isinstance(key, Read)):
            dtype = self.work.types[read.tensor].dtype
            array = self.array(dtype, self.chunks * self.lanes)
            self._each_chunk(partial(self._load, read, array))
            self.held[read] = array
        for name in (key for key in several if isinstance(key, str)):
            dtype = self.work.types[name].dtype
            self.kept[name] = (self.array(dtype, self.chunks * self.lanes), False)

    def _used(self, each: _Pass) -> Iterator[object]:
        """Yield the reads of operands and the names of values per element that a pass uses."""
        pending = list(each.statements)
        while pending:
            statement = pending.pop()
            if not statement.combine:
                yield statement.target
            for read in reads(statement.body):
                made = self.statements.get(read.tensor)
                if made is None and self._varies(read):
                    yield read
                elif made is not None and not made.combine and self._varies_in(made):
                    pending.append(made)

    def _varies(self, read: Read) -> bool:
        """Whether a read depends on the column."""
        form = address(read, self.work.types[read.tensor].shape)
        return read.default is None and (
            form is not None and any(axis.name in form.indices for axis in self.form.row)
        )

    def _varies_in(self, statement: Statement) -> bool:
        return any(axis in statement.axes for axis in self.form.row)

    def _each_chunk(self, body: Callable[[ir.Value, ir.Value], None]) -> None:
        """Emit a loop over the work-item's chunks: the first column, and the first element in
        registers."""
        work = self.work
        if not self.chunks:
            with work.range(self.first, self.last, self.span) as at:
                body(at, constant(0))
            return
        with work.range(0, self.chunks, unrolled=True) as number:
            at = work.let(number * self.span + self.first)
            with work.when(at < self.last):
                body(at, number * self.lanes)

    def _each_lane(self, at: ir.Value, body: Callable[[ScalarLowering, ir.Value], None]) -> None:
        """Emit a loop over the elements of a chunk."""
        work = self.work
        with work.range(0, self.lanes, unrolled=True) as lane:
            column = work.let(lane * self.apart + at)
            with work.when(column < self.last):
                body(self.inside(self.row, work.indices(column, self.form.row)), lane)

    def _load(self, read: Read, array: str, at: ir.Value, first: ir.Value) -> None:
        """Emit the loads of a chunk to an array."""

        def single(inner: ScalarLowering, lane: ir.Value) -> None:
            value = inner.value(read)
            self.work.take([*inner.steps, ir.Store(array, first + lane, value)])

        self._move(read, array, at, first, single)

    def _move(
        self, key: object, array: str, at: ir.Value, first: ir.Value,
        single: Callable[[ScalarLowering, ir.Value], None], store: bool = False,
    ) -> None:  # fmt: skip
        """Emit accesses of a chunk: wide ones where they are aligned, else of single elements."""
        work = self.work
        if key not in self.wide:
            self._each_lane(at, single)
            return
        with work.when(self.aligned):
            scope = self.row.inner(work.indices(at, self.form.row))
            copy(work, scope, self.wide[key], array, first, self.lanes, store)
        with work.otherwise():
            self._each_lane(at, single)

    def _pass(self, each: _Pass) -> None:
        work, reduction = self.work, each.reduction
        total: ir.Get | None = None
        if reduction is not None:
            function, wide = _accumulator(reduction, self.dtype(reduction))
            total = ir.Get(ir.Type(wide), work.fresh("a"))
            work.emit(ir.Declare(total.name, neutral_element(function, wide)))
        self._each_chunk(partial(self._chunk, each, total))
        self.kept |= {name: (self.kept[name][0], True) for name in self.made}
        if reduction is not None and total is not None:
            self._fold(reduction, total)

    def _chunk(self, each: _Pass, total: ir.Get | None, at: ir.Value, first: ir.Value) -> None:
        """Emit a chunk of a pass: its loads, its elements, its stores."""
        loaded: dict[Read, str] = {}
        for read in dict.fromkeys(read for s in each.statements for read in self.inputs(s)):
            if read in self.wide and read not in self.held:
                loaded[read] = self.array(self.work.types[read.tensor].dtype, self.lanes)
                self._load(read, loaded[read], at, constant(0))
        results = {
            statement.target: self.array(self.dtype(statement), self.lanes)
            for statement in each.stored
            if statement.target in self.wide
        }

        def element(inner: ScalarLowering, lane: ir.Value) -> None:
            self.element = first + lane
            self.arrays = {read: (array, self.element) for read, array in self.held.items()}
            self.arrays |= {read: (array, lane) for read, array in loaded.items()}
            for statement in each.stored:
                value = self.inline_value(inner, statement)
                array = results.get(statement.target)
                stored = ir.Store(array, lane, value) if array else None
                inner.steps.append(stored or self.store(inner, statement, value))
            if each.reduction is not None and total is not None:
                inner.steps.append(self._accumulate(inner, each.reduction, total))
            self.work.take(inner.steps)
            self.arrays = {}

        self._each_lane(at, element)
        for statement in each.stored:
            if statement.target in results:
                self._write(statement, results[statement.target], at)

    def _accumulate(
        self, inner: ScalarLowering, statement: Statement, total: ir.Get
    ) -> ir.Assign:  # fmt: skip
        dtype = self.dtype(statement)
        function, wide = _accumulator(statement, dtype)
        value = convert(inner.value(statement.body, dtype), wide)
        return ir.Assign(total.name, operate(function, total, value))

    def _write(self, statement: Statement, array: str, at: ir.Value) -> None:
        """Emit the stores of a chunk from an array."""

        def single(inner: ScalarLowering, lane: ir.Value) -> None:
            value = ir.Load(ir.Type(self.dtype(statement)), array, lane)
            store = self.store(inner, statement, value)
            self.work.take([*inner.steps, store])

        self._move(statement.target, array, at, constant(0), single, store=True)

    def inline_value(self, inner: ScalarLowering, statement: Statement) -> ir.Value:
        """Return the value of a statement: kept by an earlier pass, or computed here."""
        name = statement.target
        if name not in self.kept:
            return super().inline_value(inner, statement)
        array, known = self.kept[name]
        if known:
            return inner.name(ir.Load(ir.Type(self.dtype(statement)), array, self.element))
        value = super().inline_value(inner, statement)
        inner.steps.append(ir.Store(array, self.element, value))
        self.made.add(name)
        return value

    # ---- values per row ------------------------------------------------------------------------

    def _fold(self, statement: Statement, total: ir.Get) -> None:
        """Emit the reduction over the work-items of a team."""
        work, items, kind = self.work, self.schedule.items, total.type
        function, _ = _accumulator(statement, self.dtype(statement))
        if self.strided or not work.context.machine.warps:
            shared = self._local_array(kind.dtype, items)
            if self.strided:
                work.take(self._fold_adjacent(function, total, shared))
            else:
                work.take(work.group_reduction(function, total, shared, items))
                work.emit(ir.Assign(total.name, ir.Load(kind, shared, constant(0))))
        else:
            self._fold_warps(function, total)
        self._set_result(statement, work.let(convert(total, self.dtype(statement))))

    def _fold_adjacent(self, function: str, total: ir.Get, shared: str) -> list[ir.Step]:
        """Return the reduction of items that are `_ADJACENT` apart."""
        kind, index = total.type, self.work.fresh()
        more = ir.Load(kind, shared, variable(index) * _ADJACENT + self.slot)
        again = ir.Assign(total.name, operate(function, total, more))
        return [
            ir.Store(shared, ITEM, total),
            ir.Barrier(),
            ir.Assign(total.name, ir.Load(kind, shared, self.slot)),
            loop(index, 1, self.schedule.items // _ADJACENT, 1, again),
        ]

    def _fold_warps(self, function: str, total: ir.Get) -> None:
        """Emit the reduction within warps, then over the warps of a team."""
        work, items, kind = self.work, self.schedule.items, total.type
        distance = 1
        while distance < min(_WARP, items):
            name = work.fresh()
            other = operate(function, total, ir.Var(kind, name))
            steps = (ir.WarpExchange(name, total, distance), ir.Assign(total.name, other))
            always = distance < _TEAMS[0] or (self.team.constant or 0) > distance
            work.take(steps if always else (ir.If(self.size > distance, steps),))
            distance *= 2
        if items <= _WARP or (self.team.constant or items) <= _WARP:
            return
        shared = self._local_array(kind.dtype, items // _WARP)
        with work.when(self.size > _WARP):
            with work.when(remainder(ITEM, _WARP).equals(0)):
                work.emit(ir.Store(shared, quotient(ITEM, _WARP), total))
            work.emit(ir.Barrier())
            first = work.let(quotient(ITEM - self.own, _WARP))
            work.emit(ir.Assign(total.name, ir.Load(kind, shared, first)))
            with work.range(1, quotient(self.size, _WARP)) as warp:
                more = ir.Load(kind, shared, first + warp)
                work.emit(ir.Assign(total.name, operate(function, total, more)))

    def _local_array(self, dtype: DType, count: int) -> str:
        """Return a local array, the same for both versions of the passes."""
        if self.used == len(self.locals):
            self.locals.append(ir.Local(self.work.fresh("shared"), dtype, count))
        self.used += 1
        return self.locals[self.used - 1].name

    def _set_result(self, statement: Statement, value: ir.Value) -> None:
        self.whole[statement.target] = value
        if statement.target in self.work.results:
            first = self.own.equals(0)
            with self.work.when(first if self.live is None else first & self.live):
                inner = self.inside(self.row, {})
                store = self.store(inner, statement, value)
                self.work.take([*inner.steps, store])


def _accumulator(statement: Statement, dtype: DType) -> tuple[str, DType]:
    """Return the function and the type of a reduction's accumulators."""
    function, wide = accumulator_of(statement.combine, dtype)
    return function, float32 if wide in (float16, bfloat16) else wide


def _takes_adjacent_rows(writer: TeamWriter) -> bool:
    """Whether rows are adjacent in memory, and columns are not."""
    work, form = writer.work, writer.form
    outer = [axis.name for axis in form.outer if axis.extent.constant != 1]
    if not work.context.machine.warps or not outer or writer.schedule.items < _WARP:
        return False
    found = False
    for statement in writer.group.statements:
        for read in reads(statement.body):
            at = address(read, work.types[read.tensor].shape)
            if read.tensor in writer.computed or at is None:
                continue
            if any(at.stride(axis.name).constant == 1 for axis in form.row):
                return False
            found = found or at.stride(outer[-1]).constant == 1
    return found


def _propose(form: RowsForm, task: Task) -> Teams:
    """Return groups of one row, or of teams where work-items have shuffles and wide accesses."""
    if not task.machine.warps:
        return Teams()
    lanes = lanes_for((*task.group.inputs, *task.group.outputs))
    if form.reduces:
        return Teams(items=256, lanes=lanes, held=16)
    return Teams(lanes=lanes)


def _lower(form: RowsForm, schedule: Teams, task: Task) -> Launch:
    kind = TeamWriter if form.reduces else ElementWriter
    writer = kind(task.group, form, schedule, task.machine)
    body = writer.body()
    flops = len(task.group.statements) * product(a.extent for a in (*form.outer, *form.row))
    reason = "rows, a team of work-items each" if form.reduces else "elements, a few per work-item"
    return writer.work.launch(
        "teams", body, schedule.items, writer.locals,
        parallel=writer.parallel, flops=flops, schedule=schedule, reason=reason,
        in_place=writer.in_place,
    )  # fmt: skip


TEMPLATE = form_template("teams", Teams, lambda task: rows_form(task.group), _propose, _lower)
