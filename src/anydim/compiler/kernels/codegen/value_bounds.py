"""Bounds on the values of a row, independent of the data, that save operations.

    top(r)   max=! x(r,c)                  a peak: x is at most top
    e(r,c)       = exp(x(r,c) - top(r))    so e is at most 1, and the maximum of a row is 1
    total(r) +=! e(r,c)                    a total of nonnegative terms
    y(r,c)       = e(r,c) / total(r)       a share

A NaN in x gives NaN in e and in total. Where every result of the row depends on total, all of them
are NaN whatever top is, so top may be computed by a maximum that loses NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.compiler.kernels.codegen.exact_division import DIVISIONS
from anydim.lang.tree import Apply, Cast, Expr, Group, Read
from anydim.lang.tree.affine import parts, reads

_ARITHMETIC = frozenset(("add", "sub", "mul", "neg", "exp", "log", "sqrt", "abs", *DIVISIONS))


def totals(group: Group) -> dict[str, Expr]:
    """Sums over rows of nonnegative terms (powers, magnitudes), with these terms."""
    bodies = _plain(group)

    def positive(expr: Expr) -> bool:
        value = bodies.get(expr.tensor) if isinstance(expr, Read) else expr
        return isinstance(value, Apply) and value.function in ("exp", "abs")

    sums = (s for s in group.statements if s.combine == "add")
    return {s.target: s.body for s in sums if positive(s.body)}


def peaks(group: Group) -> dict[str, Expr]:
    """Maxima of rows, with their arguments.

    Products are excluded: their difference to the maximum may be fused, and then be above 0.
    """
    return {
        s.target: s.body
        for s in group.statements
        if s.combine == "max"
        and group.type_of(s.target).dtype.is_float
        and not (isinstance(s.body, Apply) and s.body.function == "mul")
    }


def at_peak(expr: Expr, known: Mapping[str, Expr]) -> str | None:
    """The peak top of an expression exp(x - top); None for other expressions."""
    if not isinstance(expr, Apply) or expr.function != "exp":
        return None
    below = expr.arguments[0]
    if not isinstance(below, Apply) or below.function != "sub":
        return None
    value, top = below.arguments
    found = isinstance(top, Read) and known.get(top.tensor) == value
    return top.tensor if found and isinstance(top, Read) else None


def shares(group: Group) -> frozenset[str]:
    """Totals of powers below a peak that divide the same powers."""
    bodies, sums, known = _plain(group), totals(group), peaks(group)
    found = set()
    for statement in group.statements:
        for part in parts(statement.body):
            if not isinstance(part, Apply) or part.function not in DIVISIONS:
                continue
            value, by = part.arguments
            if isinstance(by, Read) and sums.get(by.tensor) == value:
                power = bodies.get(value.tensor) if isinstance(value, Read) else value
                if power is not None and at_peak(power, known) is not None:
                    found.add(by.tensor)
    return frozenset(found)


def settled_peaks(group: Group) -> frozenset[str]:
    """Peaks whose maximum may drop NaN, because a NaN makes its whole row NaN anyway."""
    return frozenset(top for top in peaks(group) if _is_settled(group, top))


def _is_settled(group: Group, top: str) -> bool:
    bodies, known = _plain(group), peaks(group)
    sums = {s.target: s.body for s in group.statements if s.combine == "add"}

    def power(expr: Expr) -> bool:
        value = bodies.get(expr.tensor) if isinstance(expr, Read) else expr
        return value is not None and at_peak(value, known) == top

    nan = {name for name, body in sums.items() if power(body)}

    def is_nan_with_total(expr: Expr) -> bool:
        """Whether an expression is NaN where a total is."""
        if isinstance(expr, Read):
            body = bodies.get(expr.tensor)
            return expr.tensor in nan or (body is not None and is_nan_with_total(body))
        if isinstance(expr, Cast):
            return expr.dtype.is_float and is_nan_with_total(expr.argument)
        if isinstance(expr, Apply) and expr.function in _ARITHMETIC:
            return any(is_nan_with_total(argument) for argument in expr.arguments)
        return False

    follows = _following(group, top)
    results = {tensor.name for tensor in group.outputs}
    return bool(nan) and all(
        s.target in nan or is_nan_with_total(s.body)
        for s in group.statements
        if s.target in results & follows
    )


def _following(group: Group, name: str) -> set[str]:
    """A tensor and all tensors that depend on it."""
    found = {name}
    for statement in group.statements:
        if any(read.tensor in found for read in reads(statement.body)):
            found.add(statement.target)
    return found


def _plain(group: Group) -> dict[str, Expr]:
    """The bodies of statements without a reduction, by name."""
    return {s.target: s.body for s in group.statements if not s.combine}
