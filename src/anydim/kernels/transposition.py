"""The template of copies whose neighbours in memory are another axis than in the source, and of
functions of them.

    y(..., k, w) = f(x(..., w, k))

Squares of vectors go through registers, so that both sides move whole cache lines: gathering
along the source's rows takes several times as long. Of copies they are as wide as half the widest
registers, which more units shuffle. A guarded read yields 0 where its lanes leave
the source. A function that is more than a copy is computed where the square has been transposed.

Which axes are long is known in a call alone: where one of the two is a few elements, squares would
be nearly empty, and elements go one by one; where neighbours of one side are so on the other too
(a batch of 1 that goes to the end), whole vectors go over as they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from anydim.base.dtypes import DType, boolean, uint8
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.launch import Argument, Launch, Machine
from anydim.kernels.naming import named_kernel
from anydim.kernels.schedule import print_schedule, register
from anydim.kernels.template import Template
from anydim.kernels.transposed import TranspositionForm, block_of, blocks_of, form_of, grain_of
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient_up,
    round_down,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.elements import Context, Elements, SizeParameters
from anydim.kernels.write.loops import lines_ahead
from anydim.kernels.write.squares import PIECE, columns_of, unzipped, zipped
from anydim.kernels.write.values import operate
from anydim.lang.tree import Group
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, as_size, product

_MOST_LANES = 16  # of small elements: squares of more do not fit into registers
_SQUARE = "square"
_LEAST_SQUARE = 8  # lanes; those of 4 are no faster than the masks of 8
_REGISTER = 32  # bytes of those that copies go through: there are two units that shuffle these
_STRIP = {1: 128, 2: 128}  # lanes that are written before the next rows, by bytes; others: a line
_LINE = 64  # bytes
_FEW = (2, 3, 4, 8)  # columns that are brought together, or apart, by shuffles
_UNROLLED = 4  # elements that go one by one


@dataclass(frozen=True)
class Transposition:
    """Squares of `lanes` x `lanes`."""

    lanes: int


register("transposition", Transposition)


def match(
    group: Group, box: Box, machine: Machine, constants: frozenset[str]
) -> Transposition | None:
    """A schedule for a transposed copy; None for other groups."""
    form = form_of(group, box)
    if form is None:
        return None
    kinds = {tensor.type.dtype for tensor in (*group.inputs, *group.outputs)}
    lanes = min(_MOST_LANES, *map(machine.lanes, kinds))
    if boolean in kinds or len(group.inputs) != 1 or lanes < 4:
        return None
    dtype = group.inputs[0].type.dtype
    short = [axis.extent.constant for axis in (form.row, form.lane)]
    if _goes_together(form):
        short.pop()
    if any(extent is not None and 2 * extent < lanes for extent in short) and dtype.bytes > 2:
        return None
    if form.value == form.read:
        lanes = min(lanes, _REGISTER // dtype.bytes)
    return Transposition(lanes)


def _goes_together(form: TranspositionForm) -> bool:
    """Whether a few columns are known to lie side by side in the target, and nothing else there."""
    columns, copies = form.lane.extent, form.value == form.read
    packed = form.target.stride(form.row.name) == columns and form.inside is None
    return copies and packed and columns.constant in _FEW


def lower(
    group: Group, schedule: Transposition, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group."""
    form = form_of(group, box)
    if form is None:
        raise InternalError("a group that is no transposed copy reached its lowering")
    (given,), (made,) = group.inputs, group.outputs
    dtype = given.type.dtype
    sizes = SizeParameters()
    types = {tensor.name: tensor.type for tensor in (given, made)}
    context = Context(types, sizes, machine)
    body = _Body(form, schedule, context, made.type.dtype, ir.Type(dtype, schedule.lanes))
    operands = (ir.Operand("x", dtype), ir.Operand("y", made.type.dtype, written=True))
    steps = body.steps()
    main = ir.Function(
        "transposition",
        (
            *(ir.Pointer(operand.name, operand.dtype) for operand in operands),
            *(ir.Scalar(name) for name in sizes.names),
            ir.Scalar("start"),
            ir.Scalar("stop"),
            ir.Pointer("scratch", uint8),
        ),
        body.whole(steps),
    )
    elements = product(made.type.shape)
    return Launch(
        kernel=named_kernel("transposition", operands, sizes.names, (main,)),
        arguments=(Argument(given.name), Argument(made.name)),
        sizes=sizes.sizes,
        parallel=product(axis.extent for axis in form.outer) * blocks_of(form, dtype),
        grain=grain_of(form, dtype),
        scratch=as_size(0),
        flops=as_size(0),
        moved=(dtype.bytes + made.type.dtype.bytes) * elements,
        schedule=print_schedule(schedule),
        reason="a copy whose neighbours are another axis than in its source",
    )


@dataclass(frozen=True)
class _Body:
    """One piece of work: all lanes of a block of rows, at one place of the outer axes."""

    form: TranspositionForm
    schedule: Transposition
    context: Context
    made: DType
    vector: ir.Type  # of the source

    @property
    def sizes(self) -> SizeParameters:
        return self.context.sizes

    @property
    def _few(self) -> ir.Value:
        """The lanes of a narrow square."""
        return ir.Var(ir.Type(ir.FLAG.dtype, self.vector.lanes), "few")

    @property
    def copies(self) -> bool:
        return self.form.value == self.form.read

    def whole(self, steps: list[ir.Step]) -> tuple[ir.Step, ...]:
        """All pieces, and room for a square whose elements go through a function."""
        pieces = loop("unit", variable("start"), variable("stop"), 1, *steps)
        if self.copies:
            return (pieces,)
        return (ir.Stack(_SQUARE, self.vector.dtype, self.vector.lanes**2), pieces)

    def _written(self, place: ir.Value, found: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        """Steps that write the function of some elements."""
        if self.copies:
            return [ir.Store("y", place, found, mask)]
        lanes = found.type.lanes
        scope = Elements(self.context, lane=self.form.lane.name, lanes=lanes, mask=mask)
        scope.know(self.form.read, scope.name(found))
        value = scope.value(self.form.value, self.made)
        return [*scope.steps, ir.Store("y", place, value, mask)]

    def steps(self) -> list[ir.Step]:
        value, form = self.sizes.value, self.form
        block = block_of(form, self.vector.dtype)
        blocks = value(blocks_of(form, self.vector.dtype))
        outer = ((axis.name, value(axis.extent)) for axis in reversed(form.outer))
        first = times(variable("block"), value(block))
        end, last = value(form.row.extent), plus(variable("row0"), value(block))
        is_last = compare("less", minus(end, last), value(block // 2))
        return [
            *split_index("unit", ("block", blocks), *outer),
            ir.Let("source", self._at(form.source)),
            ir.Let("target", self._at(form.target)),
            ir.Let("row0", first),
            ir.Let("row1", either(is_last, end, last)),
            *self._by_lengths(),
        ]

    def _by_lengths(self) -> list[ir.Step]:
        """Squares, or what is better where an axis is short in a call."""
        form, squares = self.form, self._squares()
        if form.inside is not None:
            return squares
        value, least_filled = self.sizes.value, max(2, min(_MOST_LANES, self.wide.lanes) // 4)
        width, height = value(form.lane.extent), value(form.row.extent)
        apart = value(form.source.stride(form.lane.name)), value(form.target.stride(form.row.name))
        ways: list[tuple[ir.Value, list[ir.Step]]] = [
            (compare("equal", apart[1], 1), self._vectors(along_rows=True)),
            (compare("equal", apart[0], 1), self._vectors(along_rows=False)),
            (compare("less", width, least_filled), self._singly(along_rows=True)),
            (compare("less", height, least_filled), self._singly(along_rows=False)),
        ]
        for together in (True, False) if self.copies else ():
            axis, distance = (form.lane, apart[1]) if together else (form.row, apart[0])
            for count in _FEW if together else _FEW[:-1]:
                fills = count < 4 or 4 * count <= self.wide.lanes
                if fills and 2 * count <= self.wide.lanes and axis.extent.constant in (None, count):
                    fits = [
                        compare("equal", each, count) for each in (value(axis.extent), distance)
                    ]
                    way = self._shuffled(count, together)
                    ways.insert(2, (operate("and", *fits), way))
        steps = squares
        for condition, way in reversed(ways):
            steps = [ir.If(condition, tuple(way), tuple(steps))]
        return steps

    def _squares(self) -> list[ir.Step]:
        """The piece in squares of vectors, row after row of them.

        The last ones of an axis lie over those before, or are masked where it is shorter than a
        vector or guarded.
        """
        form, lanes = self.form, self.vector.lanes
        width = self.sizes.value(form.lane.extent)
        low, high, end = variable("row0"), variable("row1"), variable("whole")
        rows, last = minus(high, low), plus(end, -lanes)
        if form.inside is None:
            inside = width
            whole = either(compare("greater_equal", width, lanes), width, constant(0))
            lane0 = least(variable("lane"), last)
        else:
            inside = least(width, greatest(self._at(form.inside), 0))
            whole, lane0 = round_down(inside, lanes), variable("lane")
        enough = compare("greater_equal", rows, lanes)
        bytes = self.vector.dtype.bytes
        each = max(lanes, _STRIP.get(bytes, _LINE // bytes))
        strip = least(end, plus(variable("strip"), each))
        return [
            ir.Let("inside", inside),
            ir.Let("whole", either(enough, whole, constant(0))),
            loop(
                "strip", 0, end, each,
                loop(
                    "row", low, high, lanes,
                    ir.Let("k", least(variable("row"), plus(high, -lanes))),
                    *self._ahead("k", variable("strip"), each),
                    loop("lane", variable("strip"), strip, lanes,
                         ir.Let("lane0", lane0), *self._square("k")),
                ),
            ),
            loop(
                "lane0", end, width, lanes,
                ir.Let("left", minus(width, variable("lane0"))),
                ir.Let("known", minus(variable("inside"), variable("lane0"))),
                *self._rest(low, high),
            ),
        ]  # fmt: skip

    def _rest(self, low: ir.Value, high: ir.Value) -> list[ir.Step]:
        """Lanes that fill no vector, or whose places are guarded; few in squares half as wide."""
        half = self.vector.lanes // 2
        if half < _LEAST_SQUARE or not self.copies or self.form.inside is not None:
            return self._last_lanes(low, high)
        few = replace(self, vector=ir.Type(self.vector.dtype, half))
        ways = (tuple(body._last_lanes(low, high)) for body in (few, self))
        return [ir.If(compare("less_equal", variable("left"), half), *ways)]

    def _last_lanes(self, low: ir.Value, high: ir.Value) -> list[ir.Step]:
        lanes = self.vector.lanes
        return [
            *self._narrow(plus(low, round_down(minus(high, low), lanes))),
            loop("e", variable("done"), high, lanes, *self._square("e", edge=True)),
        ]

    def _ahead(self, row: str, lane: ir.Value, count: int) -> list[ir.Step]:
        """Ask for the lines that a strip ends in, in a square's rows: those before are there."""
        line = _LINE // self.made.bytes
        found: list[ir.Step] = []
        for number in range(self.vector.lanes):
            _, at = self._places(plus(variable(row), number), lane)
            found += [
                ir.Prefetch("y", plus(at, begin + line - 1), write=True)
                for begin in range(0, count, line)
            ]
        return found

    def _narrow(self, squares: ir.Value) -> list[ir.Step]:
        """Squares of whole vectors that fewer lanes than a vector has are wanted of.

        Where rows of the target follow each other, each is written over by what is behind the one
        before: whole vectors do then, but for the last square of a piece.
        """
        if self.form.inside is not None:
            return [ir.Let("done", variable("row0"))]
        lanes, stride = self.vector.lanes, self.form.target.stride(self.form.row.name)
        steps: list[ir.Step] = [
            ir.Let("done", squares),
            ir.Let("few", first_lanes(least(variable("left"), lanes), lanes)),
        ]
        begin: ir.Value = variable("row0")
        if self.copies:
            packed = compare("equal", self.sizes.value(stride), variable("left"))
            last = greatest(minus(squares, constant(lanes)), begin)
            steps.append(ir.Let("over", either(packed, last, begin)))
            over = self._square("o", narrow=True)
            steps.append(loop("o", begin, variable("over"), lanes, *over))
            begin = variable("over")
        narrow = self._square("n", narrow=True, mask=self._few)
        return [*steps, loop("n", begin, variable("done"), lanes, *narrow)]

    def _places(self, row: ir.Value, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where an element comes from, and where it goes."""
        value, form = self.sizes.value, self.form
        lane_stride = value(form.source.stride(form.lane.name))
        row_stride = value(form.target.stride(form.row.name))
        return (
            plus(variable("source"), row, times(lane, lane_stride)),
            plus(variable("target"), lane, times(row, row_stride)),
        )

    def _ends(self, axis: str) -> tuple[ir.Value, ir.Value]:
        """Where the piece begins and ends along an axis."""
        if axis == "row":
            return variable("row0"), variable("row1")
        return constant(0), self.sizes.value(self.form.lane.extent)

    def _vectors(self, along_rows: bool) -> list[ir.Step]:
        """Vectors as they are, along the axis whose elements are neighbours on both sides."""
        own, other = ("row", "lane") if along_rows else ("lane", "row")
        vector = self.wide if self.copies else self.vector
        name, lanes = f"{own}_vector", vector.lanes
        low, high = self._ends(own)
        whole = plus(low, round_down(minus(high, low), lanes))

        def moved(mask: ir.Value | None) -> list[ir.Step]:
            at = {own: variable(name), other: variable(other)}
            source, target = self._places(at["row"], at["lane"])
            steps = self._written(target, ir.Load(vector, "x", source, mask), mask)
            return [*steps, *lines_ahead(steps)]

        rest = first_lanes(minus(high, variable(name)), lanes)
        return [
            loop(
                other, *self._ends(other), 1,
                loop(name, low, whole, lanes, *moved(None)),
                loop(name, whole, high, lanes, *moved(rest)),
            )
        ]  # fmt: skip

    @property
    def wide(self) -> ir.Type:
        """As much of the source as a register holds."""
        dtype = self.vector.dtype
        return ir.Type(dtype, self.context.machine.lanes(dtype))

    def _shuffled(self, count: int, together: bool) -> list[ir.Step]:
        """Whole vectors of a few columns that lie together in the target, or else in the source.

        A vector of the target that holds no whole number of columns is written over by the next.
        """
        lanes = self.wide.lanes
        step = lanes // count if together else lanes
        low, high = self._ends("row" if together else "lane")
        end = minus(high, constant(lanes - 1))
        rest = plus(low, times(quotient_up(greatest(minus(end, low), 0), step), step))
        at, left = variable("p"), minus(high, variable("p"))

        def apart(column: int) -> tuple[ir.Value, ir.Value]:
            """Where a column begins on the side that has columns apart, on both sides."""
            pair = (at, constant(column)) if together else (constant(column), at)
            return self._places(*pair)

        def moved(last: bool) -> list[ir.Step]:
            joined = [
                first_lanes(plus(least(times(left, count), lanes * count), -n * lanes), lanes)
                for n in range(count)
            ]
            if together:
                kind = ir.Type(self.wide.dtype, step) if count & (count - 1) == 0 else self.wide
                alone = first_lanes(least(left, step), kind.lanes) if last else None
                loads = [ir.Load(kind, "x", apart(n)[0], alone) for n in range(count)]
                steps, (made,) = zipped(self.wide, loads, "z_")
                whole = least(times(least(left, step), count), lanes)
                mask = first_lanes(whole, lanes) if last else None
                return [*steps, ir.Store("y", apart(0)[1], made, mask)]
            alone = first_lanes(least(left, step), lanes) if last else None
            loads = [
                ir.Load(self.wide, "x", plus(apart(0)[0], n * lanes), joined[n] if last else None)
                for n in range(count)
            ]
            steps, columns = unzipped(self.wide, loads, "z_")
            stores = [ir.Store("y", apart(n)[1], c, alone) for n, c in enumerate(columns)]
            return [*steps, *stores, *lines_ahead(stores)]

        return [loop("p", low, end, step, *moved(False)), loop("p", rest, high, step, *moved(True))]

    def _singly(self, along_rows: bool) -> list[ir.Step]:
        """Elements one by one, the longer axis inside."""
        kind = ir.Type(self.vector.dtype)
        inner, outer = ("row", "lane") if along_rows else ("lane", "row")
        low, high = self._ends(inner)
        whole = plus(low, round_down(minus(high, low), _UNROLLED))

        def moved(count: int) -> list[ir.Step]:
            steps: list[ir.Step] = []
            for number in range(count):
                at = {inner: plus(variable(inner), number), outer: variable(outer)}
                source, target = self._places(at["row"], at["lane"])
                steps += self._written(target, ir.Load(kind, "x", source), None)
            return steps

        return [
            loop(
                outer, *self._ends(outer), 1,
                loop(inner, low, whole, _UNROLLED, *moved(_UNROLLED)),
                loop(inner, whole, high, 1, *moved(1)),
            )
        ]  # fmt: skip

    def _at(self, form: Affine) -> ir.Value:
        """A form over the outer axes; lane and row are 0."""
        value = self.sizes.value
        own = {axis.name for axis in self.form.outer}
        terms = [times(variable(name), value(c)) for name, c in form.terms if name in own]
        return plus(value(form.constant), *terms)

    def _square(
        self, row: str, edge: bool = False, narrow: bool = False, mask: ir.Value | None = None
    ) -> list[ir.Step]:
        """One square from `row` and lane0 on; at an edge, what is outside is left alone.

        A narrow one has all rows: where lanes end, the first one is read again. `mask` has the
        lanes that are written, where not all are.
        """
        value, form = self.sizes.value, self.form
        lane_stride = value(form.source.stride(form.lane.name))
        row_stride = value(form.target.stride(form.row.name))
        left = minus(variable("row1"), variable(row))
        steps: list[ir.Step] = [
            ir.Let(f"{row}_left", left),
            ir.Let(f"{row}_from", plus(variable("source"), variable(row),
                                       times(variable("lane0"), lane_stride))),
            ir.Let(f"{row}_to", plus(variable("target"), variable("lane0"),
                                     times(variable(row), row_stride))),
        ]  # fmt: skip
        made, columns = self._columns(row, edge, narrow)
        steps += made
        if not self.copies:
            return steps + self._computed(row, columns, edge or narrow)
        for number, column in enumerate(columns):
            at = plus(variable(f"{row}_to"), times(row_stride, number))
            kept = mask
            if edge:
                at = either(compare("greater", variable(f"{row}_left"), number), at, constant(0))
                kept = self._mask(
                    number, variable(f"{row}_left"), variable("left"), self.vector.lanes
                )
            steps.append(ir.Store("y", at, column, kept))
        return steps

    def _columns(self, row: str, edge: bool, narrow: bool) -> tuple[list[ir.Step], list[ir.Value]]:
        """What is loaded for a square, transposed: pieces of rows side by side, or whole rows."""
        side, first = self.vector.lanes, variable(f"{row}_from")
        lane_stride = self.sizes.value(self.form.source.stride(self.form.lane.name))

        def piece(kind: ir.Type, begin: int, number: int) -> ir.Value:
            at: ir.Value = plus(first, times(lane_stride, number))
            inside = compare("greater", variable("known"), number)
            if narrow or edge:
                at = either(inside, at, first if narrow else constant(0))
            wanted = None
            if edge:
                rest = plus(variable(f"{row}_left"), -begin)
                wanted = self._mask(number, variable("known"), rest, kind.lanes)
            return ir.Load(kind, "x", plus(at, begin), wanted)

        few = ir.Type(self.vector.dtype, min(side, PIECE // self.vector.dtype.bytes))
        most = few.lanes * side if few.lanes == side else side
        wide = ir.Type(self.vector.dtype, max(side, min(self.wide.lanes, most)))
        steps: list[ir.Step] = []
        columns: list[ir.Value] = []
        for begin in range(0, side, few.lanes):
            made, found = columns_of(wide, side, partial(piece, few, begin), f"{row}_{begin}_")
            steps += made
            columns += found
        return steps, columns

    def _computed(self, row: str, columns: list[ir.Value], edge: bool) -> list[ir.Step]:
        """The function of the columns of a square, one after the other."""
        lanes, row_stride = (
            self.vector.lanes, self.sizes.value(self.form.target.stride(self.form.row.name))
        )  # fmt: skip
        kept = [ir.Store(_SQUARE, constant(n * lanes), part) for n, part in enumerate(columns)]
        name = f"{row}_column"
        place = plus(variable(f"{row}_to"), times(row_stride, variable(name)))
        mask = first_lanes(least(variable("left"), lanes), lanes) if edge else None
        found = ir.Load(self.vector, _SQUARE, times(variable(name), lanes))
        count = least(variable(f"{row}_left"), lanes)
        return [*kept, loop(name, 0, count, 1, *self._written(place, found, mask))]

    def _mask(self, number: int, count: ir.Value, first: ir.Value, lanes: int) -> ir.Value:
        """The `first` lanes of vector `number`, which has `lanes`; none from vector `count` on."""
        wanted = compare("greater", count, number)
        kept = either(wanted, greatest(first, 0), constant(0))
        return first_lanes(least(kept, lanes), lanes)


TEMPLATE = Template("transposition", Transposition, match, lower)
