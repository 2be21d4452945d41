"""Crops taps that are out of bounds at every position: most of a window, where images are tiny.

Of 3 x 3 taps with padding, an image of one position has one valid tap, a row of positions three;
taps of a large dilation are out of bounds in narrow images. A formula of sizes determines them. The
remaining window is smaller; constant weights that were packed for the full window are copied
without the cropped taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, index_sum
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, variable
from anydim.compiler.kernels.matmul.convolution.convolution_packing import tap_number
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.window_geometry import Bound, WindowAxis
from anydim.sizes import Size, as_size, ceil_div, maximum, minimum

FIRST, KEPT = "first", "kept"  # of an axis of the window: the first valid tap, and their count


def crop_taps(form: ConvolutionForm) -> ConvolutionForm:
    """Return the form without the first and last taps of each axis that only read zeros."""
    for tap in form.taps:
        bounds = [bound for bound in form.bounds if bound.tap == tap.name]
        kept = _valid_range(form, tap, bounds[0]) if len(bounds) == 1 else None
        if kept is None:
            continue
        first, extent = kept
        moved = replace(bounds[0], constant=bounds[0].constant + first * bounds[0].spread)
        form = replace(
            form,
            x_start=form.x_start + first * tap.x,
            w_start=form.w_start + first * tap.w,
            taps=tuple(replace(t, extent=extent) if t is tap else t for t in form.taps),
            bounds=tuple(moved if bound is bounds[0] else bound for bound in form.bounds),
        )
    return form


def first_taps(given: ConvolutionForm) -> list[Size]:
    """Return the first tap of each axis of a cropped form."""
    starts = []
    for tap in given.taps:
        own = [bound for bound in given.bounds if bound.tap == tap.name]
        kept = _valid_range(given, tap, own[0]) if len(own) == 1 else None
        starts.append(as_size(0) if kept is None else kept[0])
    return starts


def _valid_range(form: ConvolutionForm, tap: WindowAxis, bound: Bound) -> tuple[Size, Size] | None:
    """Return the first valid tap of any position and the count; None for unsupported strides."""
    stride, spread = bound.stride.constant, bound.spread.constant
    if stride is None or spread is None or stride < 0 or spread < 1:
        return None
    extents = {axis.name: axis.extent for axis in form.positions}
    last = bound.constant + (extents.get(bound.position, as_size(1)) - 1) * stride
    first = minimum(maximum(ceil_div(0 - last, spread), 0), tap.extent)
    stop = minimum(maximum(ceil_div(bound.extent - bound.constant, spread), 0), tap.extent)
    return first, maximum(stop - first, 0)


def tap_strides(code: Writer, kept: Sequence[ir.Value]) -> tuple[list[ir.Value], ir.Value]:
    """Return the distances of kept taps along each axis, and the taps of a channel."""
    strides, window = list[ir.Value](), constant(1)
    for extent in reversed(kept):
        strides.insert(0, window)
        window = code.let(window * extent)
    return strides, window


def kept_weights_function(
    given: ConvolutionForm, sizes: SizeParameters, rows: int, lanes: int
) -> ir.Function:
    """Return the function dst[tile, channel, kept tap, :rows] = w[tile, channel, tap, :rows].

    It reads w from `w_at` on. Each axis of the window keeps `kept` taps from the `first` one on;
    kept taps along the last axis are contiguous. `w_row` is the stride of rows of w.
    """
    code, value = Writer(), sizes.value
    axes = range(len(given.taps))
    firsts, kept = ([variable(f"{name}{n}") for n in axes] for name in (FIRST, KEPT))
    inner, window = tap_strides(code, kept)
    run = code.let(kept[-1] * rows)
    with ExitStack() as loops:
        row = loops.enter_context(code.range(0, variable("rows"), rows))
        taps = [loops.enter_context(code.range(0, extent)) for extent in kept[:-1]]
        at = loops.enter_context(code.range(0, run, lanes))
        mask = code.let(first_lanes(run - at, lanes))
        theirs = [tap + first for tap, first in zip((*taps, constant(0)), firsts)]
        own = index_sum(*(tap * step for tap, step in zip(taps, inner)))
        to = code.let(row * (variable("channels") * window) + own * rows + at)
        source = row * variable("w_row") + tap_number(given, theirs, sizes) * rows
        source = code.let(variable("w_at") + source + at)
        with code.range(0, variable("channels")) as channel:
            found = source + channel * (value(given.window) * rows)
            found = ir.Load(ir.Type(given.dtype, lanes), "w", found, mask)
            code.emit(ir.Store("dst", to + channel * (window * rows), found, mask))
    pointers = (ir.Pointer(name, given.dtype) for name in ("w", "dst"))
    own_scalars = (f"{name}{n}" for name in (FIRST, KEPT) for n in axes)
    scalars = map(ir.Scalar, ("w_at", "w_row", "rows", "channels", *own_scalars, *sizes.names))
    return ir.Function("weights", (*pointers, *scalars), code.written)
