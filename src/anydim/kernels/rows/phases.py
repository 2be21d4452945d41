"""Long rows that threads share: a launch for each sweep over pieces of rows, and one for the end.

    top(r) max=! x(r,c);  e(r,c) = exp(x(r,c) - top(r));  total(r) +=! e(r,c);  y(r,c) = e / total

    phase 0   part0(r,p) max=! x(r,c)                     for the c of piece p
    phase 1   top(r) from part0(r,*); part1(r,p) +=! e(r,c)
    phase 2   top(r), total(r) from part0(r,*), part1(r,*); y(r,c) = e(r,c) / total(r)

A part is a vector, whose lanes are joined when the whole is known. Whoever does a row alone goes
through the same pieces in the same order (`RowForm.cut`), so a row has the same bits either way.
The launches have an empty range where rows are short or keep the threads busy as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.rows.broadcasts import open_strides
from anydim.kernels.rows.cells import PIECE, Row, RowForm, Setting, identity
from anydim.kernels.rows.ranges import part_of
from anydim.kernels.rows.sweeps import RowProgram
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.loops import START, STOP, index, open_segments, parallel_loop
from anydim.kernels.write.quotient import all_bits, bits_of
from anydim.kernels.write.values import add, number, operate
from anydim.lang.tree import Tensor, TensorType
from anydim.lang.tree.bounds_checks import checked
from anydim.sizes import Box, Size, as_size, bounds, ceil_div, maximum, minimum, product, simplify

LONG = 8 * PIECE  # elements of a row from which on threads share it
MANY = 16  # rows that keep the threads busy without that


def rows_of(form: RowForm) -> Size:
    return product(axis.extent for axis in form.outer)


def pieces_of(form: RowForm) -> Size:
    return ceil_div(form.lane.extent, PIECE)


def is_cut(form: RowForm, box: Box) -> bool:
    """Whether reductions of a form add up pieces of a row, so that threads may share it.

    How many rows there are has no say, nor how few pieces: a row has its bits at all sizes.
    """
    wanted = bool(form.outer) or bool(form.plan.stored)  # else `passes/pieces.py` has cut it
    along = wanted and not form.across and len(form.row) == 1 and bool(form.plan.made)
    fixed = part_of(form) is None and not form.plan.slots and not open_strides(form, box)
    fine = not any(checked(statement.body) for statement in form.group.statements)
    return along and fixed and fine and bounds(form.lane.extent, box).high > PIECE


def shared(form: RowForm, box: Box, machine: Machine) -> Size:
    """1 where threads share rows, else 0.

    Several rows are gone through one after the other in each phase, so that is for rows which no
    cache holds from one sweep to the next.
    """
    rows, length = rows_of(form), form.lane.extent
    if not is_cut(form, box) or machine.most_lanes:  # an accelerator's rows are other templates'
        return as_size(0)
    if bounds(length, box).high < LONG or bounds(rows, box).low >= MANY:
        return as_size(0)
    bytes = max(t.type.dtype.bytes for t in (*form.group.inputs, *form.group.outputs))
    few = (1 - minimum(1, rows // MANY)) * minimum(1, length * bytes // machine.l2_bytes)
    return simplify(minimum(1, length // LONG) * maximum(1 - minimum(1, rows // 2), few), box)


@dataclass(frozen=True)
class Parts:
    """The tensors that hold parts: of reductions, and of the bits that parts have in common."""

    totals: Mapping[str, Tensor]
    common: Mapping[str, Tensor]

    @staticmethod
    def of(setting: Setting) -> Parts:
        """As large as for the most rows that are shared; nothing where rows are short."""
        form, lanes = setting.form, setting.lanes
        places = minimum(rows_of(form), MANY) * (form.lane.extent // (PIECE // 2)) * lanes

        def tensor(name: str, dtype: DType) -> Tensor:
            return Tensor(name, TensorType(dtype, (places,)))

        made = {name: setting.folding(name)[1] for name in form.plan.made}
        wide = {name: ir.Type(dtype, lanes) for name, dtype in made.items()}
        return Parts(
            {n: tensor(f"part{k}", dtype) for k, (n, dtype) in enumerate(made.items())},
            {n: tensor(f"common{k}", bits_of(wide[n]).dtype) for k, n in enumerate(made)
             if n in setting.shares},
        )  # fmt: skip

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.totals.values(), *self.common.values())


class PhaseProgram(RowProgram):
    """Emits a phase: a sweep over the pieces of all rows, or after all of them what rows give."""

    def __init__(self, setting: Setting, parts: Parts, phase: int) -> None:
        super().__init__(setting)
        setting.ahead = ()
        self.parts, self.phase = parts, phase

    @property
    def positions(self) -> Size:
        """The extent of the parallel range."""
        rows = rows_of(self.form)
        return rows if self.phase == self.plan.sweeps else rows * pieces_of(self.form)

    def steps(self) -> tuple[ir.Step, ...]:
        """All steps of the main function."""
        kernel = Elements(replace(self.setting.context, running=True))
        axes = [(axis.name, self.setting.value(axis.extent)) for axis in self.form.outer]
        first: ir.Value = START
        stop: ir.Value = STOP
        if self.phase < self.plan.sweeps:
            pieces = self.setting.value(pieces_of(self.form))
            more = kernel.name(operate("sub", pieces, index(1)))
            first = kernel.name(operate("floordiv", START, pieces))
            stop = kernel.name(operate("floordiv", kernel.name(add(STOP, more)), pieces))
        parallel_loop(kernel, axes, self._row, first, stop)
        return (ir.If(operate("less", START, STOP), tuple(kernel.steps)),)

    def _row(self, scope: Elements) -> None:
        row = Row(self.setting, scope.inner({}, answers=self.setting.scalars), None)
        first = self._first(scope)
        for sweep in range(self.phase):
            self._gather(row, sweep, first)
        if self.phase == self.plan.sweeps:
            row.finish()
        else:
            self._own_pieces(row, first)
        scope.steps += row.scope.steps

    def _own_pieces(self, row: Row, first: ir.Value) -> None:
        """The pieces of a row that are in this part of the range."""
        scope, piece = row.scope, ir.Var(ir.INDEX, self.setting.context.fresh("piece"))
        begin, end = (scope.name(operate("sub", each, first)) for each in (START, STOP))
        begin = scope.name(operate("max", begin, index(0)))
        end = scope.name(operate("min", end, self.setting.value(pieces_of(self.form))))
        inner = scope.inner({}, answers=self.setting.scalars)
        low = inner.name(operate("mul", piece, index(PIECE)))
        high = inner.name(add(low, index(PIECE)))
        high = inner.name(operate("min", high, self.setting.value(self.form.lane.extent)))
        lanes, unroll = self.setting.lanes, self.setting.unroll
        self.sweeps = open_segments(inner, low, high, lanes, unroll, lanes)
        self.own = inner.name(add(first, piece))
        part = Row(self.setting, inner, None)
        part.known, part.small = dict(row.known), dict(row.small)
        self._sweep_along(part, self.phase)
        scope.steps.append(ir.For(piece.name, begin, end, index(1), tuple(inner.steps)))

    def _first(self, scope: Elements) -> ir.Value:
        """The number of the row's first piece."""
        place: ir.Value = index(0)
        for axis in self.form.outer:
            place = scope.name(operate("mul", place, self.setting.value(axis.extent)))
            place = scope.name(add(place, scope.indices[axis.name]))
        return scope.name(operate("mul", place, self.setting.value(pieces_of(self.form))))

    def _swept(self, row: Row, sweep: int) -> None:
        """Keep what the sweep made of this piece."""
        offset = row.scope.name(operate("mul", self.own, index(self.setting.lanes)))
        for name, made in self.plan.made.items():
            if made != sweep:
                continue
            row.scope.steps.append(
                ir.Store(self.parts.totals[name].name, offset, row.scope.name(row.joined(name)))
            )
            if name in self.parts.common:
                tensor = self.parts.common[name]
                kind = ir.Type(tensor.type.dtype, self.setting.lanes)
                bits = ir.Get(kind, row.common[name])
                row.scope.steps.append(ir.Store(tensor.name, offset, bits))

    def _gather(self, row: Row, sweep: int, first: ir.Value) -> None:
        """Make the reductions of a sweep known, from all pieces of the row."""
        lanes = self.setting.lanes
        for name, made in self.plan.made.items():
            if made != sweep:
                continue
            function, dtype = self.setting.folding(name)
            nothing = number(dtype, identity(function, dtype), lanes)
            total = self._joined(row, self.parts.totals[name], function, nothing, first)
            if name in self.parts.common:
                every = all_bits(dtype, lanes)
                bits = self._joined(row, self.parts.common[name], "bit_and", every, first)
                row.common[name] = bits
            row.know(name, ir.Get(ir.Type(dtype, lanes), total))

    def _joined(
        self, row: Row, tensor: Tensor, function: str, nothing: ir.Value, first: ir.Value
    ) -> str:
        """The register that has the parts of all pieces joined, one after the other."""
        context, scope, kind = self.setting.context, row.scope, nothing.type
        register, piece = context.fresh("total"), ir.Var(ir.INDEX, context.fresh("piece"))
        inner = scope.inner({})
        place = inner.name(add(first, piece))
        offset = inner.name(operate("mul", place, index(kind.lanes)))
        part = inner.name(ir.Load(kind, tensor.name, offset))
        inner.steps.append(ir.Assign(register, operate(function, ir.Get(kind, register), part)))
        count = self.setting.value(pieces_of(self.form))
        loop = ir.For(piece.name, index(0), count, index(1), tuple(inner.steps))
        scope.steps += [ir.Declare(register, nothing), loop]
        return register
