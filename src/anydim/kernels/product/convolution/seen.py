"""Taps along the outermost axis that no column of a panel has inside of x are left out of it.

Columns of a panel are places side by side, of a few rows: at the edge of an image all of them lack
the same taps, far dilated ones everywhere in a small image. A panel has what is left of a window,
and constant weights of it are copied, once for neighbouring panels that lack the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import constant, greatest, register, select, variable
from anydim.kernels.product.convolution.form import Windows
from anydim.kernels.product.convolution.packing import SEEN_SCALARS, SHUFFLED_STRIDES
from anydim.kernels.product.micro import Tile
from anydim.kernels.product.places import Bound, taps_inside
from anydim.kernels.write.arithmetic import quotient
from anydim.sizes import Size, ceil_div, maximum, product

FROM, TO = SEEN_SCALARS
_KNOWN = ("known_from", "known_to")  # the taps that are in place


@dataclass(frozen=True)
class Seen:
    """The outermost axis of taps, which move along the outermost places; what is inside of x.

    A panel of up to `lanes` columns has all taps: to copy weights would take too long.
    """

    taps: Size
    rest: Size
    bound: Bound
    lanes: int

    def start(self) -> list[ir.Step]:
        """None are in place."""
        return [ir.Declare(name, constant(-1)) for name in _KNOWN]

    def range(
        self, value: Callable[[Size], ir.Value], first: ir.Value, width: ir.Value, row: ir.Value
    ) -> list[ir.Step]:
        """Those of so many columns from `first` on, `row` of which are one of the outermost places;
        and the products of their sums."""
        ends = first, first + (width - 1)
        low, high = (quotient(at, greatest(row, 1)) for at in ends)
        start, stop = taps_inside(self.bound, low, high, self.taps, value)
        few, kept = width <= self.lanes, variable(TO) - variable(FROM)
        return [
            ir.Let(FROM, select(few, 0, start)),
            ir.Let(TO, select(few, value(self.taps), greatest(stop, start))),
            ir.Let("k", variable("channels") * kept * value(self.rest)),
        ]

    def changed(self, steps: Sequence[ir.Step]) -> list[ir.Step]:
        """Steps where others are in place."""
        pairs = list(zip(_KNOWN, map(variable, SEEN_SCALARS)))
        first, last = (register(known).differs(now) for known, now in pairs)
        notes = (ir.Assign(known, now) for known, now in pairs)
        return [ir.If(first | last, (*notes, *steps))]


def seen_of(form: Windows, tile: Tile) -> Seen | None:
    """That of a form; None where no panel of known sizes lacks a tap."""
    bounds = [bound for bound in form.bounds if form.taps and bound.tap == form.taps[0].name]
    if len(bounds) != 1 or bounds[0].place != form.places[0].name:
        return None
    stride, spread = bounds[0].stride.constant, bounds[0].spread.constant
    if stride is None or spread is None or min(stride, spread) < 1:
        return None
    if len(form.taps) == 1 and stride > SHUFFLED_STRIDES:  # rows of taps are turned as a whole
        return None
    taps, (place, *inner) = form.taps[0].extent, form.places
    before = 0 - bounds[0].constant
    behind = (place.extent - 1) * stride + (taps - 1) * spread - before - bounds[0].extent + 1
    rows = maximum(ceil_div(before, stride), ceil_div(behind, stride))
    columns = rows * product(each.extent for each in inner)
    if columns.constant is not None and columns.constant < tile.width:
        return None
    rest = product(tap.extent for tap in form.taps[1:])
    return Seen(taps, rest, bounds[0], tile.lanes)
