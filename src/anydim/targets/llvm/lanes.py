"""Instructions on values of one type, a scalar or a vector of it; operands are LLVM names."""

from __future__ import annotations

from anydim.base.dtypes import DType, boolean, float64, int32, int64
from anydim.targets.llvm.emitter import Emitter
from anydim.targets.llvm.spelling import constant, suffix, type_text

BITS: dict[int, DType] = {32: int32, 64: int64}


class Lanes:
    """Writes instructions whose operands have element type `dtype` and `lanes` lanes."""

    def __init__(self, emitter: Emitter, dtype: DType, lanes: int) -> None:
        self.emitter = emitter
        self.dtype = dtype
        self.lanes = lanes
        self.text = type_text(dtype, lanes)
        self.flags = type_text(boolean, lanes)

    def like(self, dtype: DType) -> Lanes:
        """The same number of lanes of another element type."""
        return self if dtype == self.dtype else Lanes(self.emitter, dtype, self.lanes)

    def constant(self, value: int | float | bool) -> str:
        return constant(self.dtype, value, self.lanes)

    def binary(self, instruction: str, a: str, b: str) -> str:
        return self.emitter.pure(f"{instruction} {self.text} {a}, {b}", (a, b))

    def intrinsic(self, name: str, *arguments: str) -> str:
        """llvm.NAME on arguments of this type, with a result of this type."""
        full = f"llvm.{name}.{suffix(self.dtype, self.lanes)}"
        return self.emitter.intrinsic(self.text, full, *((self.text, a) for a in arguments))

    def compare(self, predicate: str, a: str, b: str) -> str:
        """Flags of an icmp or fcmp: 'icmp slt', 'fcmp olt', ..."""
        return self.binary(predicate, a, b)

    def select(self, flag: str, a: str, b: str) -> str:
        text = f"select {self.flags} {flag}, {self.text} {a}, {self.text} {b}"
        return self.emitter.pure(text, (flag, a, b))

    def flag(self, instruction: str, a: str, b: str) -> str:
        """'and', 'or' or 'xor' of flags."""
        return self.emitter.pure(f"{instruction} {self.flags} {a}, {b}", (a, b))

    def opposite(self, flag: str) -> str:
        return self.flag("xor", flag, constant(boolean, True, self.lanes))

    def cast(self, instruction: str, value: str, dtype: DType) -> str:
        """The value as another type by one instruction: fpext, trunc, bitcast, ..."""
        text = f"{instruction} {self.text} {value} to {type_text(dtype, self.lanes)}"
        return self.emitter.pure(text, (value,))

    # ---- floating point ------------------------------------------------------------------------

    def add(self, a: str, b: str) -> str:
        return self.binary("fadd", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.binary("fsub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.binary("fmul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.binary("fdiv", a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c: one rounding where the machine has it, else two."""
        return self.intrinsic("fmuladd", a, b, c)

    def neg(self, a: str) -> str:
        return self.emitter.pure(f"fneg {self.text} {a}", (a,))

    def abs(self, a: str) -> str:
        return self.intrinsic("fabs", a)

    def copysign(self, size: str, sign: str) -> str:
        return self.intrinsic("copysign", size, sign)

    def below(self, limit: float, a: str) -> str:
        """The smaller of both; NaN stays NaN."""
        bound = self.constant(limit)
        return self.select(self.compare("fcmp ogt", a, bound), bound, a)

    def above(self, limit: float, a: str) -> str:
        """The larger of both; NaN stays NaN."""
        bound = self.constant(limit)
        return self.select(self.compare("fcmp olt", a, bound), bound, a)

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """Horner's scheme; the coefficient of the highest power comes first."""
        total = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            total = self.fma(total, x, self.constant(coefficient))
        return total

    # ---- the bits of floating point ------------------------------------------------------------

    @property
    def bits(self) -> Lanes:
        """Integers as wide as this type."""
        return self.like(BITS[self.dtype.bits])

    def to_bits(self, value: str) -> str:
        return self.cast("bitcast", value, BITS[self.dtype.bits])

    def from_bits(self, value: str) -> str:
        return self.bits.cast("bitcast", value, self.dtype)

    # ---- doubles for singles -------------------------------------------------------------------

    def widen(self, value: str) -> str:
        return self.cast("fpext", value, float64)

    def narrow(self, value: str) -> str:
        """A float64 value as this type."""
        return self.like(float64).cast("fptrunc", value, self.dtype)
