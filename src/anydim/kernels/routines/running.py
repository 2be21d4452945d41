"""Running sums and products along an axis, in time linear in the tensor.

Along the last axis a vector of elements becomes its own running sums in log2(lanes) steps (Hillis
and Steele, Data parallel algorithms, 1986); what came before it is added to all lanes. Along
another axis each lane has a column of its own. float16 and bfloat16 add up in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from anydim.base.dtypes import DType, converted, float32, from_numpy, int32
from anydim.base.records import dataclass
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.routines.arguments import axis_of, expect_inputs, expect_ordered
from anydim.kernels.routines.code import Code
from anydim.kernels.routines.record import Arrays, Attributes, Routine, Steps, Types
from anydim.kernels.routines.rows import LANES, Rows
from anydim.kernels.write.term import Term, apply, constant, iota, select, shuffle
from anydim.kernels.write.writer import Buffer, Variable
from anydim.lang.tree import TensorType
from anydim.sizes import Box, ceil_div

VECTORS = 4  # of columns side by side


@dataclass(frozen=True)
class Running:
    """`function` is 'add' or 'mul', `identity` what it starts from."""

    name: str
    function: str
    identity: int
    ufuncs: tuple[numpy.ufunc, numpy.ufunc]  # of numbers, of flags

    def routine(self) -> Routine:
        return Routine(self.infer, self.evaluate, self.lower)

    def infer(self, types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
        expect_inputs(self.name, types, 1, 1)
        expect_ordered(self.name, types[0])
        axis_of(self.name, attributes["axis"], types[0].rank)
        return (types[0],)

    def evaluate(
        self, arrays: Arrays, attributes: Attributes, sizes: Mapping[str, int]
    ) -> tuple[numpy.ndarray, ...]:
        x, axis = arrays[0], attributes["axis"]
        wide = x.astype(numpy.float32) if _is_narrow(x) else x
        wide = numpy.flip(wide, axis) if attributes["reverse"] else wide
        if attributes["exclusive"] and x.shape[axis]:
            first = numpy.full_like(wide.take([0], axis), self.identity)
            wide = numpy.concatenate([first, wide.take(range(x.shape[axis] - 1), axis)], axis)
        sums = self.ufuncs[x.dtype == bool].accumulate(wide, axis)
        sums = numpy.flip(sums, axis) if attributes["reverse"] else sums
        return (converted(sums, x.dtype) if _is_narrow(x) else sums.astype(x.dtype),)

    def lower(self, types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
        rows = Rows.of(types[0], axis_of(self.name, attributes["axis"], types[0].rank))
        scan = _Scan(self, types[0].dtype, rows, attributes, Code(self.name, machine, box))
        return Steps((scan.along() if rows.contiguous else scan.across(),))


def _is_narrow(x: numpy.ndarray) -> bool:
    return x.dtype != object and _wide(from_numpy(x.dtype)) != from_numpy(x.dtype)


def _wide(dtype: DType) -> DType:
    """The type that sums have while they grow."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


@dataclass(frozen=True)
class _Scan:
    running: Running
    dtype: DType
    rows: Rows
    attributes: Attributes
    code: Code

    @property
    def reverse(self) -> bool:
        return bool(self.attributes["reverse"])

    def _start(self, lanes: int) -> Term:
        return constant(self.running.identity, _wide(self.dtype), lanes)

    def _join(self, left: Term, right: Term) -> Term:
        return self.code.let(apply(self.running.function, left, right))

    def _load(self, x: Buffer, i: Term, where: Term | None, lanes: int) -> Term:
        """Elements as sums are kept; where there are none, what changes no sum."""
        elements = x.load(i, lanes, where).as_(_wide(self.dtype))
        return elements if where is None else select(where, elements, self._start(lanes))

    def _place(self, i: Term, count: Term, width: int = 1) -> Term:
        """The first of `width` elements that step i looks at: from the front, or from the end."""
        return self.code.let(count - width - i if self.reverse else i)

    # ---- along the last axis -------------------------------------------------------------------

    def along(self) -> Launch:
        """Row after row, a vector at a time."""
        code, count = self.code, self.code.size(self.rows.length)
        x, y = code.input("x0", self.dtype), code.output("y0", self.dtype)
        with code.range(code.start, code.stop) as row:
            start = self.rows.start(code, row)
            before = code.variable(self._start(LANES))
            whole = code.let(count & -LANES)
            with code.range(0, whole, LANES) as i:
                self._vector(
                    x.part(start), y.part(start), self._place(i, count, LANES), None, before
                )
            with code.when(whole < count):
                rest = code.let(count - whole)
                place = constant(0) if self.reverse else whole
                self._vector(x.part(start), y.part(start), place, iota(LANES) < rest, before)
        work = self.rows.count * self.rows.length
        return code.launch(self.rows.count, work, 1, "each row in one sweep")

    def _vector(self, x: Buffer, y: Buffer, i: Term, where: Term | None, before: Variable) -> None:
        sums, distance = self.code.let(self._load(x, i, where, LANES)), 1
        while distance < LANES:
            sums = self._joined(sums, distance)
            distance *= 2
        own = self._moved(sums, 1) if self.attributes["exclusive"] else sums
        y.store(i, self._join(before(), own).as_(self.dtype), where)
        last = 0 if self.reverse else LANES - 1
        before.set(self._join(before(), shuffle(sums, sums, (last,) * LANES)))

    def _joined(self, sums: Term, distance: int) -> Term:
        """Each lane with the one `distance` before it, where there is one."""
        turn = distance if self.reverse else -distance
        turned = tuple((lane + turn) % LANES for lane in range(LANES))
        number = iota(LANES, int32)
        inside = number < LANES - distance if self.reverse else number >= distance
        return self.code.let(select(inside, self._join(shuffle(sums, sums, turned), sums), sums))

    def _moved(self, sums: Term, distance: int) -> Term:
        """Each lane has that of the lane `distance` before it in the order of the sum."""
        step = distance if self.reverse else -distance
        lanes = [lane + step for lane in range(LANES)]
        inside = tuple(lane if 0 <= lane < LANES else LANES for lane in lanes)
        return shuffle(sums, self._start(LANES), inside)

    # ---- along another axis --------------------------------------------------------------------

    def across(self) -> Launch:
        """Blocks of columns: a lane for each."""
        code = self.code
        lanes = code.machine.lanes(_wide(self.dtype))
        count, inner = code.size(self.rows.length), code.size(self.rows.inner)
        blocks = ceil_div(self.rows.inner, VECTORS * lanes)
        with code.range(code.start, code.stop) as item:
            outer, block = code.let(item // code.size(blocks)), code.let(item % code.size(blocks))
            base = code.let(outer * code.size(self.rows.length * self.rows.inner))
            column = code.let(block * (VECTORS * lanes))
            with code.when(column + VECTORS * lanes <= inner):
                self._columns(base + column, count, inner, VECTORS, lanes, None)
            with code.otherwise(), code.range(column, inner, lanes) as c:
                there = iota(lanes) < code.let(inner - c)
                self._columns(base + c, count, inner, 1, lanes, there)
        work = self.rows.count * self.rows.length
        return code.launch(self.rows.outer * blocks, work, 1, "columns side by side")

    def _columns(
        self, base: Term, count: Term, inner: Term, vectors: int, lanes: int, where: Term | None
    ) -> None:
        code, base = self.code, self.code.let(base)
        x, y = code.input("x0", self.dtype).part(base), code.output("y0", self.dtype).part(base)
        sums = [code.variable(self._start(lanes)) for _ in range(vectors)]
        with code.range(0, count) as i:
            row = code.let(self._place(i, count) * inner)
            for number, total in enumerate(sums):
                place = row + number * lanes
                element, before = self._load(x, place, where, lanes), total()
                after = self._join(before, element)
                total.set(after)
                shown = before if self.attributes["exclusive"] else after
                y.store(place, shown.as_(self.dtype), where)


CUM_SUM = Running("cum_sum", "add", 0, (numpy.add, numpy.logical_or)).routine()
CUM_PROD = Running("cum_prod", "mul", 1, (numpy.multiply, numpy.logical_and)).routine()
