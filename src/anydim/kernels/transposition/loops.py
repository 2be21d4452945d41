"""The loops of a transposed copy: squares, or what is better for short axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import constant, greatest, least, operate, select, variable
from anydim.kernels.transposition.form import (
    LANES,
    TranspositionForm,
    block_of,
    blocks_of,
    parts_of,
)
from anydim.kernels.write.arithmetic import (
    first_lanes,
    quotient_up,
    round_down,
    split_index,
    summed,
)
from anydim.kernels.write.elements import Context, Elements
from anydim.kernels.write.loops import lines_ahead
from anydim.kernels.write.squares import PIECE, columns_of, unzipped, zipped
from anydim.kernels.write.writer import Writer
from anydim.lang.tree.affine import Affine
from anydim.sizes import Size

MOST_LANES = 16  # of small elements: squares of more do not fit into registers
FEW = (2, 3, 4, 8)  # columns that are brought together, or apart, by shuffles
_SQUARE = "square"
_LEAST_SQUARE = 8  # lanes; those of 4 are no faster than the masks of 8
_STRIP = {1: 128, 2: 128}  # lanes that are written before the next rows, by bytes; others: a line
_LINE = 64  # bytes
_UNROLLED = 4  # elements that go one by one

Way = tuple[ir.Value, Callable[[], None]]  # where it is better than squares, and what writes it


@dataclass(frozen=True)
class Pieces:
    """Writes pieces of work: all lanes of a block of rows, at one place of the outer axes.

    `vector` is of the source, with as many lanes as a square has; `made` of the target.
    """

    code: Writer
    form: TranspositionForm
    context: Context
    made: DType
    vector: ir.Type

    @property
    def _copies(self) -> bool:
        return self.form.value == self.form.read

    @property
    def _wide(self) -> ir.Type:
        """As much of the source as a register holds."""
        dtype = self.vector.dtype
        return ir.Type(dtype, self.context.machine.lanes(dtype))

    @property
    def _row_stride(self) -> ir.Value:
        """From one row of the target to the next."""
        return self._value(self.form.target.stride(self.form.row.name))

    def _value(self, size: Size) -> ir.Value:
        return self.context.sizes.value(size)

    def write(self) -> None:
        """All pieces, and room for a square whose elements go through a function."""
        if not self._copies:
            self.code.emit(ir.Stack(_SQUARE, self.vector.dtype, self.vector.lanes**2))
        with self.code.range(variable("start"), variable("stop"), name="unit"):
            self._piece()

    def _piece(self) -> None:
        code, value, form = self.code, self._value, self.form
        block = block_of(form, self.vector.dtype)
        blocks = value(blocks_of(form, self.vector.dtype))
        outer = ((axis.name, value(axis.extent)) for axis in reversed(form.outer))
        lane_step = value(form.source.stride(form.lane.name))
        code.take(split_index("unit", ("part", value(parts_of(form))), ("block", blocks), *outer))
        first = code.let(variable("part") * LANES, "lane_first")
        code.let(self._at(form.source) + first * lane_step, "source")
        code.let(self._at(form.target) + first, "target")
        low = code.let(variable("block") * value(block), "row0")
        code.let(_end(low, value(block), value(form.row.extent)), "row1")
        self._lanes()
        self._first_of(self._ways() if form.inside is None else [])

    def _lanes(self) -> None:
        """How many lanes a piece has, and how far apart they are in the source.

        Where there is one, those of the next axis of the target are neighbours there, and some
        pieces have all lanes of those behind them.
        """
        value, form = self._value, self.form
        extent = form.lane.extent
        width, step = value(extent), value(form.source.stride(form.lane.name))
        if not form.beside:
            first = variable("lane_first")
            width = _end(first, constant(LANES), width) - first
        elif extent.constant is None and form.inside is None:
            (axis,), each = form.beside, max(_STRIP.values())
            at, alone = variable(axis.name), width.equals(1)
            some = select((at & (each - 1)).equals(0), least(value(axis.extent) - at, each), 0)
            next_step = value(form.source.stride(axis.name))
            width, step = select(alone, some, width), select(alone, next_step, step)
        self.code.let(width, "width")
        self.code.let(step, "lane_step")

    # ---- ways ----------------------------------------------------------------------------------

    def _first_of(self, ways: list[Way]) -> None:
        """The first way whose condition holds; squares where there is none."""
        if not ways:
            self._squares()
            return
        (condition, way), *others = ways
        with self.code.when(condition):
            way()
        with self.code.otherwise():
            self._first_of(others)

    def _ways(self) -> list[Way]:
        """What is better than squares where axes are neighbours on both sides, or short."""
        least_filled = max(2, min(MOST_LANES, self._wide.lanes) // 4)
        width, height = variable("width"), self._value(self.form.row.extent)
        return [
            (self._row_stride.equals(1), partial(self._vectors, "row", "lane")),
            (variable("lane_step").equals(1), partial(self._vectors, "lane", "row")),
            *(self._ways_of_few() if self._copies else ()),
            (width < least_filled, partial(self._singly, "row", "lane")),
            (height < least_filled, partial(self._singly, "lane", "row")),
        ]

    def _ways_of_few(self) -> list[Way]:
        """Where a few rows lie together in the source, or a few lanes in the target."""
        row, lane, lanes = self.form.row.extent, self.form.lane.extent, self._wide.lanes
        width, height = variable("width"), self._value(row)
        fitting = [
            count for count in FEW if 2 * count <= lanes and (count < 4 or 4 * count <= lanes)
        ]
        ways, both = list[Way](), partial(operate, "and")
        for count in reversed([few for few in fitting if few != FEW[-1]]):
            if row.constant in (None, count):
                lie = both(height.equals(count), variable("lane_step").equals(count))
                ways.append((lie, partial(self._few, self._bring_apart, count, "lane", lanes)))
        for count in reversed(fitting):
            if lane.constant in (None, count):
                lie = both(width.equals(count), self._row_stride.equals(count))
                way = partial(self._few, self._bring_together, count, "row", lanes // count)
                ways.append((lie, way))
        return ways

    def _vectors(self, own: str, other: str) -> None:
        """Vectors as they are, along the axis whose elements are neighbours on both sides."""
        vector = self._wide if self._copies else self.vector
        low, high = self._ends(own)
        whole = low + round_down(high - low, vector.lanes)
        with self.code.range(*self._ends(other), name=other) as outer:
            for begin, end in ((low, whole), (whole, high)):
                with self.code.range(begin, end, vector.lanes, f"{own}_vector") as at:
                    mask = first_lanes(high - at, vector.lanes) if end is high else None
                    source, target = self._places(**{own: at, other: outer})
                    store = self._write(target, ir.Load(vector, "x", source, mask), mask)
                    self.code.take(lines_ahead([store]))

    def _singly(self, own: str, other: str) -> None:
        """Elements one by one, the longer axis inside."""
        kind = ir.Type(self.vector.dtype)
        low, high = self._ends(own)
        whole = low + round_down(high - low, _UNROLLED)
        with self.code.range(*self._ends(other), name=other) as outer:
            for begin, end, count in ((low, whole, _UNROLLED), (whole, high, 1)):
                with self.code.range(begin, end, count, own) as at:
                    for number in range(count):
                        source, target = self._places(**{own: at + number, other: outer})
                        self._write(target, ir.Load(kind, "x", source), None)

    def _few(
        self, move: Callable[[int, ir.Value, ir.Value | None], None], count: int, axis: str,
        step: int,
    ) -> None:  # fmt: skip
        """`move` whole vectors along an axis, then what is left of it.

        A vector of the target that holds no whole number of columns is written over by the next.
        """
        low, high = self._ends(axis)
        end = high - (self._wide.lanes - 1)
        rest = low + quotient_up(greatest(end - low, 0), step) * step
        with self.code.range(low, end, step, "p") as at:
            move(count, at, None)
        with self.code.range(rest, high, step, "p") as at:
            move(count, at, high - at)

    def _bring_together(self, count: int, row: ir.Value, left: ir.Value | None) -> None:
        """A vector of the target with `count` lanes of each row; `left` rows where it is last."""
        wide = self._wide
        step = wide.lanes // count
        kind = ir.Type(wide.dtype, step) if count & (count - 1) == 0 else wide
        some = mask = None
        if left is not None:
            some = first_lanes(least(left, step), kind.lanes)
            mask = first_lanes(least(least(left, step) * count, wide.lanes), wide.lanes)
        places = [self._places(row, constant(number)) for number in range(count)]
        loads = [ir.Load(kind, "x", source, some) for source, _ in places]
        made = zipped(wide, loads, self.code.let)
        self.code.emit(ir.Store("y", places[0][1], made, mask))

    def _bring_apart(self, count: int, lane: ir.Value, left: ir.Value | None) -> None:
        """Vectors of `count` rows of the target; `left` lanes of them where they are last."""
        wide, lanes = self._wide, self._wide.lanes
        masks: list[ir.Value | None] = [None] * count
        some = None
        if left is not None:
            joined = least(left * count, lanes * count)
            masks = [first_lanes(joined + -number * lanes, lanes) for number in range(count)]
            some = first_lanes(least(left, lanes), lanes)
        places = [self._places(constant(number), lane) for number in range(count)]
        source = places[0][0]
        loads = [ir.Load(wide, "x", source + n * lanes, mask) for n, mask in enumerate(masks)]
        columns = unzipped(wide, loads, self.code.let)
        stores = [ir.Store("y", to, column, some) for (_, to), column in zip(places, columns)]
        self.code.take([*stores, *lines_ahead(stores)])

    # ---- squares -------------------------------------------------------------------------------

    def _squares(self) -> None:
        """The piece in squares of vectors, row after row of them.

        The last ones of an axis lie over those before, or are masked where it is shorter than a
        vector or guarded.
        """
        code, form, lanes = self.code, self.form, self.vector.lanes
        low, high = variable("row0"), variable("row1")
        width: ir.Value = variable("width")
        inside, whole = width, select(width >= lanes, width, 0)
        if form.inside is not None:
            known = self._at(form.inside) - variable("lane_first")
            inside = least(width, greatest(known, 0))
            whole = round_down(inside, lanes)
        inside = code.let(inside, "inside")
        end = code.let(select(high - low >= lanes, whole, 0), "whole")
        bytes = self.vector.dtype.bytes
        each = max(lanes, _STRIP.get(bytes, _LINE // bytes))
        with code.range(0, end, each, "strip") as strip, code.range(low, high, lanes, "row") as row:
            self._ahead(code.let(least(row, high + -lanes), "k"), strip, each)
            with code.range(strip, least(end, strip + each), lanes, "lane") as lane:
                code.let(least(lane, end + -lanes) if form.inside is None else lane, "lane0")
                self._square("k")
        with code.range(end, width, lanes, "lane0") as lane:
            left = code.let(width - lane, "left")
            code.let(inside - lane, "known")
            half = lanes // 2
            if half < _LEAST_SQUARE or not self._copies or form.inside is not None:
                self._last_lanes(low, high)
            else:
                with code.when(left <= half):
                    few = replace(self, vector=ir.Type(self.vector.dtype, half))
                    few._last_lanes(low, high)
                with code.otherwise():
                    self._last_lanes(low, high)

    def _ahead(self, row: ir.Value, lane: ir.Value, count: int) -> None:
        """Ask for the lines that a strip ends in, in a square's rows: those before are there."""
        line = _LINE // self.made.bytes
        for number in range(self.vector.lanes):
            _, at = self._places(row + number, lane)
            for begin in range(0, count, line):
                self.code.emit(ir.Prefetch("y", at + (begin + line - 1), write=True))

    def _last_lanes(self, low: ir.Value, high: ir.Value) -> None:
        """Lanes that fill no vector, or whose places are guarded."""
        lanes = self.vector.lanes
        done = self._narrow(low, low + round_down(high - low, lanes))
        with self.code.range(done, high, lanes, "e"):
            self._square("e", edge=True)

    def _narrow(self, begin: ir.Value, squares: ir.Value) -> ir.Value:
        """Squares of whole vectors that fewer lanes than a vector has are wanted of; their end.

        Where rows of the target follow each other, each is written over by what is behind the one
        before: whole vectors do then, but for the last square of a piece.
        """
        code, lanes = self.code, self.vector.lanes
        if self.form.inside is not None:
            return code.let(begin, "done")
        done, left = code.let(squares, "done"), variable("left")
        few = code.let(first_lanes(least(left, lanes), lanes), "few")
        if self._copies:
            packed, last = self._row_stride.equals(left), greatest(squares - lanes, begin)
            over = code.let(select(packed, last, begin), "over")
            with code.range(begin, over, lanes, "o"):
                self._square("o", narrow=True)
            begin = over
        with code.range(begin, done, lanes, "n"):
            self._square("n", narrow=True, mask=few)
        return done

    def _square(
        self, row: str, edge: bool = False, narrow: bool = False, mask: ir.Value | None = None
    ) -> None:
        """One square from `row` and lane0 on; at an edge, what is outside is left alone.

        A narrow one has all rows: where lanes end, the first one is read again. `mask` has the
        lanes that are written, where not all are.
        """
        code, lanes = self.code, self.vector.lanes
        source, target = self._places(variable(row), variable("lane0"))
        left = code.let(variable("row1") - variable(row), f"{row}_left")
        code.let(source, f"{row}_from")
        target = code.let(target, f"{row}_to")
        columns = self._columns(row, edge, narrow)
        if not self._copies:
            self._computed(row, columns, edge or narrow)
            return
        for number, column in enumerate(columns):
            at = target + self._row_stride * number
            if edge:
                at = select(left > number, at, 0)
                mask = _some(number, left, variable("left"), lanes)
            code.emit(ir.Store("y", at, column, mask))

    def _columns(self, row: str, edge: bool, narrow: bool) -> list[ir.Value]:
        """What is loaded for a square, transposed: pieces of rows side by side, or whole rows."""
        side, first = self.vector.lanes, variable(f"{row}_from")
        dtype, known = self.vector.dtype, variable("known")

        def piece(kind: ir.Type, begin: int, number: int) -> ir.Value:
            at: ir.Value = first + variable("lane_step") * number
            if narrow or edge:
                at = select(known > number, at, first if narrow else constant(0))
            wanted = None
            if edge:
                rest = variable(f"{row}_left") + -begin
                wanted = _some(number, known, rest, kind.lanes)
            return ir.Load(kind, "x", at + begin, wanted)

        few = ir.Type(dtype, min(side, PIECE // dtype.bytes))
        most = few.lanes * side if few.lanes == side else side
        wide = ir.Type(dtype, max(side, min(self._wide.lanes, most)))
        columns: list[ir.Value] = []
        for begin in range(0, side, few.lanes):
            columns += columns_of(wide, side, partial(piece, few, begin), self.code.let)
        return columns

    def _computed(self, row: str, columns: list[ir.Value], edge: bool) -> None:
        """The function of the columns of a square, one after the other."""
        lanes = self.vector.lanes
        for number, part in enumerate(columns):
            self.code.emit(ir.Store(_SQUARE, constant(number * lanes), part))
        mask = first_lanes(least(variable("left"), lanes), lanes) if edge else None
        count = least(variable(f"{row}_left"), lanes)
        with self.code.range(0, count, name=f"{row}_column") as column:
            found = ir.Load(self.vector, _SQUARE, column * lanes)
            self._write(variable(f"{row}_to") + self._row_stride * column, found, mask)

    # ---- elements ------------------------------------------------------------------------------

    def _at(self, form: Affine) -> ir.Value:
        """A form over the outer axes; lane and row are 0."""
        own = {axis.name for axis in self.form.outer}
        terms = [variable(name) * self._value(c) for name, c in form.terms if name in own]
        return summed(self._value(form.constant), *terms)

    def _places(self, row: ir.Value, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where an element comes from, and where it goes."""
        return (
            variable("source") + row + lane * variable("lane_step"),
            variable("target") + lane + row * self._row_stride,
        )

    def _ends(self, axis: str) -> tuple[ir.Value, ir.Value]:
        """Where the piece begins and ends along an axis."""
        if axis == "row":
            return variable("row0"), variable("row1")
        return constant(0), variable("width")

    def _write(self, place: ir.Value, found: ir.Value, mask: ir.Value | None) -> ir.Store:
        """Write the function of some elements."""
        value = found
        if not self._copies:
            lanes = found.type.lanes
            scope = Elements(self.context, lane=self.form.lane.name, lanes=lanes, mask=mask)
            scope.know(self.form.read, scope.name(found))
            value = scope.value(self.form.value, self.made)
            self.code.take(scope.steps)
        store = ir.Store("y", place, value, mask)
        self.code.emit(store)
        return store


def _some(number: int, count: ir.Value, first: ir.Value, lanes: int) -> ir.Value:
    """The `first` lanes of vector `number`, which has `lanes`; none from vector `count` on."""
    kept = select(count > number, greatest(first, 0), 0)
    return first_lanes(least(kept, lanes), lanes)


def _end(first: ir.Value, each: ir.Value, end: ir.Value) -> ir.Value:
    """Where a piece ends that begins at `first`: the last one has half of one more, or less."""
    last = first + each
    return select(end - last < each / 2, end, last)
