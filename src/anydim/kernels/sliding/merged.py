"""Windows over images of a few columns: vectors run on from one row to the next.

Where a window moves by one place and the result is as wide as the image, element q of an image of
the result reads the elements that lie as far from q as the window's places do. Lanes then only ask
which of them are inside, in their own row and column. A row of 3 columns fills 3 lanes of a vector
of 16; so all do work.
"""

from __future__ import annotations

from collections.abc import Collection

from anydim.base.dtypes import float32, int32, uint32
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.inference import free_axes
from anydim.kernels.product.epilogue import PRODUCT
from anydim.kernels.sliding.form import Limit, Sliding, Window
from anydim.kernels.write.arithmetic import compare, minus, quotient, quotient_up, times
from anydim.kernels.write.elements import Elements, SizeParameters
from anydim.kernels.write.values import convert, number, operate, splat
from anydim.lang.tree import Axis, Expr, Literal, Read
from anydim.lang.tree.affine import Affine, reads, rewrite, to_expr
from anydim.sizes import Box, Size, simplify

ROW, COLUMN = "row of the lane", "column of the lane"  # tensors that stand for them
_MOST = 1 << 30  # elements of an image: places are counted in int32


@dataclass(frozen=True)
class Image:
    """The two axes that are merged.

    `equal` are sizes that must be the width of the result; where windows move by more than a place,
    or the result is not as wide as the image, lanes are `gathered`.
    """

    rows: Axis
    columns: Axis
    equal: tuple[Size, ...] = ()
    gathered: bool = False

    @property
    def names(self) -> tuple[str, str]:
        return self.rows.name, self.columns.name

    def worth_it(self, sizes: SizeParameters, lanes: int, wide: int) -> ir.Value:
        """Whether vectors of `lanes` along rows are filled by less than four fifths in a call."""
        width, height = sizes.value(self.columns.extent), sizes.value(self.rows.extent)
        room, (more, less) = quotient_up(width, lanes), (1, 4) if self.gathered else (4, 5)
        found = [
            compare("greater_equal", times(room, more * wide), times(width, less)),
            compare("less", times(height, width), _MOST),
            *(compare("equal", sizes.value(size), width) for size in self.equal),
        ]
        whole = found[0]
        for part in found[1:]:
            whole = operate("and", whole, part)
        return whole


def image_of(form: Sliding, lanes: int, wide: int, box: Box) -> Image | None:
    """The axes of a form that may be merged; None where they never can, or never need."""
    if not form.outer or wide < 4:
        return None
    rows, columns = form.outer[-1], form.lane
    both = {rows.name, columns.name}
    width = columns.extent.constant
    if width is not None and -(-width // lanes) * 4 * wide < 5 * width:
        return None
    others = (r for o in form.outputs for r in reads(o.value) if r.tensor != PRODUCT)
    if any(len(free_axes(read) & both) > 1 for read in others):
        return None  # a table of rows or of columns is gathered from
    equal: dict[Size, None] = {}
    gathered = False
    for body, windows in form.bodies:
        if _uses(body, {w.read for w in windows}, both):
            return None
        for window in windows:
            apart = window.address.stride(rows.name)
            left = simplify(apart - columns.extent, box).constant
            if not _counted(window, both):
                return None
            gathered |= window.stride != 1 or left not in (None, 0)
            if left is None:
                equal[apart] = None
    return Image(rows, columns, () if gathered else tuple(equal), gathered)


def _counted(window: Window, both: set[str]) -> bool:
    """Whether all it may leave is known numbers of rows and columns."""
    return all(
        limit.index.stride(name).constant is not None for limit in window.limits for name in both
    )


def _uses(expr: Expr, known: Collection[Read], axes: set[str]) -> bool:
    """Whether an expression depends on axes but by reads that are known."""

    def left_out(part: Expr) -> Expr | None:
        return Literal(0) if isinstance(part, Read) and part in known else None

    return bool(free_axes(rewrite(expr, left_out)) & axes)


@dataclass(frozen=True)
class Lanes:
    """Row and column of each lane, as int32, from one element of an image on."""

    row: ir.Value
    column: ir.Value

    @staticmethod
    def at(block: Elements, first: ir.Value, width: ir.Value, lanes: int) -> Lanes:
        """Fewer than 2^20 columns and lanes in all: products of floats with 1 / width are exact
        enough, as no place is less than half a column away from a whole row."""
        vector, float_vector = ir.Type(int32, lanes), ir.Type(float32, lanes)
        above = block.name(quotient(first, width))
        left = block.name(minus(first, times(above, width)))
        begin = block.name(operate("add", ir.Iota(vector), splat(convert(left, int32), lanes)))
        whole = splat(convert(width, float32), lanes)
        place = operate("add", ir.Convert(float_vector, begin), number(float32, 0.5, lanes))
        carried = block.name(ir.Convert(vector, operate("div", place, whole), fits=True))
        columns = operate("mul", carried, splat(convert(width, int32), lanes))
        row = operate("add", carried, splat(convert(above, int32), lanes))
        return Lanes(block.name(row), block.name(operate("sub", begin, columns)))


def inside(scope: Elements, limit: Limit, image: Image, place: Lanes, extent: ir.Value) -> ir.Value:
    """The lanes whose index is inside."""
    rest = without(limit.index, image.names)
    lanes = place.row.type.lanes
    index: ir.Value = splat(convert(scope.scalar(to_expr(rest)), int32), lanes)
    for name, value in zip(image.names, (place.row, place.column)):
        by = limit.index.stride(name).constant
        if by:
            scaled = value if by == 1 else operate("mul", value, number(int32, by, lanes))
            index = operate("add", index, scaled)
    unsigned = ir.Type(uint32, lanes)
    bits = ir.Bitcast(unsigned, scope.name(index))
    return scope.name(operate("less", bits, splat(convert(extent, uint32), lanes)))


def without(form: Affine, names: tuple[str, ...]) -> Affine:
    """A form where some axes are 0."""
    return Affine.of(form.constant, {n: c for n, c in form.terms if n not in names})
