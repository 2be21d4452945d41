"""Many images of few places: place by place, by the taps alone that it has inside of x.

A place of 2 x 2 sees 4 of 3 x 3 taps, and in a panel with the others (`joined.py`) the rest of them
as zeros. Here columns are the images of one place. What a panel of images has of the channels of a
chunk is transposed, so that all images of an element are a row; the windows of a place are some of
these rows, its weights those of the taps that are inside. Sums lie in scratch, as rows of places of
images, and are transposed into the images. They leave out zeros alone: an image has its bits in
any batch.
"""

from __future__ import annotations

from contextlib import ExitStack

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import constant, greatest, least, variable
from anydim.kernels.product.convolution.cropped import FIRST, KEPT
from anydim.kernels.product.convolution.ending import Ending
from anydim.kernels.product.convolution.form import OuterLoop, Windows
from anydim.kernels.product.convolution.schedule import Convolution
from anydim.kernels.product.places import Bound
from anydim.kernels.product.sharing import from_on
from anydim.kernels.write.arithmetic import quotient, quotient_up, summed
from anydim.kernels.write.elements import SizeParameters
from anydim.kernels.write.writer import Writer
from anydim.sizes import Size, as_size, ceil_div, minimum, product

NEVER = as_size(0)
MOST = 16  # places of an image, and elements of a channel


def used_by_place(
    form: Windows, loop: OuterLoop, ending: Ending | None, schedule: Convolution
) -> Size:
    """1 where images, those of `loop`, go this way, 0 elsewhere.

    The dimensions of x that windows may leave are all of a channel's, and each has a tap. The more
    elements these are, the fewer taps are outside, and the fewer lanes may be without an image.
    """
    if ending is None or ending.more is not None or not schedule.packed or not form.bounds:
        return NEVER
    moved = [bound.tap for bound in form.bounds]
    steps = [bound.place for bound in form.bounds if bound.place]
    elements = product(bound.extent for bound in form.bounds)
    whole = (
        sorted(moved) == sorted(tap.name for tap in form.taps)
        and sorted(steps) == sorted(place.name for place in form.places)
        and elements == form.channels.x
        and form.row_y == form.columns
    )
    if not whole or any(_apart(form, bound) is None for bound in form.bounds):
        return NEVER
    lanes, images = schedule.tile.lanes, loop.extent
    full = images * MOST - ceil_div(images, lanes) * lanes * elements
    few = minimum(as_size(MOST) - form.columns, form.columns - 1)
    return from_on(minimum(few, full, images - lanes * 3 // 4), 0)


def _apart(form: Windows, bound: Bound) -> Size | None:
    """How far neighbours along a dimension of x lie apart; None of unusual strides."""
    stride, spread = bound.stride.constant, bound.spread.constant
    if stride is None or spread is None or stride < 0 or spread < 1:
        return None
    return next(tap.x for tap in form.taps if tap.name == bound.tap).divide_exactly(spread)


@dataclass(frozen=True)
class Place:
    """What a place has inside of x: `first` and `kept` taps of each axis, `window` of them all,
    and the `row` that the first tap of the first channel is."""

    taps: dict[str, ir.Value]
    window: ir.Value
    row: ir.Value


def start_of(form: Windows) -> Size:
    """Where the first element of the first channel lies in x."""
    apart = ((bound, _apart(form, bound)) for bound in form.bounds)
    return form.x_start - sum((b.constant * by for b, by in apart if by is not None), as_size(0))


def place_of(form: Windows, number: ir.Value, code: Writer, sizes: SizeParameters) -> Place:
    """A place by its number."""
    value, at, rest = sizes.value, {"": constant(0)}, number
    for step in reversed(form.places[1:]):
        above = code.let(quotient(rest, value(step.extent)))
        at[step.name] = code.let(rest - above * value(step.extent))
        rest = above
    at[form.places[0].name] = rest
    taps, rows, window = dict[str, ir.Value](), list[ir.Value](), constant(1)
    for number_of, tap in enumerate(form.taps):
        bound = next(bound for bound in form.bounds if bound.tap == tap.name)
        apart, spread = _apart(form, bound), value(bound.spread)
        assert apart is not None, "used_by_place looked at it"
        low = code.let(value(bound.constant) + at[bound.place] * value(bound.stride))
        first, behind = (
            code.let(least(quotient_up(greatest(end - low, 0), spread), value(tap.extent)))
            for end in (constant(0), value(bound.extent))
        )
        kept = code.let(greatest(behind - first, 0))
        taps |= {f"{FIRST}{number_of}": first, f"{KEPT}{number_of}": kept}
        rows.append((low + first * spread) * value(apart))
        window = code.let(window * kept)
    return Place(taps, window, code.let(summed(*rows)))


def rows_function(form: Windows, sizes: SizeParameters, lanes: int, row: int) -> ir.Function:
    """dst[channel, kept tap, :images] = src[channel, element], of elements from `x_row` on.

    Rows are `row` elements apart, and written in whole vectors.
    """
    code, value, window = Writer(), sizes.value, constant(1)
    inner = list[ir.Value]()
    kept = [variable(f"{KEPT}{n}") for n in range(len(form.taps))]
    for extent in reversed(kept):
        inner.insert(0, window)
        window = code.let(window * extent)
    with ExitStack() as loops:
        taps = [loops.enter_context(code.range(0, extent)) for extent in kept]
        at = loops.enter_context(code.range(0, variable("images"), lanes))
        steps = (tap * value(axis.x) for tap, axis in zip(taps, form.taps))
        source = code.let(summed(variable("x_row"), *steps) * row + at)
        to = code.let(summed(*(tap * step for tap, step in zip(taps, inner))) * row + at)
        with code.range(0, variable("channels")) as channel:
            found = source + channel * (value(form.channels.x) * row)
            found = ir.Load(ir.Type(form.dtype, lanes), "src", found)
            code.emit(ir.Store("dst", to + channel * (window * row), found))
    pointers = (ir.Pointer(name, form.dtype) for name in ("src", "dst"))
    names = ("x_row", "images", "channels", *(f"{KEPT}{n}" for n in range(len(kept))))
    return ir.Function("rows", (*pointers, *map(ir.Scalar, (*names, *sizes.names))), code.written)
