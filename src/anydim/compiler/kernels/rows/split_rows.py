"""Long rows shared by threads: a launch per pass over pieces of rows, and a final one.

    top(r) max=! x(r,c);  e(r,c) = exp(x(r,c) - top(r));  total(r) +=! e(r,c);  y(r,c) = e / total

    phase 0   part0(r,p) max=! x(r,c)                     for the c of piece p
    phase 1   top(r) from part0(r,*); part1(r,p) +=! e(r,c)
    phase 2   top(r), total(r) from part0(r,*), part1(r,*); y(r,c) = e(r,c) / total(r)

A partial result is a vector, whose lanes are reduced once the row is complete. A thread that
computes a row alone processes the same pieces in the same order (`RowForm.cut`), so results are the
same to the bit either way. The launches have an empty range if rows are short, or numerous enough
to occupy all threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.exact_division import all_bits, bits_of
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.vector_loops import (
    START,
    STOP,
    for_loop,
    open_segments,
    parallel_loop,
)
from anydim.compiler.kernels.ir import constant, greatest, least, operate
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows.call_time_forms import open_strides
from anydim.compiler.kernels.rows.row_body import Row, RowForm, Setting
from anydim.compiler.kernels.rows.row_passes import RowProgram
from anydim.compiler.kernels.schedule import ANY
from anydim.compiler.kernels.work_estimate import PIECE
from anydim.lang.tree import Tensor, TensorType
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import (
    NEVER,
    Box,
    Condition,
    Size,
    at_least,
    at_most,
    bounds,
    ceil_div,
    minimum,
    product,
    settle,
)

SHARED = "shared"  # name of the version
MANY = 16  # rows that occupy the threads without sharing


def rows_of(form: RowForm) -> Size:
    return product(axis.extent for axis in form.outer)


def pieces_of(form: RowForm) -> Size:
    return ceil_div(form.lane.extent, PIECE)


def is_cut(form: RowForm, box: Box) -> bool:
    """Whether reductions of a form sum pieces of a row, so that threads may share it.

    Independent of the number of rows and pieces: the bits of a row do not depend on sizes.
    """
    wanted = bool(form.outer) or bool(
        form.plan.stored
    )  # else `passes/split_reduction.py` has split it
    along = wanted and not form.across and len(form.row) == 1 and bool(form.plan.made)
    fixed = not form.parts and not form.plan.slots and not open_strides(form, box)
    fine = not any(has_checks(statement.body) for statement in form.group.statements)
    return along and fixed and fine and bounds(form.lane.extent, box).high > PIECE


def share_condition(form: RowForm, version: str, box: Box, machine: Machine) -> Condition:
    """Where threads share rows: where that pays, or wherever it is right if `version` is SHARED.

    Each phase processes several rows one after the other, so several rows are shared only if no
    cache holds a row from one pass to the next.
    """
    rows, length = rows_of(form), form.lane.extent
    if not is_cut(form, box) or machine.max_lanes:  # accelerators use other templates
        return NEVER
    if version != ANY:
        right = at_most(rows, MANY) & at_least(length, PIECE)
        return settle(right, box) if version == SHARED else NEVER
    bytes = max(t.type.dtype.bytes for t in (*form.group.inputs, *form.group.outputs))
    few = at_most(rows, MANY - 1) & at_least(length * bytes, machine.l2_bytes)
    return settle(at_least(length, machine.limits.shared_row) & (at_most(rows, 1) | few), box)


@dataclass(frozen=True)
class PieceResults:
    """The tensors of partial results: of reductions, and of the bitwise AND of their terms."""

    totals: Mapping[str, Tensor]
    common: Mapping[str, Tensor]

    @staticmethod
    def of(setting: Setting) -> PieceResults:
        """Sized for the largest number of shared rows; empty where rows are short."""
        form, lanes = setting.form, setting.lanes
        # Pieces are at least half of PIECE, so this bounds their number.
        elements = minimum(rows_of(form), MANY) * (form.lane.extent // (PIECE // 2)) * lanes

        def tensor(name: str, dtype: DType) -> Tensor:
            return Tensor(name, TensorType(dtype, (elements,)))

        made = {name: setting.accumulation(name)[1] for name in form.plan.made}
        wide = {name: ir.Type(dtype, lanes) for name, dtype in made.items()}
        return PieceResults(
            {n: tensor(f"part{k}", dtype) for k, (n, dtype) in enumerate(made.items())},
            {n: tensor(f"common{k}", bits_of(wide[n]).dtype) for k, n in enumerate(made)
             if n in setting.shares},
        )  # fmt: skip

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.totals.values(), *self.common.values())


class PhaseProgram(RowProgram):
    """Emits a phase: a pass over the pieces of all rows, or the final scalar results."""

    def __init__(self, setting: Setting, parts: PieceResults, phase: int) -> None:
        super().__init__(setting)
        setting.ahead = ()
        self.parts, self.phase = parts, phase

    @property
    def positions(self) -> Size:
        """The extent of the parallel range."""
        rows = rows_of(self.form)
        return rows if self.phase == self.plan.passes else rows * pieces_of(self.form)

    def steps(self) -> tuple[ir.Step, ...]:
        """All steps of the main function."""
        kernel = ScalarLowering(replace(self.setting.context, running=True))
        axes = [(axis.name, self.setting.value(axis.extent)) for axis in self.form.outer]
        first: ir.Value = START
        stop: ir.Value = STOP
        if self.phase < self.plan.passes:
            pieces = self.setting.value(pieces_of(self.form))
            first = kernel.name(START // pieces)
            stop = kernel.name((STOP + (pieces - 1)) // pieces)
        parallel_loop(kernel, axes, self._row, first, stop)
        return (ir.If(START < STOP, tuple(kernel.steps)),)

    def _row(self, scope: ScalarLowering) -> None:
        row = Row(self.setting, scope.inner({}, answers=self.setting.scalars), None)
        first = self._first(scope)
        for pass_number in range(self.phase):
            self._gather(row, pass_number, first)
        if self.phase == self.plan.passes:
            row.finish()
        else:
            self._own_pieces(row, first)
        scope.steps += row.scope.steps

    def _own_pieces(self, row: Row, first: ir.Value) -> None:
        """The pieces of a row in this part of the range."""
        scope, lanes, unroll = row.scope, self.setting.lanes, self.setting.unroll
        begin = scope.name(greatest(START - first, 0))
        end = scope.name(least(STOP - first, self.setting.value(pieces_of(self.form))))
        with for_loop(scope, end, begin, letter="piece") as (inner, piece):
            inner.answers = self.setting.scalars
            low = inner.name(piece * PIECE)
            high = inner.name(least(low + PIECE, self.setting.value(self.form.lane.extent)))
            self.segments = open_segments(inner, low, high, lanes, unroll, lanes)
            self.own = inner.name(first + piece)
            part = Row(self.setting, inner, None)
            part.known, part.small = dict(row.known), dict(row.small)
            self._pass_along(part, self.phase)

    def _first(self, scope: ScalarLowering) -> ir.Value:
        """The number of the row's first piece."""
        index = constant(0)
        for axis in self.form.outer:
            index = index * self.setting.value(axis.extent) + scope.indices[axis.name]
        return scope.name(index * self.setting.value(pieces_of(self.form)))

    def _finish_pass(self, row: Row, pass_number: int) -> None:
        """Store the partial results of this piece."""
        lanes, steps = self.setting.lanes, row.scope.steps
        offset = row.scope.name(self.own * lanes)
        for name in self.plan.made_by(pass_number):
            total = row.scope.name(row.combine_accumulators(name))
            steps.append(ir.Store(self.parts.totals[name].name, offset, total))
            if name in self.parts.common:
                tensor = self.parts.common[name]
                bits = ir.Get(ir.Type(tensor.type.dtype, lanes), row.common[name])
                steps.append(ir.Store(tensor.name, offset, bits))

    def _gather(self, row: Row, pass_number: int, first: ir.Value) -> None:
        """Record the results of the reductions of a pass, from all pieces of the row."""
        for name in self.plan.made_by(pass_number):
            function, neutral = self.setting.accumulation(name)[0], self.setting.neutral(name)
            total = self._combine_pieces(row, self.parts.totals[name], function, neutral, first)
            if name in self.parts.common:
                every = all_bits(neutral.dtype, neutral.type.lanes)
                row.common[name] = self._combine_pieces(
                    row, self.parts.common[name], "bit_and", every, first
                )
            row.know(name, ir.Get(neutral.type, total))

    def _combine_pieces(
        self, row: Row, tensor: Tensor, function: str, neutral: ir.Value, first: ir.Value
    ) -> str:
        """A register with the partial results of all pieces, combined in order."""
        scope, kind, register = row.scope, neutral.type, self.setting.context.fresh("total")
        scope.steps.append(ir.Declare(register, neutral))
        count = self.setting.value(pieces_of(self.form))
        with for_loop(scope, count, letter="piece") as (inner, piece):
            offset = inner.name((first + piece) * kind.lanes)
            part = inner.name(ir.Load(kind, tensor.name, offset))
            inner.steps.append(ir.Assign(register, operate(function, ir.Get(kind, register), part)))
        return register
