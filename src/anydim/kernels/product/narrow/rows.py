"""Rows of A as products with narrow weights take them."""

from __future__ import annotations

from anydim.base.dtypes import float32, int32, int64
from anydim.kernels import ir
from anydim.kernels.product.narrow.form import FIELDS, NarrowForm
from anydim.kernels.product.narrow.library import HIGHEST, NarrowTile
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    least,
    loop,
    minus,
    minus_one,
    plus,
    times,
    variable,
)
from anydim.kernels.write.values import number, operate

SCALARS = ("row", "k_step", "rows", "height")


def prepare_function(tile: NarrowTile, form: NarrowForm, block: int) -> ir.Function:
    """Rows of A side by side, with zeros behind them; the last one stands for more rows.

    For fields of 4 bits divided by what their places count, and their sums over each block.
    """
    lanes, narrow = tile.lanes, tile.bits == 4
    vector = ir.Type(float32, lanes)
    here = plus(times(variable("group"), block), variable("k"))
    left = minus(constant(form.depth), variable("at"))
    inside = minus(constant(block), variable("k"))
    flags = ir.Type(ir.FLAG.dtype, lanes)
    known = ir.Var(flags, "known")
    neighbours = ir.Load(vector, "a", plus(variable("from"), variable("at")), known)
    wide = ir.Type(int64, lanes)
    steps = operate("mul", ir.Iota(wide), ir.Splat(wide, variable("k_step")))
    start = plus(variable("from"), times(variable("at"), variable("k_step")))
    apart = ir.Gather(vector, "a", operate("add", ir.Splat(wide, start), steps), known)
    total = ir.Get(vector, "total")
    value = ir.Get(vector, "value")
    made = operate("mul", value, ir.Var(vector, "factors")) if narrow else value
    summed: list[ir.Step] = []
    if narrow:
        place = plus(times(variable("i"), form.groups), variable("group"))
        summed = [ir.Store("sums", place, ir.Reduce(ir.Type(float32), "add", total))]
    source = least(variable("i"), minus_one(variable("rows")))
    body = loop(
        "i", 0, variable("height"), 1,
        ir.Let("from", times(source, variable("row"))),
        loop(
            "group", 0, form.groups, 1,
            ir.Declare("total", number(float32, 0, lanes)),
            loop(
                "k", 0, block, lanes,
                ir.Let("at", here),
                ir.Let("count", least(left, inside)),
                ir.Let("known", first_lanes(variable("count"), lanes)),
                ir.Let("kept", first_lanes(inside, lanes)),
                ir.Declare("value", number(float32, 0, lanes)),
                ir.If(
                    compare("less", constant(0), variable("count")),
                    (
                        ir.If(
                            compare("equal", variable("k_step"), 1),
                            (ir.Assign("value", neighbours),),
                            (ir.Assign("value", apart),),
                        ),
                    ),
                ),
                *([ir.Assign("total", operate("add", total, value))] if narrow else []),
                ir.Store(
                    "to", plus(times(variable("i"), form.groups * block), variable("at")), made,
                    ir.Var(flags, "kept"),
                ),
            ),
            *summed,
        ),
    )  # fmt: skip
    return ir.Function(
        "prepare",
        (
            ir.Pointer("a", float32, alias=True),
            ir.Pointer("to", float32, alias=True),
            ir.Pointer("sums", float32, alias=True),
            *map(ir.Scalar, SCALARS),
        ),
        (*(_factors(tile) if narrow else ()), body),
    )


def _factors(tile: NarrowTile) -> tuple[ir.Step, ...]:
    """2^(-4 f) for the field f of each lane, by its bits; the last field is moved down."""
    whole = ir.Type(int32, tile.lanes)

    def same(each: int) -> ir.Const:
        return number(int32, each, tile.lanes)

    field = operate("bit_and", ir.Iota(whole), same(FIELDS - 1))
    field = operate("min", field, same(HIGHEST))
    exponent = operate("sub", same(127), operate("mul", field, same(4)))
    bits = operate("shift_left", exponent, same(23))
    return (ir.Let("factors", ir.Bitcast(ir.Type(float32, tile.lanes), bits)),)
