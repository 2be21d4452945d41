"""The distinct elements of a tensor, or slices along an axis: by sorting, then one scan.

All results have the size for all-distinct elements; the last result is the number of valid ones.
Elements that compare equal are one: NaN and NaN, 0.0 and -0.0; the first one represents all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy

from anydim.base.dtypes import int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import constant
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines import radix
from anydim.compiler.kernels.routines.arguments import expect_ordered
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import numpy_keys
from anydim.compiler.kernels.routines.parallel_sort import BEGINS, INDICES, ParallelSort
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.compiler.kernels.routines.rows import Rows, fill_pairs, length_guards
from anydim.compiler.kernels.routines.slices import Slices, merge_sort
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import ALWAYS, NEVER, Box, Guard, Size, as_size

REQUESTED = ("indices", "inverse", "counts")  # attributes: whether y1, y2, y3 are computed
STARTS, GROUPS, OWNERS, NAMES = "starts", "groups", "owners", "names"


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    expect_ordered("unique", types[0])
    length = Rows.of("unique", types, attributes).length
    flat = attributes["axis"] is None
    values = TensorType(types[0].dtype, (length,)) if flat else types[0]
    others = [length if attributes[name] else as_size(0) for name in REQUESTED]
    return values, *(TensorType(int64, (size,)) for size in (*others, as_size(1)))


def guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    return length_guards("unique", Rows.of("unique", types, attributes).length, box)


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    x, axis = arrays[0], attributes["axis"]
    if axis is None:
        x, axis = x.reshape(-1), 0
    length = x.shape[axis]
    first, inverse, counts = _groups(numpy_keys(numpy.moveaxis(x, axis, 0)))
    if not attributes["sorted"]:
        order = numpy.argsort(first)
        first, counts = first[order], counts[order]
        inverse = numpy.argsort(order)[inverse]
    rest = (0, length - len(first))
    values = numpy.pad(x.take(first, axis), [rest if a == axis else (0, 0) for a in range(x.ndim)])
    others = (numpy.pad(first, rest), inverse, numpy.pad(counts, rest))
    requested = [o if attributes[n] else o[:0] for n, o in zip(REQUESTED, others)]
    return values, *(o.astype(numpy.int64) for o in (*requested, numpy.array([len(first)])))


def _groups(slices: numpy.ndarray) -> tuple[numpy.ndarray, ...]:
    """First index, group of each index, and counts of equal slices, in sorted order."""
    length, width = slices.shape[0], int(numpy.prod(slices.shape[1:]))
    columns = slices.reshape(length, width).T
    order = numpy.lexsort(columns[::-1]) if width else numpy.arange(length)
    ordered = columns[:, order]
    new = numpy.ones(length, bool)
    new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(0)
    inverse = numpy.empty(length, numpy.int64)
    inverse[order] = numpy.cumsum(new) - 1
    starts = numpy.flatnonzero(new)
    return order[starts], inverse, numpy.diff(numpy.append(starts, length))


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    unique = Unique(types[0], Rows.of("unique", types, attributes), attributes, box, machine)
    return unique.of_elements() if attributes["axis"] is None else unique.of_slices()


@dataclass(frozen=True)
class Unique:
    """A tensor as slices, and the requested results."""

    kind: TensorType
    rows: Rows
    attributes: Attributes
    box: Box
    machine: Machine

    @property
    def count(self) -> Size:
        return self.rows.length

    def of_elements(self) -> Steps:
        """Sort elements as keys."""
        sort = ParallelSort("unique", self.kind.dtype, self.rows, False, self.box, self.machine)
        launches = []
        if sort.wanted != ALWAYS:
            launches.append(self._sorted_alone(sort))
        if sort.wanted != NEVER:
            launches += sort.launches()
        code = Code("unique", self.machine, self.box)
        with code.range(code.start, code.stop):
            begin = sort.begin(code, constant(0))
            pairs = sort.pairs(code, constant(0)).part(begin)

            def differs(i: ir.Value) -> ir.Value:
                return pairs.keys[i].differs(pairs.keys[i - 1])

            self._walk(code, pairs.indices, differs)
        walk = code.launch(1, self.count, reason="groups of equal elements")
        return Steps((*launches, walk), (*sort.temporaries(always=True), *self._temporaries()))

    def _sorted_alone(self, sort: ParallelSort) -> Launch:
        """Sort all elements in one thread."""
        code = Code("unique_sort", self.machine, self.box)
        counts = radix.counters(code, sort.keys)
        with code.range(code.start, code.stop):
            x, count = code.input("x0", self.kind.dtype), code.size(self.count)
            pairs = sort.pairs(code, constant(0), counts)
            fill_pairs(code, x, constant(1), 0, count, pairs, False)
            code.output(BEGINS, int64)[sort.passes] = radix.sort(code, pairs, count)
        return code.launch((~sort.wanted).flag, self.count, reason="elements sorted by one thread")

    def of_slices(self) -> Steps:
        """Sort slices by comparison."""
        code = Code("unique_slices", self.machine, self.box)
        count = code.size(self.count)
        with code.range(code.start, code.stop):
            slices = Slices(code, code.input("x0", self.kind.dtype), self.rows)
            indices = code.output(INDICES, uint32)
            own = indices.part(merge_sort(slices, indices, count))

            def differs(i: ir.Value) -> ir.Value:
                left, right = own[i - 1].as_(int64), own[i].as_(int64)
                return slices.compare(left, right)[1]

            self._walk(code, own, differs)
        indices_twice = Tensor(INDICES, TensorType(uint32, (2 * self.count,)))
        work = self.rows.count * self.count
        launch = code.launch(1, work, reason="slices are sorted and grouped")
        return Steps((launch,), (indices_twice, *self._temporaries()))

    # ---- scan of the sorted order --------------------------------------------------------------

    def _temporaries(self) -> tuple[Tensor, ...]:
        """Starts of groups, group of each position; and for first occurrence order: owner, name."""
        sizes = {STARTS: self.count + 1, GROUPS: self.count}
        if not self.attributes["sorted"]:
            sizes |= {OWNERS: self.count, NAMES: self.count}
        return tuple(Tensor(name, TensorType(uint32, (size,))) for name, size in sizes.items())

    def _walk(self, code: Code, indices: Buffer, differs: Callable[[ir.Value], ir.Value]) -> None:
        """The results, from indices in sorted order; `differs(i)`: from its predecessor."""
        count = code.size(self.count)
        starts, groups = code.output(STARTS, uint32), code.output(GROUPS, uint32)
        some = self._group(code, count, differs, starts, groups)
        code.output("y4", int64)[0] = some
        if self.attributes["sorted"]:
            with code.range(0, some) as group:
                self._result(code, indices, starts, group, group)
        else:
            self._by_occurrence(code, indices, starts, some)
        if self.attributes["inverse"]:
            inverse = code.output("y2", int64)
            with code.range(0, count) as i:
                group = groups[i].as_(int64)
                if not self.attributes["sorted"]:
                    group = code.output(NAMES, uint32)[group].as_(int64)
                inverse[indices[i].as_(int64)] = group

    def _group(
        self, code: Code, count: ir.Value, differs: Callable[[ir.Value], ir.Value], starts: Buffer,
        groups: Buffer,
    ) -> ir.Value:  # fmt: skip
        """Number the groups; returns their count. Every start is written, and overwritten if not
        kept."""
        some = code.variable(0)
        with code.when(count > 0):
            starts[0] = groups[0] = 0
            some.set(1)
            with code.range(1, count) as i:
                starts[some()] = i.as_(uint32)
                some += differs(i).as_(int64)
                groups[i] = (some() - 1).as_(uint32)
        starts[some()] = count.as_(uint32)
        return some()

    def _by_occurrence(self, code: Code, indices: Buffer, starts: Buffer, some: ir.Value) -> None:
        """Results in the order of first occurrence; `owners` maps an index to the group it
        starts."""
        owners, names = code.output(OWNERS, uint32), code.output(NAMES, uint32)
        with code.range(0, code.size(self.count)) as i:
            owners[i] = 0
        with code.range(0, some) as group:
            first = indices[starts[group].as_(int64)]
            owners[first.as_(int64)] = (group + 1).as_(uint32)
        position = code.variable(0)
        with code.range(0, code.size(self.count)) as i:
            owner = owners[i]
            with code.when(owner > 0):
                group = code.let(owner.as_(int64) - 1)
                names[group] = position().as_(uint32)
                self._result(code, indices, starts, group, position())
                position += 1

    def _result(
        self, code: Code, indices: Buffer, starts: Buffer, group: ir.Value, position: ir.Value
    ) -> None:
        """Value, first index and count of a group."""
        start = starts[group].as_(int64)
        first = code.let(indices[start].as_(int64))
        x, values = code.input("x0", self.kind.dtype), code.output("y0", self.kind.dtype)
        Slices(code, x, self.rows).copy(values, position, x, first)
        if self.attributes["indices"]:
            code.output("y1", int64)[position] = first
        if self.attributes["counts"]:
            code.output("y3", int64)[position] = starts[group + 1].as_(int64) - start


UNIQUE = Routine((1, 1), infer, evaluate, lower, guards)
