"""Versions of row kernels, by the length of the vectorized axis.

| version | rows |
|---|---|
| `unit` | the last axis has one element: lanes run along the axis before it |
| `transposed` | short rows, one per lane (`short_rows.py`) |
| `vector4`, `vector8`, `vector16` | each row is one vector of that many lanes |
| `few_columns` | lanes across the rows: several rows in a vector (`few_columns.py`) |
| `vectors` | several vectors |

The version depends on the length of a row alone, so a row has the same bits in every batch.
Strides of operands that are 0 or 1 multiply the code of a version (`call_time_forms.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from anydim.compiler.kernels.codegen.scalar_lowering import Context
from anydim.compiler.kernels.rows.call_time_forms import (
    open_strides,
    stride_forms,
    stride_variants,
    unit_form,
)
from anydim.compiler.kernels.rows.few_columns import fits_few_columns
from anydim.compiler.kernels.rows.row_body import RowForm, Setting
from anydim.compiler.kernels.rows.row_form import lane_score, row_form_along
from anydim.compiler.kernels.rows.row_passes import RowProgram, fewer_lanes
from anydim.compiler.kernels.rows.short_rows import Panels, max_columns, short_form
from anydim.compiler.kernels.versions import Steps, Version
from anydim.sizes import ALWAYS, Box, at_most, condition, settle

_SINGLE = 16  # lanes of the vector for rows of at most one vector: with 8 they take 1.6 of the time


def row_versions(form: RowForm, context: Context, schedule: Any, box: Box) -> list[Version[Steps]]:
    """The ways to compute the rows of a form, which have elements."""
    found = _Versions(form, context, schedule, box)
    return [*found.unit(), *found.short(), *found.single_vectors(), *found.few(), found.vectors()]


class _Versions:
    """Makes the versions of a form."""

    def __init__(self, form: RowForm, context: Context, schedule: Any, box: Box) -> None:
        self.form, self.context, self.schedule, self.box = form, context, schedule, box
        self.strides = open_strides(form, box)
        self.lanes = schedule.lanes

    def _version(
        self, name: str, most: int, write: Callable[[RowForm], Steps], right: int = 0
    ) -> Version[Steps]:
        """A version for rows of at most `most` elements; it is right up to `right`, or `most`."""
        extent = self.form.lane.extent
        pays, fits = (settle(at_most(extent, end), self.box) for end in (most, right or most))
        size = self.context.sizes.value

        def lower(_: Any) -> Steps:
            return stride_variants(self.form, self.strides, size, write)

        return Version(name, pays, self.schedule, lower, fits)

    def _program(self, form: RowForm, unit: bool = False) -> RowProgram:
        return RowProgram(Setting(form, self.context, self.lanes, self.schedule.unroll), unit=unit)

    def vectors(self) -> Version[Steps]:
        found = self._version("vectors", 0, lambda form: self._program(form).rows())
        return replace(found, when=ALWAYS, right=ALWAYS)

    def short(self) -> Iterator[Version[Steps]]:
        """Rows that do not fill a vector; none where no row is that short."""
        context = self.context
        widest = max(t.dtype.bytes for t in context.types.values())
        lanes = context.machine.lanes_of(max(4, widest))
        form = short_form(self.form, self.box, lanes)
        if form is None:
            return
        setting = Setting(form, context, lanes, 1, Panels(form).names())
        most = max_columns(self.form, lanes)
        yield self._version("transposed", most, lambda _: RowProgram(setting).short_rows())

    def single_vectors(self, unit: bool = False) -> Iterator[Version[Steps]]:
        """Rows of one vector, where elements are independent and rows may be short."""
        for lanes in sorted(self._single_lanes()):

            def rows(form: RowForm, lanes: int = lanes) -> Steps:
                return self._program(form, unit).single_vector(lanes).rows()

            yield self._version(f"vector{lanes}", lanes, rows)

    def _single_lanes(self) -> tuple[int, ...]:
        form, lanes = self.form, min(_SINGLE, self.lanes)
        if not form.outer or form.lane.extent.constant is not None or lanes == 1:
            return ()
        fewer = fewer_lanes(form, self.lanes)
        if form.across:
            one = (1,) if form.parts and not fits_few_columns(form, self.lanes) else ()
            return (*fewer, *one)
        return (lanes, *fewer) if form.independent else ()

    def few(self) -> Iterator[Version[Steps]]:
        """Lanes across the rows, and a few columns of a vector's."""
        form = self.form
        if not form.across or form.lane.extent.constant is not None:
            return

        def fits(form: RowForm) -> bool:
            return fits_few_columns(form, self.lanes)

        def rows(form: RowForm) -> Steps:
            program = self._program(form)
            return program.few_columns() if fits(form) else program.rows()

        if any(map(fits, stride_forms(form, self.strides))):
            yield self._version("few_columns", self.lanes // 2, rows)

    def unit(self) -> Iterator[Version[Steps]]:
        """A last axis of one element: lanes along the axis before it."""
        if self.strides:
            return
        form = unit_form(self.form, self.box, row_form_along)
        if form is None or lane_score(form) <= 0:
            return
        context = replace(self.context, step=0 if form.whole else self.lanes)
        own = _Versions(form, context, self.schedule, self.box)
        own.strides = ()
        one = settle(condition(self.form.lane.extent, "==", 1), self.box)
        for version in own.single_vectors(unit=True):
            when = one & version.when
            yield replace(version, name=f"unit_{version.name}", when=when, right=when)
        yield Version("unit", one, self.schedule, lambda _: own._program(form, True).rows(), one)
