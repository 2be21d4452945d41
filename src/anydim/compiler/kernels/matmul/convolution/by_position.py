"""Convolutions of many images of few output positions, position by position, valid taps only.

A position of 2 x 2 has 4 of 3 x 3 taps in bounds; in a panel with the others
(`batched_columns.py`) the other taps are zeros. Here columns are the images at one position. The
part of a panel's images in a chunk of channels is transposed, so that an element of all images is
a row; the windows of a position are some of these rows, and its weights are those of its valid
taps. Sums are stored in scratch, as rows of positions of images, and transposed into the images.
Skipped taps only add zeros: an image has the same bits in any batch.
"""

from __future__ import annotations

from contextlib import ExitStack

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, least, let, select, variable
from anydim.compiler.kernels.matmul.convolution.batched_columns import dimension_stride
from anydim.compiler.kernels.matmul.convolution.convolution_variables import LAST, LOOP
from anydim.compiler.kernels.matmul.convolution.cropped_taps import FIRST, KEPT, tap_strides
from anydim.compiler.kernels.matmul.convolution.tile_strips import Strips
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.convolution_micro_kernels import STRIP
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.transposed import matrix_transpose_library
from anydim.compiler.kernels.matmul.window_geometry import taps_inside
from anydim.sizes import Size, as_size


def position_steps(strips: Strips, rows: ir.Function) -> list[ir.Step]:
    """Return the steps of a panel; `rows` is the function of `rows_function`."""
    plan, kernel = strips.plan, strips.kernel
    code, form, tile, value = Writer("place_"), plan.given, plan.tile, kernel.sizes.value
    transpose = matrix_transpose_library(tile.lanes, form.dtype)
    kernel.needs(transpose)
    bytes, row, images = form.dtype.bytes, constant(plan.panel_row), LOOP.images
    channels, positions = LOOP.channels, value(form.columns)
    start = value(_start(form) - plan.form.x_start)
    x = LOOP.x_at + LOOP.image * LOOP.x_image + start
    transposed = ir.Address("scratch", value(plan.scratch.transposed_at))
    copy, panel = value(plan.scratch.panel), ir.Address("scratch", constant(0))
    elements = value(form.channels.x)
    x_shape = LOOP.x_image, row, images, channels * elements
    code.emit(ir.Call(transpose.name, (ir.Address("x", x), transposed, *x_shape)))
    sums, sums_row = value(plan.scratch.sums_at), LOOP.block_columns
    wide, copying = code.let(sums_row / positions), strips.weights.copying()
    with code.range(0, positions) as number:
        valid = _valid_taps_of(form, number, code, kernel.sizes)
        k, all_of = code.let(channels * valid.window), valid.window.equals(elements)
        code.emit(copying(**valid.taps))
        with code.when(~all_of):
            own = {n: at for n, at in valid.taps.items() if n.startswith(KEPT)}
            code.emit(call(rows, src=transposed, dst=panel, x_row=valid.row, **own))
        b = ir.Address("scratch", code.let(select(all_of, transposed.offset, 0)))
        with code.range(0, LOOP.rows, tile.rows * STRIP) as at:
            code.emit(let(LOOP.m, LOOP.row0 + at))
            code.emit(let(LOOP.height, least(LOOP.rows - at, tile.rows * STRIP)))
            c = ir.Address("scratch", sums + (at * sums_row + number * wide) * bytes)
            a = ir.Address("scratch", copy + at * k * bytes)
            strip = strips.call(c, sums_row, b=b, b_row=row)
            code.emit(strip(a=a, a_row=k, k=k, span=k, gap=constant(0), columns=images))
    to = LOOP.y_unit + LOOP.row0 * positions
    to = ir.Address(strips.y, to + LOOP.image * LOOP.y_image)
    y_shape = wide, LOOP.y_image, LOOP.rows * positions, images
    with code.when(LAST):
        code.emit(ir.Call(transpose.name, (ir.Address("scratch", sums), to, *y_shape)))
    return list(code.written)


@dataclass(frozen=True)
class _ValidTaps:
    """The valid taps of an output position.

    `taps` holds `first` and `kept` of each axis, `window` is their product, and `row` is the row of
    the first tap of the first channel.
    """

    taps: dict[str, ir.Value]
    window: ir.Value
    row: ir.Value


def _start(form: ConvolutionForm) -> Size:
    """Return the offset of the first element of the first channel in x."""
    stride = ((bound, dimension_stride(form, bound)) for bound in form.bounds)
    return form.x_start - sum((b.constant * by for b, by in stride if by is not None), as_size(0))


def _valid_taps_of(
    form: ConvolutionForm, number: ir.Value, code: Writer, sizes: SizeParameters
) -> _ValidTaps:
    """Return the valid taps of the position `number`."""
    value, at = sizes.value, {"": constant(0)}
    indices = code.split(number, [value(step.extent) for step in form.positions[1:]])
    at |= {step.name: index for step, index in zip(form.positions, indices)}
    taps, rows, window = dict[str, ir.Value](), list[ir.Value](), constant(1)
    for number_of, tap in enumerate(form.taps):
        bound = next(bound for bound in form.bounds if bound.tap == tap.name)
        stride, spread = dimension_stride(form, bound), value(bound.spread)
        assert stride is not None, "checked by `columns_of`"
        here = at[bound.position]
        low = code.let(value(bound.constant) + here * value(bound.stride))
        first, stop = map(code.let, taps_inside(bound, here, here, tap.extent, value))
        kept = code.let(greatest(stop - first, 0))
        taps |= {f"{FIRST}{number_of}": first, f"{KEPT}{number_of}": kept}
        rows.append((low + first * spread) * value(stride))
        window = code.let(window * kept)
    return _ValidTaps(taps, window, code.let(index_sum(*rows)))


def rows_function(
    form: ConvolutionForm, sizes: SizeParameters, lanes: int, row: int
) -> ir.Function:
    """Return the function dst[channel, kept tap, :images] = src[channel, element].

    It reads elements from `x_row` on. Rows are `row` elements apart, and written in whole vectors.
    """
    code, value = Writer(), sizes.value
    kept = [variable(f"{KEPT}{n}") for n in range(len(form.taps))]
    inner, window = tap_strides(code, kept)
    with ExitStack() as loops:
        taps = [loops.enter_context(code.range(0, extent)) for extent in kept]
        at = loops.enter_context(code.range(0, variable("images"), lanes))
        steps = (tap * value(axis.x) for tap, axis in zip(taps, form.taps))
        source = code.let(index_sum(variable("x_row"), *steps) * row + at)
        to = code.let(index_sum(*(tap * step for tap, step in zip(taps, inner))) * row + at)
        with code.range(0, variable("channels")) as channel:
            found = source + channel * (value(form.channels.x) * row)
            found = ir.Load(ir.Type(form.dtype, lanes), "src", found)
            code.emit(ir.Store("dst", to + channel * (window * row), found))
    pointers = (ir.Pointer(name, form.dtype) for name in ("src", "dst"))
    names = ("x_row", "images", "channels", *(f"{KEPT}{n}" for n in range(len(kept))))
    return ir.Function("rows", (*pointers, *map(ir.Scalar, (*names, *sizes.names))), code.written)
