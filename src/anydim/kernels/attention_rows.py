"""What attention does row by row: softmax of a row of scores, and the rows of the result.

A row of scores lies in "scores", `stride` elements after the one before. Blocks of keys after the
first go on with what earlier blocks left in "tops" and "totals" (the largest score and the sum of
powers so far) and leave in "keeps" the factor by which earlier sums shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
    compare,
    constant,
    first_lanes,
    loop,
    minus,
    plus,
    round_down,
    times,
    variable,
)
from anydim.kernels.attention_exp import exp_nonpositive
from anydim.kernels.attention_form import Form
from anydim.kernels.elements import Elements, number, operate, splat
from anydim.lang.tree import Read

Combine = Callable[[ir.Value, ir.Value], ir.Value]
MINUS_INFINITY = float("-inf")


@dataclass(frozen=True)
class RowPlan:
    """What the code of rows needs to know. `blocks`: there may be more than one block of keys."""

    form: Form
    lanes: int
    stride: int
    blocks: bool

    @property
    def vector(self) -> ir.Type:
        return ir.Type(float32, self.lanes)

    @property
    def padded(self) -> int:
        """Columns of a row of the result, to whole vectors."""
        return -(-int(self.form.width.extent.constant or 0) // self.lanes) * self.lanes


def softmax_rows(plan: RowPlan, unit: Elements) -> ir.Step:
    """Turn `tile` rows of scores of `count` keys into powers; leave tops and totals."""
    row = unit.inner({plan.form.query.name: variable("query")})
    maximum = _largest(plan, row)
    powers = Elements(row.context)
    powers.steps += _powers(plan, powers)
    body = [
        ir.Let("query", plus(variable("first"), variable("row"))),
        ir.Let("line", times(variable("row"), plan.stride)),
        *row.steps,
        *maximum,
        *powers.steps,
    ]
    return loop("row", 0, variable("tile"), 1, *body)


def _largest(plan: RowPlan, row: Elements) -> list[ir.Step]:
    """Steps that make the scores of a row and their maximum, `top` in every lane."""
    low = number(float32, MINUS_INFINITY, plan.lanes)
    top = ir.Get(plan.vector, "most")

    def vectors(column: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        place = plus(variable("line"), column)

        def raw(read: Read) -> ir.Value | None:
            if read.tensor != plan.form.raw:
                return None
            return lane.name(ir.Load(plan.vector, "scores", place))

        lane = row.inner(
            {plan.form.key.name: variable(f"key_{column_name(column)}")},
            lane=plan.form.key.name,
            lanes=plan.lanes,
            mask=mask,
            local=raw,
            answers=frozenset((plan.form.raw,)),
        )
        key = plus(variable("block"), column) if plan.blocks else column
        lane.steps.append(ir.Let(f"key_{column_name(column)}", key))
        value = lane.value(plan.form.score, float32)
        if mask is not None:
            value = lane.name(operate("select", mask, value, low))
        if mask is not None or not isinstance(plan.form.score, Read):
            lane.steps.append(ir.Store("scores", place, value))
        lane.steps.append(ir.Assign("most", larger(value, top)))
        return lane.steps

    inside = ir.Var(ir.Type(ir.FLAG.dtype, plan.lanes), "inside_keys")
    some_left = compare("less", variable("whole"), variable("count"))
    return [
        ir.Declare("most", low),
        loop("column", 0, variable("whole"), plan.lanes, *vectors(variable("column"), None)),
        ir.If(some_left, tuple(vectors(variable("whole"), inside))),
    ]


def column_name(column: ir.Value) -> str:
    """A word for a position, for the names that depend on it."""
    assert isinstance(column, ir.Var)
    return column.name


def _powers(plan: RowPlan, scope: Elements) -> list[ir.Step]:
    """Steps that replace a row of scores by e^(score - top) and add them up."""
    top = across(scope, larger, ir.Get(plan.vector, "most"))
    line = variable("line")
    at = plus(variable("at"), variable("row"))
    later = compare("less", constant(0), variable("block")) if plan.blocks else None
    if later is not None:
        scope.steps.append(ir.Declare("top", top))
        before = splat(ir.Load(ir.Type(float32), "tops", at), plan.lanes)
        both = larger(before, ir.Get(plan.vector, "top"))
        scope.steps.append(ir.If(later, (ir.Assign("top", both),)))
        top = scope.name(ir.Get(plan.vector, "top"))
    empty = operate("equal", top, number(float32, MINUS_INFINITY, plan.lanes))
    zero = number(float32, 0, plan.lanes)
    shift = scope.name(operate("select", scope.name(empty), zero, top))
    inner = Elements(scope.context)
    place = plus(line, variable("place"))
    score = inner.name(ir.Load(plan.vector, "scores", place))
    power = exp_nonpositive(inner, operate("sub", score, shift))
    inner.steps.append(ir.Store("scores", place, power))
    total = ir.Get(plan.vector, "sum")
    inner.steps.append(ir.Assign("sum", operate("add", total, power)))
    padded = times(variable("panels"), plan.lanes)
    scope.steps += [
        ir.Declare("sum", zero),
        loop("place", 0, padded, plan.lanes, *inner.steps),
    ]
    whole = scope.name(ir.Reduce(ir.Type(float32), "add", total))
    if later is None:
        scope.steps.append(ir.Store("totals", at, whole))
        return []
    scope.steps.append(ir.Declare("total", whole))
    again = Elements(scope.context)
    old = again.name(ir.Load(ir.Type(float32), "tops", at))
    fixed = again.name(ir.Extract(ir.Type(float32), shift, 0))
    keep = exp_nonpositive(again, operate("sub", old, fixed))
    again.steps.append(ir.Store("keeps", variable("row"), keep))
    earlier = again.name(ir.Load(ir.Type(float32), "totals", at))
    again.steps.append(ir.Assign("total", operate("fma", earlier, keep, whole)))
    scope.steps += [
        ir.If(later, tuple(again.steps)),
        ir.Store("totals", at, ir.Get(ir.Type(float32), "total")),
        ir.Store("tops", at, ir.Extract(ir.Type(float32), top, 0)),
    ]
    return []


def larger(left: ir.Value, right: ir.Value) -> ir.Value:
    """The larger one lane by lane; what a NaN makes of it is settled by the powers."""
    return ir.Op(left.type, "fast_max", (left, right))


def across(scope: Elements, function: Combine, value: ir.Value) -> ir.Value:
    """All lanes combined, in every lane."""
    lanes = value.type.lanes
    value = scope.name(value)
    half = lanes // 2
    while half:
        swapped = ir.Shuffle(value.type, value, value, tuple(i ^ half for i in range(lanes)))
        value = scope.name(function(value, scope.name(swapped)))
        half //= 2
    return value


def finish_rows(plan: RowPlan, unit: Elements) -> ir.Step:
    """Add a tile of mixed values to the rows of the result; divide by the totals at the end."""
    form = plan.form
    row = unit.inner({form.query.name: variable("out_query")})
    target = row.context.buffers[form.output.tensor]
    start = row.offset(form.output.at(form.width.name))
    total = ir.Load(ir.Type(float32), "totals", plus(variable("at"), variable("out")))
    inverse = operate("div", number(float32, 1), total)
    none = compare("equal", variable("count"), 0)
    inverse = ir.Op(ir.Type(float32), "select", (none, number(float32, 0), inverse))
    whole = [ir.Let("inverse", inverse)]
    body = [
        ir.Let("out_query", plus(variable("first"), variable("out"))),
        ir.Let("from", times(variable("out"), plan.padded)),
        *row.steps,
    ]
    store = _results(plan, target, start, "mixed", variable("from"))
    if not plan.blocks:
        return loop("out", 0, variable("tile"), 1, *body, *whole, *store)
    to = times(plus(variable("at"), variable("out")), plan.padded)
    later = compare("less", constant(0), variable("block"))
    ends = compare("less_equal", variable("key_count"), plus(variable("block"), variable("count")))
    return loop(
        "out", 0, variable("tile"), 1,
        *body,
        ir.Let("sums_at", to),
        ir.If(later, tuple(_added(plan, True)), tuple(_added(plan, False))),
        ir.If(ends, (*whole, *_results(plan, target, start, "sums", variable("sums_at")))),
    )  # fmt: skip


def _added(plan: RowPlan, later: bool) -> list[ir.Step]:
    """The mixed values of this block put or added into the sums of a row."""
    steps: list[ir.Step] = []
    keep = ir.Var(ir.Type(float32), "keep")
    if later:
        steps.append(ir.Let("keep", ir.Load(keep.type, "keeps", variable("out"))))
    for column in range(0, plan.padded, plan.lanes):
        to = plus(variable("sums_at"), column)
        value: ir.Value = ir.Load(plan.vector, "mixed", plus(variable("from"), column))
        if later:
            old = ir.Load(plan.vector, "sums", to)
            value = operate("fma", old, splat(keep, plan.lanes), value)
        steps.append(ir.Store("sums", to, value))
    return steps


def _results(
    plan: RowPlan, target: str, start: ir.Value, source: str, at: ir.Value
) -> list[ir.Step]:
    """A row of the result: sums times the inverse of the total."""
    inverse = splat(ir.Var(ir.Type(float32), "inverse"), plan.lanes)
    width = int(plan.form.width.extent.constant or 0)
    steps: list[ir.Step] = []
    for column in range(0, width, plan.lanes):
        left = width - column
        mask = None if left >= plan.lanes else first_lanes(constant(left), plan.lanes)
        value = operate("mul", ir.Load(plan.vector, source, plus(at, column)), inverse)
        steps.append(ir.Store(target, plus(start, column), value, mask))
    return steps
