"""The indices of nonzero elements in row-major order, and the elements selected by a condition.

Their number is known beforehand (`count`): a separate operator counts them, and its result becomes
a dim. The tensor is split into parts; each counts its nonzero elements, then each part knows where
its indices are written. Indices beyond `count` are dropped; if there are fewer, the rest of the
result is 0.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import int64
from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import least
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.compiler.kernels.routines.rows import Rows
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import Box, Guard, Size, as_size, minimum, product

PARTS, PART = 64, 1 << 15  # maximum parts of a tensor; approximate minimum elements of a part
# Set bits of 64 flags are visited: 410 us; positions without branches take 700.
GROUP = 64  # elements tested at once, clamped to the longest vector
COPIES = 1 << 12  # elements copied by one parallel item


@dataclass(frozen=True)
class Marks:
    """The launches that write the indices of `operand`'s nonzero elements.

    `target`, int64 [rank * count], gets the indices along each axis, one axis after the other.
    """

    name: str
    operand: str
    kind: TensorType
    count: Size
    target: str
    box: Box
    machine: Machine

    @property
    def total(self) -> Size:
        return product(self.kind.shape)

    @property
    def parts(self) -> Size:
        return minimum(PARTS, 1 + self.total // PART)

    def temporary(self) -> Tensor:
        """The number of nonzero elements of each part."""
        return Tensor("found", TensorType(int64, (self.parts,)))

    def launches(self) -> tuple[Launch, Launch]:
        return self._count(), self._write()

    def _stretch(self, code: Code, part: ir.Value) -> tuple[ir.Value, ir.Value]:
        parts, total = code.size(self.parts), code.size(self.total)
        return code.let(part * total // parts), code.let((part + 1) * total // parts)

    def _launch(self, code: Code, reason: str) -> Launch:
        return code.launch(self.parts, self.total, 1, reason)

    # ---- counting ------------------------------------------------------------------------------

    def _count(self) -> Launch:
        code = Code(f"{self.name}_count", self.machine, self.box)
        x, found = code.input(self.operand, self.kind.dtype), code.output("found", int64)
        with code.range(code.start, code.stop) as part:
            low, high = self._stretch(code, part)
            total, group = code.variable(0), code.machine.at_most(GROUP)

            def add(i: ir.Value, where: ir.Value | None) -> None:
                total.set(total() + x.load(i, group, where).truth.flags.ones.as_(int64))

            code.sweep(low, high, group, add)
            found[part] = total()
        return self._launch(code, "count of nonzero elements")

    # ---- writing -------------------------------------------------------------------------------

    def _write(self) -> Launch:
        """Row by row in each part: all indices but the last are constant within a row."""
        code = Code(f"{self.name}_write", self.machine, self.box)
        x, found = code.input(self.operand, self.kind.dtype), code.input("found", int64)
        y, count = code.output(self.target, int64), code.size(self.count)
        length, last_axis = code.size(self.kind.shape[-1]), self.kind.rank - 1
        with code.range(code.start, code.stop) as part:
            low, high = self._stretch(code, part)
            done = code.variable(0)
            with code.range(0, part) as before:
                done += found[before]
            at = code.variable(low)
            with code.loop(lambda: at() < high):
                row, before = code.let(at() // length), done()
                first = code.let(at() - row * length)
                last = code.let(least(length, first + high - at()))
                last_indices = y.part(last_axis * count)
                _positions(code, x.part(row * length), first, last, last_indices, done, count)
                self._outer_indices(code, y, row, before, least(done(), count))
                at.set(at() + last - first)
            with code.when((part + 1).equals(code.size(self.parts))):
                self._rest(code, y, done, count)
        return self._launch(code, "indices of nonzero elements")

    def _outer_indices(
        self, code: Code, y: Buffer, row: ir.Value, low: ir.Value, high: ir.Value
    ) -> None:
        """The indices along all axes but the last, constant for the row."""
        lanes, rest = code.machine.lanes(int64), row
        with code.when(low < high):
            for axis in reversed(range(self.kind.rank - 1)):
                extent = code.size(self.kind.shape[axis])
                own = code.let((rest % extent if axis else rest).spread(lanes))
                rest = code.let(rest // extent)
                fill(code, y.part(code.size(axis * self.count) + low), code.let(high - low), own)

    def _rest(self, code: Code, y: Buffer, done: Variable, count: ir.Value) -> None:
        """Fill with 0 where there is no index: when `count` was too large."""
        with code.range(done(), count) as i, code.range(0, self.kind.rank) as axis:
            y[axis * count + i] = 0


def _positions(
    code: Code, x: Buffer, low: ir.Value, high: ir.Value, y: Buffer, done: Variable, count: ir.Value
) -> None:
    """Append the indices low ... high at which x is nonzero to the `done` ones, up to `count`."""
    group = code.machine.at_most(GROUP)

    def append(i: ir.Value, where: ir.Value | None) -> None:
        with code.each(x.load(i, group, where).truth) as lane:
            y.store(done(), i + lane, done() < count)
            done.set(done() + 1)

    code.sweep(low, high, group, append)


def fill(code: Code, y: Buffer, count: ir.Value, values: Buffer | ir.Value) -> None:
    """Write a buffer, or one value repeatedly, to y[0:count]."""
    lanes = code.machine.lanes(y.dtype)

    def put(i: ir.Value, where: ir.Value | None) -> None:
        value = values if isinstance(values, ir.Value) else values.load(i, lanes, where)
        y.store(i, value, where)

    code.sweep(0, count, lanes, put)


# ---- nonzero -----------------------------------------------------------------------------------


def _infer_nonzero(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    if types[0].rank == 0:
        raise GraphError("operator 'nonzero_fill': a scalar has no positions", "give it an axis")
    return (TensorType(int64, (as_size(types[0].rank), as_size(attributes["count"]))),)


def _nonzero(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    count = as_size(attributes["count"]).evaluate(sizes)
    found = numpy.stack(numpy.nonzero(arrays[0])).astype(numpy.int64)[:, :count]
    return (numpy.pad(found, ((0, 0), (0, count - found.shape[1]))),)


def _lower_nonzero(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    count = as_size(attributes["count"])
    marks = Marks("nonzero", "x0", types[0], count, "y0", box, machine)
    return Steps(marks.launches(), (marks.temporary(),))


# ---- compress ----------------------------------------------------------------------------------


def _infer_compress(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    if types[1].rank != 1:
        raise GraphError(f"operator 'compress_fill': the condition is {types[1]}, not a vector")
    Rows.of("compress_fill", types, attributes)
    shape, count = list(types[0].shape), as_size(attributes["count"])
    if attributes["axis"] is None:
        return (TensorType(types[0].dtype, (count,)),)
    shape[attributes["axis"]] = count
    return (TensorType(types[0].dtype, tuple(shape)),)


def _guards_of_compress(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    rows, (condition,) = Rows.of("compress_fill", types, attributes), types[1].shape
    return (
        Guard(condition, "<=", rows.length, "compress: the condition is not longer than the axis"),
        Guard(
            as_size(attributes["count"]),
            "<=",
            condition,
            "compress: the count is at most the size of the condition",
        ),
    )


def _compress(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    x, axis = arrays[0], attributes["axis"]
    count = as_size(attributes["count"]).evaluate(sizes)
    indices = numpy.flatnonzero(arrays[1])[:count]
    indices = numpy.pad(indices, (0, count - len(indices)))
    return (x.reshape(-1)[indices] if axis is None else x.take(indices, axis),)


def _lower_compress(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    count = as_size(attributes["count"])
    marks = Marks("compress", "x1", types[1], count, "places", box, machine)
    indices = Tensor("places", TensorType(int64, (count,)))
    copy = _copies(types[0], Rows.of("compress_fill", types, attributes), count, box, machine)
    return Steps((*marks.launches(), copy), (marks.temporary(), indices))


def _copies(kind: TensorType, rows: Rows, count: Size, box: Box, machine: Machine) -> Launch:
    """y[o, j, i] = x[o, indices[j], i]"""
    code = Code("compress_copy", machine, box)
    x, y = code.input("x0", kind.dtype), code.output("y0", kind.dtype)
    indices = code.input("places", int64)
    blocks = (count + COPIES - 1) // COPIES
    some, cuts, inner = code.size(count), code.size(blocks), code.size(rows.inner)
    with code.range(code.start, code.stop) as item:
        outer, cut = code.let(item // cuts), code.let(item % cuts)
        source = x.part(code.let(outer * code.size(rows.length * rows.inner)))
        target = y.part(code.let(outer * code.size(count * rows.inner)))
        low = code.let(cut * COPIES)
        with code.range(low, least(low + COPIES, some)) as j:
            if rows.contiguous:
                target[j] = source[indices[j]]
            else:
                fill(code, target.part(j * inner), inner, source.part(indices[j] * inner))
    work = rows.count * count
    return code.launch(rows.outer * blocks, work, 1, "elements at the indices")


NONZERO_FILL = Routine((1, 1), _infer_nonzero, _nonzero, _lower_nonzero)
COMPRESS_FILL = Routine((2, 2), _infer_compress, _compress, _lower_compress, _guards_of_compress)
