"""Small makers of loop IR values: constants, spread, converted, added, operated on."""

from __future__ import annotations

from anydim.base.dtypes import DType, boolean
from anydim.kernels import ir
from anydim.lang.functions import FUNCTIONS


def number(dtype: DType, value: int | float | bool, lanes: int = 1) -> ir.Const:
    """A constant of an element type."""
    if dtype == boolean:
        value = bool(value)
    else:
        value = float(value) if dtype.is_float else int(value)
    return ir.Const(ir.Type(dtype, lanes), value)


def splat(value: ir.Value, lanes: int) -> ir.Value:
    """A scalar in every lane; a value that has lanes already is left alone."""
    if value.type.lanes == lanes:
        return value
    if isinstance(value, ir.Const):
        return ir.Const(ir.Type(value.type.dtype, lanes), value.value)
    return ir.Splat(ir.Type(value.type.dtype, lanes), value)


def convert(value: ir.Value, dtype: DType) -> ir.Value:
    """A value as another element type (numpy's astype); constants are converted here."""
    if value.type.dtype == dtype:
        return value
    if isinstance(value, ir.Const) and _plain(value.value, dtype):
        return number(dtype, value.value, value.type.lanes)
    return ir.Convert(ir.Type(dtype, value.type.lanes), value)


def _plain(value: int | float | bool, dtype: DType) -> bool:
    return dtype.is_float or abs(value) < 2**7


def operate(function: str, *arguments: ir.Value) -> ir.Value:
    """An Op with the type its function gives; all arguments alike in lanes and type."""
    last = arguments[-1].type
    row = FUNCTIONS.get(function)
    if row is not None and row.result == "bool":
        return ir.Op(ir.Type(boolean, last.lanes), function, arguments)
    return ir.Op(last, function, arguments)


def near(at: ir.Value, mask: ir.Value) -> ir.Value:
    """An offset for a load by a mask that may be off in every lane: the tensor's first then.

    Lanes that are off touch no memory, but far outside of the tensor they take as long as hundreds
    of loads where the page is not mapped.
    """
    some = ir.Reduce(ir.FLAG, "max", mask) if mask.type.lanes > 1 else mask
    return operate("select", some, at, ir.Const(at.type, 0))


def add(left: ir.Value, right: ir.Value) -> ir.Value:
    """The sum of two index values, with constants folded."""
    if isinstance(left, ir.Const) and isinstance(right, ir.Const):
        return ir.Const(left.type, left.value + right.value)
    if isinstance(left, ir.Const) and left.value == 0:
        return right
    if isinstance(right, ir.Const) and right.value == 0:
        return left
    return ir.Op(left.type, "add", (left, right))
