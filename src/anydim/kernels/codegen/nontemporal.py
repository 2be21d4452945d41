"""Nontemporal stores for results that no cache can hold.

An ordinary store first loads its line into the caches. Where a launch moves more bytes than they
hold, that line is useless: a nontemporal store writes around the caches, and their contents stay.
Whether this applies is known at call time; loops over many vectors are emitted twice
(`vector_loops.py: run_segment`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.base.dtypes import DType, boolean
from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import buffers_differ
from anydim.kernels.codegen.context import Context
from anydim.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, Size, bounds

_NONTEMPORAL = ir.Var(ir.Type(boolean), "past")
_MOST_COST = 14  # unit operations, one exp and a read: more expensive code is not memory-bound


def allow_nontemporal(context: Context, cost: float, moved: Size, box: Box) -> None:
    """Allow nontemporal stores in a context, if elements of this cost are memory-bound and a launch
    may move at least `llc_bytes`."""
    kept = context.machine.llc_bytes
    if kept and cost <= _MOST_COST and bounds(moved, box).high >= kept:
        context.nontemporal = _NONTEMPORAL


def with_nontemporal_flag(
    context: Context, body: Iterable[ir.Step], moved: Size, in_place: Iterable[tuple[str, str]]
) -> tuple[ir.Step, ...]:
    """The body of a kernel that may use nontemporal stores; not where it runs in place."""
    if context.nontemporal is None:
        return tuple(body)
    known: ir.Value = context.sizes.value(moved) >= context.machine.llc_bytes
    for pair in in_place:
        known &= buffers_differ(*(context.buffers[name] for name in pair))
    return (ir.Let(_NONTEMPORAL.name, known), *body, ir.If(_NONTEMPORAL, (ir.Fence(),)))


def nontemporal_condition(
    scope: ScalarLowering, lane: str, first: ir.Value, lanes: int,
    stored: Iterable[tuple[str, DType, Affine]],
) -> ir.Value | None:  # fmt: skip
    """Whether vectors from a lane on are stored nontemporally: all must be aligned to their size.

    `stored` holds buffers, their types and offsets.
    """
    known = scope.context.nontemporal
    if known is None:
        return None
    at = scope.inner({lane: first})
    for buffer, dtype, form in stored:
        address = ir.Address(buffer, at.offset(form))
        known &= (address & (lanes * dtype.bytes - 1)).equals(0)
    scope.steps += at.steps
    return scope.name(known)
