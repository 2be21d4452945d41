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
    summed: list[ir.Step] = []
    if narrow:
        place = plus(times(variable("i"), form.groups), variable("group"))
        total = ir.Get(ir.Type(float32, lanes), "total")
        summed = [ir.Store("sums", place, ir.Reduce(ir.Type(float32), "add", total))]
    source = least(variable("i"), minus_one(variable("rows")))
    body = loop(
        "i", 0, variable("height"), 1,
        ir.Let("from", times(source, variable("row"))),
        loop(
            "group", 0, form.groups, 1,
            ir.Declare("total", number(float32, 0, lanes)),
            loop("k", 0, block, lanes, *_vector(tile, form, block)),
            *summed,
        ),
    )  # fmt: skip
    pointers = (ir.Pointer(name, float32, alias=True) for name in ("a", "to", "sums"))
    steps = (*(_factors(tile) if narrow else ()), body)
    return ir.Function("prepare", (*pointers, *map(ir.Scalar, SCALARS)), steps)


def _vector(tile: NarrowTile, form: NarrowForm, block: int) -> list[ir.Step]:
    """A vector of a row from `k` of a block on, which has neighbours or elements apart."""
    lanes, narrow = tile.lanes, tile.bits == 4
    vector, wide = ir.Type(float32, lanes), ir.Type(int64, lanes)
    flags = ir.Type(ir.FLAG.dtype, lanes)
    known = ir.Var(flags, "known")
    inside = minus(constant(block), variable("k"))
    neighbours = ir.Load(vector, "a", plus(variable("from"), variable("at")), known)
    steps = operate("mul", ir.Iota(wide), ir.Splat(wide, variable("k_step")))
    start = plus(variable("from"), times(variable("at"), variable("k_step")))
    apart = ir.Gather(vector, "a", operate("add", ir.Splat(wide, start), steps), known)
    value, total = (ir.Get(vector, name) for name in ("value", "total"))
    made = operate("mul", value, ir.Var(vector, "factors")) if narrow else value
    to = plus(times(variable("i"), form.groups * block), variable("at"))
    read = ir.If(
        compare("equal", variable("k_step"), 1),
        (ir.Assign("value", neighbours),),
        (ir.Assign("value", apart),),
    )
    return [
        ir.Let("at", plus(times(variable("group"), block), variable("k"))),
        ir.Let("count", least(minus(constant(form.depth), variable("at")), inside)),
        ir.Let("known", first_lanes(variable("count"), lanes)),
        ir.Let("kept", first_lanes(inside, lanes)),
        ir.Declare("value", number(float32, 0, lanes)),
        ir.If(compare("less", constant(0), variable("count")), (read,)),
        *([ir.Assign("total", operate("add", total, value))] if narrow else []),
        ir.Store("to", to, made, ir.Var(flags, "kept")),
    ]


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
