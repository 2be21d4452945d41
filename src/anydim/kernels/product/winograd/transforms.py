"""The transforms of Winograd's F(4 x 4, 3 x 3): windows of 6 x 6 to 36 products and back.

    V = B' d B     d: 6 x 6 elements of x, of which neighbouring windows share 2
    Y = A' M A     M: 36 sums of products, Y: 4 x 4 results

Lanes are windows along a row of the result. What steps by 4 along x is loaded as it lies and
shuffled apart; results are shuffled together again. Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.product.convolution.ending import Ending
from anydim.kernels.product.convolution.form import Windows
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient,
    times,
    variable,
)
from anydim.kernels.write.elements import SizeParameters
from anydim.kernels.write.values import number, operate, splat
from anydim.sizes import Size, as_size, ceil_div

STEP, REACH, PRODUCTS = 4, 6, 36  # results along a side, elements of x, sums of products
WEIGHTS = (
    (1 / 4, 0.0, 0.0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0.0, 0.0, 1.0),
)
SPREAD_SCALARS = ("x_unit", "column", "width")
COLLECT_SCALARS = ("y_at", "more_at", "column", "width", "sums_step")


def windows_across(form: Windows) -> tuple[Size, Size]:
    """Windows down and along the result."""
    rows, columns = (ceil_div(step.extent, STEP) for step in form.places)
    return rows, columns


@dataclass(frozen=True)
class End:
    """What there is of an ending, for vectors: whether a bias and more are added, and the limits
    as functions of numbers."""

    bias: bool
    more: bool
    limits: tuple[tuple[str, ir.Const], ...]

    @staticmethod
    def of(ending: Ending, dtype: DType, lanes: int) -> End:
        limits = (("max", ending.low), ("min", ending.high))
        numbers = tuple((f, number(dtype, each, lanes)) for f, each in limits if each is not None)
        return End(ending.bias is not None, ending.more is not None, numbers)


class Transforms:
    """Vectors of 6 values transformed, step by step."""

    def __init__(self, dtype: DType, lanes: int) -> None:
        self.lanes = lanes
        self.vector = ir.Type(dtype, lanes)
        self.made = 0

    def name(self, steps: list[ir.Step], value: ir.Value) -> ir.Var:
        """Name a value."""
        self.made += 1
        steps.append(ir.Let(f"v{self.made}", value))
        return ir.Var(value.type, f"v{self.made}")

    def combined(self, steps: list[ir.Step], terms: Sequence[tuple[float, ir.Value]]) -> ir.Value:
        """The sum of factor * value, with multiply-adds where a factor is not 1 or -1."""
        total: ir.Value | None = None
        for factor, value in sorted(terms, key=lambda term: term[0] != 1):
            if total is None and factor == 1:
                total = value
            elif total is None:
                total = self.name(steps, operate("mul", value, self._number(factor)))
            elif factor in (1, -1):
                function = "add" if factor == 1 else "sub"
                total = self.name(steps, operate(function, total, value))
            else:
                total = self.name(steps, operate("fma", value, self._number(factor), total))
        assert total is not None
        return total

    def _number(self, value: float) -> ir.Const:
        return number(self.vector.dtype, value, self.lanes)

    def spread(self, steps: list[ir.Step], d: Sequence[ir.Value]) -> list[ir.Value]:
        """B' d for six values."""
        a = self.combined(steps, [(1, d[4]), (-4, d[2])])
        b = self.combined(steps, [(1, d[3]), (-4, d[1])])
        c = self.combined(steps, [(1, d[4]), (-1, d[2])])
        e = self.combined(steps, [(1, d[3]), (-1, d[1])])
        return [
            self.combined(steps, [(1, d[4]), (4, d[0]), (-5, d[2])]),
            self.combined(steps, [(1, a), (1, b)]),
            self.combined(steps, [(1, a), (-1, b)]),
            self.combined(steps, [(1, c), (2, e)]),
            self.combined(steps, [(1, c), (-2, e)]),
            self.combined(steps, [(1, d[5]), (4, d[1]), (-5, d[3])]),
        ]

    def collected(self, steps: list[ir.Step], m: Sequence[ir.Value]) -> list[ir.Value]:
        """A' m for six values."""
        a = self.combined(steps, [(1, m[1]), (1, m[2])])
        b = self.combined(steps, [(1, m[1]), (-1, m[2])])
        c = self.combined(steps, [(1, m[3]), (1, m[4])])
        e = self.combined(steps, [(1, m[3]), (-1, m[4])])
        return [
            self.combined(steps, [(1, m[0]), (1, a), (1, c)]),
            self.combined(steps, [(1, b), (2, e)]),
            self.combined(steps, [(1, a), (4, c)]),
            self.combined(steps, [(1, b), (1, m[5]), (8, e)]),
        ]

    def ended(
        self, steps: list[ir.Step], end: End, found: ir.Value, bias: ir.Value, more: ir.Value
    ) -> ir.Value:
        """The results with as much of an ending as there is."""
        for value, wanted in ((bias, end.bias), (more, end.more)):
            if wanted:
                found = self.name(steps, operate("add", found, value))
        for function, limit in end.limits:
            found = self.name(steps, operate(function, found, limit))
        return found


class _Lines(Transforms):
    """A loop over the windows from `column` on, row by row, a vector at a time."""

    def __init__(self, form: Windows, sizes: SizeParameters, lanes: int) -> None:
        super().__init__(form.dtype, lanes)
        self.form, self.sizes = form, sizes

    def over(self, *body: ir.Step) -> ir.For:
        """`line` is the row of windows, `place` the first window's place in it, `count` many."""
        along = self.sizes.value(windows_across(self.form)[1])
        end = plus(variable("column"), variable("width"))
        start = times(variable("line"), along)
        stop = least(end, plus(variable("line_start"), along))
        vectors = loop(
            "at", greatest(variable("column"), variable("line_start")), variable("stop"),
            self.lanes,
            ir.Let("place", minus(variable("at"), variable("line_start"))),
            ir.Let("count", least(minus(variable("stop"), variable("at")), self.lanes)),
            ir.Let("to", minus(variable("at"), variable("column"))),
            *body,
        )  # fmt: skip
        return loop(
            "line", quotient(variable("column"), along),
            plus(quotient(minus(end, constant(1)), along), 1), 1,
            ir.Let("line_start", start),
            ir.Let("stop", stop),
            vectors,
        )  # fmt: skip


class Spread(_Lines):
    """The function `spread`: V of a panel of windows, [36][channels][row] in `dst`."""

    def __init__(self, form: Windows, sizes: SizeParameters, lanes: int, row: int) -> None:
        super().__init__(form, sizes, lanes)
        self.row = row

    def function(self) -> ir.Function:
        value, form = self.sizes.value, self.form
        steps: list[ir.Step] = []
        first = [self._first(axis) for axis in (0, 1)]
        steps.append(ir.Let("down", plus(value(first[0]), times(variable("line"), STEP))))
        steps.append(ir.Let("across", plus(value(first[1]), times(variable("place"), STEP))))
        extents = [value(self._extent(axis)) for axis in (0, 1)]
        low = greatest(minus(constant(0), variable("across")), 0)
        most = plus(times(variable("count"), STEP), REACH - STEP)
        high = least(minus(extents[1], variable("across")), most)
        steps += [ir.Let("low", low), ir.Let("high", high)]
        masks = []
        for part in range(STEP + 1):
            after = first_lanes(minus(variable("high"), constant(part * self.lanes)), self.lanes)
            before = first_lanes(minus(variable("low"), constant(part * self.lanes)), self.lanes)
            masks.append(self.name(steps, operate("and", after, operate("not", before))))
        rows = []
        for i in range(REACH):
            at = plus(variable("down"), i)
            inside = ir.Op(
                ir.FLAG, "and",
                (compare("greater_equal", at, 0), compare("less", at, extents[0])),
            )  # fmt: skip
            rows.append(self.name(steps, inside))
        left = minus(constant(self.row), variable("to"))
        room = self.name(steps, first_lanes(left, self.lanes))
        start = plus(
            variable("x_unit"),
            times(variable("line"), value(form.places[0].x * STEP)),
            times(variable("place"), STEP),
        )
        steps.append(ir.Let("x_vector", start))
        one = self._one(masks, rows, room)
        steps.append(loop("channel", 0, value(form.channels.extent), 1, *one))
        return ir.Function(
            "spread",
            (
                ir.Pointer("x", form.dtype),
                ir.Pointer("dst", form.dtype),
                *(ir.Scalar(name) for name in (*SPREAD_SCALARS, *self.sizes.names)),
            ),
            (self.over(*steps),),
        )

    def _first(self, axis: int) -> Size:
        """The position in x of the first place's first tap."""
        name = self.form.places[axis].name
        return next((b.constant for b in self.form.bounds if b.place == name), as_size(0))

    def _extent(self, axis: int) -> Size:
        """Positions of x along an axis; without padding, those that windows reach."""
        step = self.form.places[axis]
        found = (b.extent for b in self.form.bounds if b.place == step.name)
        return next(found, step.extent + (REACH - STEP))

    def _one(self, masks: list[ir.Var], rows: list[ir.Var], room: ir.Var) -> list[ir.Step]:
        """One channel: rows transformed as they come, then columns."""
        value, form = self.sizes.value, self.form
        at = plus(variable("x_vector"), times(variable("channel"), value(form.channels.x)))
        steps: list[ir.Step] = [ir.Let("x_channel", at)]
        half = []
        for i in range(REACH):
            row = plus(variable("x_channel"), times(value(form.taps[0].x), i))
            at_row = self.name(steps, row)
            loads = []
            for part, mask in enumerate(masks):
                both = operate("and", mask, splat(rows[i], self.lanes))
                load = ir.Load(self.vector, "x", plus(at_row, part * self.lanes), both)
                loads.append(self.name(steps, load))
            half.append(self.spread(steps, self._apart(steps, loads)))
        target = plus(variable("to"), times(variable("channel"), self.row))
        to = self.name(steps, target)
        step = value(form.channels.extent * self.row)
        for j in range(REACH):
            column = self.spread(steps, [half[i][j] for i in range(REACH)])
            for i in range(REACH):
                place = plus(to, times(step, i * REACH + j))
                steps.append(ir.Store("dst", place, column[i], room))
        return steps

    def _apart(self, steps: list[ir.Step], loads: list[ir.Var]) -> list[ir.Value]:
        """Elements 4 * lane + j for j in 0..5, out of 4 * lanes + 2 elements in a row."""
        even = tuple(range(0, 2 * self.lanes, 2))
        odd = tuple(range(1, 2 * self.lanes, 2))

        def pick(left: ir.Value, right: ir.Value, lanes: tuple[int, ...]) -> ir.Var:
            return self.name(steps, ir.Shuffle(self.vector, left, right, lanes))

        evens = [pick(loads[n], loads[n + 1], even) for n in (0, 2)]
        odds = [pick(loads[n], loads[n + 1], odd) for n in (0, 2)]
        parts: list[ir.Value] = [
            pick(evens[0], evens[1], even),
            pick(odds[0], odds[1], even),
            pick(evens[0], evens[1], odd),
            pick(odds[0], odds[1], odd),
        ]
        for j in range(REACH - STEP):
            shifted = (*range(1, self.lanes), self.lanes + j)
            parts.append(pick(parts[j], loads[STEP], shifted))
        return parts


class Collect(_Lines):
    """The function `collect`: results of one row of sums, [36] apart by `sums_step`, into y."""

    def __init__(self, form: Windows, sizes: SizeParameters, lanes: int, ending: Ending) -> None:
        super().__init__(form, sizes, lanes)
        self.end = End.of(ending, form.dtype, lanes)

    def function(self) -> ir.Function:
        value, form = self.sizes.value, self.form
        steps: list[ir.Step] = []
        half = []
        for j in range(REACH):
            column = []
            for i in range(REACH):
                at = plus(variable("to"), times(variable("sums_step"), i * REACH + j))
                column.append(self.name(steps, ir.Load(self.vector, "sums", at)))
            half.append(self.collected(steps, column))
        first = times(variable("place"), STEP)
        left = minus(value(form.places[1].extent), variable("first"))
        steps += [
            ir.Let("first", first),
            ir.Let("left", least(times(variable("count"), STEP), left)),
        ]
        masks = []
        for part in range(STEP):
            here = minus(variable("left"), constant(part * self.lanes))
            masks.append(self.name(steps, first_lanes(here, self.lanes)))
        for i in range(STEP):
            steps += self._row(i, [half[j][i] for j in range(REACH)], masks)
        return ir.Function(
            "collect",
            (
                ir.Pointer("sums", form.dtype),
                ir.Pointer("y", form.dtype, alias=True),
                ir.Pointer("bias", form.dtype, alias=True),
                ir.Pointer("more", form.dtype, alias=True),
                *(ir.Scalar(name) for name in (*COLLECT_SCALARS, *self.sizes.names)),
            ),
            (self.over(*steps),),
        )

    def _row(self, i: int, values: list[ir.Value], masks: list[ir.Var]) -> list[ir.Step]:
        """Row i of the results, where the tensor has it."""
        value, form = self.sizes.value, self.form
        row = plus(times(variable("line"), STEP), i)
        along = value(form.places[1].extent)
        bias = splat(ir.Load(ir.Type(form.dtype), "bias", constant(0)), self.lanes)
        steps: list[ir.Step] = [ir.Let(f"place_{i}", plus(times(row, along), variable("first")))]
        for part, found in enumerate(self._together(steps, self.collected(steps, values))):
            at = plus(variable(f"place_{i}"), part * self.lanes)
            more = ir.Load(self.vector, "more", plus(variable("more_at"), at), masks[part])
            done = self.ended(steps, self.end, found, bias, more)
            steps.append(ir.Store("y", plus(variable("y_at"), at), done, masks[part]))
        return [ir.If(compare("less", row, value(form.places[0].extent)), tuple(steps))]

    def _together(self, steps: list[ir.Step], y: list[ir.Value]) -> list[ir.Value]:
        """Four vectors of every fourth result as results in a row."""
        half = self.lanes // 2

        def zipped(left: ir.Value, right: ir.Value, start: int) -> ir.Var:
            lanes = tuple(n for k in range(half) for n in (start + k, self.lanes + start + k))
            return self.name(steps, ir.Shuffle(self.vector, left, right, lanes))

        found: list[ir.Value] = []
        for outer in (0, half):
            pairs = [zipped(y[n], y[n + 2], outer) for n in (0, 1)]
            found += [zipped(pairs[0], pairs[1], inner) for inner in (0, half)]
        return found
