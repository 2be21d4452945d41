"""Skips trailing key blocks that are fully masked.

A mask is data: it adds a very negative number to the score, or replaces the score by one. So the
score has an upper bound that needs no product, and a tile of queries scans from the last key
backwards, a vector at a time, for a key whose bound is not far below zero in some row. The scores
of the remaining keys are computed. If the maximum of a row is not far enough above all bounds of
the skipped keys to make their powers 0, as in a row that is fully masked, then all keys are
computed after all. Products of queries and keys are assumed to be below `PRODUCT`, which separates
masks with float32's smallest number from numbers that a product may outweigh.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import float32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention.attention_plan import LOOP, SEEN, Plan
from anydim.compiler.kernels.attention.attention_rows import LOW
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.writer import Variable, Writer
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import constant, greatest, least, let, number, register, select
from anydim.lang.tree import Expr

SHUT = -1000.0  # keys are skipped provisionally where the bound is below


def scan_mask(plan: Plan, unit: ScalarLowering, alike: bool) -> tuple[ir.Step, ...]:
    """Compute register "last", the keys of the block up to the last unmasked one, in whole vectors.

    Register "shut" gets the maximum bound of the keys after it. Runs before all tiles if the rows
    of a position have the same mask (`alike`), otherwise in each tile.
    """
    found, code = plan.form.bound, Writer("mask_")
    if found is None:
        return ()
    group = set() if plan.group is None else {plan.group.name}
    if alike != free_axes(found).isdisjoint({plan.form.query.name} | group):
        return ()
    # Backwards: masked keys are those that pad a row of tokens, at its end.
    later, padded = constant(0) < LOOP.block, LOOP.panels * plan.lanes
    # a row has some unmasked key in the first block, so the first vector is not scanned
    code.emit(ir.Declare("last", select(later, 0, constant(plan.lanes))))
    code.emit(ir.Declare("shut", number(float32, float("-inf"), plan.lanes)))
    last, done = register("last"), code.variable(0)
    rows = constant(1) if alike else LOOP.tile
    with code.loop(lambda: (last < padded) & (done() < rows)):
        first = {plan.form.query.name: LOOP.unit_first}
        row, before = unit.inner(first) if alike else plan.row(unit, done()), code.here
        end, scanning = code.variable(padded), code.variable(True)
        with code.loop(lambda: (last < end()) & scanning()):
            _vector(code, plan, row, found, end, scanning)
        code.take(row.steps, before)
        code.emit(ir.Assign("last", greatest(last, end())))
        done += 1
    return code.written


def _vector(
    code: Writer, plan: Plan, row: ScalarLowering, found: Expr, end: Variable, scanning: Variable
) -> None:
    """Scan the vector before `end` of a row: move `end` before it, or stop the scan."""
    at = code.let(end() - plan.lanes)
    inside = code.let(first_lanes(LOOP.count - at, plan.lanes))
    key = {plan.form.key.name: code.let(LOOP.block + at)}
    lane = row.inner(key, lane=plan.form.key.name, lanes=plan.lanes, mask=inside)
    bound = lane.name(select(inside, lane.value(found, float32), float("-inf")))
    code.take(lane.steps)
    with code.when((bound < SHUT).reduce_lanes("min")):
        code.emit(ir.Assign("shut", greatest(ir.Get(plan.vector, "shut"), bound)))
        end.set(at)
    with code.otherwise():
        scanning.set(False)


def unmasked_keys(
    plan: Plan, unit: ScalarLowering, scored: Sequence[ir.Step]
) -> tuple[ir.Step, ...]:
    """Run `scored` for the keys up to "seen"; repeat for all keys if the mask bound was wrong."""
    code, count = Writer("seen_"), LOOP.count
    every = LOOP.panels * plan.lanes
    if plan.form.bound is None:
        return (ir.Declare(SEEN.name, every), let(LOOP.keys, count), *scored)
    code.take(scan_mask(plan, unit, alike=False))
    code.emit(ir.Declare(SEEN.name, register("last")))
    missed = code.variable(True)
    with code.loop(missed):
        keys = code.let(least(count, SEEN), LOOP.keys.name)
        missed.set(False)
        code.take(scored)
        with code.when(keys < count):
            # The scan only bounded the scores: a fully masked row has none above the bounds.
            _check_skipped(code, plan, missed)
            with code.when(missed()):
                code.emit(ir.Assign(SEEN.name, every))
    return code.written


def _check_skipped(code: Writer, plan: Plan, missed: Variable) -> None:
    """Set `missed` if a row's maximum leaves nonzero powers to skipped keys."""
    bound = code.let(ir.Get(plan.vector, "shut").reduce_lanes("max"))
    with code.range(0, LOOP.tile) as row:
        top = plan.tops(code, row)[0]
        with code.when(~(top - bound >= -LOW)):  # a NaN is not far either
            missed.set(True)
