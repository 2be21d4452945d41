"""LLVM's syntax of types and constants."""

from __future__ import annotations

import re
import struct
from functools import cache, lru_cache

import numpy

from anydim.base.dtypes import DType, convert_array
from anydim.lang.functions import unsigned_type

_FLOATS = {16: "half", 32: "float", 64: "double"}  # other floats are stored as their bits
_PLAIN = re.compile(r"[A-Za-z_.$][A-Za-z0-9_.$]*")


@cache
def type_text(dtype: DType, lanes: int = 1) -> str:
    """Return the type of a value: 'float', '<8 x i1>', ..."""
    element = _FLOATS[dtype.bits] if _computes(dtype) else f"i{_width(dtype)}"
    return element if lanes == 1 else f"<{lanes} x {element}>"


@cache
def memory_text(dtype: DType, lanes: int = 1) -> str:
    """Return the type of the same value in memory, where a boolean takes a byte."""
    if dtype.kind != "bool":
        return type_text(dtype, lanes)
    return "i8" if lanes == 1 else f"<{lanes} x i8>"


@cache
def suffix(dtype: DType, lanes: int = 1) -> str:
    """Return the mangled type in the name of an overloaded intrinsic: 'f32', 'v8i1', ..."""
    element = f"{'f' if _computes(dtype) else 'i'}{_width(dtype)}"
    return element if lanes == 1 else f"v{lanes}{element}"


def _computes(dtype: DType) -> bool:
    """Whether LLVM computes with it as a float."""
    return dtype.is_float and dtype.format is None


def _width(dtype: DType) -> int:
    return 1 if dtype.kind == "bool" else 8 * dtype.bytes


def constant(dtype: DType, value: int | float | bool, lanes: int = 1) -> str:
    """Return a number as an operand, wrapped or rounded to the element type."""
    return _constant(dtype, value, lanes, value == 0 and str(value)[0] == "-")


@lru_cache(maxsize=65536)
def _constant(dtype: DType, value: int | float | bool, lanes: int, negative_zero: bool) -> str:
    """Return a number as an operand; `negative_zero` distinguishes -0.0 from 0.0."""
    text = _scalar(dtype, value)
    return text if lanes == 1 else f"splat ({type_text(dtype)} {text})"


def _scalar(dtype: DType, value: int | float | bool) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.format is not None or dtype.stored:
        with numpy.errstate(all="ignore"):
            narrow = convert_array(numpy.array([value]), dtype.numpy)
        value, dtype = int(narrow.view(unsigned_type(dtype).numpy)[0]), unsigned_type(dtype)
    if dtype.is_float:
        with numpy.errstate(over="ignore"):
            rounded = float(dtype.numpy.type(value))
        if dtype.bits == 16:
            return f"0xH{struct.unpack('<H', struct.pack('<e', rounded))[0]:04X}"
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return str(wrapped - (1 << dtype.bits) if wrapped >> (dtype.bits - 1) else wrapped)


def symbol(name: str) -> str:
    """Return a function's name as it is written in a module."""
    if _PLAIN.fullmatch(name):
        return f"@{name}"
    escaped = "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else _escape(c) for c in name)
    return f'@"{escaped}"'


def _escape(character: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in character.encode())
