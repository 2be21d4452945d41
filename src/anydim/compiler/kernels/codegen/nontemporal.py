"""Nontemporal stores for results that no cache can hold.

An ordinary store first loads its line into the caches. Where a launch moves more bytes than they
hold, that line is useless: a nontemporal store writes around the caches, and their contents stay.
Whether this applies is known at call time; loops over many vectors are emitted twice
(`vector_loops.py: run_segment`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.base.dtypes import DType, boolean
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import buffers_differ
from anydim.compiler.kernels.codegen.context import Context
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.launch import Machine
from anydim.lang.tree.affine import Affine
from anydim.sizes import NEVER, Box, Condition, Size, at_least, bounds

NONTEMPORAL = "nontemporal"  # name of the version
_NONTEMPORAL = ir.Var(ir.Type(boolean), "past")


def nontemporal_pays(machine: Machine, cost: float, moved: Size, box: Box) -> Condition:
    """Where nontemporal stores pay: cheap elements, and a launch that moves `llc_bytes` or more."""
    # 40 MB and more: x 0.6 to 0.85; from 32 MB a bias and an outer product lost 5 %.
    kept = machine.llc_bytes
    pays = kept and cost <= machine.limits.nontemporal_cost and bounds(moved, box).high >= kept
    return at_least(moved, kept) if pays else NEVER


def allow_nontemporal(context: Context, used: Condition) -> None:
    """Enable nontemporal stores in a context, unless `used` holds at no size."""
    context.nontemporal = None if used == NEVER else _NONTEMPORAL


def with_nontemporal_flag(
    context: Context, body: Iterable[ir.Step], used: Condition,
    in_place: Iterable[tuple[str, str]],
) -> tuple[ir.Step, ...]:  # fmt: skip
    """The body of a kernel with nontemporal stores where `used`; not where it runs in place."""
    if context.nontemporal is None:
        return tuple(body)
    known = context.sizes.condition_flag(used)
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
