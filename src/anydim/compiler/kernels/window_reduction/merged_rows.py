"""Windows over images of few columns: vectors of several whole rows.

If the window stride is 1 and the result is as wide as the image, every element q of a result image
reads the image at fixed distances from q. Vectors start with a row, so their lanes are the same
columns in all of them: column masks are computed once for all images, row masks only where some
rows are out of bounds. Three columns fill 15 lanes of a vector of 16.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import and_

from anydim.base.dtypes import int32, int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import constant, convert, greatest, iota, least, splat
from anydim.compiler.kernels.limits import Limits
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output
from anydim.compiler.kernels.window_reduction.window_columns import Columns, Level, Setting
from anydim.compiler.kernels.window_reduction.window_form import Limit, Window, WindowForm
from anydim.lang.tree import Axis, Expr, Index, Literal, Read
from anydim.lang.tree.affine import reads, rewrite, substitute, to_expr
from anydim.sizes import Box, Condition, Size, at_most, condition, simplify

ROW, COLUMN = "row of the lane", "column of the lane"  # names of pseudo-tensors
_MOST = 1 << 24  # rows of an image: row indices are int32


@dataclass(frozen=True)
class Image:
    """The two merged axes.

    `equal` are sizes that must equal the width of the result. Lanes are `gathered` if the window
    stride is above 1, or the result is not as wide as the image.
    """

    rows: Axis
    columns: Axis
    equal: tuple[Size, ...] = ()
    gathered: bool = False

    @property
    def names(self) -> tuple[str, str]:
        return self.rows.name, self.columns.name

    def pays(self, lanes: int, limits: Limits) -> Condition:
        """Where a vector holds three rows, or eight if lanes are gathered, by default."""
        rows = limits.merged_window_gathers if self.gathered else limits.merged_window_rows
        return self.right(lanes // rows)

    def right(self, most: int) -> Condition:
        """Where rows have at most `most` columns, and merged ones are those of an image."""
        width = self.columns.extent
        found = [condition(size, "==", width) for size in self.equal]
        few = at_most(width, most) & at_most(self.rows.extent, _MOST - 1)
        return reduce(and_, found, few)


def image_of(form: WindowForm, wide: int, box: Box) -> Image | None:
    """The mergeable axes of a form; None if they never can, or never need to, be merged."""
    if not form.outer or wide < 4:
        return None
    rows, columns = form.outer[-1], form.lane
    both = {rows.name, columns.name}
    width = columns.extent.constant
    if width is not None and width * 3 > wide:
        return None
    others = (r for o in form.outputs for r in reads(o.value) if r.tensor != PRODUCT)
    if any(len(free_axes(read) & both) > 1 for read in others):
        return None  # such a read would be a gather
    equal: dict[Size, None] = {}
    gathered = False
    for body, windows in form.bodies:
        if _uses(body, {w.read for w in windows}, both):
            return None
        for window in windows:
            apart = window.address.stride(rows.name)
            excess = simplify(apart - columns.extent, box).constant
            if not _has_known_strides(window, both):
                return None
            gathered |= window.stride != 1 or excess not in (None, 0)
            if excess is None:
                equal[apart] = None
    return Image(rows, columns, () if gathered else tuple(equal), gathered)


def _has_known_strides(window: Window, both: set[str]) -> bool:
    """Whether all limits move by known strides over rows and columns."""
    return all(
        limit.index.stride(name).constant is not None for limit in window.limits for name in both
    )


def _uses(expr: Expr, known: Collection[Read], axes: set[str]) -> bool:
    """Whether an expression depends on axes other than through known reads."""

    def without(part: Expr) -> Expr | None:
        return Literal(0) if isinstance(part, Read) and part in known else None

    return bool(free_axes(rewrite(expr, without)) & axes)


class MergedColumns(Columns):
    """The lanes of vectors of `height` whole rows; the columns are the same in every vector."""

    def __init__(self, setting: Setting, scope: ScalarLowering, image: Image) -> None:
        value, lanes = setting.context.sizes.value, setting.lanes
        self.setting, self.scope, self.image = setting, scope, image
        self.width = value(image.columns.extent)
        self.height = scope.name(quotient(constant(lanes), greatest(self.width, 1)))
        self.at: ir.Value = constant(0)
        self.inside = scope.name(first_lanes(self.height * self.width, lanes))
        whole = splat(convert(greatest(self.width, 1), int32), lanes)
        self.row = scope.name(iota(lanes, int32) / whole)
        self.column = scope.name(iota(lanes, int32) - self.row * whole)
        self.offsets: dict[tuple[Size, ...], ir.Value] = {}
        self.found: dict[object, list[ir.Value]] = {}

    def part(self, scope: ScalarLowering, rows: ir.Value) -> ir.Value:
        """A mask of the lanes of the remaining rows."""
        count = greatest(least(rows, self.height), 0) * self.width
        return scope.name(first_lanes(count, self.setting.lanes))

    def uniform(self, limit: Limit) -> bool:
        return not set(limit.index.indices) & set(self.image.names)

    def spread(self, window: Window) -> int:
        return 1

    def masks(
        self, level: Level, scope: ScalarLowering, at: ir.Value, mask: ir.Value | None,
        limits: tuple[Limit, ...], spread: int,
    ) -> list[ir.Value | None]:  # fmt: skip
        """The lanes inside all limits."""
        assert mask is not None
        for limit in limits:
            where, found = level((limit,))
            if limit not in found:
                found[limit] = [self._inside(where, limit)]
            mask = scope.name(mask & found[limit][0])
        return [mask]

    def _inside(self, scope: ScalarLowering, limit: Limit) -> ir.Value:
        """A mask of the lanes whose index is in bounds."""
        lanes = self.setting.lanes
        rest = limit.index.without(self.image.columns.name)
        index: ir.Value = splat(convert(scope.scalar(to_expr(rest)), int32), lanes)
        for name, value in zip(self.image.names, (self.row, self.column)):
            by = limit.index.stride(name).constant
            if by:
                index = index + (value if by == 1 else value * by)
        bits = scope.name(index).bits(uint32)
        extent = self.setting.context.sizes.value(limit.extent)
        return scope.name(bits < splat(convert(extent, uint32), lanes))

    def load(
        self, vector: ir.Type, window: Window, start: ir.Value, mask: ir.Value | None
    ) -> ir.Value:
        buffer = self.setting.buffer(window)
        if not self.image.gathered:
            return ir.Load(vector, buffer, start, mask)
        offsets = self._lane_offsets(window) + splat(start, vector.lanes)
        return ir.Gather(vector, buffer, offsets, mask)

    def _lane_offsets(self, window: Window) -> ir.Value:
        """Offsets of the elements that the lanes read, relative to lane 0, as int64."""
        strides = tuple(window.address.stride(name) for name in self.image.names)
        if strides not in self.offsets:
            lanes, size = self.setting.lanes, self.setting.context.sizes.value
            row, column = (
                convert(lane_index, int64) * splat(size(stride), lanes)
                for lane_index, stride in zip((self.row, self.column), strides)
            )
            self.offsets[strides] = self.scope.name(row + column)
        return self.offsets[strides]

    def pseudo_tensors(self, scope: ScalarLowering) -> dict[str, ir.Value]:
        first = splat(scope.indices[self.image.rows.name], self.setting.lanes)
        row, column = (convert(lane_index, int64) for lane_index in (self.row, self.column))
        return {ROW: scope.name(first + row), COLUMN: scope.name(column)}

    def result(self, output: Output) -> Expr:
        """The output with the row and column index of each lane."""
        own = tuple(map(Index, self.image.names))
        lane_indices = {name: Read(n, own) for name, n in zip(self.image.names, (ROW, COLUMN))}
        return output.value if output.is_product else substitute(output.value, lane_indices)
