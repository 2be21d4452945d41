"""Dependence tests: whether two accesses may touch the same element, and at what distance.

The distance is counted in iterations of a loop. Indices are compared dimension by dimension as
forms over loops and axes with symbolic sizes. An undecided dimension counts as a possible match:
answers are conservative.
"""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.lang.dependence.accesses import Access, Instance, LinearForm, LoopAt, bound_form
from anydim.sizes import Box, Size, Truth, as_size, prove

ANY = None  # an unknown distance


@dataclass(frozen=True)
class Span:
    """Minimum and maximum of a value; None: unknown."""

    low: Size | None
    high: Size | None

    def __add__(self, other: Span) -> Span:
        return Span(_sum(self.low, other.low), _sum(self.high, other.high))


def _sum(left: Size | None, right: Size | None) -> Size | None:
    return None if left is None or right is None else left + right


def same_iteration(first: Access, second: Access, box: Box) -> bool:
    """Whether two accesses may alias while all common loops are at the same iteration."""
    return not _never_alias(first, second, common_loops(first.instance, second.instance), None, box)


def disjoint(first: Access, second: Access, box: Box) -> bool:
    """Whether two accesses never alias, at any iterations."""
    return _never_alias(first, second, (), None, box)


def distance(first: Access, second: Access, at: LoopAt, box: Box) -> Size | bool | None:
    """Iterations of a common loop from `first` to `second`, if they alias at different iterations.

    False: they do not alias. None: unknown. The loops around `at` are at one iteration.
    """
    common = common_loops(first.instance, second.instance)
    outer = common[: [c.number for c in common].index(at.number)]
    found: Size | None = None
    if first.indices is None or second.indices is None:
        return ANY
    for dimension in range(len(first.indices)):
        left, right = first.form(dimension), second.form(dimension)
        if left is None or right is None:
            continue
        exact = _exact(left, right, at, outer, first, second)
        if isinstance(exact, bool):
            return False
        if exact is not None:
            if exact == 0 or (found is not None and _differ(found, exact, box)):
                return False
            found = exact
        elif _keeps_iterations_apart(left, right, at, outer, first, second, box):
            return False
    if found is None and _never_alias(first, second, outer, at, box):
        return False
    return found


def common_loops(first: Instance, second: Instance) -> tuple[LoopAt, ...]:
    """The loops around both, outermost first."""
    numbers = {at.number for at in second.loops}
    return tuple(at for at in first.loops if at.number in numbers)


def _exact(
    left: LinearForm,
    right: LinearForm,
    at: LoopAt,
    outer: tuple[LoopAt, ...],
    first: Access,
    second: Access,
) -> Size | bool | None:
    """The distance that one dimension fixes; False: the accesses never alias; None: undecided."""
    factor = left.factor(at.number)
    if factor != right.factor(at.number) or left.axes or right.axes:
        return None
    steady = {o.number for o in outer} | {at.number}
    if {n for n, _ in (*left.loops, *right.loops)} - steady:
        return None
    if any(left.factor(o.number) != right.factor(o.number) for o in outer):
        return None
    stride = factor.constant
    if stride is None or stride == 0:
        return None
    gap, by = left.rest - right.rest, stride * at.loop.step
    if gap.constant is not None:
        iterations, rest = divmod(gap.constant, by)
        return False if rest else as_size(iterations)
    return gap.divide_exactly(by)


def _differ(left: Size, right: Size, box: Box) -> bool:
    return prove(left, "!=", right, box) is Truth.PROVED


def _keeps_iterations_apart(
    left: LinearForm, right: LinearForm, at: LoopAt, outer: tuple[LoopAt, ...],
    first: Access, second: Access, box: Box,
) -> bool:  # fmt: skip
    """Whether a dimension such as S*t + i with 0 <= i < S keeps iterations apart."""
    factor = left.factor(at.number)
    if factor != right.factor(at.number) or factor == 0:
        return False
    rest = _difference(left, right, (*outer, at), first, second, box)
    if rest is None or rest.low is None or rest.high is None:
        return False
    if prove(factor, "<", 0, box) is Truth.PROVED:
        factor = -factor
    below, above = prove(rest.high, "<", factor, box), prove(rest.low, ">", -factor, box)
    return below is Truth.PROVED and above is Truth.PROVED


def _never_alias(
    first: Access, second: Access, steady: tuple[LoopAt, ...], moving: LoopAt | None, box: Box
) -> bool:
    """Whether some dimension proves that accesses never alias with the `steady` loops fixed."""
    if first.indices is None or second.indices is None:
        return False
    for dimension in range(len(first.indices)):
        left, right = first.form(dimension), second.form(dimension)
        if left is None or right is None:
            continue
        if moving is not None and any(f.factor(moving.number) != 0 for f in (left, right)):
            continue
        rest = _difference(left, right, steady, first, second, box)
        if rest is None:
            continue
        if rest.low is not None and prove(rest.low, ">", 0, box) is Truth.PROVED:
            return True
        if rest.high is not None and prove(rest.high, "<", 0, box) is Truth.PROVED:
            return True
    return False


def _difference(
    left: LinearForm,
    right: LinearForm,
    steady: tuple[LoopAt, ...],
    first: Access,
    second: Access,
    box: Box,
) -> Span | None:
    """Range of left - right with the `steady` loops fixed and all other variables free."""
    numbers = {at.number for at in steady}
    for number in numbers:
        if left.factor(number) != right.factor(number):
            return None
    total = Span(left.rest - right.rest, left.rest - right.rest)
    for form, access, sign in ((left, first, 1), (right, second, -1)):
        for name, factor in form.axes:
            extent = next(a.extent for a in access.instance.axes if a.name == name)
            if extent.symbols & {at.variable for at in access.instance.loops}:
                return None
            total = total + _scale_span(as_size(0), extent - 1, factor * sign, box)
        for number, factor in form.loops:
            if number not in numbers:
                span = loop_span(access.instance, number)
                if span is None:
                    return None
                total = total + _scale_span(*span, factor * sign, box)
    return total


def _scale_span(low: Size, high: Size, factor: Size, box: Box) -> Span:
    if prove(factor, ">=", 0, box) is Truth.PROVED:
        return Span(low * factor, high * factor)
    if prove(factor, "<=", 0, box) is Truth.PROVED:
        return Span(high * factor, low * factor)
    return Span(None, None)


def loop_span(instance: Instance, number: int) -> tuple[Size, Size] | None:
    """First and last value of a loop variable, where sizes alone determine them."""
    depth = [at.number for at in instance.loops].index(number)
    loop = instance.loops[depth].loop
    bounds = [bound_form(b, instance.loops[:depth]) for b in (loop.start, loop.stop)]
    if any(b is None or b.loops for b in bounds):
        return None
    start, stop = (b.rest for b in bounds if b is not None)
    return (start, stop - 1) if loop.step > 0 else (stop + 1, start)
