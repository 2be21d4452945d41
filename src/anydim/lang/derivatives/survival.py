"""Which values that a derivative reads are overwritten before the backward pass reads them.

Elements are compared in the dimensions whose index is a size: with `h(t - 1, b)` read and
`h(t, b)` written, a write of an iteration t' hits the element read by iteration t where
t' = t - 1, which is earlier. An undecided comparison counts as an overwrite, and the value is
saved.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.lang.derivatives.accesses import Access, exclusive
from anydim.lang.tree import Expr, Loop
from anydim.lang.tree.affine import affine
from anydim.sizes import Size


def overwritten(read: Access, write: Access, fixed: int) -> bool:
    """Whether a write may change the element of a read after the read.

    The iteration of the outer `fixed` loops is the same for both.
    """
    shared = _common_loops(read.loops, write.loops)
    free = shared[fixed:]
    if _disjoint(read, write, [loop.variable for loop in free]):
        return False
    for loop in free:
        others = {other.variable for other in free if other is not loop}
        lag = _lag(read, write, loop, others)
        if lag is None or lag > 0:
            return True
        if lag < 0:
            return False
    if exclusive(read.path, write.path):
        return False
    same = _disjoint(read, write, [])  # in one iteration of all shared loops
    return not same and write.path >= read.path


def _common_loops(left: Sequence[Loop], right: Sequence[Loop]) -> list[Loop]:
    found = []
    for a, b in zip(left, right):
        if a is not b:
            break
        found.append(a)
    return found


def _index_sizes(access: Access, shared: Sequence[Loop]) -> list[Size | None]:
    """Per dimension the index, where it is a size that all shared iterations determine."""
    inner = {loop.variable for loop in access.loops[len(shared) :]}
    return [_size(index, inner) for index in access.indices or ()]


def _size(index: Expr, inner: set[str]) -> Size | None:
    form = affine(index)
    if form is None or form.terms or inner & form.constant.symbols:
        return None
    return form.constant


def _pairs(read: Access, write: Access) -> list[tuple[Size, Size]]:
    shared = _common_loops(read.loops, write.loops)
    left, right = _index_sizes(read, shared), _index_sizes(write, shared)
    return [(a, b) for a, b in zip(left, right) if a is not None and b is not None]


def _disjoint(read: Access, write: Access, varying: Sequence[str]) -> bool:
    """Whether a dimension has different indices, whatever the varying iterations are."""
    for a, b in _pairs(read, write):
        known = not {*varying} & (a.symbols | b.symbols)
        if known and (a - b).constant not in (None, 0):
            return True
    return False


def _lag(read: Access, write: Access, loop: Loop, others: set[str]) -> int | None:
    """Iterations of a loop from a read to the write of the same element; None: unknown."""
    for a, b in _pairs(read, write):
        if others & (a.symbols | b.symbols):
            continue
        slope = slope_in(a, loop.variable)
        if not slope or slope != slope_in(b, loop.variable):
            continue
        distance = (a - b).constant
        if distance is not None and distance % slope == 0:
            return distance // slope * (1 if loop.step > 0 else -1)
    return None


def slope_in(size: Size, variable: str) -> int | None:
    """The constant by which a size grows with a variable; None if it is not constant."""
    moved = size.substitute({variable: Size.symbol(variable) + 1}) - size
    return moved.constant


def is_size(expr: Expr) -> bool:
    """Whether an expression is a size, of loop variables included."""
    form = affine(expr)
    return form is not None and not form.terms


def size_of(expr: Expr) -> Size | None:
    """The size that an expression is; None if it is none."""
    form = affine(expr)
    return form.constant if form is not None and not form.terms else None
