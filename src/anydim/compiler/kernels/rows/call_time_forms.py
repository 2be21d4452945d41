"""Variants selected at call time: operands broadcast along the lanes, or a lane axis of extent 1.

Where two inputs broadcast and their dims are unrelated, an operand's index is the lane times a size
that is 0 or 1. Gathering along it takes several times as long as either case needs, so there is a
variant of the loops for each value.

    y(n,c,p) = x(n,c,p) * s(c) where p in 0:H*W

has lanes along p, only one of which is used if H*W is 1, as for globally pooled images. In that
case the lanes run along c instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anydim.base.dtypes import int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.flatten import rewritten
from anydim.compiler.kernels.rows.row_body import RowForm
from anydim.lang.tree import Axis, Expr, Group, Index, Literal, Read
from anydim.lang.tree.affine import Affine, flat_address, reads, to_expr
from anydim.sizes import Box, Size, as_size, bounds

_MOST_OPEN = 2  # sizes of 0 or 1; each doubles the code


def open_strides(form: RowForm, box: Box) -> tuple[Size, ...]:
    """The strides along the lanes that are 0 or 1, known at call time; () for too many."""
    found: dict[Size, None] = {}
    for statement in form.group.statements:
        for read in reads(statement.body):
            address = flat_address(read)
            stride = as_size(0) if address is None else address.stride(form.lane.name)
            if stride.constant is None:
                values = bounds(stride, box)
                if values.low >= 0 and values.high <= 1:
                    found[stride] = None
    return tuple(found) if len(found) <= _MOST_OPEN else ()


def stride_variants(
    form: RowForm, strides: tuple[Size, ...], size: Callable[[Size], ir.Value],
    written: Callable[[RowForm], tuple[ir.Step, ...]],
) -> tuple[ir.Step, ...]:  # fmt: skip
    """The code of a form, emitted once for each combination of its open strides."""
    if not strides:
        return written(form)
    first, *rest = strides
    variants = [
        stride_variants(_with(form, {first: number}), tuple(rest), size, written)
        for number in (1, 0)
    ]
    return (ir.If(size(first).equals(1), *variants),)


def stride_forms(form: RowForm, strides: tuple[Size, ...]) -> list[RowForm]:
    """The forms of all combinations of open strides."""
    forms = [form]
    for stride in strides:
        forms = [_with(each, {stride: number}) for each in forms for number in (1, 0)]
    return forms


def _with(form: RowForm, known: Mapping[Size, int]) -> RowForm:
    """The form with these strides along the lanes fixed."""
    lane = form.lane.name

    def change(expr: Expr) -> Expr | None:
        address = flat_address(expr) if isinstance(expr, Read) else None
        if address is None or address.stride(lane) not in known:
            return None
        assert isinstance(expr, Read)
        terms = dict(address.terms)
        terms[lane] = as_size(known[terms[lane]])
        return Read(expr.tensor, (to_expr(Affine.of(address.constant, terms)),), flat=True)

    return replace(form, group=rewritten(form.group, change))


# ---- a last axis of one element ----------------------------------------------------------------


def unit_form(form: RowForm, box: Box, along: Callable[[Group], RowForm | None]) -> RowForm | None:
    """The form of an elementwise group whose last axis has extent 1; None where it never has."""
    if form.across or form.plan.made or not form.outer or len(form.row) != 1:
        return None
    extent = form.lane.extent
    if extent.constant is not None or bounds(extent, box).low > 1:
        return None
    found = along(_without(form.group, form.lane))
    return None if found is None or len(found.row) != 1 or found.plan.made else found


def _without(group: Group, axis: Axis) -> Group:
    """A flat group without an axis of extent 1; strides that are multiples of its extent are
    divided by it."""

    def divide_extent(size: Size) -> Size:
        found = size.divide_exactly(axis.extent)
        return size if found is None else found

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Index) and expr.name == axis.name:
            return Literal(0, int64)
        form = flat_address(expr) if isinstance(expr, Read) else None
        if form is None or not isinstance(expr, Read):
            return None
        terms = {name: divide_extent(by) for name, by in form.terms}
        return replace(expr, indices=(to_expr(Affine.of(form.constant, terms)),))

    group = rewritten(group, change)
    kept = (tuple(other for other in s.axes if other != axis) for s in group.statements)
    made = tuple(replace(s, axes=axes) for s, axes in zip(group.statements, kept))
    return replace(group, statements=made)
