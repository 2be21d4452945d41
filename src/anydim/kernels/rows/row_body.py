"""The inside of row kernels: one row with its accumulators, and one vector of its elements."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.exact_division import all_bits, any_small, bits_of, watchable
from anydim.kernels.codegen.reduction import folded, folding, joined, nothing_of, terms_of
from anydim.kernels.codegen.scalar_lowering import Context, Elements
from anydim.kernels.codegen.value_bounds import settled, shares
from anydim.kernels.ir import constant, convert, number, operate, select
from anydim.kernels.rows.flatten import own_address
from anydim.kernels.rows.fusion_plan import Plan, needed
from anydim.lang.tree import Axis, Group, Read, SizeTerm, Statement
from anydim.lang.tree.affine import Affine, affine, reads, row_major_strides
from anydim.sizes import Size, align_up, as_size, maximum, product

MOST_AHEAD = 3  # inputs whose next row is asked for ahead of time
PIECE = 8192  # elements of a long row that are done at a time where its elements are independent


@dataclass(frozen=True)
class RowForm:
    """A flattened group with its loops told apart: `outer` ones, and those of a `row`.

    `lane` is the axis along vector lanes: the last of `row`, or one of `outer` (then `across`).
    `scaled` are scalars that stand for a sum whose factors were taken out of it. With `pieces`,
    rows are cut into pieces that threads share; with `cut` reductions add up each piece of a row
    on its own, as threads do that share one (`split_rows.py`).
    """

    group: Group
    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    lane: Axis
    plan: Plan
    scaled: frozenset[str] = frozenset()
    pieces: bool = False
    cut: bool = False

    @property
    def across(self) -> bool:
        return self.lane in self.outer

    @property
    def whole(self) -> bool:
        """Whether there is but one row, of independent elements: then threads share those."""
        return not self.outer and self.independent

    @property
    def independent(self) -> bool:
        """Whether a part of a row can be done without the rest."""
        only_elements = len(self.plan.stored) == len(self.group.outputs)
        return only_elements and not self.plan.made and len(self.row) == 1


def whole_pieces(form: RowForm) -> Size:
    """The pieces of a row but the last one."""
    return maximum(form.lane.extent - 1, 0) // PIECE


class Setting:
    """What all code of a form shares: its statements by kind, and how wide it is written."""

    def __init__(
        self, form: RowForm, context: Context, lanes: int, unroll: int,
        panels: Mapping[Read | str, str] | None = None,
    ) -> None:  # fmt: skip
        self.form, self.plan, self.context = form, form.plan, context
        self.lanes, self.unroll = lanes, unroll
        self.panels = panels or {}  # buffers of columns: see `short_rows.py`
        self.step = context.step or lanes  # from one vector to the next along a row
        self.piece = PIECE // self.step * self.step
        self.statements = {s.target: s for s in form.group.statements}
        self.outputs = frozenset(tensor.name for tensor in form.group.outputs)
        self.scalars = frozenset(n for n, kind in self.plan.kinds.items() if kind != "element")
        self.elements = frozenset(self.plan.kinds) - self.scalars
        self.ahead = self._read_ahead()
        self.near = constant(0)  # whether rows are short enough to read ahead
        self.shares = self._shares()
        self.settled = settled(form.group)

    def value(self, size: Size) -> ir.Value:
        """A size as an int64 scalar."""
        return self.context.sizes.value(size)

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        return self.form.group.type_of(name).dtype

    def folding(self, name: str) -> tuple[str, DType]:
        """The function and the type that a reduction accumulates with."""
        function, dtype = folding(self.statements[name].combine, self.dtype(name))
        return ("fast_max" if name in self.settled else function), dtype

    def nothing(self, name: str) -> ir.Const:
        """What a reduction accumulates from on, in every lane."""
        return nothing_of(*self.folding(name), self.lanes)

    def _shares(self) -> frozenset[str]:
        """Totals whose parts are watched while they are added up: see `Row.begin`."""
        if self.form.across or self.lanes == 1 or not self.context.machine.fused:
            return frozenset()
        return frozenset(n for n in shares(self.form.group) if watchable(self.dtype(n)))

    @property
    def width(self) -> int:
        """Lanes of all vectors side by side."""
        return self.lanes * self.unroll

    def slot_start(self, slot: int) -> Size:
        """Where a slot of kept elements starts in scratch, in bytes."""
        total = as_size(0)
        count = product(axis.extent for axis in self.form.row)
        wide = self.width if self.form.across else 1
        for name in self.plan.slots[:slot]:
            total = total + align_up(count * (self.dtype(name).bytes * wide), 64)
        return total

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


class Row:
    """One row (or a vector of rows): its accumulators and the scalars known so far."""

    def __init__(self, setting: Setting, scope: Elements, copy: int | None) -> None:
        self.setting, self.scope, self.copy = setting, scope, copy
        self.known: dict[str, ir.Value] = {}
        self.accumulators: dict[str, tuple[str, ...]] = {}
        self.totals: dict[str, str] = {}  # of the pieces that are done
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

    def begin(self, sweep: int, copies: int) -> None:
        """Declare the accumulators of a sweep.

        The bits that all parts of a total have in common say whether one of them is too small to
        be divided by a product: `small`, once the total is known.
        """
        fresh, steps = self.setting.context.fresh, self.scope.steps
        for name in self.setting.plan.made_by(sweep):
            start = self.setting.nothing(name)
            self.accumulators[name] = names = tuple(fresh("a") for _ in range(copies))
            steps += [ir.Declare(register, start) for register in names]
            if self.setting.form.cut:
                self.totals[name] = fresh("total")
                steps.append(ir.Declare(self.totals[name], start))
            if name in self.setting.shares:
                self.common[name] = fresh("common")
                every = all_bits(start.dtype, self.setting.lanes)
                steps.append(ir.Declare(self.common[name], every))

    def end(self, sweep: int) -> None:
        """Make the reductions of a sweep known."""
        for name in self.setting.plan.made_by(sweep):
            total = self.joined(name)
            self.know(name, self._with_pieces(name, total) if name in self.totals else total)

    def _with_pieces(self, name: str, last: ir.Value) -> ir.Value:
        """The total of a row: of one piece, that of its last one."""
        function, _ = self.setting.folding(name)
        register, last = self.setting.context.fresh("whole"), self.scope.name(last)
        both = operate(function, ir.Get(last.type, self.totals[name]), last)
        more = self.setting.value(whole_pieces(self.setting.form)) > 0
        whole = ir.If(more, (ir.Assign(register, both),))
        self.scope.steps += [ir.Declare(register, last), whole]
        return ir.Get(last.type, register)

    def joined(self, name: str) -> ir.Value:
        """The accumulators of a reduction in one vector."""
        function, dtype = self.setting.folding(name)
        vector = ir.Type(dtype, self.setting.lanes)
        return joined(function, [ir.Get(vector, a) for a in self.accumulators[name]])

    def piece_done(self, scope: Elements, sweep: int) -> None:
        """The accumulators of a sweep go into totals, and begin anew."""
        for name in self.setting.plan.made_by(sweep):
            start = self.setting.nothing(name)
            old = ir.Get(start.type, self.totals[name])
            total = operate(self.setting.folding(name)[0], old, self.joined(name))
            scope.steps.append(ir.Assign(self.totals[name], total))
            scope.steps += [ir.Assign(each, start) for each in self.accumulators[name]]

    def know(self, name: str, total: ir.Value) -> None:
        """Make a reduction known whose lanes are those of a vector."""
        function, dtype = self.setting.folding(name)
        vector = ir.Type(dtype, self.setting.lanes)
        total = self.scope.name(total)
        if not self.across and vector.lanes > 1:
            total = self.scope.name(total.combined(function))
        self.known[name] = self.scope.name(convert(total, self.setting.dtype(name)))
        if name in self.common:
            common = ir.Get(bits_of(vector), self.common[name])
            self.small[name] = any_small(common, dtype, self.scope.name)

    def empty(self) -> None:
        """Make the reductions of a row without elements known."""
        for name in self.setting.plan.made:
            nothing = nothing_of(*self.setting.folding(name))
            self.known[name] = convert(nothing, self.setting.dtype(name))
        for name in self.setting.form.scaled:
            self.known[name] = number(self.setting.dtype(name), 0)

    def finish(self) -> None:
        """Store the scalars that are results."""
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
    """The elements of a row at one vector: lanes along the row, or one element of many rows."""

    def __init__(
        self, row: Row, scope: Elements, indices: dict[str, ir.Value], sweep: int, copy: int,
        mask: ir.Value | None,
    ) -> None:  # fmt: skip
        self.row, self.setting, self.sweep, self.copy = row, row.setting, sweep, copy
        self.mask, self.target = mask, scope
        self.values: dict[str, ir.Value] = {}
        home, lane = (row.scope, None) if row.across else (scope, self.setting.form.lane.name)
        self.scope = home.inner(
            indices, lane=lane, lanes=self.setting.lanes, mask=mask, local=self.read,
            answers=self.setting.elements,
        )  # fmt: skip
        if row.across:
            self.scope.uniform = scope

    def emit(self) -> None:
        """Everything the sweep does here: fold into accumulators, keep and store elements."""
        plan = self.setting.plan
        roots = {**plan.made, **plan.stored}
        first = {name: kept.first for name, kept in plan.kept.items()}
        wanted = needed(self.sweep, self.setting.statements, plan.kinds, roots, first)
        for name in self.setting.statements:
            if name in wanted and first.get(name, self.sweep) < self.sweep:
                self.element(name)
        for name in plan.made_by(self.sweep):
            self._fold(self.setting.statements[name])
        saved = {n: at for n, at in first.items() if n not in self.setting.outputs}
        names = [n for n, at in (*saved.items(), *plan.stored.items()) if at == self.sweep]
        for name, value in zip(names, [self.element(name) for name in names]):
            buffer, offset = self._place(name)
            self.scope.steps.append(ir.Store(buffer, offset, value, self.mask))
        if self.sweep == 1 and self.mask is None:
            self._prefetch()
        self.target.steps += self.scope.steps

    def _prefetch(self) -> None:
        """Ask for what the next row's first sweep reads here."""
        for buffer, form, distance in self.setting.ahead:
            far = self.row.scope.outer
            assert far is not None
            step = far.value(SizeTerm(distance))
            near = far.name(select(self.setting.near, step, 0))
            offset = self.scope.name(self.scope.offset(form) + near)
            self.scope.steps.append(ir.Prefetch(buffer, offset))

    def read(self, read: Read) -> ir.Value | None:
        """An element of this row, or of an operand that is in a panel; None for others."""
        if read in self.setting.panels:
            vector = ir.Type(self.setting.context.types[read.tensor].dtype, self.scope.lanes)
            return ir.Load(vector, self.setting.panels[read], self._column())
        return self.element(read.tensor) if read.tensor in self.setting.elements else None

    def element(self, name: str) -> ir.Value:
        """The value of an element statement here: loaded when it was kept, else computed."""
        if name not in self.values:
            kept = self.setting.plan.kept.get(name)
            dtype = self.setting.dtype(name)
            if kept is not None and kept.first < self.sweep:
                buffer, offset = self._place(name)
                load = ir.Load(ir.Type(dtype, self.scope.lanes), buffer, offset, self.mask)
                self.values[name] = self.scope.name(load)
            else:
                body = self.setting.statements[name].body
                self.values[name] = self.scope.value(body, dtype)
        return self.values[name]

    def _place(self, name: str) -> tuple[str, ir.Value]:
        """Where an element is stored: the buffer and the offset of lane 0."""
        kept = self.setting.plan.kept.get(name)
        place = name if kept is None or kept.place is None else kept.place
        if place in self.setting.panels:
            return self.setting.panels[place], self._column()
        if place in self.setting.outputs:
            own = own_address(self.setting.statements[name])
            return self.setting.context.buffers[place], self.scope.offset(own)
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
            form = form.scaled(as_size(self.setting.width))
            form = form + Affine(as_size(self.row.copy * self.setting.lanes))
        start = self.setting.slot_start(slot)
        return form + Affine(start // dtype.bytes)

    def _fold(self, statement: Statement) -> None:
        name = statement.target
        function, dtype = self.setting.folding(name)
        register = self.row.accumulators[name][self.copy]
        old = ir.Get(ir.Type(dtype, self.setting.lanes), register)
        mask, own = None if self.row.across else self.mask, self.setting.dtype(name)
        terms = terms_of(self.scope, statement.body, function, dtype, own, mask)
        self.scope.steps.append(ir.Assign(register, folded(function, old, terms)))
        if name in self.row.common and len(terms) == 1:
            self._watch(self.row.common[name], *terms)

    def _watch(self, register: str, part: ir.Value) -> None:
        """Count the bits of parts of a total among those that they have in common."""
        bits = self.scope.name(part.bits(bits_of(part.type).dtype))
        if self.mask is not None:
            every = all_bits(part.type.dtype, self.setting.lanes)
            bits = self.scope.name(select(self.mask, bits, every))
        old = ir.Get(bits.type, register)
        self.scope.steps.append(ir.Assign(register, old & bits))
