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

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.attention.exp import LOW
from anydim.kernels.attention.plan import Plan
from anydim.kernels.inference import free_axes
from anydim.kernels.ir import constant, greatest, least, number, register, select, variable
from anydim.kernels.write.arithmetic import first_lanes, loop
from anydim.kernels.write.elements import Elements
from anydim.lang.tree import Expr

SHUT = -1000.0  # keys are left out for the time being where the bound is below


def look(plan: Plan, unit: Elements, alike: bool) -> list[ir.Step]:
    """Registers "last", the keys of the block up to the last that a row may see, in whole vectors,
    and "shut", the largest bound of those behind it.

    Asked for before all tiles, where the rows of a position are alike, and in each tile otherwise.
    """
    found = plan.form.bound
    if found is None or alike != (plan.form.query.name not in free_axes(found)):
        return []
    row = unit.inner({plan.form.query.name: variable("mask_query")})
    padded = variable("panels") * plan.lanes
    more = (register("last") < register("end")) & register("looks").equals(1)
    rows = constant(1) if alike else variable("tile")
    is_open = register("last") < padded
    has_row = register("mask_row") < rows
    first = variable("unit_first" if alike else "first")
    later = constant(0) < variable("block")
    vector = _vector(plan, row, found)
    return [
        # a row sees some key of the first block, so nobody looks at the first vector
        ir.Declare("last", select(later, 0, constant(plan.lanes))),
        ir.Declare("shut", number(float32, float("-inf"), plan.lanes)),
        ir.Declare("mask_row", constant(0)),
        ir.While(
            is_open & has_row,
            (
                ir.Let("mask_query", first + register("mask_row")),
                *row.steps,
                ir.Declare("end", padded),
                ir.Declare("looks", constant(1)),
                ir.While(more, vector),
                ir.Assign("last", greatest(register("last"), register("end"))),
                ir.Assign("mask_row", register("mask_row") + 1),
            ),
        ),
    ]


def _vector(plan: Plan, row: Elements, found: Expr) -> tuple[ir.Step, ...]:
    """Look at the vector before "end" of a row: go before it, or look no further."""
    inside = ir.Var(ir.Type(ir.FLAG.dtype, plan.lanes), "mask_inside")
    lane = row.inner(
        {plan.form.key.name: variable("mask_key")},
        lane=plan.form.key.name, lanes=plan.lanes, mask=inside,
    )  # fmt: skip
    lowest = number(float32, float("-inf"), plan.lanes)
    bound = lane.name(select(inside, lane.value(found, float32), lowest))
    shut = lane.name(bound < number(float32, SHUT, plan.lanes))
    left = variable("count") - variable("mask_at")
    return (
        ir.Let("mask_at", register("end") + -plan.lanes),
        ir.Let("mask_key", variable("block") + variable("mask_at")),
        ir.Let("mask_inside", first_lanes(left, plan.lanes)),
        *lane.steps,
        ir.If(
            ir.Reduce(ir.FLAG, "min", shut),
            (
                ir.Assign("shut", greatest(ir.Get(plan.vector, "shut"), bound)),
                ir.Assign("end", variable("mask_at")),
            ),
            (ir.Assign("looks", constant(0)),),
        ),
    )


def seen_keys(plan: Plan, unit: Elements, scored: list[ir.Step]) -> list[ir.Step]:
    """Do `scored` for "keys", those up to "seen", and once more for all if that was too few."""
    every = variable("panels") * plan.lanes
    if plan.form.bound is None:
        return [ir.Declare("seen", every), ir.Let("keys", variable("count")), *scored]
    missed = register("missed").equals(1)
    return [
        *look(plan, unit, alike=False),
        ir.Declare("seen", register("last")),
        ir.Declare("missed", constant(1)),
        ir.While(
            missed,
            (
                ir.Let("keys", least(variable("count"), register("seen"))),
                ir.Assign("missed", constant(0)),
                *scored,
                ir.If(
                    variable("keys") < variable("count"),
                    (*_unless_far(plan), ir.If(missed, (ir.Assign("seen", every),))),
                ),
            ),
        ),
    ]


def _unless_far(plan: Plan) -> list[ir.Step]:
    """Note that a row's largest score leaves powers above 0 to keys that were left out."""
    top = ir.Load(ir.Type(float32), *plan.top_of(variable("far_row")))
    apart = top - ir.Var(top.type, "bound")
    far = apart >= number(float32, -LOW)
    return [
        ir.Let("bound", ir.Reduce(top.type, "max", ir.Get(plan.vector, "shut"))),
        loop(
            "far_row", 0, variable("tile"), 1,
            ir.If(far, (), (ir.Assign("missed", constant(1)),)),
        ),
    ]  # fmt: skip
