"""What is known of the numbers of a row, whatever they are: bounds that spare operations.

    top(r)   max=! x(r,c)                  a peak: x is at most top
    e(r,c)       = exp(x(r,c) - top(r))    so e is at most 1, and the largest of a row is 1
    total(r) +=! e(r,c)                    a total of what is never negative
    y(r,c)       = e(r,c) / total(r)       a share

A NaN in x is one in e and in total; where every result of the row follows from total, all of them
are NaN whatever top is, so top may be found by a maximum that loses NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.kernels.codegen.exact_division import DIVISIONS
from anydim.lang.tree import Apply, Cast, Expr, Group, Read
from anydim.lang.tree.affine import parts, reads

_ARITHMETIC = frozenset(("add", "sub", "mul", "neg", "exp", "log", "sqrt", "abs", *DIVISIONS))


def totals(group: Group) -> dict[str, Expr]:
    """Sums over rows of what is never negative (powers, magnitudes), and what that is."""
    bodies = _plain(group)

    def positive(expr: Expr) -> bool:
        value = bodies.get(expr.tensor) if isinstance(expr, Read) else expr
        return isinstance(value, Apply) and value.function in ("exp", "abs")

    sums = (s for s in group.statements if s.combine == "add")
    return {s.target: s.body for s in sums if positive(s.body)}


def peaks(group: Group) -> dict[str, Expr]:
    """Largest elements of rows, and what they are the largest of.

    Not of products: their difference to the largest may be fused, and be above 0 then.
    """
    return {
        s.target: s.body
        for s in group.statements
        if s.combine == "max"
        and group.type_of(s.target).dtype.is_float
        and not (isinstance(s.body, Apply) and s.body.function == "mul")
    }


def at_peak(expr: Expr, known: Mapping[str, Expr]) -> str | None:
    """The peak that an expression is a power below, as exp(x - top) is."""
    if not isinstance(expr, Apply) or expr.function != "exp":
        return None
    below = expr.arguments[0]
    if not isinstance(below, Apply) or below.function != "sub":
        return None
    value, top = below.arguments
    found = isinstance(top, Read) and known.get(top.tensor) == value
    return top.tensor if found and isinstance(top, Read) else None


def shares(group: Group) -> frozenset[str]:
    """Totals of powers below a peak that divide these powers."""
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


def settled(group: Group) -> frozenset[str]:
    """Peaks of rows that give NaN everywhere if they hold one, found by whatever maximum."""
    return frozenset(top for top in peaks(group) if _is_settled(group, top))


def _is_settled(group: Group, top: str) -> bool:
    bodies, known = _plain(group), peaks(group)
    sums = {s.target: s.body for s in group.statements if s.combine == "add"}

    def power(expr: Expr) -> bool:
        value = bodies.get(expr.tensor) if isinstance(expr, Read) else expr
        return value is not None and at_peak(value, known) == top

    nan = {name for name, body in sums.items() if power(body)}

    def lost(expr: Expr) -> bool:
        """Whether an expression is NaN where a total is."""
        if isinstance(expr, Read):
            body = bodies.get(expr.tensor)
            return expr.tensor in nan or (body is not None and lost(body))
        if isinstance(expr, Cast):
            return expr.dtype.is_float and lost(expr.argument)
        if isinstance(expr, Apply) and expr.function in _ARITHMETIC:
            return any(lost(argument) for argument in expr.arguments)
        return False

    follows = _following(group, top)
    results = {tensor.name for tensor in group.outputs}
    return bool(nan) and all(
        s.target in nan or lost(s.body) for s in group.statements if s.target in results & follows
    )


def _following(group: Group, name: str) -> set[str]:
    """A tensor and all that is made of it."""
    found = {name}
    for statement in group.statements:
        if any(read.tensor in found for read in reads(statement.body)):
            found.add(statement.target)
    return found


def _plain(group: Group) -> dict[str, Expr]:
    """What statements without a reduction are, by name."""
    return {s.target: s.body for s in group.statements if not s.combine}
