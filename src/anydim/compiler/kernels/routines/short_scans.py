"""Cumulative sums of short rows: a vector covers several rows.

    rows of 3       a b c d e f g h          elements in memory
    two before      . . a . . d . .          of the same row, else neutral
    one before      . a b . d e . g
    the element     a b c d e f g h          y is the sum of these, in this order

Each lane adds the elements before it in its row, in the order of the row.
"""

from __future__ import annotations

from anydim.base.dtypes import int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, constant, greatest, iota, select
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.rows import LANES
from anydim.compiler.kernels.routines.scans import Spec

# Running sums continue from row to row (1.19 -> 0.29); with 8 int64 that takes a third longer.
FEW = 6  # elements of the longest short row


def short_rows(spec: Spec, code: Code) -> None:
    """A thread's part of rows of up to FEW elements."""
    length = code.size(spec.rows.length)
    x, y = code.input("x0", spec.dtype), code.output("y0", spec.dtype)
    neutral = constant(spec.identity, spec.wide, LANES)
    # Several rows per vector: 1.19 -> 0.29; rows of 8 int64 would take a third longer this way.
    ring = code.let(greatest(length, 1).as_(int32).spread(LANES))
    position = code.variable(iota(LANES, int32) % ring)  # in the row, from its start
    step = code.let(constant(LANES, int32, LANES) % ring)

    def add(i: ir.Value, there: ir.Value | None) -> None:
        total = code.variable(neutral)
        for back in range(FEW - 1, 0 if spec.exclusive else -1, -1):
            if spec.reverse:
                at, inside = i + back, position() + back < ring
            else:
                at, inside = i - back, position() >= back
            inside = code.let(inside if there is None else inside & there)
            with code.when(length > back):
                element = x.load(at, LANES, inside).as_(spec.wide)
                if spec.identity != 0:  # lanes that are not loaded are 0
                    element = select(inside, element, neutral)
                total.set(apply(spec.function, total(), element))
        y.store(i, total().as_(spec.dtype), there)
        following = code.let(position() + step)
        position.set(select(following < ring, following, following - ring))

    code.sweep(code.let(code.start * length), code.let(code.stop * length), LANES, add)
