"""The transforms of Winograd's F(4 x 4, 3 x 3): windows of 6 x 6 to 36 products and back.

    V = B' d B     d: 6 x 6 elements of x, of which adjacent windows share 2
    Y = A' M A     M: 36 sums of products, Y: 4 x 4 results

Lanes are windows along a row of the result. Elements 4 apart along x are loaded contiguously and
deinterleaved by shuffles; results are interleaved again. Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import (
    constant,
    fma,
    greatest,
    least,
    number,
    operate,
    shuffle,
    variable,
)
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.tile_epilogue import TileEpilogue
from anydim.compiler.kernels.matmul.window_geometry import Bound, WindowAxis
from anydim.sizes import Size, as_size, ceil_div

STEP, REACH, PRODUCTS = 4, 6, 36  # results and elements of x along a side, sums of products
WEIGHTS = (
    (1 / 4, 0.0, 0.0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0.0, 0.0, 1.0),
)


def windows_across(form: ConvolutionForm) -> tuple[Size, Size]:
    """Return the windows down and along the result."""
    rows, columns = (ceil_div(step.extent, STEP) for step in form.positions)
    return rows, columns


def first_position(bounds: Sequence[Bound], axis: WindowAxis) -> Size:
    """Return the position in x of the first tap of an output axis."""
    return next((b.constant for b in bounds if b.position == axis.name), as_size(0))


def input_extent(bounds: Sequence[Bound], axis: WindowAxis) -> Size:
    """Return the positions of x along an output axis; without padding, those that windows read."""
    found = (b.extent for b in bounds if b.position == axis.name)
    return next(found, axis.extent + (REACH - STEP))


@dataclass(frozen=True)
class VectorEpilogue:
    """The parts of an epilogue for vectors: flags of bias and addend, limits by function."""

    bias: bool
    more: bool
    limits: tuple[tuple[str, ir.Const], ...]

    @staticmethod
    def of(epilogue: TileEpilogue, dtype: DType, lanes: int) -> VectorEpilogue:
        limits = (("max", epilogue.low), ("min", epilogue.high))
        numbers = tuple((f, number(dtype, each, lanes)) for f, each in limits if each is not None)
        return VectorEpilogue(epilogue.bias is not None, epilogue.more is not None, numbers)


class Transforms:
    """Transforms vectors of 6 values, step by step."""

    def __init__(self, dtype: DType, lanes: int) -> None:
        self.code = Writer()
        self.dtype, self.lanes = dtype, lanes
        self.vector = ir.Type(dtype, lanes)

    def load(
        self, buffer: str, at: ir.Value, mask: ir.Value | None = None, lanes: int = 0
    ) -> ir.Value:
        """Load a vector, or `lanes` lanes, into a variable."""
        return self.code.let(ir.Load(ir.Type(self.dtype, lanes or self.lanes), buffer, at, mask))

    def weighted_sum(self, *terms: tuple[int, ir.Value]) -> ir.Value:
        """Return the sum of factor * value; factors other than 1 and -1 use multiply-adds."""
        (factor, total), *rest = sorted(terms, key=lambda term: term[0] != 1)
        assert factor == 1
        for factor, value in rest:
            if factor in (1, -1):
                total = total + value if factor == 1 else total - value
            else:
                total = fma(value, number(self.dtype, factor, self.lanes), total)
            total = self.code.let(total)
        return total

    def spread(self, d: Sequence[ir.Value]) -> list[ir.Value]:
        """Return B' d for six values."""
        # Rows of B' that differ in a sign share the sums a and b, or c and e.
        a, b = (self.weighted_sum((1, d[n]), (-4, d[n - 2])) for n in (4, 3))
        c, e = (self.weighted_sum((1, d[n]), (-1, d[n - 2])) for n in (4, 3))
        return [
            self.weighted_sum((1, d[4]), (4, d[0]), (-5, d[2])),
            *(self.weighted_sum((1, a), (sign, b)) for sign in (1, -1)),
            *(self.weighted_sum((1, c), (twice, e)) for twice in (2, -2)),
            self.weighted_sum((1, d[5]), (4, d[1]), (-5, d[3])),
        ]

    def transform_results(self, m: Sequence[ir.Value]) -> list[ir.Value]:
        """Return A' m for six values."""
        a, b, c, e = (
            self.weighted_sum((1, m[n]), (sign, m[n + 1])) for n in (1, 3) for sign in (1, -1)
        )
        return [
            self.weighted_sum((1, m[0]), (1, a), (1, c)),
            self.weighted_sum((1, b), (2, e)),
            self.weighted_sum((1, a), (4, c)),
            self.weighted_sum((1, b), (1, m[5]), (8, e)),
        ]

    def apply_epilogue(
        self, epilogue: VectorEpilogue, found: ir.Value, bias: ir.Value, more: ir.Value
    ) -> ir.Value:
        """Apply the parts of an epilogue to the results."""
        for value, present in ((bias, epilogue.bias), (more, epilogue.more)):
            if present:
                found = self.code.let(found + value)
        for function, limit in epilogue.limits:
            found = self.code.let(operate(function, found, limit))
        return found


@dataclass(frozen=True)
class _Windows:
    """A vector of windows: their row, the first one's index in it and in the panel, their count."""

    line: ir.Value
    index: ir.Value
    to: ir.Value
    count: ir.Value


class _Lines(Transforms, ABC):
    """A function over the windows from `column` on, row by row, a vector at a time."""

    name: str
    scalars: tuple[str, ...]

    def __init__(self, form: ConvolutionForm, sizes: SizeParameters, lanes: int) -> None:
        super().__init__(form.dtype, lanes)
        self.form, self.sizes = form, sizes

    @abstractmethod
    def pointers(self) -> list[ir.Pointer]:
        """Return the first parameters; `scalars` and sizes follow."""

    @abstractmethod
    def vectors(self, windows: _Windows) -> None:
        """Emit the code of a vector of windows."""

    def function(self) -> ir.Function:
        code, along = self.code, self.sizes.value(windows_across(self.form)[1])
        column, end = variable("column"), variable("column") + variable("width")
        with code.range(quotient(column, along), quotient(end - 1, along) + 1) as line:
            start = code.let(line * along)
            stop = code.let(least(end, start + along))
            with code.range(greatest(column, start), stop, self.lanes) as at:
                count = code.let(least(stop - at, self.lanes))
                self.vectors(_Windows(line, code.let(at - start), code.let(at - column), count))
        scalars = map(ir.Scalar, (*self.scalars, *self.sizes.names))
        return ir.Function(self.name, (*self.pointers(), *scalars), code.written)


class Spread(_Lines):
    """The function `spread`: V of a panel of windows, [36][channels][row] in `dst`."""

    name, scalars = "spread", ("x_unit", "column", "width")

    def __init__(self, form: ConvolutionForm, sizes: SizeParameters, lanes: int, row: int) -> None:
        super().__init__(form, sizes, lanes)
        self.row = row

    def pointers(self) -> list[ir.Pointer]:
        return [ir.Pointer(name, self.dtype) for name in ("x", "dst")]

    def vectors(self, windows: _Windows) -> None:
        code, value, form = self.code, self.sizes.value, self.form
        down = code.let(value(first_position(form.bounds, form.positions[0])) + windows.line * STEP)
        across = code.let(
            value(first_position(form.bounds, form.positions[1])) + windows.index * STEP
        )
        height, width = (value(input_extent(form.bounds, axis)) for axis in form.positions)
        low = code.let(greatest(0 - across, 0))
        limit = windows.count * STEP + (REACH - STEP)
        high = code.let(least(width - across, limit))
        masks = []
        for part in range(STEP + 1):
            after, before = (first_lanes(at - part * self.lanes, self.lanes) for at in (high, low))
            masks.append(code.let(after & ~before))
        rows = [code.let((down + i >= 0) & (down + i < height)) for i in range(REACH)]
        # Stores reach to the end of the panel; the next row of windows overwrites the excess.
        padding = code.let(first_lanes(self.row - windows.to, self.lanes))
        start = windows.line * value(form.positions[0].x * STEP) + windows.index * STEP
        start = code.let(variable("x_unit") + start)
        with code.range(0, value(form.channels.extent)) as channel:
            x = code.let(start + channel * value(form.channels.x))
            to = windows.to + channel * self.row
            self._one(x, code.let(to), masks, rows, padding)

    def _one(
        self, x: ir.Value, to: ir.Value, masks: Sequence[ir.Value], rows: Sequence[ir.Value],
        padding: ir.Value,
    ) -> None:  # fmt: skip
        """Transform one channel: rows as they are loaded, then columns."""
        code, value, half = self.code, self.sizes.value, []
        for i, in_bounds in enumerate(rows):
            at = code.let(x + value(self.form.taps[0].x) * i)
            loads = [
                self.load("x", at + part * self.lanes, mask & in_bounds)
                for part, mask in enumerate(masks)
            ]
            half.append(self.spread(self._deinterleave(loads)))
        step = value(self.form.channels.extent * self.row)
        for j, column in enumerate(zip(*half)):
            for i, each in enumerate(self.spread(column)):
                code.emit(ir.Store("dst", to + step * (i * REACH + j), each, padding))

    def _deinterleave(self, loads: Sequence[ir.Value]) -> list[ir.Value]:
        """Return elements 4 * lane + j for j in 0..5, out of 4 * lanes + 2 consecutive elements."""
        even, odd = (tuple(range(start, 2 * self.lanes, 2)) for start in (0, 1))

        def select(left: ir.Value, right: ir.Value, lanes: tuple[int, ...]) -> ir.Value:
            return self.code.let(shuffle(left, right, lanes))

        pairs = [[select(loads[n], loads[n + 1], each) for n in (0, 2)] for each in (even, odd)]
        parts = [select(left, right, each) for each in (even, odd) for left, right in pairs]
        for j in range(REACH - STEP):
            parts.append(select(parts[j], loads[STEP], (*range(1, self.lanes), self.lanes + j)))
        return parts


class Collect(_Lines):
    """The function `collect`: results of one row of sums, [36] apart by `sums_step`, to y."""

    name, scalars = "collect", ("y_at", "more_at", "column", "width", "sums_step")

    def __init__(
        self, form: ConvolutionForm, sizes: SizeParameters, lanes: int, epilogue: TileEpilogue
    ) -> None:
        super().__init__(form, sizes, lanes)
        self.epilogue = VectorEpilogue.of(epilogue, form.dtype, lanes)

    def pointers(self) -> list[ir.Pointer]:
        return [ir.Pointer(n, self.dtype, alias=n != "sums") for n in ("sums", "y", "bias", "more")]

    def vectors(self, windows: _Windows) -> None:
        code, value, positions, half = self.code, self.sizes.value, self.form.positions, []
        for j in range(REACH):
            steps = [variable("sums_step") * (i * REACH + j) for i in range(REACH)]
            half.append(
                self.transform_results([self.load("sums", windows.to + at) for at in steps])
            )
        first = code.let(windows.index * STEP)
        remaining = code.let(least(windows.count * STEP, value(positions[1].extent) - first))
        masks = [
            code.let(first_lanes(remaining - part * self.lanes, self.lanes)) for part in range(STEP)
        ]
        for i, values in enumerate(zip(*half)):
            row = windows.line * STEP + i
            with code.when(row < value(positions[0].extent)):
                self._row(code.let(row * value(positions[1].extent) + first), values, masks)

    def _row(self, first: ir.Value, values: Sequence[ir.Value], masks: list[ir.Value]) -> None:
        """Store a row of the results, at offset `first` in y."""
        bias = ir.Load(ir.Type(self.dtype), "bias", constant(0)).spread(self.lanes)
        for part, found in enumerate(self._interleave(self.transform_results(values))):
            at, mask = first + part * self.lanes, masks[part]
            more = ir.Load(self.vector, "more", variable("more_at") + at, mask)
            done = self.apply_epilogue(self.epilogue, found, bias, more)
            self.code.emit(ir.Store("y", variable("y_at") + at, done, mask))

    def _interleave(self, y: Sequence[ir.Value]) -> list[ir.Value]:
        """Interleave four vectors of every fourth result."""
        half = self.lanes // 2

        def interleave_pair(left: ir.Value, right: ir.Value, start: int) -> ir.Value:
            lanes = tuple(n for k in range(half) for n in (start + k, self.lanes + start + k))
            return self.code.let(shuffle(left, right, lanes))

        found: list[ir.Value] = []
        for outer in (0, half):
            pairs = [interleave_pair(y[n], y[n + 2], outer) for n in (0, 1)]
            found += [interleave_pair(pairs[0], pairs[1], inner) for inner in (0, half)]
        return found
