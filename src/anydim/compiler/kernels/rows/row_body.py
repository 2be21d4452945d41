"""The body of row kernels: one row with its accumulators, and one vector of its elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.exact_division import (
    all_bits,
    any_small,
    bits_of,
    supports_exact_division,
)
from anydim.compiler.kernels.codegen.reduction import (
    accumulate,
    accumulator_of,
    combine_pairwise,
    neutral_element,
    terms_of,
)
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.codegen.value_bounds import settled_peaks, shares
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.ir import constant, convert, number, operate, select
from anydim.compiler.kernels.partial_rows import Part
from anydim.compiler.kernels.rows.fusion_plan import Plan, needed_elements
from anydim.compiler.kernels.work_estimate import PIECE
from anydim.lang.tree import Axis, Expr, Group, Read, SizeTerm, Statement
from anydim.lang.tree.affine import Affine, affine, reads, row_major_strides
from anydim.sizes import Size, align_up, as_size, maximum, product

MOST_AHEAD = 3  # inputs whose next row is prefetched


@dataclass(frozen=True)
class RowForm:
    """A flattened group with its loops classified: `outer` loops, and the loops of a `row`.

    `lane` is the vectorized axis: the last of `row`, or one of `outer` (then `across`). `scaled`
    are scalars equal to a sum whose factors were moved out of it. With `pieces`, rows are split
    into pieces that threads share; with `cut`, reductions sum each piece of a row on its own, so
    that threads can share the row without changing the result (`split_rows.py`). `parts` are the
    parts of a row that the passes visit; empty where they visit all of it (`partial_rows.py`).
    """

    group: Group
    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    lane: Axis
    plan: Plan
    scaled: frozenset[str] = frozenset()
    pieces: bool = False
    cut: bool = False
    parts: tuple[Part, ...] = ()

    def part(self, pass_number: int) -> Part:
        """The part of a row that a pass visits; empty for all of it."""
        return self.parts[pass_number] if self.parts else ()

    @property
    def expressions(self) -> Iterator[Expr]:
        """All expressions that the kernel computes."""
        yield from (statement.body for statement in self.group.statements)
        yield from (bound.value for part in self.parts for bound in part)

    @property
    def across(self) -> bool:
        return self.lane in self.outer

    @property
    def whole(self) -> bool:
        """Whether there is a single row of independent elements, which threads share."""
        return not self.outer and self.independent

    @property
    def independent(self) -> bool:
        """Whether parts of a row can be computed independently."""
        only_elements = len(self.plan.stored) == len(self.group.outputs)
        return only_elements and not self.plan.made and len(self.row) == 1


def whole_pieces(form: RowForm) -> Size:
    """The number of pieces of a row, without the last one."""
    return maximum(form.lane.extent - 1, 0) // PIECE


class Setting:
    """State shared by the code of a form: its statements by kind, its lanes and unrolling."""

    def __init__(
        self, form: RowForm, context: Context, lanes: int, unroll: int,
        panels: Mapping[Read | str, str] | None = None,
    ) -> None:  # fmt: skip
        self.form, self.plan, self.context = form, form.plan, context
        self.lanes, self.unroll = lanes, unroll
        self.panels = panels or {}  # transposed buffers, see `short_rows.py`
        self.step = context.step or lanes  # distance between vectors along a row
        self.piece = PIECE // self.step * self.step
        self.statements = {s.target: s for s in form.group.statements}
        self.outputs = frozenset(tensor.name for tensor in form.group.outputs)
        self.scalars = frozenset(n for n, kind in self.plan.kinds.items() if kind != "element")
        self.elements = frozenset(self.plan.kinds) - self.scalars
        self.ahead = self._read_ahead()
        self.near = constant(0)  # whether rows are short enough to read ahead
        self.shares = self._shares()
        self.settled = settled_peaks(form.group)

    def value(self, size: Size) -> ir.Value:
        """A size as an int64 scalar."""
        return self.context.sizes.value(size)

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        return self.form.group.type_of(name).dtype

    def accumulation(self, name: str) -> tuple[str, DType]:
        """The function and the type that a reduction accumulates with."""
        function, dtype = accumulator_of(self.statements[name].combine, self.dtype(name))
        return ("fast_max" if name in self.settled else function), dtype

    def neutral(self, name: str) -> ir.Const:
        """The neutral element of a reduction, in every lane."""
        return neutral_element(*self.accumulation(name), self.lanes)

    def _shares(self) -> frozenset[str]:
        """Totals whose terms are checked while they are summed: see `Row.begin`."""
        if self.form.across or self.lanes == 1 or not self.context.machine.fused:
            return frozenset()
        return frozenset(
            n for n in shares(self.form.group) if supports_exact_division(self.dtype(n))
        )

    @property
    def width(self) -> int:
        """Lanes of all unrolled vectors together."""
        return self.lanes * self.unroll

    def slot_start(self, slot: int) -> Size:
        """Start of a slot of kept elements in scratch, in bytes."""
        total = as_size(0)
        count = product(axis.extent for axis in self.form.row)
        wide = self.width if self.form.across else 1
        for name in self.plan.slots[:slot]:
            total = total + align_up(count * (self.dtype(name).bytes * wide), 64)
        return total

    def _read_ahead(self) -> tuple[tuple[str, Affine, Size], ...]:
        """The reads of the next row's first pass: buffer, address, distance between rows.

        The second pass, if there is one, prefetches them: it leaves the memory bus idle.
        """
        if self.form.across or not self.form.outer or self.plan.passes < 2:
            return ()
        roots = {**self.plan.made, **self.plan.stored}
        wanted = needed_elements(0, self.statements, self.plan.kinds, roots, {})
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


class Row:
    """One row (or a vector of rows): its accumulators and the scalars known so far."""

    def __init__(self, setting: Setting, scope: ScalarLowering, copy: int | None) -> None:
        self.setting, self.scope, self.copy = setting, scope, copy
        self.known: dict[str, ir.Value] = {}
        self.accumulators: dict[str, tuple[str, ...]] = {}
        self.totals: dict[str, str] = {}  # of the finished pieces
        self.common: dict[str, str] = {}
        self.small: dict[str, ir.Value] = {}
        scope.local = self.read

    @property
    def across(self) -> bool:
        return self.copy is not None

    def read(self, read: Read) -> ir.Value | None:
        """A scalar of this row; None for tensors of other kinds."""
        name = read.tensor
        if name not in self.setting.scalars:
            return None
        if name not in self.known:
            statement = self.setting.statements[name]
            self.known[name] = self.scope.value(statement.body, self.setting.dtype(name))
        return self.known[name]

    def begin(self, pass_number: int, copies: int) -> None:
        """Declare the accumulators of a pass.

        The bitwise AND of all terms of a total shows whether one of them is too small to be divided
        by multiplication: `small`, once the total is known.
        """
        fresh, steps = self.setting.context.fresh, self.scope.steps
        for name in self.setting.plan.made_by(pass_number):
            start = self.setting.neutral(name)
            self.accumulators[name] = names = tuple(fresh("a") for _ in range(copies))
            steps += [ir.Declare(register, start) for register in names]
            if self.setting.form.cut:
                self.totals[name] = fresh("total")
                steps.append(ir.Declare(self.totals[name], start))
            if name in self.setting.shares:
                self.common[name] = fresh("common")
                every = all_bits(start.dtype, self.setting.lanes)
                steps.append(ir.Declare(self.common[name], every))

    def end(self, pass_number: int) -> None:
        """Record the results of the reductions of a pass."""
        for name in self.setting.plan.made_by(pass_number):
            total = self.combine_accumulators(name)
            self.know(name, self._with_pieces(name, total) if name in self.totals else total)

    def _with_pieces(self, name: str, last: ir.Value) -> ir.Value:
        """The total of a row; a row of one piece has the total of its last piece."""
        function, _ = self.setting.accumulation(name)
        register, last = self.setting.context.fresh("whole"), self.scope.name(last)
        both = operate(function, ir.Get(last.type, self.totals[name]), last)
        more = self.setting.value(whole_pieces(self.setting.form)) > 0
        whole = ir.If(more, (ir.Assign(register, both),))
        self.scope.steps += [ir.Declare(register, last), whole]
        return ir.Get(last.type, register)

    def combine_accumulators(self, name: str) -> ir.Value:
        """The accumulators of a reduction combined into one vector."""
        function, dtype = self.setting.accumulation(name)
        vector = ir.Type(dtype, self.setting.lanes)
        return combine_pairwise(function, [ir.Get(vector, a) for a in self.accumulators[name]])

    def piece_done(self, scope: ScalarLowering, pass_number: int) -> None:
        """Add the accumulators of a pass to the totals, and reset them."""
        for name in self.setting.plan.made_by(pass_number):
            start = self.setting.neutral(name)
            old = ir.Get(start.type, self.totals[name])
            total = operate(
                self.setting.accumulation(name)[0], old, self.combine_accumulators(name)
            )
            scope.steps.append(ir.Assign(self.totals[name], total))
            scope.steps += [ir.Assign(each, start) for each in self.accumulators[name]]

    def know(self, name: str, total: ir.Value) -> None:
        """Record the result of a reduction, from a vector of partial results."""
        function, dtype = self.setting.accumulation(name)
        vector = ir.Type(dtype, self.setting.lanes)
        total = self.scope.name(total)
        if not self.across and vector.lanes > 1:
            total = self.scope.name(total.reduce_lanes(function))
        self.known[name] = self.scope.name(convert(total, self.setting.dtype(name)))
        if name in self.common:
            common = ir.Get(bits_of(vector), self.common[name])
            self.small[name] = any_small(common, dtype, self.scope.name)

    def empty(self) -> None:
        """Record the results of the reductions of a row without elements."""
        for name in self.setting.plan.made:
            neutral = neutral_element(*self.setting.accumulation(name))
            self.known[name] = convert(neutral, self.setting.dtype(name))
        for name in self.setting.form.scaled:
            self.known[name] = number(self.setting.dtype(name), 0)

    def finish(self) -> None:
        """Store the scalar results."""
        for name in self.setting.statements:
            if name not in self.setting.scalars & self.setting.outputs:
                continue
            statement = self.setting.statements[name]
            value = self.read(Read(name, (), flat=True))
            assert value is not None
            value = self.scope.spread(value, self.scope.lanes)
            offset = self.scope.offset(own_address(statement))
            buffer = self.setting.context.buffers[name]
            self.scope.steps.append(ir.Store(buffer, offset, value, self.scope.mask))


class Cell:
    """The elements of a row in one vector: lanes along the row, or one element of many rows."""

    def __init__(
        self, row: Row, scope: ScalarLowering, indices: dict[str, ir.Value], pass_number: int,
        copy: int,
        mask: ir.Value | None,
    ) -> None:  # fmt: skip
        self.row, self.setting, self.pass_number, self.copy = row, row.setting, pass_number, copy
        self.mask, self.target = mask, scope
        self.values: dict[str, ir.Value] = {}
        home, lane = (row.scope, None) if row.across else (scope, self.setting.form.lane.name)
        self.scope = home.inner(
            indices, lane=lane, lanes=self.setting.lanes, mask=mask, local=self.read,
            answers=self.setting.elements,
            certain=not (row.across and self.setting.form.part(pass_number)),
        )  # fmt: skip
        if row.across:
            self.scope.uniform = scope

    def emit(self) -> None:
        """Everything a pass does here: update accumulators, keep and store elements."""
        plan = self.setting.plan
        roots = {**plan.made, **plan.stored}
        first = {name: kept.first for name, kept in plan.kept.items()}
        wanted = needed_elements(
            self.pass_number, self.setting.statements, plan.kinds, roots, first
        )
        for name in self.setting.statements:
            if name in wanted and first.get(name, self.pass_number) < self.pass_number:
                self.element(name)
        for name in plan.made_by(self.pass_number):
            self._accumulate(self.setting.statements[name])
        saved = {n: at for n, at in first.items() if n not in self.setting.outputs}
        names = [n for n, at in (*saved.items(), *plan.stored.items()) if at == self.pass_number]
        for name, value in zip(names, [self.element(name) for name in names]):
            buffer, offset = self._location(name)
            self.scope.steps.append(ir.Store(buffer, offset, value, self.mask))
        if self.pass_number == 1 and self.mask is None:
            self._prefetch()
        self.target.steps += self.scope.steps

    def _prefetch(self) -> None:
        """Prefetch the reads of the next row's first pass at this position."""
        for buffer, form, distance in self.setting.ahead:
            far = self.row.scope.outer
            assert far is not None
            step = far.value(SizeTerm(distance))
            near = far.name(select(self.setting.near, step, 0))
            offset = self.scope.name(self.scope.offset(form) + near)
            self.scope.steps.append(ir.Prefetch(buffer, offset))

    def read(self, read: Read) -> ir.Value | None:
        """An element of this row, or of an operand in a panel; None for others."""
        if read in self.setting.panels:
            vector = ir.Type(self.setting.context.types[read.tensor].dtype, self.scope.lanes)
            return ir.Load(vector, self.setting.panels[read], self._column())
        return self.element(read.tensor) if read.tensor in self.setting.elements else None

    def element(self, name: str) -> ir.Value:
        """The value of an element statement: loaded where it was kept, else computed."""
        if name not in self.values:
            kept = self.setting.plan.kept.get(name)
            dtype = self.setting.dtype(name)
            if kept is not None and kept.first < self.pass_number:
                buffer, offset = self._location(name)
                load = ir.Load(ir.Type(dtype, self.scope.lanes), buffer, offset, self.mask)
                self.values[name] = self.scope.name(load)
            else:
                body = self.setting.statements[name].body
                self.values[name] = self.scope.value(body, dtype)
        return self.values[name]

    def _location(self, name: str) -> tuple[str, ir.Value]:
        """The buffer of a stored element, and the offset of lane 0."""
        kept = self.setting.plan.kept.get(name)
        owner = name if kept is None or kept.output is None else kept.output
        if owner in self.setting.panels:
            return self.setting.panels[owner], self._column()
        if owner in self.setting.outputs:
            own = own_address(self.setting.statements[name])
            return self.setting.context.buffers[owner], self.scope.offset(own)
        assert kept is not None
        return "scratch", self.scope.offset(self._slot(kept.slot, self.setting.dtype(name)))

    def _column(self) -> ir.Value:
        lanes = as_size(self.setting.lanes)
        return self.scope.offset(Affine.of(as_size(0), {self.setting.form.row[0].name: lanes}))

    def _slot(self, slot: int, dtype: DType) -> Affine:
        row = self.setting.form.row
        strides = row_major_strides(tuple(axis.extent for axis in row))
        form = Affine.of(as_size(0), {axis.name: s for axis, s in zip(row, strides)})
        if self.row.across:
            assert self.row.copy is not None
            form = form.scale(as_size(self.setting.width))
            form = form + Affine(as_size(self.row.copy * self.setting.lanes))
        start = self.setting.slot_start(slot)
        return form + Affine(start // dtype.bytes)

    def _accumulate(self, statement: Statement) -> None:
        name = statement.target
        function, dtype = self.setting.accumulation(name)
        register = self.row.accumulators[name][self.copy]
        old = ir.Get(ir.Type(dtype, self.setting.lanes), register)
        mask, own = None if self.row.across else self.mask, self.setting.dtype(name)
        terms = terms_of(self.scope, statement.body, function, dtype, own, mask)
        self.scope.steps.append(ir.Assign(register, accumulate(function, old, terms)))
        if name in self.row.common and len(terms) == 1:
            self._track_bits(self.row.common[name], *terms)

    def _track_bits(self, register: str, part: ir.Value) -> None:
        """AND the bits of the terms of a total into a register."""
        bits = self.scope.name(part.bits(bits_of(part.type).dtype))
        if self.mask is not None:
            every = all_bits(part.type.dtype, self.setting.lanes)
            bits = self.scope.name(select(self.mask, bits, every))
        old = ir.Get(bits.type, register)
        self.scope.steps.append(ir.Assign(register, old & bits))
