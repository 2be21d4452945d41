"""What functions are written with: named values of loop IR, one operation each, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

from anydim.base.dtypes import DType, boolean, int32, int64, uint32, uint64
from anydim.kernels import ir
from anydim.kernels.functions.primitives import PREDICATES

Quotient: TypeAlias = tuple[ir.Value, ir.Value]
Apply: TypeAlias = "Callable[[str, ir.Type, tuple[ir.Value, ...]], ir.Value]"
Change: TypeAlias = "Callable[[ir.Value, DType], ir.Value]"

_SIGNED: dict[int, DType] = {32: int32, 64: int64}
_UNSIGNED: dict[DType, DType] = {int32: uint32, int64: uint64}


@cache
def type_of(dtype: DType, lanes: int) -> ir.Type:
    """The type of a value; one object for each, since there are many values of few types."""
    return ir.Type(dtype, lanes)


def result_type(function: str, kind: ir.Type) -> ir.Type:
    """The type of a function whose last argument has type `kind`."""
    return type_of(boolean, kind.lanes) if function in PREDICATES else kind


class Writer:
    """Steps that are being written, and what is known of the values they name.

    `apply` and `change` are the functions and the conversions of the target that is written for:
    they expand what it lacks. `constants` and `quotients` hold what named values are: a number in
    every lane, a division with its numerator and denominator. `helpers` are functions that steps
    call, each once in a module.
    """

    def __init__(self, apply: Apply, change: Change) -> None:
        self.apply = apply
        self.change = change
        self.steps: list[ir.Step] = []
        self.constants: dict[str, ir.Const] = {}
        self.quotients: dict[str, Quotient] = {}
        self.helpers: dict[str, ir.Function] = {}
        self._count = 0

    def fresh(self) -> str:
        """A name that nothing else in the function has."""
        self._count += 1
        return f"_{self._count}"

    def name(self, value: ir.Value) -> ir.Value:
        """The value by a name, computed here."""
        if isinstance(value, (ir.Var, ir.Const, ir.Get)):
            return value
        name = self.fresh()
        self.steps.append(ir.Let(name, value))
        return ir.Var(value.type, name)

    def register(self, value: ir.Value) -> ir.Get:
        """A register that holds a value now."""
        name = self.fresh()
        self.steps.append(ir.Declare(name, value))
        return ir.Get(value.type, name)

    def assign(self, register: ir.Get, value: ir.Value) -> None:
        """A new value for a register."""
        self.steps.append(ir.Assign(register.name, value))

    def stack(self, dtype: DType, count: int) -> str:
        """The name of a local array."""
        name = self.fresh()
        self.steps.append(ir.Stack(name, dtype, count))
        return name

    def helper(
        self, name: str, parameters: tuple[ir.Pointer | ir.Scalar, ...],
        write: Callable[[Writer], None],
    ) -> None:  # fmt: skip
        """Have a function for what seldom runs; `write` writes its body."""
        if name not in self.helpers:
            outside, self.steps = self.steps, []
            write(self)
            body, self.steps = tuple(self.steps), outside
            self.helpers[name] = ir.Function(name, parameters, body, quick=True)

    def quotient_of(self, value: ir.Value) -> Quotient | None:
        """Numerator and denominator of a value that is known to be a quotient."""
        return self.quotients.get(value.name) if isinstance(value, (ir.Var, ir.Get)) else None

    def constant_of(self, value: ir.Value) -> int | float | bool | None:
        """The number that a value is in every lane, where that is known."""
        if isinstance(value, ir.Splat):
            return self.constant_of(value.argument)
        found = self.constants.get(value.name) if isinstance(value, (ir.Var, ir.Get)) else value
        return found.value if isinstance(found, ir.Const) else None


class Lanes:
    """Writes operations on values of one element type and number of lanes.

    Every method names its result. Arguments are names, registers and constants.
    """

    def __init__(self, writer: Writer, dtype: DType, lanes: int) -> None:
        self.writer = writer
        self.dtype = dtype
        self.lanes = lanes
        self.type = type_of(dtype, lanes)
        self.flags = type_of(boolean, lanes)

    def like(self, dtype: DType) -> Lanes:
        """The same number of lanes of another element type."""
        return self if dtype == self.dtype else Lanes(self.writer, dtype, self.lanes)

    def constant(self, value: int | float | bool) -> ir.Const:
        return ir.Const(self.type, value)

    def apply(self, function: str, *arguments: ir.Value) -> ir.Value:
        """Any function of arguments of this type (of 'select' all but the first)."""
        return self.writer.apply(function, self.type, arguments)

    def convert(self, value: ir.Value, dtype: DType) -> ir.Value:
        """A value of this type as another element type."""
        return self.writer.change(value, dtype)

    def bitcast(self, value: ir.Value, dtype: DType) -> ir.Value:
        return self.writer.name(ir.Bitcast(type_of(dtype, self.lanes), value))

    def select(self, flag: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.apply("select", flag, a, b)

    def flag(self, function: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """'and', 'or' or 'xor' of flags."""
        return self.writer.name(ir.Op(self.flags, function, (a, b)))

    def opposite(self, flag: ir.Value) -> ir.Value:
        return self.writer.name(ir.Op(self.flags, "not", (flag,)))

    # ---- arithmetic ----------------------------------------------------------------------------

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.apply("add", a, b)

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.apply("sub", a, b)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.apply("mul", a, b)

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.apply("div", a, b)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c: one rounding where the machine has it, else two."""
        return self.apply("fma", a, b, c)

    def neg(self, a: ir.Value) -> ir.Value:
        return self.apply("neg", a)

    def abs(self, a: ir.Value) -> ir.Value:
        return self.apply("abs", a)

    def sqrt(self, a: ir.Value) -> ir.Value:
        return self.apply("sqrt", a)

    def copysign(self, size: ir.Value, sign: ir.Value) -> ir.Value:
        return self.apply("copysign", size, sign)

    def below(self, limit: float, a: ir.Value) -> ir.Value:
        """The smaller of both; NaN stays NaN."""
        bound = self.constant(limit)
        return self.select(self.apply("greater", a, bound), bound, a)

    def above(self, limit: float, a: ir.Value) -> ir.Value:
        """The larger of both; NaN stays NaN."""
        bound = self.constant(limit)
        return self.select(self.apply("less", a, bound), bound, a)

    def polynomial(self, x: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
        """Horner's scheme; the coefficient of the highest power comes first."""
        total: ir.Value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            total = self.fma(total, x, self.constant(coefficient))
        return total

    def quotient(self, value: ir.Value, top: ir.Value, bottom: ir.Value) -> ir.Value:
        """The value; it is noted that it is top / bottom, but for what bounds it."""
        if isinstance(value, (ir.Var, ir.Get)):
            self.writer.quotients[value.name] = top, bottom
        return value

    # ---- bits ----------------------------------------------------------------------------------

    @property
    def bits(self) -> Lanes:
        """Signed integers as wide as this type."""
        return self.like(_SIGNED[self.dtype.bits])

    def to_bits(self, value: ir.Value) -> ir.Value:
        return self.bitcast(value, _SIGNED[self.dtype.bits])

    def from_bits(self, value: ir.Value) -> ir.Value:
        return self.bitcast(value, self.dtype)

    def shift_left(self, a: ir.Value, count: int) -> ir.Value:
        return self.apply("shift_left", a, self.constant(count))

    def shift_right(self, a: ir.Value, count: int) -> ir.Value:
        """Of a signed integer: its sign comes in."""
        return self.apply("shift_right", a, self.constant(count))

    def shift_in_zeros(self, a: ir.Value, count: int) -> ir.Value:
        """To the right, of a signed integer as if it had no sign."""
        kind = type_of(_UNSIGNED[self.dtype], self.lanes)
        moved = ir.Op(kind, "shift_right", (ir.Bitcast(kind, a), ir.Const(kind, count)))
        return self.writer.name(ir.Bitcast(self.type, moved))

    def bit(self, a: ir.Value, bit: int) -> ir.Value:
        """Whether any of these bits is 1."""
        masked = self.apply("bit_and", a, self.constant(bit))
        return self.apply("not_equal", masked, self.constant(0))

    # ---- loops and branches --------------------------------------------------------------------

    @contextmanager
    def loop(self, condition: Callable[[], ir.Value]) -> Iterator[None]:
        """What is written inside runs while the flags of `condition` hold in any lane."""
        writer = self.writer
        goes_on = writer.register(self._any(condition()))
        outside, writer.steps = writer.steps, []
        yield
        writer.assign(goes_on, self._any(condition()))
        outside.append(ir.While(goes_on, tuple(writer.steps)))
        writer.steps = outside

    @contextmanager
    def when_any(self, flags: ir.Value) -> Iterator[None]:
        """What is written inside runs where the flag holds in any lane, which is rare."""
        writer = self.writer
        outside, writer.steps = writer.steps, []
        yield
        outside.append(ir.If(self._any(flags), tuple(writer.steps), rare=True))
        writer.steps = outside

    def _any(self, flags: ir.Value) -> ir.Value:
        return flags if self.lanes == 1 else ir.Reduce(ir.FLAG, "max", flags)
