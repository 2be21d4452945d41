"""C literals: each is parsed back to exactly the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy

from anydim.base.dtypes import DType, convert_array
from anydim.compiler.targets.c.dialect import Literals, storage_name
from anydim.lang.functions import unsigned_type

_FLOATS = {"f32": numpy.float32, "f64": numpy.float64}


def literal(dtype: DType, value: int | float | bool, literals: Literals) -> str:
    """Return a number of an element type, wrapped or rounded to it."""
    if dtype.kind == "bool":
        return "1" if value else "0"
    name = storage_name(dtype)
    if name in _FLOATS:
        return _float(name, value, literals)
    if dtype.is_float or dtype.stored:
        with numpy.errstate(all="ignore"):
            narrow = convert_array(numpy.array([value]), dtype.numpy)
        value, dtype = int(narrow.view(unsigned_type(dtype).numpy)[0]), unsigned_type(dtype)
    return _integer(dtype, int(value), literals)


def _float(name: str, value: float, literals: Literals) -> str:
    with numpy.errstate(over="ignore"):
        number: Any = _FLOATS[name](value)
    if math.isnan(number):
        return literals.nan[name]
    if math.isinf(number):
        text = literals.infinity[name]
    else:
        text = str(abs(number)) + literals.suffix.get(name, "")
    return f"-{text}" if math.copysign(1, number) < 0 else text


def _integer(dtype: DType, value: int, literals: Literals) -> str:
    bits = dtype.bits
    wrapped = value & ((1 << bits) - 1)
    if dtype.kind == "int" and wrapped >> (bits - 1):
        wrapped -= 1 << bits
    suffix = (
        literals.suffix.get(storage_name(dtype), "") if abs(wrapped) >= 2**31 or bits == 0 else ""
    )
    if dtype.kind == "uint" and bits >= 32:
        suffix = literals.suffix[storage_name(dtype)]
    if wrapped == -(1 << (bits - 1)) and bits >= 32:
        return f"(-{-wrapped - 1}{suffix} - 1)"
    return f"-{-wrapped}{suffix}" if wrapped < 0 else f"{wrapped}{suffix}"
