"""Emits instructions on values of one type, a scalar or a vector; operands are LLVM names."""

from __future__ import annotations

from anydim.base.dtypes import DType, boolean
from anydim.compiler.targets.llvm.emitter import Emitter
from anydim.compiler.targets.llvm.spelling import constant, suffix, type_text


class Lanes:
    """Emits instructions on operands of element type `dtype` with `lanes` lanes."""

    def __init__(self, emitter: Emitter, dtype: DType, lanes: int) -> None:
        self.emitter = emitter
        self.dtype = dtype
        self.lanes = lanes
        self.text = type_text(dtype, lanes)

    @property
    def flags(self) -> str:
        """The type of a flag for each lane."""
        return type_text(boolean, self.lanes)

    def like(self, dtype: DType) -> Lanes:
        """Return the same for another element type."""
        return self if dtype == self.dtype else Lanes(self.emitter, dtype, self.lanes)

    def constant(self, value: int | float | bool) -> str:
        return constant(self.dtype, value, self.lanes)

    def binary(self, instruction: str, a: str, b: str) -> str:
        return self.emitter.pure(f"{instruction} {self.text} {a}, {b}", (a, b))

    def intrinsic(self, name: str, *arguments: str) -> str:
        """Emit llvm.NAME on arguments of this type, with a result of this type."""
        full = f"llvm.{name}.{suffix(self.dtype, self.lanes)}"
        return self.emitter.intrinsic(self.text, full, *((self.text, a) for a in arguments))

    def compare(self, predicate: str, a: str, b: str) -> str:
        """Emit an icmp or fcmp: 'icmp slt', 'fcmp olt', ..."""
        return self.binary(predicate, a, b)

    def select(self, flag: str, a: str, b: str) -> str:
        text = f"select {self.flags} {flag}, {self.text} {a}, {self.text} {b}"
        return self.emitter.pure(text, (flag, a, b))

    def flag(self, instruction: str, a: str, b: str) -> str:
        """Emit 'and', 'or' or 'xor' of flags."""
        return self.emitter.pure(f"{instruction} {self.flags} {a}, {b}", (a, b))

    def opposite(self, flag: str) -> str:
        return self.flag("xor", flag, constant(boolean, True, self.lanes))

    def cast(self, instruction: str, value: str, dtype: DType) -> str:
        """Emit a conversion instruction: fpext, trunc, bitcast, ..."""
        text = f"{instruction} {self.text} {value} to {type_text(dtype, self.lanes)}"
        return self.emitter.pure(text, (value,))

    def neg(self, a: str) -> str:
        """Negate a float."""
        return self.emitter.pure(f"fneg {self.text} {a}", (a,))
