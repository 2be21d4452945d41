"""Skips taps of the outermost axis that are out of bounds for every column of a panel.

Columns of a panel are adjacent positions of a few rows: at the edge of an image all of them lack
the same taps; taps of a large dilation are missing everywhere in a small image. A panel, or the
table of a line buffer, has the valid taps only, and tiles skip the weights of the others.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.ir import greatest, let
from anydim.compiler.kernels.matmul.convolution.convolution_packing import SHUFFLED_STRIDES
from anydim.compiler.kernels.matmul.convolution.convolution_variables import LOOP, PACK
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.window_geometry import Bound, taps_inside
from anydim.sizes import Size, product


@dataclass(frozen=True)
class ValidTaps:
    """The outermost axis of taps, with a bound on the outermost positions.

    It has `taps` taps, each with `rest` taps of the other axes.
    """

    taps: Size
    rest: Size
    bound: Bound

    @property
    def kept(self) -> ir.Value:
        return PACK.unseen - PACK.seen

    def range(
        self, value: Callable[[Size], ir.Value], first: ir.Value, width: ir.Value, row: ir.Value
    ) -> list[ir.Step]:
        """Return the range of valid taps of `width` columns from `first` on.

        `row` columns have one outermost position. Also sets the products of all channels, and of
        one.
        """
        row, last = greatest(row, 1), first + (width - 1)
        low, high = quotient(first, row), quotient(last, row)
        start, stop = taps_inside(self.bound, low, high, self.taps, value)
        return [
            let(PACK.seen, start),
            let(PACK.unseen, greatest(stop, PACK.seen)),
            let(LOOP.k, LOOP.channels * self.kept * value(self.rest)),
            let(LOOP.span, greatest(self.kept * value(self.rest), 1)),
        ]


def rest_of(form: ConvolutionForm) -> Size:
    """Return the taps of all axes but the outermost."""
    return product(tap.extent for tap in form.taps[1:])


def valid_taps_of(form: ConvolutionForm) -> ValidTaps | None:
    """Return the range of taps of a form; None where all taps are multiplied."""
    bounds = [bound for bound in form.bounds if form.taps and bound.tap == form.taps[0].name]
    if len(bounds) != 1 or bounds[0].position != form.positions[0].name:
        return None
    stride, spread = bounds[0].stride.constant, bounds[0].spread.constant
    if stride is None or spread is None or min(stride, spread) < 1:
        return None
    if len(form.taps) == 1 and stride > SHUFFLED_STRIDES:  # rows of taps are transposed together
        return None
    return ValidTaps(form.taps[0].extent, rest_of(form), bounds[0])
