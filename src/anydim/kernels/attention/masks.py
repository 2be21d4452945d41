"""Keys that a mask shuts out at the end of a block: they are neither multiplied nor mixed.

A mask says so in data: it adds a very negative number, or chooses one in the place of the score.
So the score has an upper bound that needs no product, and a tile of queries looks from the last
key backwards, a vector at a time, until some row has one that is not far below zero. The scores of
what is left are made, and where the largest of a row is not so far above all bounds of those left
out that their powers are 0, as for a row that the mask shuts out wholly, all keys are taken after
all. Products of queries and keys are held to be below `PRODUCT`.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.attention.exp import LOW
from anydim.kernels.attention.plan import Plan
from anydim.kernels.inference import free_axes
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    register,
    times,
    variable,
)
from anydim.kernels.write.elements import Elements, number, operate

SHUT = -1000.0  # keys are left out for the time being where the bound is below


def _look(plan: Plan, unit: Elements) -> list[ir.Step]:
    """Registers "seen", the keys of the block up to the last that a row may see, in whole vectors,
    and "shut", the largest bound of those behind it."""
    padded = times(variable("panels"), plan.lanes)
    lowest = number(float32, float("-inf"), plan.lanes)
    found = plan.form.bound
    if found is None:
        return [ir.Declare("seen", padded)]
    alike = plan.form.query.name not in free_axes(found)
    row = unit.inner({plan.form.query.name: variable("mask_query")})
    inside = ir.Var(ir.Type(ir.FLAG.dtype, plan.lanes), "mask_inside")
    lane = row.inner(
        {plan.form.key.name: variable("mask_key")},
        lane=plan.form.key.name, lanes=plan.lanes, mask=inside,
    )  # fmt: skip
    bound = lane.name(operate("select", inside, lane.value(found, float32), lowest))
    shut = lane.name(operate("less", bound, number(float32, SHUT, plan.lanes)))
    back = plus(register("end"), -plan.lanes)
    vector = [
        ir.Let("mask_at", back),
        ir.Let("mask_key", plus(variable("block"), variable("mask_at"))),
        ir.Let(
            "mask_inside", first_lanes(minus(variable("count"), variable("mask_at")), plan.lanes)
        ),
        *lane.steps,
        ir.If(
            ir.Reduce(ir.FLAG, "min", shut),
            (
                ir.Assign("shut", operate("max", ir.Get(plan.vector, "shut"), bound)),
                ir.Assign("end", back),
            ),
            (ir.Assign("looks", constant(0)),),
        ),
    ]
    more, looks = compare("less", register("seen"), register("end")), register("looks")
    further = operate("and", more, compare("equal", looks, 1))
    return [
        ir.Declare("seen", constant(0)),
        ir.Declare("shut", lowest),
        loop(
            "mask_row", 0, 1 if alike else variable("tile"), 1,
            ir.Let("mask_query", plus(variable("first"), variable("mask_row"))),
            *row.steps,
            ir.Declare("end", padded),
            ir.Declare("looks", constant(1)),
            ir.While(further, tuple(vector)),
            ir.Assign("seen", greatest(register("seen"), register("end"))),
        ),
    ]  # fmt: skip


def seen_keys(plan: Plan, unit: Elements, scored: list[ir.Step]) -> list[ir.Step]:
    """Do `scored` for "keys", those up to "seen", and once more for all if that was too few."""
    steps: list[ir.Step] = []
    if plan.blocks:
        place = plus(variable("at"), variable("old_row"))
        top = ir.Load(ir.Type(float32), "tops", place)
        none = number(float32, float("-inf"))
        old = either(compare("less", constant(0), variable("block")), top, none)
        steps = [
            loop("old_row", 0, variable("tile"), 1, ir.Store("olds", variable("old_row"), old))
        ]
    steps += _look(plan, unit)
    keys = ir.Let("keys", least(variable("count"), register("seen")))
    if plan.form.bound is None:
        return [*steps, keys, *scored]
    every = ir.Assign("seen", times(variable("panels"), plan.lanes))
    missed = compare("equal", register("missed"), 1)
    all_of_them = (
        ir.If(
            compare("equal", variable("keys"), variable("count")),
            (ir.Assign("missed", constant(0)),),
        ),
        ir.If(missed, (every,)),
    )
    return [
        *steps,
        ir.Let("bound", ir.Reduce(ir.Type(float32), "max", ir.Get(plan.vector, "shut"))),
        ir.Declare("missed", constant(1)),
        ir.While(
            missed,
            (
                keys,
                ir.Assign("missed", constant(0)),
                *scored,
                *all_of_them,
            ),
        ),
    ]


def unless_far(plan: Plan, top: ir.Value) -> list[ir.Step]:
    """Note that a row's largest score leaves powers above 0 to keys that were left out."""
    if plan.form.bound is None:
        return []
    apart = operate("sub", top, ir.Var(top.type, "bound"))
    far = operate("greater_equal", apart, number(float32, -LOW))
    return [ir.If(far, (), (ir.Assign("missed", constant(1)),))]
