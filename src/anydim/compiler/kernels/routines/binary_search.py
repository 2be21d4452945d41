"""The index of each element among sorted keys, by binary search."""

from __future__ import annotations

from functools import partial

import numpy

from anydim.base.dtypes import int64
from anydim.base.errors import GraphError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, select
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.arguments import expect_ordered
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
from anydim.lang.tree import TensorType
from anydim.sizes import Box, product

NAME = "find_keys"


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    """Types: elements of any shape, then a vector of keys of the same type."""
    x, keys = types
    expect_ordered(NAME, x)
    if keys.rank != 1 or keys.dtype != x.dtype:
        raise GraphError(f"operator '{NAME}': keys are {keys}, expected a vector of {x.dtype}")
    return (TensorType(int64, x.shape),)


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    """The number of keys where no key is equal; NaN equals NaN, and is the largest."""
    x, keys = arrays
    positions = numpy.searchsorted(keys, x)
    found = numpy.append(keys, keys.dtype.type(0))[positions]
    same = (found == x) | ((found != found) & (x != x))
    return (numpy.where(same & (positions < len(keys)), positions, len(keys)),)


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    code = Code(NAME, machine, box)
    x, keys = code.input("x0", types[0].dtype), code.input("x1", types[0].dtype)
    y, count = code.output("y0", int64), code.size(types[1].shape[0])
    floats = types[0].dtype.is_float

    def before(wanted: ir.Value, index: ir.Value) -> ir.Value:
        key = keys[index]
        less = key < wanted
        return less | (apply("isnan", wanted) & ~apply("isnan", key)) if floats else less

    def same(key: ir.Value, wanted: ir.Value) -> ir.Value:
        equal = key.equals(wanted)
        return equal | (apply("isnan", wanted) & apply("isnan", key)) if floats else equal

    with code.range(code.start, code.stop) as i:
        wanted = x[i]
        low, high = code.variable(0), code.variable(count)
        code.bisect(low, high, partial(before, wanted))
        inside = code.let(low() < count)
        found = inside & same(keys.load(low(), where=inside), wanted)
        y[i] = select(found, low(), count)
    elements = product(types[0].shape)
    return Steps((code.launch(elements, elements * 8, reason="binary search of keys"),))


FIND_KEYS = Routine((2, 2), infer, evaluate, lower)
