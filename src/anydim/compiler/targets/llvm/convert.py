"""LLVM's conversions between its element types, an instruction each."""

from __future__ import annotations

from anydim.base.dtypes import DType
from anydim.compiler.targets.llvm.lanes import Lanes


def convert(v: Lanes, value: str, wanted: DType) -> str:
    """Convert a value of v's type to another element type; floats must be in range."""
    instruction = _instruction(v.dtype, wanted)
    return v.cast(instruction, value, wanted) if instruction else value


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
