"""Estimates of work: the cost of expressions, the work of a group, the work worth a thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType

from anydim.compiler.kernels.flatten import all_axes
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.limits import DEFAULTS
from anydim.lang.tree import Apply, Cast, Expr, Group, Read
from anydim.lang.tree.affine import reads
from anydim.sizes import Size, as_size, maximum, minimum, product

PART_WORK = (
    DEFAULTS.part_work
)  # unit operations on elements, or bytes read, that are worth a thread
PIECE = 8192  # elements of a piece of a long row or range
TYPICAL_ROW = 128  # assumed elements of a row of data-dependent length

COSTS = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "mod", "floordiv", "fmod", "log1p", "nextafter"), 4.0),
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "erf", "pow", "expm1"), 12.0),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan"), 20.0),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh"), 20.0),
}


@lru_cache(maxsize=1 << 14)
def cost(expr: Expr) -> float:
    """The cost of computing an expression, in unit operations; a read counts as one."""
    if isinstance(expr, Apply):
        return COSTS.get(expr.function, 1.0) + sum(cost(a) for a in expr.arguments)
    if isinstance(expr, Cast):
        return 1.0 + cost(expr.argument)
    return 1.0 if isinstance(expr, Read) else 0.0


def work(
    group: Group, uncounted: Mapping[str, Collection[str]] = MappingProxyType({})
) -> tuple[Size, Size]:
    """Estimates for reports: operations, and bytes moved in and out, of one launch.

    `uncounted` axes of a statement do not multiply its operations.
    """
    operations = moved = as_size(0)
    for statement in group.statements:
        left_out = uncounted.get(statement.target, ())
        points = product(a.extent for a in all_axes(statement) if a.name not in left_out)
        each = max(1, round(cost(statement.body)) + bool(statement.combine))
        operations = operations + points * each
    for tensor in (*group.inputs, *group.outputs):
        moved = moved + _touched_elements(tensor.name, group) * tensor.type.dtype.bytes
    return operations, moved


def _touched_elements(name: str, group: Group) -> Size:
    """Elements of a tensor that a group accesses: all, or only the looked-up rows of a table."""
    for statement in group.statements:
        extents = {axis.name: axis.extent for axis in all_axes(statement)}
        for read in reads(statement.body):
            if read.tensor == name and any(reads(index) for index in read.indices):
                looked_up = product(extents[axis] for axis in sorted(free_axes(read)))
                whole = product(group.type_of(name).shape)
                return minimum(looked_up, whole) if statement.reduced else looked_up
    return product(group.type_of(name).shape)


def grain_size(each: float, elements: Size, part_work: int = PART_WORK) -> Size:
    """The number of indices worth a thread, each with `elements` of cost `each`.

    A part of `part_work` operations is worth a thread.
    """
    each = each or 1.0  # the cost of an empty sum
    known = elements.constant
    if known is not None:
        return as_size(max(1, round(part_work / (each * max(1, known)))))
    return maximum(as_size(round(part_work / each)) // maximum(elements, 1), 1)
