"""LLVM's conversions between its element types, an instruction each."""

from __future__ import annotations

from anydim.base.dtypes import DType, bfloat16, float32, int32
from anydim.compiler.targets.llvm.dots import round_to_bfloat16
from anydim.compiler.targets.llvm.lanes import Lanes


def convert(v: Lanes, value: str, wanted: DType) -> str:
    """Convert a value of v's type to another element type; floats must be in range.

    In WebAssembly, vectors of narrow integers are int32 between: LLVM 22 would convert one lane at
    a time.
    """
    if v.lanes > 1 and v.emitter.module.processor.is_wasm and _is_narrow(v.dtype, wanted):
        return convert(v.like(int32), convert(v, value, int32), wanted)
    if wanted == bfloat16 and v.dtype == float32:
        return round_to_bfloat16(v, value)
    instruction = _instruction(v.dtype, wanted)
    return v.cast(instruction, value, wanted) if instruction else value


def _is_narrow(have: DType, wanted: DType) -> bool:
    """Whether it is a conversion between floats and integers of fewer than 32 bits."""
    integer = wanted if have.is_float else have
    return have.is_float != wanted.is_float and integer.bits < int32.bits


def _instruction(have: DType, wanted: DType) -> str:
    """Return LLVM's conversion instruction; '' if both types are the same to it."""
    if have == wanted:
        return ""
    if have.is_float and wanted.is_float:
        return "fpext" if wanted.bits > have.bits else "fptrunc"
    if have.is_float:
        return "fptosi" if wanted.kind == "int" else "fptoui"
    if wanted.is_float:
        return "sitofp" if have.kind == "int" else "uitofp"
    if wanted.bits < have.bits:
        return "trunc"
    if wanted.bits == have.bits:
        return ""
    return "sext" if have.kind == "int" else "zext"
