"""Convolutions of few output positions: rows are the images at one position, in a loop.

Where lines are short, adjacent rows are windows of several lines or images, so that every tap is
in bounds for some row of a tile. All windows at one position lack the same taps, which the kernel
skips (`valid_taps.py`): they only add zeros, so an image has the same bits in any batch.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.compiler.kernels.limits import Limits
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm, MatrixWalk
from anydim.compiler.kernels.matmul.epilogue import ROW, Output
from anydim.compiler.kernels.matmul.window_rows import SPOT
from anydim.lang.tree import Apply, Index, Read, SizeTerm
from anydim.lang.tree.affine import substitute
from anydim.sizes import NEVER, Box, as_size, at_least, at_most, maximum, minimum, product, settle


def form_by_position(form: ContractionForm, tile: int, box: Box, limits: Limits) -> ContractionForm:
    """Return the form with this variant added, for sizes where it pays.

    It does not pay where a `tile` of rows is within a line. No size is multiplied by another
    one that the choice depends on, so that the formulas stay short.
    """
    layout = form.windows
    if layout is None or form.loops:
        return form
    images, *inner = layout.positions
    if images.name in {bound.position for bound in layout.bounds} or len(inner) < 2:
        return form
    positions, line = (product(axis.extent for axis in axes) for axes in (inner, inner[1:]))
    few = at_most(positions, limits.position_count)
    few &= at_least(images.extent, limits.position_images)
    short = at_most(line, limits.position_line) & at_least(line - line // tile * tile, 1)
    wanted = settle(few & short & at_least(inner[0].extent, 2), box)
    if wanted == NEVER:
        return form
    rows = wanted.where(minimum(layout.rows, images.extent), layout.rows)
    spots = wanted.where(maximum(positions, 1), 1)
    row = replace(form.m, extent=rows, c=form.m.c * spots)
    at = Apply("add", (Apply("mul", (Index(ROW), SizeTerm(spots))), Index(SPOT)))
    start = None if form.start is None else substitute(form.start, {ROW: at})
    return replace(
        form,
        m=row,
        loops=(MatrixWalk(SPOT, spots, as_size(0), as_size(0), form.m.c),),
        outputs=tuple(
            Output(each.tensor, substitute(each.value, {ROW: at})) for each in form.outputs
        ),
        start=start if isinstance(start, Read) else None,
        windows=replace(layout, spots=spots),
        position_when=wanted,
    )
