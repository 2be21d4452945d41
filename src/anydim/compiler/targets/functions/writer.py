"""Builder for expansions of functions: named values of loop IR, one operation each, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import TypeAlias

from anydim.base.dtypes import DType, boolean, float64, int32, int64, uint32, uint64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import Number, Operators, apply, fma, select
from anydim.compiler.targets.functions.primitives import PREDICATES

Quotient: TypeAlias = tuple[ir.Value, ir.Value]
Apply: TypeAlias = "Callable[[str, ir.Type, tuple[ir.Value, ...]], ir.Value]"
Change: TypeAlias = "Callable[[ir.Value, DType], ir.Value]"

_SIGNED: dict[int, DType] = {32: int32, 64: int64}
_UNSIGNED: dict[DType, DType] = {int32: uint32, int64: uint64}


@cache
def type_of(dtype: DType, lanes: int) -> ir.Type:
    """Return the type of a value; cached, since there are many values of few types."""
    return ir.Type(dtype, lanes)


def result_type(function: str, kind: ir.Type) -> ir.Type:
    """Return the result type of a function whose last argument has type `kind`."""
    return type_of(boolean, kind.lanes) if function in PREDICATES else kind


class Expander(Writer):
    """Steps in progress, and facts about the values that they name.

    `apply` and `change` legalise functions and conversions for the target. `constants` and
    `quotients` are facts about named values: a number in every lane, a division with its numerator
    and denominator. `helpers` are functions that steps call, each once per module.
    """

    def __init__(self, apply: Apply, change: Change) -> None:
        super().__init__("_")
        self.apply = apply
        self.change = change
        self.constants: dict[str, ir.Const] = {}
        self.quotients: dict[str, Quotient] = {}
        self.helpers: dict[str, ir.Function] = {}

    def name(self, value: ir.Value) -> ir.Value:
        """Name a value, computed here."""
        return value if isinstance(value, (ir.Var, ir.Const, ir.Get)) else self.let(value)

    def register(self, value: ir.Value) -> ir.Get:
        """Return a new register with a value."""
        name = self.fresh("r")
        self.emit(ir.Declare(name, value))
        return ir.Get(value.type, name)

    def helper(
        self, name: str, parameters: tuple[ir.Pointer | ir.Scalar, ...],
        write: Callable[[Expander], None],
    ) -> None:  # fmt: skip
        """Define a helper function for rare cases; `write` writes its body."""
        if name not in self.helpers:
            with self.block() as body:
                write(self)
            self.helpers[name] = ir.Function(name, parameters, tuple(body), quick=True)

    def quotient_of(self, value: ir.Value) -> Quotient | None:
        """Return numerator and denominator of a known quotient."""
        return self.quotients.get(value.name) if isinstance(value, (ir.Var, ir.Get)) else None

    def constant_of(self, value: ir.Value) -> int | float | bool | None:
        """Return the number that a value is known to be in every lane."""
        if isinstance(value, ir.Splat):
            return self.constant_of(value.argument)
        found = self.constants.get(value.name) if isinstance(value, (ir.Var, ir.Get)) else value
        return found.value if isinstance(found, ir.Const) else None


class Lanes(Operators["Lanes"]):
    """A named value; operations on it emit the target's primitives and name their results."""

    __slots__ = ("value", "writer")

    def __init__(self, writer: Expander, value: ir.Value) -> None:
        self.writer = writer
        self.value = value

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def lanes(self) -> int:
        return self.value.type.lanes

    def of(self, value: ir.Value) -> Lanes:
        """Name another value."""
        return Lanes(self.writer, self.writer.name(value))

    def like(self, other: Lanes | Number) -> Lanes:
        """Convert an operand to this type: numbers become constants in every lane."""
        if isinstance(other, Lanes):
            return other
        return Lanes(self.writer, ir.Const(self.value.type, other))

    def apply_function(self, function: str, arguments: tuple[Lanes, ...]) -> Lanes:
        values = tuple([argument.value for argument in arguments])
        return Lanes(self.writer, self.writer.apply(function, self.value.type, values))

    def as_(self, dtype: DType) -> Lanes:
        """Convert as numpy's astype does."""
        return Lanes(self.writer, self.writer.change(self.value, dtype))

    def bits(self, dtype: DType) -> Lanes:
        """Bit cast to a type of the same width."""
        return self.of(ir.Bitcast(type_of(dtype, self.lanes), self.value))

    @property
    def words(self) -> Lanes:
        """Bit cast to a signed integer."""
        return self.bits(_SIGNED[self.dtype.bits])

    def below(self, limit: float) -> Lanes:
        """Minimum with a limit; NaN stays NaN."""
        return select(self > limit, limit, self)

    def above(self, limit: float) -> Lanes:
        """Maximum with a limit; NaN stays NaN."""
        return select(self < limit, limit, self)

    def polynomial(self, coefficients: tuple[float, ...]) -> Lanes:
        """Horner's scheme; the coefficient of the highest power comes first."""
        total = self.like(coefficients[0])
        for coefficient in coefficients[1:]:
            total = fma(total, self, coefficient)
        return total

    def shift_in_zeros(self, count: int) -> Lanes:
        """Logical right shift of a signed integer."""
        kind = type_of(_UNSIGNED[self.dtype], self.lanes)
        moved = ir.Op(kind, "shift_right", (ir.Bitcast(kind, self.value), ir.Const(kind, count)))
        return self.of(ir.Bitcast(self.value.type, moved))

    def bit(self, bit: int) -> Lanes:
        """Whether any of these bits is 1."""
        return (self & bit).differs(0)

    def quotient(self, top: Lanes, bottom: Lanes) -> Lanes:
        """Record that this value is top / bottom, except for clamping; returns it."""
        if isinstance(self.value, (ir.Var, ir.Get)):
            self.writer.quotients[self.value.name] = top.value, bottom.value
        return self

    # ---- registers, loops and branches ---------------------------------------------------------

    def register(self) -> Lanes:
        """Return a register with this value."""
        return Lanes(self.writer, self.writer.register(self.value))

    def set(self, value: Lanes) -> None:
        """Assign to a register."""
        assert isinstance(self.value, ir.Get)
        self.writer.emit(ir.Assign(self.value.name, value.value))

    @contextmanager
    def when_any(self) -> Iterator[None]:
        """Guard the emitted steps: they run if this flag holds in any lane, which is rare."""
        with self.writer.block() as body:
            yield
        self.writer.emit(ir.If(_any(self), tuple(body), rare=True))


@contextmanager
def while_any(condition: Callable[[], Lanes]) -> Iterator[None]:
    """Loop over the emitted steps while the flags of `condition` hold in any lane."""
    first = condition()
    writer = first.writer
    goes_on = writer.register(_any(first))
    with writer.block() as body:
        yield
        writer.emit(ir.Assign(goes_on.name, _any(condition())))
    writer.emit(ir.While(goes_on, tuple(body)))


def _any(flags: Lanes) -> ir.Value:
    return flags.value if flags.lanes == 1 else ir.Reduce(ir.FLAG, "max", flags.value)


def sqrt(x: Lanes) -> Lanes:
    """The square root of a float."""
    return apply("sqrt", x)


def copysign(size: Lanes, sign: Lanes) -> Lanes:
    """The magnitude of one number with the sign of another."""
    return apply("copysign", size, sign)


def in_double(write: Callable[..., Lanes]) -> Callable[..., Lanes]:
    """Use the function for float64; compute float32 in float64 and round."""

    @wraps(write)
    def either(*arguments: Lanes) -> Lanes:
        dtype = arguments[-1].dtype
        return write(*(argument.as_(float64) for argument in arguments)).as_(dtype)

    return either
