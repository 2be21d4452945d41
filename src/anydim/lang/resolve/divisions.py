"""Guards against integer division by sizes that are 0.

They cover divisions that run whenever their ranges do. Divisions in branches and behind `?:`, `&&`,
`||` and `else`, in loops with data-dependent ends, or by a loop variable have no guard: there a
division by 0 yields 0, as for elements of a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anydim.lang.tree import (
    Apply,
    Branch,
    Cast,
    Expr,
    Group,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    TensorType,
    Write,
)
from anydim.lang.tree.typing import dtype_of
from anydim.sizes import Box, Guard, Size, divisor_guard, maximum, merged_guards, product

DIVISIONS = frozenset(("div", "floordiv", "mod", "fmod"))
CHOOSING = frozenset(("select", "and", "or"))  # only the first argument is always evaluated


def division_guards(group: Group, box: Box, source: str) -> tuple[Guard, ...]:
    """The guards of a group, including those of its divisions by sizes."""
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    found = _in_steps(group.steps or group.statements, types, ())
    guards = (divisor_guard(size, product(counts), box, source) for size, counts in found
              if _names(size, *counts) <= set(box.names))  # fmt: skip
    return tuple(merged_guards(group.guards, [guard for guard in guards if guard is not None]))


def _names(*sizes: Size) -> set[str]:
    return {name for size in sizes for name in size.symbols}


def _in_steps(
    steps: Sequence[OrderedStep], types: Mapping[str, TensorType], counts: tuple[Size, ...]
) -> Iterator[tuple[Size, tuple[Size, ...]]]:
    """Yield divisors, each with the trip counts that are 0 where nothing is divided."""
    for step in steps:
        if isinstance(step, Branch):
            yield from ((size, counts) for size in _divisors(step.condition, types))
        elif isinstance(step, Loop):
            if isinstance(step.start, SizeTerm) and isinstance(step.stop, SizeTerm):
                length = (step.stop.size - step.start.size) * (1 if step.step > 0 else -1)
                trips = maximum(0, length)
                yield from _in_steps(step.body, types, (*counts, trips))
        else:
            extents = (axis.extent for axis in (*step.axes, *step.reduced))
            exprs = (step.body, *(step.indices if isinstance(step, Write) else ()))
            own = (*counts, *extents)
            yield from ((size, own) for expr in exprs for size in _divisors(expr, types))


def _divisors(expr: Expr, types: Mapping[str, TensorType]) -> Iterator[Size]:
    """Yield the sizes that integers are divided by wherever an expression is evaluated."""
    if isinstance(expr, Cast):
        yield from _divisors(expr.argument, types)
    elif isinstance(expr, Read):
        for index in expr.indices:
            yield from _divisors(index, types)
    elif isinstance(expr, Apply):
        if expr.function in DIVISIONS and dtype_of(expr, types).is_integer:
            by = expr.arguments[1]
            by = by.argument if isinstance(by, Cast) and by.dtype.is_integer else by
            yield from [by.size] if isinstance(by, SizeTerm) else ()
        needed = expr.arguments[:1] if expr.function in CHOOSING else expr.arguments
        for argument in needed:
            yield from _divisors(argument, types)
