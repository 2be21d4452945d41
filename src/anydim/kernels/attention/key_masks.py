"""Keys that a mask shuts out at the end of a block: they are neither multiplied nor mixed.

A mask says so in data: it adds a very negative number, or chooses one in the place of the score.
So the score has an upper bound that needs no product, and a tile of queries looks from the last
key backwards, a vector at a time, until some row has one that is not far below zero. The scores of
what is left are made, and where the largest of a row is not so far above all bounds of those left
out that their powers are 0, as for a row that the mask shuts out wholly, all keys are taken after
all. Products of queries and keys are held to be below `PRODUCT`, which tells masks of float32's
smallest number from numbers that a product may outweigh.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.attention.attention_plan import Plan
from anydim.kernels.attention.attention_rows import LOW
from anydim.kernels.codegen.arithmetic import first_lanes
from anydim.kernels.codegen.scalar_lowering import Elements
from anydim.kernels.codegen.writer import Variable, Writer
from anydim.kernels.inference import free_axes
from anydim.kernels.ir import constant, greatest, least, number, register, select, variable
from anydim.lang.tree import Expr

SHUT = -1000.0  # keys are left out for the time being where the bound is below


def look(plan: Plan, unit: Elements, alike: bool) -> tuple[ir.Step, ...]:
    """Registers "last", the keys of the block up to the last that a row may see, in whole vectors,
    and "shut", the largest bound of those behind it.

    Asked for before all tiles, where the rows of a position are alike, and in each tile otherwise.
    """
    found, code = plan.form.bound, Writer("mask_")
    if found is None or alike != (plan.form.query.name not in free_axes(found)):
        return ()
    later, padded = constant(0) < variable("block"), variable("panels") * plan.lanes
    # a row sees some key of the first block, so nobody looks at the first vector
    code.emit(ir.Declare("last", select(later, 0, constant(plan.lanes))))
    code.emit(ir.Declare("shut", number(float32, float("-inf"), plan.lanes)))
    last, done = register("last"), code.variable(0)
    rows = constant(1) if alike else variable("tile")
    with code.loop(lambda: (last < padded) & (done() < rows)):
        query = code.let(variable("unit_first" if alike else "first") + done())
        row, before = unit.inner({plan.form.query.name: query}), code.here
        end, looks = code.variable(padded), code.variable(True)
        with code.loop(lambda: (last < end()) & looks()):
            _vector(code, plan, row, found, end, looks)
        code.take(row.steps, before)
        code.emit(ir.Assign("last", greatest(last, end())))
        done += 1
    return code.written


def _vector(
    code: Writer, plan: Plan, row: Elements, found: Expr, end: Variable, looks: Variable
) -> None:
    """Look at the vector before `end` of a row: go before it, or look no further."""
    at = code.let(end() - plan.lanes)
    inside = code.let(first_lanes(variable("count") - at, plan.lanes))
    key = {plan.form.key.name: code.let(variable("block") + at)}
    lane = row.inner(key, lane=plan.form.key.name, lanes=plan.lanes, mask=inside)
    bound = lane.name(select(inside, lane.value(found, float32), float("-inf")))
    code.take(lane.steps)
    with code.when((bound < SHUT).combined("min")):
        code.emit(ir.Assign("shut", greatest(ir.Get(plan.vector, "shut"), bound)))
        end.set(at)
    with code.otherwise():
        looks.set(False)


def seen_keys(plan: Plan, unit: Elements, scored: Sequence[ir.Step]) -> tuple[ir.Step, ...]:
    """Do `scored` for "keys", those up to "seen", and once more for all if that was too few."""
    code, count = Writer("seen_"), variable("count")
    every = variable("panels") * plan.lanes
    if plan.form.bound is None:
        return (ir.Declare("seen", every), ir.Let("keys", count), *scored)
    code.take(look(plan, unit, alike=False))
    code.emit(ir.Declare("seen", register("last")))
    missed = code.variable(True)
    with code.loop(missed):
        keys = code.let(least(count, register("seen")), "keys")
        missed.set(False)
        code.take(scored)
        with code.when(keys < count):
            _unless_far(code, plan, missed)
            with code.when(missed()):
                code.emit(ir.Assign("seen", every))
    return code.written


def _unless_far(code: Writer, plan: Plan, missed: Variable) -> None:
    """Note that a row's largest score leaves powers above 0 to keys that were left out."""
    bound = code.let(ir.Get(plan.vector, "shut").combined("max"))
    with code.range(0, variable("tile")) as row:
        top = plan.tops(code, row)[0]
        with code.when(~(top - bound >= -LOW)):  # a NaN is not far either
            missed.set(True)
