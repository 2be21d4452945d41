"""Stable sorting along an axis: the sorted values and their original indices.

Rows are sorted one by one in the scratch memory of a thread; few long rows in parallel.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import DType, int64, is_float
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines import radix
from anydim.compiler.kernels.routines.arguments import axis_of, expect_ordered
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import key_type
from anydim.compiler.kernels.routines.parallel_sort import ParallelSort
from anydim.compiler.kernels.routines.radix import Pairs
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.compiler.kernels.routines.rows import Rows, fill_pairs, length_guards, write_sorted
from anydim.lang.tree import TensorType
from anydim.sizes import ALWAYS, NEVER, Box, Guard


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    expect_ordered("sort", types[0])
    axis_of("sort", attributes["axis"], types[0].rank)
    return types[0], TensorType(int64, types[0].shape)


def guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    return length_guards("sort", Rows.of("sort", types, attributes).length, box)


def order(x: numpy.ndarray, axis: int, descending: bool) -> numpy.ndarray:
    """numpy's stable argsort, optionally descending: NaN first, ties to the lower index."""
    if is_float(x.dtype) and x.itemsize < 4:
        x = x.astype(numpy.float32)  # the order of bfloat16 is not numpy's
    if not descending:
        return numpy.argsort(x, axis=axis, kind="stable")
    backwards = numpy.argsort(numpy.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - numpy.flip(backwards, axis)


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    indices = order(arrays[0], attributes["axis"], attributes["descending"])
    return numpy.take_along_axis(arrays[0], indices, attributes["axis"]), indices


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    rows, dtype = Rows.of("sort", types, attributes), types[0].dtype
    descending = bool(attributes["descending"])
    parallel = ParallelSort("sort", dtype, rows, descending, box, machine)
    launches: list[Launch] = []
    if parallel.wanted != ALWAYS:
        launches.append(_short(dtype, rows, descending, parallel, box, machine))
    if parallel.wanted == NEVER:
        return Steps(tuple(launches))
    launches += [*parallel.launches(), _write(parallel)]
    return Steps(tuple(launches), parallel.temporaries())


def _short(
    dtype: DType, rows: Rows, descending: bool, other: ParallelSort, box: Box, machine: Machine
) -> Launch:
    """Row after row in the scratch memory of a thread."""
    code = Code("sort", machine, box)
    own = ~other.wanted
    pairs = Pairs.scratch(code, key_type(dtype), own.where(rows.length, 0))
    x, count = code.input("x0", dtype), code.size(rows.length)
    with code.range(code.start, code.stop) as row:
        start, stride = rows.start(code, row), rows.stride(code)
        fill_pairs(code, x.part(start), stride, 0, count, pairs, descending)
        found = pairs.part(radix.sort(code, pairs, count))
        write_sorted(code, x.part(start), stride, start, found, 0, count)
    units = own.where(rows.count, 0)
    return code.launch(units, rows.elements, reason="each row sorted by one thread")


def _write(parallel: ParallelSort) -> Launch:
    """The results of long rows, part by part."""
    code = Code("sort_write", parallel.machine, parallel.box)
    with code.range(code.start, code.stop) as item:
        row, _, low, high = parallel.part_of(code, item)
        pairs = parallel.pairs(code, row).part(parallel.begin(code, row))
        start = parallel.rows.start(code, row)
        x = code.input("x0", parallel.dtype).part(start)
        write_sorted(code, x, parallel.rows.stride(code), start, pairs, low, high)
    return parallel.launch(code, "values in sorted order")


SORT = Routine((1, 1), infer, evaluate, lower, guards)
