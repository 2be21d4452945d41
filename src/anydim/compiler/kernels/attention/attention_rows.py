"""Row-wise steps of attention: softmax of a tile of scores, and the rows of the result.

Row r of a tile of scores begins at element r * stride of "scores". The maxima of all rows are
computed before any powers, so that a row does not wait for its own maximum.

With several blocks of keys, "tops" and "totals" hold the running maximum and sum of powers of each
row, "news" the maximum including the current block, "keeps" the factor that rescales earlier sums
to a new maximum, and "sums" the accumulated mixed values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from anydim.base.dtypes import bfloat16, float32, int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention.attention_plan import LOOP, Plan
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.writer import Buffer, Variable, Writer
from anydim.compiler.kernels.ir import apply, constant, fma, for_pairs, select, shuffle
from anydim.lang.tree import Read

MINUS_INFINITY = float("-inf")
LOW = -80.0  # e^-80 = 2e-35: products with it are still normal numbers
MAGIC = 1.5 * 2**23  # adding it rounds to an integer, in the low bits
POWER = (
    0.001327640376985073, 0.009675598703324795, 0.05550713837146759, 0.24022118747234344,
    0.6931469440460205, 1.0000001192092896,
)  # fmt: skip


def _later() -> ir.Value:
    """Return whether the current block of keys is not the first."""
    return LOOP.block > 0


# ---- maxima ------------------------------------------------------------------------------------


def largest_scores(plan: Plan, unit: ScalarLowering) -> tuple[ir.Step, ...]:
    """Compute the scores of the tile's rows from the raw products, and their maxima.

    The maxima are stored to "tops" or "news".
    """
    code = Writer("score_")
    with code.range(0, LOOP.tile) as number:
        line = Buffer(code, "scores", float32).part(code.let(number * plan.stride))
        row, before = plan.row(unit, number), code.here
        maximum = code.variable(constant(MINUS_INFINITY, float32, plan.lanes))
        scores = partial(_scores, code, plan, row, line, maximum)
        code.sweep(0, LOOP.keys, plan.lanes, scores, LOOP.whole, plan.inside)
        code.take(row.steps, before)
        top = _across(code, _larger, maximum()).extract(0)
        if plan.blocks:
            old = Buffer(code, "tops", float32)[LOOP.at + number]
            old = code.let(select(_later(), old, MINUS_INFINITY))
            top = code.let(_larger(old, top))
            # Online softmax (Milakov and Gimelshein 2018): sums of earlier blocks are rescaled.
            keep = exp_nonpositive(code, old - _finite(top))
            keep = select(old.equals(top), 1, keep)  # blocks of no weight preserve all bits
            Buffer(code, "keeps", float32)[number] = keep
        plan.tops(code, number)[0] = top
    return code.written


def _scores(
    code: Writer, plan: Plan, row: ScalarLowering, line: Buffer, maximum: Variable,
    column: ir.Value, mask: ir.Value | None,
) -> None:  # fmt: skip
    """Compute a vector of scores, and include its unmasked lanes in `maximum`."""

    def raw(read: Read) -> ir.Value | None:
        return line.load(column, plan.lanes) if read.tensor == plan.form.raw else None

    key = code.let(LOOP.block + column)
    lane = row.inner(
        {plan.form.key.name: key}, lane=plan.form.key.name, lanes=plan.lanes, mask=mask,
        local=raw, answers=frozenset((plan.form.raw,)),
    )  # fmt: skip
    value = lane.value(plan.form.score, float32)
    code.take(lane.steps)
    if mask is not None:
        value = code.let(select(mask, value, MINUS_INFINITY))
    if mask is not None or not isinstance(plan.form.score, Read):
        line.store(column, value)
    maximum.set(_larger(value, maximum()))


def _larger(left: ir.Value, right: ir.Value) -> ir.Value:
    """The larger value per lane; may drop NaN, which the powers and their total restore."""
    return apply("fast_max", left, right)


def _finite(top: ir.Value) -> ir.Value:
    """Return the offset subtracted from scores: their maximum, or 0 when all are -inf."""
    return select(top.equals(MINUS_INFINITY), 0, top)


def _across(
    code: Writer, function: Callable[[ir.Value, ir.Value], ir.Value], value: ir.Value
) -> ir.Value:
    """Combine all lanes; every lane has the result."""
    half = value.type.lanes // 2
    while half:
        indices = tuple(lane ^ half for lane in range(value.type.lanes))
        value = code.let(function(value, shuffle(value, value, indices)))
        half //= 2
    return value


# ---- powers ------------------------------------------------------------------------------------


def exp_nonpositive(code: Writer, x: ir.Value) -> ir.Value:
    """Return e^x in every lane of a float32 value at most 0.

    x = n ln2 + f ln2 with integer n and |f| <= 1/2; e^x = 2^n 2^f. The polynomial of degree 5 for
    2^f is a minimax fit of the relative error made for this file: 2.1e-7 at most in float32,
    including the rounding of its evaluation. Below `LOW` the result is 0; NaN stays NaN.
    """
    x = code.let(x)
    shifted = code.let(fma(x, math.log2(math.e), MAGIC))
    part = code.let(fma(x, math.log2(math.e), -(shifted - MAGIC)))
    power = x.like(POWER[0])
    for coefficient in POWER[1:]:
        power = fma(power, part, coefficient)
    total = power.bits(int32) + (shifted.bits(int32) << 23)
    return code.let(select(x < LOW, 0, total).bits(float32))


def powers(plan: Plan) -> tuple[ir.Step, ...]:
    """Replace the scores of the tile's rows by e^(score - top), and store the sums to "totals".

    Powers in 16 bits take the first half of a row; their sum is that of float32 powers.
    """
    code = Writer("power_")
    with code.range(0, LOOP.tile) as number:
        index = code.let(LOOP.at + number)
        new, totals = plan.tops(code, number)[0], Buffer(code, "totals", float32)
        if plan.blocks:
            Buffer(code, "tops", float32)[index] = new
        top = code.let(_finite(new).spread(plan.lanes))
        line = Buffer(code, "scores", float32).part(code.let(number * plan.stride))
        total = code.variable(constant(0, float32, plan.lanes))
        with code.range(0, LOOP.mixed_keys, plan.lanes) as column:
            power = exp_nonpositive(code, line.load(column, plan.lanes) - top)
            if plan.pairs:
                pairs = Buffer(code, "scores", bfloat16).part(number * (2 * plan.stride))
                pairs.store(column, for_pairs(power))
            else:
                line.store(column, power)
            total += power
        whole = code.let(total().reduce_lanes("add"))
        if plan.blocks:
            before = select(_later(), totals[index], 0)
            whole = fma(before, Buffer(code, "keeps", float32)[number], whole)
        totals[index] = whole
    return code.written


# ---- results -----------------------------------------------------------------------------------


def result_rows(
    plan: Plan, unit: ScalarLowering, ahead: tuple[ir.Step, ...]
) -> tuple[ir.Step, ...]:
    """Store the mixed values of the tile's rows, divided by their totals.

    With several blocks of keys the mixed values are accumulated, and stored after the last block.
    `ahead` runs once per row, with the row's number in "out_query".
    """
    form, code = plan.form, Writer("out_")
    with code.range(0, LOOP.tile) as number:
        code.let(LOOP.first + number, LOOP.out_query.name)
        row = plan.row(unit, number)
        start = row.offset(form.output.address.without(form.width.name))
        code.take((*row.steps, *ahead))
        dtype = bfloat16 if plan.is_narrow(form.output) else float32
        result = Buffer(code, row.context.buffers[form.output.tensor], dtype).part(start)
        index = code.let(LOOP.at + number)
        mixed = Buffer(code, "mixed", float32).part(code.let(number * plan.padded))
        if plan.blocks:
            sums = Buffer(code, "sums", float32).part(code.let(index * plan.padded))
            with code.when(_later()):
                _sum(code, plan, mixed, sums, Buffer(code, "keeps", float32)[number])
            with code.otherwise():
                _sum(code, plan, mixed, sums, None)
            with code.when((LOOP.block + LOOP.count).equals(LOOP.key_count)):
                _divide(code, plan, result, sums, index)
        else:
            _divide(code, plan, result, mixed, index)
    return code.written


def _sum(code: Writer, plan: Plan, mixed: Buffer, sums: Buffer, keep: ir.Value | None) -> None:
    """Store the mixed values of this block to the sums of a row, or add the rescaled sums."""
    factor = None if keep is None else code.let(keep.spread(plan.lanes))
    for column in range(0, plan.padded, plan.lanes):
        value = mixed.load(column, plan.lanes)
        if factor is not None:
            value = fma(sums.load(column, plan.lanes), factor, value)
        sums.store(column, value)


def _divide(code: Writer, plan: Plan, result: Buffer, source: Buffer, index: ir.Value) -> None:
    """Store a row of the result: values divided by the total, 0 without keys."""
    total = Buffer(code, "totals", float32)[index]
    divisor = select(LOOP.key_count.equals(0), float("inf"), total)
    divisor = code.let(divisor.spread(plan.lanes))
    positive = total > 0
    if plan.form.masked_is_zero:
        positive = positive | apply("isnan", total)
    is_partial = plan.form.nan_is_zero or plan.form.masked_is_zero
    good = code.let(positive.spread(plan.lanes)) if is_partial else None
    for column in range(0, plan.width, plan.lanes):
        remaining = plan.width - column
        mask = first_lanes(constant(remaining), plan.lanes) if remaining < plan.lanes else None
        value = source.load(column, plan.lanes) / divisor
        value = value if good is None else select(good, value, 0)
        result.store(column, value.as_(result.dtype), mask)
