"""Results that no cache can hold are written past all of them.

A store brings its line into the caches first. Where a launch moves more than they hold, the line is
of no use there: what is stored past them is written alone, and what they hold stays. Whether that
is so is known in a call; the loops of many vectors are there twice (`vector_loops.py:
run_segment`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.base.dtypes import DType, boolean
from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import apart
from anydim.kernels.codegen.context import Context
from anydim.kernels.codegen.scalar_lowering import Elements
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, Size, bounds

_PAST = ir.Var(ir.Type(boolean), "past")
_MOST_COST = 14  # cheap operations, one exp and a read: what takes longer waits for no memory


def may_go_past(context: Context, cost: float, moved: Size, box: Box) -> None:
    """Have the context say whether results of elements that cost so much may go past the caches,
    where a launch may move so many bytes."""
    kept = context.machine.kept_bytes
    if kept and cost <= _MOST_COST and bounds(moved, box).high >= kept:
        context.past = _PAST


def with_past(
    context: Context, body: Iterable[ir.Step], moved: Size, in_place: Iterable[tuple[str, str]]
) -> tuple[ir.Step, ...]:
    """The body of a kernel that may have such results, not where it lies in place of an operand."""
    if context.past is None:
        return tuple(body)
    known: ir.Value = context.sizes.value(moved) >= context.machine.kept_bytes
    for pair in in_place:
        known &= apart(*(context.buffers[name] for name in pair))
    return (ir.Let(_PAST.name, known), *body, ir.If(_PAST, (ir.Fence(),)))


def goes_past(
    scope: Elements, lane: str, first: ir.Value, lanes: int,
    stored: Iterable[tuple[str, DType, Affine]],
) -> ir.Value | None:  # fmt: skip
    """Whether vectors from a lane on go past the caches: all have to lie at multiples of their
    bytes. `stored` are buffers, their types and places."""
    known = scope.context.past
    if known is None:
        return None
    at = scope.inner({lane: first})
    for buffer, dtype, form in stored:
        place = ir.Address(buffer, at.offset(form))
        known &= (place & (lanes * dtype.bytes - 1)).equals(0)
    scope.steps += at.steps
    return scope.name(known)
