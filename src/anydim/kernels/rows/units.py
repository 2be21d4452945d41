"""Elements whose last axis a call may say is 1, as of images that were pooled to one place.

    y(n,c,p) = x(n,c,p) * s(c) where p in 0:H*W

has lanes along p, of which one is busy where H*W is 1. There the lanes go along c instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anydim.base.dtypes import int64
from anydim.kernels.rows.cells import RowForm
from anydim.lang.tree import Axis, Expr, Group, Index, Literal, Read
from anydim.lang.tree.affine import Affine, flat_address, rewrite, to_expr
from anydim.sizes import Box, Size, bounds


def unit_form(form: RowForm, box: Box, along: Callable[[Group], RowForm | None]) -> RowForm | None:
    """The form of a group of elements for a last axis of 1; None where it is never that."""
    if form.across or form.plan.made or not form.outer or len(form.row) != 1:
        return None
    extent = form.lane.extent
    if extent.constant is not None or bounds(extent, box).low > 1:
        return None
    found = along(_without(form.group, form.lane))
    return None if found is None or len(found.row) != 1 or found.plan.made else found


def _without(group: Group, axis: Axis) -> Group:
    """A flat group without an axis of one element; multiples of its extent are divided by it."""

    def divided(size: Size) -> Size:
        found = size.divide_exactly(axis.extent)
        return size if found is None else found

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Index) and expr.name == axis.name:
            return Literal(0, int64)
        form = flat_address(expr) if isinstance(expr, Read) else None
        if form is None or not isinstance(expr, Read):
            return None
        terms = {name: divided(by) for name, by in form.terms}
        return replace(expr, indices=(to_expr(Affine.of(form.constant, terms)),))

    statements = tuple(
        replace(s.with_body(rewrite(s.body, change)), axes=tuple(a for a in s.axes if a != axis))
        for s in group.statements
    )
    return replace(group, statements=statements)
