"""Line buffers: windows read from a copy of some rows of x, padded with zeros.

A panel has every element of x once per tap. A line buffer holds the rows of x that a block of
columns reads, for all taps: each tap reads vectors at a fixed distance from those of the first tap.
With a stride of s along an axis, a line buffer stores positions 0, s, 2s, ... together as one
phase, then 1, s + 1, ...

    band[channel, phase, row, i] = x[channel, position(phase, row, i)]     0 out of bounds

A row of the result is followed by excess columns. They either fill its last vector, or are just the
columns up to the next row of the line buffer, so that a vector may have the end of a row and the
beginning of the next one; the variant with fewer columns is used. A table holds the offset of each
vector of columns in the line buffer, the output positions of its lanes, and the distance that each
k-step reads from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import product as every

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient, quotient_up
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, least, number, register, select, variable
from anydim.compiler.kernels.matmul.blocked_loops import Blocked
from anydim.compiler.kernels.matmul.convolution.convolution_packing import (
    SHUFFLED_STRIDES,
    WindowPack,
)
from anydim.compiler.kernels.matmul.convolution.convolution_variables import LOOP, PACK, VALID_TAPS
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.convolution_micro_kernels import line_buffer_libraries
from anydim.compiler.kernels.matmul.convolution_tile import ENTRY
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.register_tile import Tile
from anydim.compiler.kernels.matmul.window_geometry import Bound, WindowAxis
from anydim.compiler.kernels.schedule import ANY
from anydim.compiler.kernels.versions import taken_where
from anydim.sizes import (
    NEVER,
    Condition,
    Size,
    align_up,
    as_size,
    at_least,
    ceil_div,
    condition,
    maximum,
    minimum,
    product,
)

# Blocks of 16 or 64 panels, and bands of 512 KB, are within 5 %.
PANELS = 8  # maximum factor of a block's panels: they share the rows around the block
# costs in rows of a tile: loading or storing a vector of a panel, per tap; at most as much for its
# masks, which a chunk of channels shares; copying a vector into a line buffer, for all taps (fitted
# to 8 layers at 4 to 10 sizes, Zen 4)
_PACKED, _MASKS, _COPIED = 2, 24, 27
_MAX_K = 1024  # maximum steps of a table
_KNOWN = ("table_from", "table_to")  # the range of taps in the table


@dataclass(frozen=True)
class _WindowDimension:
    """A dimension of x with stride `stride`, with its axis of positions and its axis of taps.

    Windows move by `step` elements of the dimension, taps by `spread`; the last tap is at most
    `reach` elements from the first.
    """

    position: WindowAxis
    tap: WindowAxis
    bound: Bound
    stride: Size
    step: int
    spread: int
    reach: int


def _window_dimensions(
    form: ConvolutionForm, given: ConvolutionForm
) -> tuple[_WindowDimension, ...]:
    """Return the dimensions of all positions; () where a position or a tap has another form."""
    taps = {tap.name: (tap, own.extent.constant) for tap, own in zip(form.taps, given.taps)}
    found: list[_WindowDimension] = []
    for axis in form.positions:
        for bound in form.bounds:
            step, spread = bound.stride.constant, bound.spread.constant
            if bound.position != axis.name or bound.tap not in taps or not step or not spread:
                continue
            tap, count = taps.pop(bound.tap)
            stride = tap.x.divide_exactly(spread)
            if stride is not None and count and min(step, spread) > 0 and axis.x == stride * step:
                reach = (count - 1) * spread
                found.append(_WindowDimension(axis, tap, bound, stride, step, spread, reach))
    if taps or not 0 < len(found) == len(form.positions) == len(form.bounds) <= 2:
        return ()
    return tuple(found) if found[-1].stride == 1 and found[-1].step <= SHUFFLED_STRIDES else ()


@dataclass(frozen=True)
class LineBuffer:
    """A line buffer for a convolution.

    Where `used` holds, a block has up to `panels` panels, and a chunk `channels` channels
    with `steps` k-steps.
    """

    dimensions: tuple[_WindowDimension, ...]
    tile: Tile
    channels: Size
    steps: int
    used: Condition = NEVER
    panels: Size = field(default_factory=lambda: as_size(1))

    @property
    def rows(self) -> Size:
        """Number of rows of the result."""
        return product(dimension.position.extent for dimension in self.dimensions[:-1])

    @property
    def filled(self) -> Size:
        """Columns of a row that is filled up to whole vectors."""
        return align_up(self.dimensions[-1].position.extent, self.tile.lanes)

    @property
    def reaching(self) -> Size:
        """Columns of a row with the reach of windows, at least one vector."""
        last = self.dimensions[-1]
        return maximum(last.position.extent + last.reach // last.step, self.tile.lanes)

    @property
    def width(self) -> Size:
        """Columns of a row: the smaller variant."""
        return minimum(self.filled, self.reaching)

    @property
    def line(self) -> Size:
        """Elements between rows of a phase."""
        last = self.dimensions[-1]
        padding = align_up(last.reach // last.step, self.tile.lanes)
        return self.width + at_least(self.reaching, self.filled).where(padding, 0)

    @property
    def phases(self) -> int:
        return math.prod(dimension.step for dimension in self.dimensions)

    @property
    def further(self) -> int:
        """Rows of a phase that adjacent rows of the result share, and the row where vectors end."""
        return 1 + sum(dimension.reach // dimension.step for dimension in self.dimensions[:-1])


def line_buffer_of(
    form: ConvolutionForm, given: ConvolutionForm, tile: Tile, panels: int, max_k: int,
    max_bytes: int, version: str = ANY,
) -> LineBuffer | None:  # fmt: skip
    """Return the line buffer of a form, for blocks of at least `panels`; None if there is none.

    It has at most `max_k` k-steps and `max_bytes`. Its use must not depend on the batch: it
    determines the chunks of channels, and they determine the bits.
    """
    dimensions = _window_dimensions(form, given)
    window, rows = given.window.constant, form.rows.constant
    channels = form.channels.extent.constant
    if not dimensions or not window or not rows or rows % tile.rows or not channels:
        return None
    max_k = max(min(max_k, _MAX_K), window)
    each = ceil_div(channels, ceil_div(channels, max_k // window))
    buffer = LineBuffer(dimensions, tile, each, (each * window).constant or 0)
    row = maximum(each * (buffer.phases * form.dtype.bytes) * buffer.line, 1)
    lines = as_size(max_bytes) // row - buffer.further
    fitting = (lines - 1) * buffer.width // tile.width  # a block may begin and end within a row
    filled = ceil_div(buffer.rows * buffer.width, tile.lanes) * (rows * window + _COPIED)
    masks = min(_MASKS // max(each.constant or 0, 1), _PACKED)
    each_tap = rows + (_PACKED + masks) * (1 + dimensions[-1].step)
    packed = ceil_div(form.columns, tile.lanes) * each_tap * window
    used = condition(packed, ">", filled) & at_least(form.columns, tile.width // 2 + 1)
    used = taken_where(
        version, "line_buffer", used & at_least(fitting, panels), at_least(fitting, 1)
    )
    if window > _MAX_K or used == NEVER:
        return None
    return replace(buffer, used=used, panels=minimum(fitting, panels * PANELS))


class LineBufferPack(WindowPack):
    """Writes the functions that fill a line buffer and its table."""

    def __init__(
        self, form: ConvolutionForm, buffer: LineBuffer, sizes: SizeParameters, skips_taps: bool
    ) -> None:
        super().__init__(form, sizes, buffer.tile.lanes, 0, False, skips_taps)
        self.buffer = buffer

    def function(self) -> ir.Function:
        """Return `band`, which fills the buffer with all channels from `x_at` on.

        It copies `lines` rows of each phase, from the first one that row `row` of the result reads.
        """
        self.code = Writer()
        code, value, buffer = self.code, self.sizes.value, self.buffer
        line, last = value(buffer.line), buffer.dimensions[-1]
        plane = code.let(variable("lines") * line)
        steps = [range(dimension.step) for dimension in buffer.dimensions]
        with code.range(0, PACK.channels) as channel, code.range(0, line, self.lanes) as i:
            x = code.let(PACK.x_at + channel * value(self.form.channels.x))
            to = code.let(channel * plane * buffer.phases + i)
            valid = code.let(first_lanes(line - i, self.lanes))
            for phase, firsts in enumerate(every(*steps)):
                ends = code.let(x + (i * last.step + firsts[-1])), code.let(to + plane * phase)
                self._phase(*ends, firsts, i, valid)
        return self._make_function("band", ("x", "dst"), ("x_at", "row", "lines", "channels"))

    def _phase(
        self, x: ir.Value, to: ir.Value, firsts: Sequence[int], i: ir.Value, valid: ir.Value
    ) -> None:
        """Copy the vector from `i` on of all rows of the phase that starts at `firsts`."""
        code, value, lines = self.code, self.sizes.value, variable("lines")
        *above, last = self.buffer.dimensions
        line = value(self.buffer.line)
        row_stride: ir.Value = constant(0)
        first, stop = row_stride, row_stride + lines
        for dimension, position in zip(above, firsts):
            begin = code.let(variable("row") * dimension.step + position)
            row_stride = code.let(value(dimension.stride) * dimension.step)
            x = code.let(x + begin * value(dimension.stride))
            at = value(dimension.bound.constant) + begin
            ends = (0 - at, value(dimension.bound.extent) - at)
            first, stop = (
                code.let(least(quotient_up(greatest(end, 0), dimension.step), lines))
                for end in ends
            )
        self.load_masks = self._inside_of(last.bound, code.let(i * last.step + firsts[-1]))
        zero = number(self.form.dtype, 0, self.lanes)
        for low, high in ((constant(0), first), (stop, lines)):
            with code.range(low, high) as row:
                code.emit(ir.Store("dst", to + row * line, zero, valid))
        with code.range(first, stop) as row:
            found = self._load_positions(code.let(x + row * row_stride))
            code.emit(ir.Store("dst", to + row * line, found, valid))

    def _inside_of(self, bound: Bound, further: ir.Value) -> list[ir.Value]:
        """Return the masks of a vector of positions, `further` after the first one of a row."""
        at = self.code.let(self.sizes.value(bound.constant) + further)
        ends = (0 - at, self.sizes.value(bound.extent) - at)
        low, high = (quotient_up(greatest(end, 0), self.stride) for end in ends)
        return self._masks(least(low, self.lanes), least(high, self.lanes))

    def steps(self) -> ir.Function:
        """Return `steps`, which writes the distances of k-steps for a buffer with `lines` rows.

        They are stored after the slots of a tile's vectors.
        """
        self.code = Writer()
        code, value, buffer = self.code, self.sizes.value, self.buffer
        at, line = code.variable(buffer.tile.vectors * ENTRY), value(buffer.line)
        plane = code.let(variable("lines") * line)
        with code.range(0, PACK.channels) as channel, self._over(self.form.taps):
            phase: ir.Value = channel
            found: ir.Value = constant(0)
            for dimension in buffer.dimensions:
                along = code.let(self.taps[dimension.tap.name] * dimension.spread)
                moved = code.let(quotient(along, dimension.step))
                phase = phase * dimension.step + (along - moved * dimension.step)
                found = found * line + moved
            code.emit(ir.Store("table", at(), phase * plane + found))
            at += 1
        own = (each.name for each in VALID_TAPS) if self.skips_taps else ()
        return self._make_function("steps", ("table",), ("lines", "channels", *own))

    def head(self) -> ir.Function:
        """Return `head`, which writes the ENTRY slots of each vector from `column` on.

        The offset in the buffer, which begins with row `row`; the output position of the first
        lane, and the lane count; the output position of lanes in the next row, their first and stop
        lane.
        """
        self.code = Writer()
        code, value, buffer = self.code, self.sizes.value, self.buffer
        own, width = value(buffer.dimensions[-1].position.extent), value(buffer.width)
        for vector in range(buffer.tile.vectors):
            column = code.let(PACK.column + vector * self.lanes)
            row = code.let(quotient(column, width))
            along = code.let(column - row * width)
            begin = (row - variable("row")) * value(buffer.line) + along
            position, from_lane = row * own + along, width - along
            more = select(row + 1 < value(buffer.rows), own, 0)
            entry = (
                begin,
                position,
                own - along,
                position + own - width,
                from_lane,
                from_lane + more,
            )
            for n, each in enumerate(entry):
                code.emit(ir.Store("table", constant(vector * ENTRY + n), each))
        return self._make_function("head", ("table",), ("column", "row"))

    def _make_function(
        self, name: str, pointers: tuple[str, ...], scalars: tuple[str, ...]
    ) -> ir.Function:
        own = (ir.Pointer(n, int64 if n == "table" else self.form.dtype) for n in pointers)
        sizes = map(ir.Scalar, (*scalars, *self.sizes.names))
        return ir.Function(name, (*own, *sizes), self.code.written)


@dataclass(frozen=True)
class LineBufferSteps:
    """The steps of a kernel that fill a line buffer and address its vectors; empty without one."""

    buffer: LineBuffer | None
    sizes: SizeParameters
    functions: tuple[ir.Function, ...]  # `band`, `steps` and `head`
    skips_taps: bool

    @property
    def _used(self) -> Condition:
        return NEVER if self.buffer is None else self.buffer.used

    def choose(self, buffer: Sequence[ir.Step], panels: Sequence[ir.Step]) -> list[ir.Step]:
        """Return `buffer` where the line buffer is used, and `panels` elsewhere."""
        if self._used.constant is not None:
            return [*(buffer if self._used.constant else panels)]
        return [ir.If(ir.Var(ir.FLAG, "banded"), tuple(buffer), tuple(panels))]

    @property
    def _used_value(self) -> ir.Value:
        return self.sizes.holds(self._used)

    def start(self) -> list[ir.Step]:
        """Return the declaration of the table."""
        if self.buffer is None:
            return []
        return [ir.Stack("table", int64, ENTRY * self.buffer.tile.vectors + self.buffer.steps)]

    def enter(self, max_panels: ir.Value) -> tuple[list[ir.Step], ir.Value]:
        """Return the flag of its use, and the panels of a block (`max_panels` without a buffer)."""
        if self.buffer is None:
            return [], max_panels
        used, panels = self._used_value, self.sizes.value(self.buffer.panels)
        return [ir.Let("banded", used)], select(used, panels, max_panels)

    def make(self) -> list[ir.Step]:
        """Return the call that copies the rows of x of a block of columns."""
        if self.buffer is None:
            return []
        dst = ir.Address("scratch", constant(0))
        return [call(self.functions[0], dst=dst, row=self._first_row, lines=self._lines)]

    def unknown(self) -> list[ir.Step]:
        """Return declarations that mark the table as empty."""
        return [ir.Declare(name, constant(-1)) for name in _KNOWN if self.buffer is not None]

    @property
    def _lines(self) -> ir.Value:
        """Rows of each phase."""
        assert self.buffer is not None
        rows = quotient(LOOP.columns - 1, self._width) + 1 - self._first_row
        return rows + self.buffer.further

    def head(self) -> list[ir.Step]:
        """Write the slots of a panel's vectors, and the k-steps unless the table has its taps."""
        if self.buffer is None:
            return []
        _, table, head = self.functions
        now = [*VALID_TAPS] if self.skips_taps else [constant(0), constant(0)]
        first, last = (register(known).differs(at) for known, at in zip(_KNOWN, now))
        notes = (ir.Assign(known, at) for known, at in zip(_KNOWN, now))
        return [
            call(head, row=self._first_row),
            ir.If(first | last, (*notes, call(table, lines=self._lines))),
        ]

    def output_position(self, column: ir.Value) -> ir.Value:
        """Return the output positions before a column of padded rows."""
        assert self.buffer is not None
        row = quotient(column, self._width)
        extent = self.sizes.value(self.buffer.dimensions[-1].position.extent)
        return row * extent + least(column - row * self._width, extent)

    def row(self, row: ir.Value) -> ir.Value:
        """Return the columns of a row of the outermost positions; `row` for panels."""
        if self.buffer is None or not self.buffer.dimensions[1:]:
            return row
        return select(self._used_value, self._width, row)

    @property
    def _width(self) -> ir.Value:
        """Columns of a padded row."""
        assert self.buffer is not None
        return self.sizes.value(self.buffer.width)

    @property
    def _first_row(self) -> ir.Value:
        """The first row of a block of columns."""
        return quotient(LOOP.column0, self._width)


def line_buffer_steps(
    buffer: LineBuffer | None, form: ConvolutionForm, kernel: Blocked, skips_taps: bool
) -> LineBufferSteps:
    """Return the line buffer of a kernel; adds its functions and libraries to the kernel."""
    if buffer is None:
        return LineBufferSteps(None, kernel.sizes, (), skips_taps)
    pack = LineBufferPack(form, buffer, kernel.sizes, skips_taps)
    functions = tuple(
        kernel.with_all_sizes(write) for write in (pack.function, pack.steps, pack.head)
    )
    for library in line_buffer_libraries(kernel.tile, form.dtype):
        kernel.needs(library)
    return LineBufferSteps(buffer, kernel.sizes, functions, skips_taps)
