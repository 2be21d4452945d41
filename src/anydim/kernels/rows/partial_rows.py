"""Reductions over a data-dependent part of a row: only that part is visited.

    y(r) +=! val(k) where r in 0:R, k in ptr(r):ptr(r+1)

arrives here as a sum over all k whose term is the neutral element unless ptr(r) <= k < ptr(r+1).
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.reduction import accumulator_of, identity
from anydim.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.kernels.inference import free_axes
from anydim.kernels.ir import greatest, operate, select
from anydim.kernels.rows.row_body import RowForm
from anydim.lang.tree import Apply, Expr, Index, Literal, Statement


@dataclass(frozen=True)
class Part:
    """The relevant elements of a row: at or above all `lows`, below all `highs`."""

    lows: tuple[Expr, ...] = ()
    highs: tuple[Expr, ...] = ()


def part_of(form: RowForm) -> Part | None:
    """The part of the lane axis shared by all reductions of a row; None for the whole axis."""
    if form.across or form.plan.stored or form.plan.kept:
        return None
    statements = [s for s in form.group.statements if s.target in form.plan.made]
    parts = {_part(s, form) for s in statements}
    found = parts.pop() if len(parts) == 1 else Part()
    return found if found.lows or found.highs else None


def _part(statement: Statement, form: RowForm) -> Part:
    dtype = form.group.type_of(statement.target).dtype
    row = frozenset(axis.name for axis in form.row)
    return part_along(statement.body, statement.combine, dtype, form.lane.name, row)


def part_along(body: Expr, combine: str, dtype: DType, axis: str, reduced: frozenset[str]) -> Part:
    """The part of a reduced axis outside of which `body` is the neutral element."""
    if not (isinstance(body, Apply) and body.function == "select"):
        return Part()
    condition, _, other = body.arguments
    if not isinstance(other, Literal) or other.value != identity(*accumulator_of(combine, dtype)):
        return Part()
    lows: list[Expr] = []
    highs: list[Expr] = []
    for each in _conjuncts(condition):
        if not isinstance(each, Apply) or len(each.arguments) != 2:
            continue
        left, right = each.arguments
        if left == Index(axis) and not free_axes(right) & reduced:
            if each.function == "greater_equal":
                lows.append(right)
            elif each.function == "less":
                highs.append(right)
    return Part(tuple(lows), tuple(highs))


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    """The conjuncts of a condition."""
    if isinstance(expr, Apply) and expr.function == "and":
        for part in expr.arguments:
            yield from _conjuncts(part)
    else:
        yield expr


def limits(
    part: Part, scope: ScalarLowering, first: ir.Value, end: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """First and end of a part of a row from `first` to `end`. Bounds out of range are ignored.

    The check of such a bound, which is in the loop, then runs as if the whole row were visited.
    """
    low, high = first, end
    for function, bounds in (("max", part.lows), ("min", part.highs)):
        for bound in bounds:
            value = scope.name(scope.scalar(bound, int64))
            above_first = first <= value
            up_to_end = value <= end
            inside = scope.name(scope.name(above_first) & scope.name(up_to_end))
            old = low if function == "max" else high
            new = scope.name(operate(function, old, value))
            chosen = scope.name(select(inside, new, old))
            low, high = (chosen, high) if function == "max" else (low, chosen)
    return low, scope.name(greatest(low, high))
