"""Panels with columns of several images, where an image has few output positions.

Images of 2 x 2 have 4 columns each, of a panel of 48: most lanes of a register tile would be idle,
and all weights would be read again for each image. A panel therefore has the columns of as many
whole images as fit. Their sums are stored in scratch and copied from there to each image. A formula
of sizes in the same kernel selects whether images are joined; otherwise a panel has one image.
"""

from __future__ import annotations

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.context import SizeParameters
from anydim.compiler.kernels.ir import greatest, least, let
from anydim.compiler.kernels.matmul.convolution.convolution_variables import JOINED, LOOP
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm, OuterLoop
from anydim.compiler.kernels.matmul.panel_columns import (
    BY_POSITION,
    MAX_POSITIONS,
    Columns,
    joined_columns,
)
from anydim.compiler.kernels.matmul.schedules import Convolution
from anydim.compiler.kernels.matmul.tile_epilogue import TileEpilogue
from anydim.compiler.kernels.matmul.window_geometry import Bound
from anydim.compiler.kernels.versions import taken_where
from anydim.lang.tree.affine import affine
from anydim.sizes import NEVER, Condition, Size, as_size, at_least, at_most, ceil_div, product


def columns_of(
    form: ConvolutionForm, given: ConvolutionForm, epilogue: TileEpilogue | None,
    schedule: Convolution,
) -> Columns[OuterLoop]:  # fmt: skip
    """Return the partition of a cropped form's columns into panels."""
    loop, width = _joinable(form, epilogue), as_size(schedule.tile.width)
    by_position = NEVER if loop is None else _used_by_position(given, loop, epilogue, schedule)
    given_width = schedule.tile.width
    return joined_columns(
        loop, form.columns, given_width, width, form.loops, schedule.version, by_position
    )


def _joinable(form: ConvolutionForm, epilogue: TileEpilogue | None) -> OuterLoop | None:
    """Return the innermost loop over images with the same weights and the same bias."""
    bias = None if epilogue is None or epilogue.bias is None else affine(epilogue.bias.indices[0])
    for loop in reversed(form.loops):
        if loop.w == 0:
            own = bias is not None and bias.stride(loop.name) != 0
            return None if own or loop.extent.constant == 1 else loop
    return None


def _used_by_position(
    form: ConvolutionForm, loop: OuterLoop, epilogue: TileEpilogue | None, schedule: Convolution
) -> Condition:
    """Return where the images of `loop` run by position.

    The dimensions of x with padding must be all of a channel's, each with one tap. The more
    elements a channel has, the fewer taps are out of bounds, and the fewer lanes may be without an
    image.
    """
    if epilogue is None or epilogue.more is not None or not schedule.packed or not form.bounds:
        return NEVER
    moved = [bound.tap for bound in form.bounds]
    steps = [bound.position for bound in form.bounds if bound.position]
    elements = product(bound.extent for bound in form.bounds)
    whole = (
        sorted(moved) == sorted(tap.name for tap in form.taps)
        and sorted(steps) == sorted(axis.name for axis in form.positions)
        and elements == form.channels.x
        and form.row_y == form.columns
    )
    if not whole or any(dimension_stride(form, bound) is None for bound in form.bounds):
        return NEVER
    lanes, images = schedule.tile.lanes, loop.extent
    full = at_least(images * MAX_POSITIONS, ceil_div(images, lanes) * lanes * elements)
    few = at_least(form.columns, 1) & at_most(form.columns, MAX_POSITIONS)
    right = few & at_most(elements, MAX_POSITIONS) & at_least(images, 2)
    when = few & full & at_least(images, lanes * 3 // 4)
    return taken_where(schedule.version, BY_POSITION, when, right)


def dimension_stride(form: ConvolutionForm, bound: Bound) -> Size | None:
    """Return the stride of a dimension of x; None for unsupported strides."""
    stride, spread = bound.stride.constant, bound.spread.constant
    if stride is None or spread is None or stride < 0 or spread < 1:
        return None
    return next(tap.x for tap in form.taps if tap.name == bound.tap).divide_exactly(spread)


def images_of(columns: Columns[OuterLoop], sizes: SizeParameters) -> list[ir.Step]:
    """Return steps with the images of a panel: the first one, their count, the `run` of each.

    Where images are not joined, the run is a part of the only image.
    """
    if columns.joined == NEVER:
        return []
    assert columns.loop is not None, "images that are joined have a loop"
    value = sizes.value
    positions = greatest(value(columns.positions), 1)
    return [
        let(LOOP.image, LOOP.column / positions),
        let(LOOP.place, LOOP.column - LOOP.image * positions),
        let(LOOP.images, greatest(LOOP.width / positions, 1)),
        let(LOOP.run, least(LOOP.width, positions)),
        let(JOINED, sizes.holds(columns.joined)),
        let(LOOP.x_image, value(columns.loop.x)),
        let(LOOP.y_image, value(columns.loop.y)),
    ]
