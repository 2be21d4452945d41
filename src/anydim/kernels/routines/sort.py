"""Sorting along an axis: the values in order and the places they came from. Stable.

Rows are sorted one by one in the memory of a thread; few long rows in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from anydim.base.dtypes import DType, int64, is_float
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.routines import radix
from anydim.kernels.routines.arguments import axis_of, expect_inputs, expect_ordered
from anydim.kernels.routines.code import Code
from anydim.kernels.routines.keys import key_type
from anydim.kernels.routines.parallel_sort import ParallelSort
from anydim.kernels.routines.radix import Pairs
from anydim.kernels.routines.record import Arrays, Attributes, Routine, Steps, Types
from anydim.kernels.routines.rows import Rows, fill_pairs, fitting
from anydim.kernels.write.term import Like, Term
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard

ATTRIBUTES: dict[str, object] = {"axis": -1, "descending": False}


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    expect_inputs("sort", types, 1, 1)
    expect_ordered("sort", types[0])
    axis_of("sort", attributes["axis"], types[0].rank)
    return types[0], TensorType(int64, types[0].shape)


def guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    return fitting("sort", _rows(types, attributes).length, box)


def _rows(types: Types, attributes: Attributes) -> Rows:
    return Rows.of(types[0], axis_of("sort", attributes["axis"], types[0].rank))


def order(x: numpy.ndarray, axis: int, descending: bool) -> numpy.ndarray:
    """numpy's stable argsort, also from the largest on: NaN first, ties to the lower index."""
    if is_float(x.dtype) and x.itemsize < 4:
        x = x.astype(numpy.float32)  # the order of bfloat16 is not numpy's
    if not descending:
        return numpy.argsort(x, axis=axis, kind="stable")
    backwards = numpy.argsort(numpy.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - numpy.flip(backwards, axis)


def evaluate(
    arrays: Arrays, attributes: Attributes, sizes: Mapping[str, int]
) -> tuple[numpy.ndarray, ...]:
    places = order(arrays[0], attributes["axis"], attributes["descending"])
    return numpy.take_along_axis(arrays[0], places, attributes["axis"]), places


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    rows, dtype = _rows(types, attributes), types[0].dtype
    descending = bool(attributes["descending"])
    parallel = ParallelSort("sort", dtype, rows, descending, box, machine)
    launches: list[Launch] = []
    if parallel.wanted.constant != 1:
        launches.append(_short(dtype, rows, descending, parallel, box, machine))
    if parallel.wanted.constant == 0:
        return Steps(tuple(launches))
    launches += [*parallel.launches(), _write(parallel)]
    return Steps(tuple(launches), parallel.temporaries())


def _short(
    dtype: DType, rows: Rows, descending: bool, other: ParallelSort, box: Box, machine: Machine
) -> Launch:
    """Row after row in the memory of a thread."""
    code = Code("sort", machine, box)
    own = 1 - other.wanted
    pairs = Pairs.scratch(code, key_type(dtype), rows.length * own)
    x, count = code.input("x0", dtype), code.size(rows.length)
    with code.range(code.start, code.stop) as row:
        start = rows.start(code, row)
        fill_pairs(code, x.part(start), rows.stride(code), 0, count, pairs, descending)
        begin = radix.sort(code, pairs, count)
        _results(code, dtype, rows, start, pairs.part(begin), 0, count)
    return code.launch(rows.count * own, rows.count * rows.length, reason="rows are sorted alone")


def _write(parallel: ParallelSort) -> Launch:
    """The results of long rows, part by part."""
    code = Code("sort_write", parallel.machine, parallel.box)
    with code.range(code.start, code.stop) as item:
        row, _, low, high = parallel.place(code, item)
        pairs = parallel.pairs(code, row).part(parallel.begin(code, row))
        start = parallel.rows.start(code, row)
        _results(code, parallel.dtype, parallel.rows, start, pairs, low, high)
    return parallel.launch(code, "values are put in order")


def _results(
    code: Code, dtype: DType, rows: Rows, start: Term, pairs: Pairs, low: Like, high: Term
) -> None:
    """The values behind sorted pairs low ... high of a row, and their places."""
    x = code.input("x0", dtype).part(start)
    values, places = code.output("y0", dtype).part(start), code.output("y1", int64).part(start)
    stride = rows.stride(code)
    with code.range(low, high) as i:
        found = code.let(pairs.indices[i].as_(int64))
        values[i * stride] = x[found * stride]
        places[i * stride] = found


SORT = Routine(infer, evaluate, lower, guards)
