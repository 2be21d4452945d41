"""What attention does row by row: softmax of a tile of scores, and the rows of the result.

Row r of a tile of scores lies in "scores" from r * stride on. Maxima are found for all rows
before powers are taken of any, so that a row does not wait for its own maximum.

Where the keys take several blocks, "tops" and "totals" hold the largest score and the sum of
powers of each row so far, "news" the largest with this block, "keeps" the factor by which a new
maximum shrinks what was summed up before, and "sums" the mixed values so far.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.attention.exp import exp_nonpositive
from anydim.kernels.attention.plan import Plan
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    loop,
    plus,
    times,
    variable,
)
from anydim.kernels.write.elements import Context, Elements
from anydim.kernels.write.values import number, operate, splat
from anydim.lang.tree import Read

NUMBER = ir.Type(float32)
MINUS_INFINITY = float("-inf")
Combine = Callable[[ir.Value, ir.Value], ir.Value]


def later() -> ir.Value:
    """Whether there was a block of keys before this one."""
    return compare("less", constant(0), variable("block"))


# ---- maxima ------------------------------------------------------------------------------------


def largest_scores(plan: Plan, unit: Elements) -> ir.Step:
    """Make the scores of the tile's rows from the raw products; leave their maxima in "tops" or
    "news"."""
    row = unit.inner({plan.form.query.name: variable("query")})
    sweep: list[ir.Step] = [
        loop("column", 0, variable("whole"), plan.lanes, *_scores(plan, row, "column", None)),
        ir.If(
            compare("less", variable("whole"), variable("keys")),
            tuple(_scores(plan, row, "whole", _inside(plan))),
        ),
    ]
    after = Elements(row.context)
    top = across(after, larger, ir.Get(plan.vector, "most"))
    top = after.name(ir.Extract(NUMBER, top, 0))
    if plan.blocks:
        place = plus(variable("at"), variable("row"))
        old = after.name(either(later(), ir.Load(NUMBER, "tops", place), low(1)))
        top = after.name(larger(old, top))
        keep = exp_nonpositive(after, operate("sub", old, finite(after, top)))
        same = after.name(operate("equal", old, top))  # blocks of no weight leave all bits
        keep = operate("select", same, number(float32, 1), keep)
        after.steps.append(ir.Store("keeps", variable("row"), keep))
    after.steps.append(ir.Store(*plan.top_of(variable("row")), top))
    return loop(
        "row", 0, variable("tile"), 1,
        ir.Let("query", plus(variable("first"), variable("row"))),
        ir.Let("line", times(variable("row"), plan.stride)),
        *row.steps,
        ir.Declare("most", low(plan.lanes)),
        *sweep,
        *after.steps,
    )  # fmt: skip


def _scores(plan: Plan, row: Elements, column: str, mask: ir.Value | None) -> list[ir.Step]:
    """A vector of scores, what is not masked counted into register "most"."""
    place = plus(variable("line"), variable(column))

    def raw(read: Read) -> ir.Value | None:
        if read.tensor != plan.form.raw:
            return None
        return lane.name(ir.Load(plan.vector, "scores", place))

    lane = row.inner(
        {plan.form.key.name: variable(f"{column}_key")},
        lane=plan.form.key.name,
        lanes=plan.lanes,
        mask=mask,
        local=raw,
        answers=frozenset((plan.form.raw,)),
    )
    lane.steps.append(ir.Let(f"{column}_key", plus(variable("block"), variable(column))))
    value = lane.value(plan.form.score, float32)
    if mask is not None:
        value = lane.name(operate("select", mask, value, low(plan.lanes)))
    if mask is not None or not isinstance(plan.form.score, Read):
        lane.steps.append(ir.Store("scores", place, value))
    most = ir.Get(plan.vector, "most")
    return [*lane.steps, ir.Assign("most", larger(value, most))]


def _inside(plan: Plan) -> ir.Value:
    return ir.Var(ir.Type(ir.FLAG.dtype, plan.lanes), "inside_keys")


def low(lanes: int) -> ir.Value:
    """Minus infinity."""
    return number(float32, MINUS_INFINITY, lanes)


def larger(left: ir.Value, right: ir.Value) -> ir.Value:
    """The larger one lane by lane; what a NaN makes of it is settled by the powers."""
    return ir.Op(left.type, "fast_max", (left, right))


def finite(scope: Elements, top: ir.Value) -> ir.Value:
    """What is taken off the scores: their maximum, or 0 when all of them are -inf."""
    nothing = operate("equal", top, low(top.type.lanes))
    zero = number(float32, 0, top.type.lanes)
    return scope.name(operate("select", scope.name(nothing), zero, top))


def across(scope: Elements, function: Combine, value: ir.Value) -> ir.Value:
    """All lanes combined, in every lane."""
    value = scope.name(value)
    half = value.type.lanes // 2
    while half:
        pick = tuple(lane ^ half for lane in range(value.type.lanes))
        swapped = scope.name(ir.Shuffle(value.type, value, value, pick))
        value = scope.name(function(value, swapped))
        half //= 2
    return value


# ---- powers ------------------------------------------------------------------------------------


def powers(plan: Plan, context: Context) -> ir.Step:
    """Replace the scores of the tile's rows by e^(score - top); leave the sums in "totals"."""
    place = plus(variable("at"), variable("power_row"))
    row, inner, after = (Elements(context) for _ in range(3))
    new = row.name(ir.Load(NUMBER, *plan.top_of(variable("power_row"))))
    if plan.blocks:
        row.steps.append(ir.Store("tops", place, new))
    top = finite(row, new)
    line = row.name(times(variable("power_row"), plan.stride))
    at = plus(line, variable("power"))
    shift = splat(top, plan.lanes)
    score = inner.name(ir.Load(plan.vector, "scores", at))
    power = exp_nonpositive(inner, operate("sub", score, shift))
    total = ir.Get(plan.vector, "power_sum")
    sum_ = after.name(ir.Reduce(NUMBER, "add", total))
    if plan.blocks:
        before = either(later(), ir.Load(NUMBER, "totals", place), number(float32, 0))
        keep = after.name(ir.Load(NUMBER, "keeps", variable("power_row")))
        sum_ = after.name(operate("fma", after.name(before), keep, sum_))
    return loop(
        "power_row", 0, variable("tile"), 1,
        *row.steps,
        ir.Declare("power_sum", number(float32, 0, plan.lanes)),
        loop(
            "power", 0, variable("mixed_keys"), plan.lanes,
            *inner.steps,
            ir.Store("scores", at, power),
            ir.Assign("power_sum", operate("add", total, power)),
        ),
        *after.steps,
        ir.Store("totals", place, sum_),
    )  # fmt: skip


# ---- results -----------------------------------------------------------------------------------


def result_rows(plan: Plan, unit: Elements, ahead: tuple[ir.Step, ...]) -> ir.Step:
    """Store the mixed values of the tile's rows, divided by their totals.

    With several blocks of keys the mixed values are summed up first and stored after the last.
    `ahead` is done once per row.
    """
    form = plan.form
    row = unit.inner({form.query.name: variable("out_query")})
    target = row.context.buffers[form.output.tensor]
    start = row.offset(form.output.at(form.width.name))
    mixed = times(variable("out"), plan.padded)
    sums = times(plus(variable("at"), variable("out")), plan.padded)
    if plan.blocks:
        ends = compare("equal", plus(variable("block"), variable("count")), variable("key_count"))
        more, first = (tuple(_summed(plan, mixed, sums, more)) for more in (True, False))
        steps: list[ir.Step] = [
            ir.If(later(), more, first),
            ir.If(ends, tuple(_divided(plan, target, start, "sums", sums))),
        ]
    else:
        steps = _divided(plan, target, start, "mixed", mixed)
    return loop(
        "out", 0, variable("tile"), 1,
        ir.Let("out_query", plus(variable("first"), variable("out"))),
        *row.steps,
        *ahead,
        *steps,
    )  # fmt: skip


def _summed(plan: Plan, mixed: ir.Value, sums: ir.Value, more: bool) -> list[ir.Step]:
    """The mixed values of this block put into the sums of a row, or added to what they keep."""
    steps: list[ir.Step] = []
    keep = splat(ir.Load(NUMBER, "keeps", variable("out")), plan.lanes)
    for column in range(0, plan.padded, plan.lanes):
        value: ir.Value = ir.Load(plan.vector, "mixed", plus(mixed, column))
        to = plus(sums, column)
        if more:
            value = operate("fma", ir.Load(plan.vector, "sums", to), keep, value)
        steps.append(ir.Store("sums", to, value))
    return steps


def _divided(plan: Plan, target: str, start: ir.Value, source: str, at: ir.Value) -> list[ir.Step]:
    """A row of the result: values divided by the total, 0 without keys."""
    zero, total = number(float32, 0), ir.Var(NUMBER, "total")
    empty = compare("equal", variable("key_count"), 0)
    steps: list[ir.Step] = [
        ir.Let("total", ir.Load(NUMBER, "totals", plus(variable("at"), variable("out")))),
        ir.Let("divisor", either(empty, number(float32, float("inf")), total)),
    ]
    if plan.form.nan_is_zero:
        steps.append(ir.Let("good", operate("greater", total, zero)))
    divisor = splat(ir.Var(NUMBER, "divisor"), plan.lanes)
    for column in range(0, plan.width, plan.lanes):
        left = plan.width - column
        mask = None if left >= plan.lanes else first_lanes(constant(left), plan.lanes)
        value = operate("div", ir.Load(plan.vector, source, plus(at, column)), divisor)
        if plan.form.nan_is_zero:
            good = splat(ir.Var(ir.FLAG, "good"), plan.lanes)
            value = operate("select", good, value, number(float32, 0, plan.lanes))
        steps.append(ir.Store(target, plus(start, column), value, mask))
    return steps
