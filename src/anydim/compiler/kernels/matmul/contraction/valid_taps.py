"""Skips taps that are out of bounds for every row of the tile.

Adjacent rows are adjacent windows: at the edge of an image all of them lack the same taps; taps of
a large dilation are missing everywhere in a small image. The outermost tap is the slowest index of
k, so that the remaining k-steps are one range. Skipped taps would have added zeros.
"""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient, quotient_up
from anydim.compiler.kernels.ir import greatest, least, let, select, variable
from anydim.compiler.kernels.matmul.contraction.contraction_variables import LOOP
from anydim.compiler.kernels.matmul.window_geometry import SMALL, Bound, LayerSizes
from anydim.compiler.kernels.matmul.window_rows import ONE, SPOT, WindowLayout
from anydim.sizes import Size, product

_WORTH = 64  # k-steps per tap above which the test takes at most a hundredth of the time
_END = LOOP.k0 + LOOP.length
STEPS = (  # k-steps of a row tile in a chunk of k
    let(LOOP.k_at, greatest(least(variable("seen"), _END), LOOP.k0)),
    let(LOOP.steps, greatest(least(variable("unseen"), _END) - LOOP.k_at, 0)),
)


@dataclass(frozen=True)
class ValidTaps:
    """The outermost tap: `taps` of `steps` k-steps each, and the output axis it moves along.

    The axis has `extent` positions of `inner` rows each.
    """

    bound: Bound
    taps: Size
    steps: Size
    extent: Size
    inner: Size
    spots: Size

    def range(self, sizes: LayerSizes) -> list[ir.Step]:
        """Return `seen` and `unseen`: the k-steps in bounds for any of `rows` from `row0` on.

        Both are past the last k-step where no row has a valid tap.
        """
        known, bound = sizes.role_or_literal, self.bound
        extent, inner = known("seen_places", self.extent), known("seen_rows", self.inner)
        taps, steps = known("seen_taps", self.taps, SMALL), sizes.role("seen_steps", self.steps)
        stride, spread = (
            known(f"seen_{name}", size, SMALL)
            for name, size in (("stride", bound.stride), ("spread", bound.spread))
        )
        before = known("seen_base", bound.constant, SMALL)
        extent_left = known("seen_bound", bound.extent) - before
        line, last, image = map(variable, ("line", "last_line", "image"))
        one_image = last < (image + 1) * extent
        low = select(one_image, line - image * extent, 0)
        high = select(one_image, last - image * extent, extent - 1)
        missing = greatest(0 - before - high * stride, 0)
        reached = greatest(extent_left - low * stride, 0)
        first: ir.Value = LOOP.row0
        more = LOOP.rows - 1
        if self.spots != ONE:
            spots = known("x_spots", self.spots)
            first, more = first * spots + variable(SPOT), select(spots > 1, 0, more)
        return [
            ir.Let("line", quotient(first, inner)),
            ir.Let("last_line", quotient(first + more, inner)),
            ir.Let("image", quotient(line, extent)),
            ir.Let("seen", least(quotient_up(missing, spread), taps) * steps),
            ir.Let("unseen", least(quotient_up(reached, spread), taps) * steps),
        ]


def valid_taps_of(layout: WindowLayout | None, k: Size) -> ValidTaps | None:
    """Return the bounds of the outermost tap; None where the test does not pay."""
    if layout is None:
        return None
    tap = layout.taps[0] if layout.taps else layout.tap
    if tap is None:
        return None
    bounds = [bound for bound in layout.bounds if bound.tap == tap.name]
    steps = k.divide_exactly(tap.extent)
    if len(bounds) != 1 or steps is None or (steps.constant or 0) < _WORTH:
        return None
    (bound,) = bounds
    stride, spread = bound.stride.constant, bound.spread.constant
    at = next((n for n, axis in enumerate(layout.positions) if axis.name == bound.position), None)
    if at is None or stride is None or spread is None or stride < 0 or spread < 1:
        return None
    inner = product(axis.extent for axis in layout.positions[at + 1 :])
    return ValidTaps(bound, tap.extent, steps, layout.positions[at].extent, inner, layout.spots)
