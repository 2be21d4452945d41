"""Reductions over a data-dependent part of their axes: only that part is visited.

    y(r,f) +=! val(z) * x(col(z),f) where r in 0:R, z in ptr(r):ptr(r+1)

arrives here as a sum over all z whose term is the neutral element unless ptr(r) <= z < ptr(r+1).
The bounds leave the term and become the range of the loop over z, computed once per row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.reduction import accumulator_of, identity
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.vector_loops import if_block
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import constant, greatest, least, select, variable
from anydim.lang.tree import Apply, Axis, Cast, Expr, Index, Literal, Read, Statement, Write
from anydim.lang.tree.affine import Affine, affine, operands, reads
from anydim.lang.tree.bounds_checks import has_checks, is_inside, renumber_checks
from anydim.sizes import as_size


@dataclass(frozen=True)
class Bound:
    """A bound of an axis: its first index if `low`, else its exclusive end.

    `exact`: its condition has left the term. The condition of any other bound is still part of the
    term, and reports an invalid bound there.
    """

    axis: str
    low: bool
    value: Expr
    exact: bool


Part = tuple[Bound, ...]  # in the order in which the bounds apply


def ordered_axes(statements: Iterable[Statement | Write], axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Reduced axes, each after those that its bounds depend on."""
    names = [axis.name for axis in axes]
    after: dict[str, frozenset[str]] = dict.fromkeys(names, frozenset())
    for statement in statements if len(names) > 1 else ():
        for each in _conditions(statement.body):
            for name in names:
                value = _side(each, name)
                if value is not None:
                    after[name] |= free_axes(value[1]) & {*names}
    found: list[Axis] = []
    waiting = list(axes)
    while waiting:
        known = {axis.name for axis in found}
        following = next((a for a in waiting if after[a.name] <= known), waiting[0])
        waiting.remove(following)
        found.append(following)
    return tuple(found)


def part_along(
    body: Expr, neutral: Expr | None, axes: Sequence[str], apart: Collection[str] = ()
) -> tuple[Part, Expr]:
    """The part of `axes` outside of which `body` is `neutral`, and the body without its conditions.

    `axes` are nested loops, outermost first; bounds of an axis may depend on those outside of it,
    and not on the axes `apart`. A check applies where the conditions before it hold, so a checked
    bound behind any other condition is not exact.
    """
    if not (isinstance(body, Apply) and body.function == "select" and body.arguments[2] == neutral):
        return (), body
    condition, term, other = body.arguments
    found: list[Bound] = []
    rest: list[Expr] = []
    for each in conjuncts(condition):
        bound = _find_bound(each, axes, apart)
        if bound is not None and any(b.exact and _checks(b.value, bound.axis) for b in found):
            bound = None  # it would suppress checks of earlier bounds
        exact = bound is not None and not (rest and has_checks(bound.value))
        if bound is not None:
            found.append(replace(bound, exact=exact))
        if not exact:
            rest.append(each)
    if rest:
        both = reduce(lambda left, right: Apply("and", (left, right)), rest)
        term = Apply("select", (both, term, other))
    return tuple(found), term


def neutral_literal(combine: str, dtype: DType) -> Literal:
    """The term that leaves a reduction as it is."""
    return Literal(identity(*accumulator_of(combine, dtype)), dtype)


def repeats(body: Expr, axes: Collection[str], lane: str) -> bool:
    """Whether lanes along `lane` read the same elements in ranges that data gives each of them.

    Such lanes visit the ranges of all others, whose number no operand bounds.
    """
    found = {
        axis
        for each in _conditions(body)
        for axis in axes
        for side in (_side(each, axis),)
        if side is not None and reads(side[1]) and lane in free_axes(side[1])
    }
    return any(free_axes(r) & found and lane not in free_axes(r) for r in reads(body))


def adjoining(part: Part, axis: str, row: str) -> tuple[Expr, Expr] | None:
    """The ends of an axis if each part begins where that of the row before it ends.

    Their sizes then add up to the extent of the axis at most: z in ptr(r):ptr(r+1) for all r. The
    row is an axis, or the variable of a loop.
    """
    own = [bound for bound in part if bound.axis == axis]
    if [bound.low for bound in own] != [True, False]:
        return None
    low, high = first, last = own[0].value, own[1].value
    while isinstance(first, (Apply, Cast)) and type(first) is type(last):
        first, last = operands(first)[0], operands(last)[0]
    if not (isinstance(first, Read) and isinstance(last, Read) and first.tensor == last.tensor):
        return None
    if len(first.indices) != 1 or first.default is not None or last.default is not None:
        return None
    before, after = affine(first.indices[0]), affine(last.indices[0])
    if before is None or after is None:
        return None
    loop = before.constant.linear_in([row])
    step = before.stride(row) if loop is None else before.stride(row) + loop[0].get(row, 0)
    return (low, high) if step != 0 and after - before == Affine(as_size(step)) else None


def uncounted_axes(part: Part, rows: Collection[str]) -> set[str]:
    """Axes and rows whose extents do not multiply the element count of a part.

    Adjoining parts of all rows together count as their axis; of any other range that data gives,
    whose size is unknown, one element counts for each row.
    """
    found: set[str] = set()
    for axis in {bound.axis for bound in part if reads(bound.value)}:
        of = [row for row in (*rows, *(b.axis for b in part)) if adjoining(part, axis, row)]
        found.add(of[0] if of else axis)
    return found


def without_numbers(part: Part) -> Part:
    """A part with the numbers of its checks set to 0, to compare parts."""
    return tuple(replace(b, value=renumber_checks(b.value, lambda _: 0)) for b in part)


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """The conjuncts of a condition."""
    if isinstance(expr, Apply) and expr.function == "and":
        for part in expr.arguments:
            yield from conjuncts(part)
    else:
        yield expr


def _conditions(body: Expr) -> Iterator[Expr]:
    if isinstance(body, Apply) and body.function == "select":
        yield from conjuncts(body.arguments[0])


def _side(each: Expr, axis: str) -> tuple[bool, Expr] | None:
    """Whether a condition is a lower bound of an axis, and the bound; None for others."""
    if not isinstance(each, Apply) or each.function not in ("greater_equal", "less"):
        return None
    left, right = each.arguments
    return (each.function == "greater_equal", right) if left == Index(axis) else None


def _find_bound(each: Expr, axes: Sequence[str], apart: Collection[str]) -> Bound | None:
    for number, axis in enumerate(axes):
        found = _side(each, axis)
        if found is not None and not free_axes(found[1]) & {*axes[number:], *apart}:
            return Bound(axis, *found, exact=False)
    return None


def _checks(value: Expr, axis: str) -> bool:
    return has_checks(value) and axis in free_axes(value)


# ---- loops -------------------------------------------------------------------------------------


def limits(
    part: Part, axis: str, scope: ScalarLowering, extent: ir.Value,
    within: tuple[ir.Value, ir.Value] | None = None,
) -> tuple[ir.Value, ir.Value]:  # fmt: skip
    """First index and end of an axis in `within`, a part of 0:extent; None: all of it.

    An invalid exact bound is reported if an index is left for it, and leaves none. Any other
    invalid bound is ignored: the condition in the term reports it.
    """
    low, high = first, end = within or (constant(0), extent)
    for bound in part:
        if bound.axis != axis:
            continue
        if bound.exact and has_checks(bound.value):
            with if_block(scope, scope.name(low < high), certain=False) as inner:
                inner.value(bound.value, int64)
        value = scope.name(scope.scalar(bound.value, int64))
        if not bound.exact or is_inside(bound.value):
            valid = scope.name(scope.name(value >= 0) & scope.name(value <= extent))
            none, all = (end, first) if bound.low else (first, end)
            value = scope.name(select(valid, value, none if bound.exact else all))
        if bound.low:
            low = scope.name(greatest(low, value))
        else:
            high = scope.name(least(high, value))
    changed = low is not first or high is not end
    return low, scope.name(greatest(low, high)) if changed else high


def share(
    kernel: ScalarLowering, position: ir.Value, total: ir.Value, blocks: ir.Value,
    extent: ir.Value, ends: tuple[Expr, Expr], row: str,
) -> ir.Value:  # fmt: skip
    """The first of `total` blocks, several of each row, at or behind a position of a range.

    A block counts one, and one for each element of its row's part of 0:extent, so that threads
    with equal parts of the range have equal work. Whatever the data, positions in ascending order
    give blocks in ascending order, and the ends of the range all blocks.
    """
    first, end = (ir.register(kernel.context.fresh("share")) for _ in range(2))
    kernel.steps += [ir.Declare(first.name, constant(0)), ir.Declare(end.name, total)]
    middle, at = (variable(kernel.context.fresh("i")) for _ in range(2))
    body = kernel.inner({row: at}, certain=False)
    body.steps += [ir.Let(middle.name, (first + end) // 2), ir.Let(at.name, middle // blocks)]
    low, high = (body.name(least(greatest(body.scalar(bound, int64), 0), extent)) for bound in ends)
    size = body.name(greatest(high - low, 0))
    before = body.name(middle + low * blocks + (middle - at * blocks) * size)
    right, left = ir.Assign(first.name, middle + 1), ir.Assign(end.name, middle)
    search = ir.If(before < position, (right,), (left,))
    kernel.steps.append(ir.While(first < end, (*body.steps, search)))
    return kernel.name(first)
