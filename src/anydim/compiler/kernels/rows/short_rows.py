"""Rows that do not fill a vector: one row per lane.

    top(r) max=! x(r,c) where c in 0:3

Row by row, 3 of 16 lanes would be loaded and then reduced. Instead 16 rows are packed into a panel
[c][16] by in-register transposes; there the lanes are rows (`across`), and elementwise results are
transposed back. The code used for a row depends on its length alone, so it has the same bits in
every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from anydim.base.dtypes import boolean
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.register_transpose import (
    concatenated_vectors,
    transposed_block,
)
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.vector_loops import STOP, first_lanes, for_loop
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.ir import constant, select
from anydim.compiler.kernels.rows.row_body import RowForm, Setting
from anydim.compiler.kernels.work_estimate import cost
from anydim.lang.tree import Read
from anydim.lang.tree.affine import Affine, affine, flat_address, reads
from anydim.sizes import Box, bounds

# Squares as wide as the vector take twice as many shuffles.
_STRIP = 4  # columns transposed at a time
_EXPENSIVE = 12.0  # operations per element that pay for panels twice as wide
_EXTREMES = ("max", "min")  # horizontal reductions that take longer than a sum


def max_columns(form: RowForm, lanes: int) -> int:
    """The length of the longest short row."""
    statements = form.group.statements
    expensive = sum(cost(statement.body) for statement in statements) > _EXPENSIVE
    return lanes * (2 if expensive or any(s.combine in _EXTREMES for s in statements) else 1)


def short_form(form: RowForm, box: Box, lanes: int) -> RowForm | None:
    """The form with one row per lane, where rows may be short; None where it does not apply."""
    if form.across or len(form.outer) != 1 or len(form.row) != 1 or not form.plan.made:
        return None
    long = bounds(form.lane.extent, box).low > max_columns(form, lanes)
    if long or lanes == 1 or form.parts:
        return None
    found = replace(form, lane=form.outer[0])
    moved = Panels(found)
    boxed = [found.group.type_of(name).dtype for name in (*moved.inputs.values(), *moved.written)]
    scalars = (s for s in form.group.statements if form.plan.kinds[s.target] != "element")
    alone = all(own_address(s).stride(found.lane.name).constant == 1 for s in scalars)
    return found if alone and boolean not in boxed else None


@dataclass(frozen=True)
class Panels:
    """The panels of a short form: operands read along rows, results, kept elements."""

    form: RowForm

    @cached_property
    def inputs(self) -> dict[Read, str]:
        """Reads that are contiguous along the columns and strided over the lanes, with their
        tensors."""
        row, lane = self.form.row[0].name, self.form.lane.name
        found: dict[Read, str] = {}
        for statement in self.form.group.statements:
            for read in reads(statement.body):
                address = flat_address(read)
                if address is None or read.tensor in self.form.plan.kinds:
                    continue
                if address.stride(row) == 1 and address.stride(lane).constant not in (0, 1):
                    found[read] = read.tensor
        return found

    @property
    def written(self) -> tuple[str, ...]:
        """The elementwise results."""
        return tuple(self.form.plan.stored)

    def names(self) -> dict[Read | str, str]:
        """The buffer of each panel."""
        everything: tuple[Read | str, ...]
        everything = (*self.inputs, *self.written, *self.form.plan.slots)
        return {each: f"panel{number}" for number, each in enumerate(everything)}


class ShortRows:
    """The steps around those of the rows: packs blocks of rows into panels and unpacks them.

    Columns are processed in strips of four: four columns of 16 rows are four vectors, each with a 4
    x 4 block of every fourth row side by side.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, self.form, self.lanes = setting, setting.form, setting.lanes
        self.side = min(_STRIP, setting.lanes)
        self.columns = setting.value(self.form.row[0].extent)

    def block(
        self, scope: ScalarLowering, first: ir.Value,
        rows: Callable[[ir.Value], tuple[ir.Step, ...]],
    ) -> None:  # fmt: skip
        """A block of rows from `first` on; `rows` emits its steps between panels."""
        remaining, panels = scope.name(STOP - first), Panels(self.form)
        for read in panels.inputs:
            self._pack(scope, read, first, remaining)
        scope.steps += rows(remaining)
        for name in panels.written:
            self._unpack(scope, name, first, remaining)

    def declare_panels(self) -> list[ir.Step]:
        """Declarations of the panels."""
        count = max_columns(self.form, self.lanes) * self.lanes
        names = [each.tensor if isinstance(each, Read) else each for each in self.setting.panels]
        return [
            ir.Stack(panel, self.form.group.type_of(name).dtype, count)
            for name, panel in zip(names, self.setting.panels.values())
        ]

    def _pack(
        self, scope: ScalarLowering, read: Read, first: ir.Value, remaining: ir.Value
    ) -> None:
        """Pack the panel of a read."""
        form, few = affine(read.indices[0]), self._vector(read.tensor, self.side)
        assert form is not None
        buffer, panel = self.setting.context.buffers[read.tensor], self.setting.panels[read]
        offsets = self._row_offsets(scope, form, first, remaining)

        def strip(inner: ScalarLowering, at: ir.Value, mask: ir.Value) -> None:
            pieces = [
                inner.name(ir.Load(few, buffer, inner.name(offset + at), mask))
                for offset in offsets
            ]
            rows = [concatenated_vectors(pieces[row :: self.side]) for row in range(self.side)]
            for number, column in enumerate(self._squares(inner, rows)):
                inner.steps.append(ir.Store(panel, self._column(inner, at, number), column))

        self._strips(scope, strip)

    def _unpack(
        self, scope: ScalarLowering, name: str, first: ir.Value, remaining: ir.Value
    ) -> None:
        """Unpack a result from its panel."""
        vector = self._vector(name, self.lanes)
        buffer, panel = self.setting.context.buffers[name], self.setting.panels[name]
        offsets = self._row_offsets(
            scope, own_address(self.setting.statements[name]), first, remaining
        )
        whole = scope.name(constant(self.lanes) <= remaining)

        def strip(inner: ScalarLowering, at: ir.Value, mask: ir.Value) -> None:
            columns: list[ir.Value] = [
                ir.Load(vector, panel, self._column(inner, at, number))
                for number in range(self.side)
            ]
            squares = self._squares(inner, columns)
            stores = []
            for row, offset in enumerate(offsets):
                few = self._part(squares[row % self.side], row // self.side)
                stores.append(ir.Store(buffer, inner.name(offset + at), few, mask))
            some = [ir.If(constant(n) < remaining, (s,)) for n, s in enumerate(stores)]
            inner.steps.append(ir.If(whole, tuple(stores), tuple(some)))

        self._strips(scope, strip)

    def _vector(self, name: str, lanes: int) -> ir.Type:
        return ir.Type(self.form.group.type_of(name).dtype, lanes)

    def _strips(
        self, scope: ScalarLowering, body: Callable[[ScalarLowering, ir.Value, ir.Value], None]
    ) -> None:
        """Loop over strips of columns; the body gets the first column and the mask of existing
        columns."""
        with for_loop(scope, self.columns, 0, self.side, letter="c") as (inner, at):
            body(inner, at, first_lanes(inner, inner.name(self.columns - at), self.side))

    def _row_offsets(
        self, scope: ScalarLowering, form: Affine, first: ir.Value, remaining: ir.Value
    ) -> list[ir.Value]:
        """Offsets of the rows of a block; rows past the end repeat the last one."""
        inner = scope.inner({self.form.lane.name: first})
        at = inner.offset(form.without(self.form.row[0].name))
        scope.steps += inner.steps
        distance = self.setting.value(form.stride(self.form.lane.name))
        found = [at]
        for row in range(1, self.lanes):
            at = scope.name(at + select(constant(row) < remaining, distance, 0))
            found.append(at)
        return found

    def _column(self, scope: ScalarLowering, at: ir.Value, number: int) -> ir.Value:
        """Offset of a column of a strip in a panel."""
        return scope.name((at + number) * self.lanes)

    def _squares(self, scope: ScalarLowering, rows: list[ir.Value]) -> list[ir.Value]:
        return transposed_block(ir.Type(rows[0].dtype, self.lanes), rows, scope.name)

    def _part(self, whole: ir.Value, number: int) -> ir.Value:
        """Block `number` of a vector of side-by-side blocks."""
        few = ir.Type(whole.type.dtype, self.side)
        lanes = tuple(range(number * self.side, (number + 1) * self.side))
        return ir.Shuffle(few, whole, whole, lanes)
