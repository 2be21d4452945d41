"""Values of loop IR, and Python's operators for them: `(a + 1) * b < c`."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias, TypeVar, Union

from anydim.base.dtypes import DTYPES, DType, bfloat16, boolean, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels.ir.operators import Number, Operators
from anydim.lang.functions import FUNCTIONS

Record = TypeVar("Record")


@dataclass(frozen=True)
class Type:
    """Element type and number of vector lanes."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return f"{self.dtype}x{self.lanes}" if self.lanes > 1 else str(self.dtype)

    @cached_property
    def _text(self) -> str:
        return f"Type(dtype={self.dtype!r}, lanes={self.lanes!r})"

    def __repr__(self) -> str:  # hashed for kernel names, on every line
        return self._text


INDEX = Type(int64)
FLAG = Type(boolean)


Like: TypeAlias = Union["Value", Number]


class Value(Operators["Value"]):
    """A typed value that a step computes, one element per lane."""

    type: Type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def like(self, other: Value | Number) -> Value:
        """The other operand as a value; a number becomes a constant of this type."""
        return other if isinstance(other, Value) else number(self.dtype, other)

    def apply_function(self, function: str, arguments: tuple[Value, ...]) -> Value:
        """Apply a function lane by lane; scalars are broadcast to the lanes of vectors."""
        lanes = max([argument.type.lanes for argument in arguments])
        if lanes > 1:
            arguments = tuple([splat(argument, lanes) for argument in arguments])
        elif function in _FOLDED and self.type == INDEX:
            return _FOLDED[function](*arguments)
        return operate(function, *arguments)

    # ---- conversions ---------------------------------------------------------------------------

    def as_(self, dtype: DType) -> Value:
        """Converted, as numpy's astype does it."""
        return convert(self, dtype)

    def bits(self, dtype: DType) -> Value:
        """The same bits as another type of the same width."""
        return self if dtype == self.dtype else Bitcast(Type(dtype, self.type.lanes), self)

    def spread(self, lanes: int) -> Value:
        """Broadcast to all lanes."""
        return splat(self, lanes)

    def extract(self, lane: int) -> Value:
        """One lane as a scalar."""
        return Extract(Type(self.dtype), self, lane)

    def reduce_lanes(self, function: str) -> Value:
        """All lanes reduced by 'add', 'mul', 'min' or 'max'."""
        return Reduce(Type(self.dtype), function, self)

    @property
    def any(self) -> Value:
        """Whether the flag is true in any lane."""
        return self if self.type.lanes == 1 else self.reduce_lanes("max")

    @property
    def flags(self) -> Value:
        """8, 16, 32 or 64 flags as the bits of an unsigned integer."""
        return Bitcast(Type(DTYPES[f"uint{self.type.lanes}"]), self)

    @property
    def ones(self) -> Value:
        """Population count."""
        return operate("ones", self)

    @property
    def truth(self) -> Value:
        """Whether it is nonzero; NaN counts as nonzero."""
        return self if self.dtype == boolean else self.differs(0)


@dataclass(frozen=True)
class Const(Value):
    """A number, the same in every lane. 0.0 and -0.0 differ."""

    type: Type
    value: int | float | bool

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or self.type != other.type:
            return False
        if self.value == 0 == other.value:
            return str(self.value)[0] == str(other.value)[0]
        return self.value == other.value or self.value is other.value


@dataclass(frozen=True)
class Var(Value):
    """A parameter, a loop variable or a `Let`, by name."""

    type: Type
    name: str


@dataclass(frozen=True)
class Get(Value):
    """The current value of a register made by `Declare`."""

    type: Type
    name: str


@dataclass(frozen=True)
class Op(Value):
    """A scalar function applied lane by lane."""

    type: Type
    function: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True)
class Convert(Value):
    """Lane by lane conversion to another element type (numpy's astype).

    A float that `fits` is not NaN and in the range of the integer type; the result for any other
    float is unspecified. A float32 that `fits` bfloat16 may become zero if it is subnormal.
    """

    type: Type
    argument: Value
    fits: bool = False


@dataclass(frozen=True)
class Bitcast(Value):
    """The same bits as another type: with elements of the same width, or with vectors of the same
    width.

    Flags are one bit each: 8, 16, 32 or 64 lanes make one unsigned integer, lane 0 in the lowest
    bit.
    """

    type: Type
    argument: Value


@dataclass(frozen=True)
class Load(Value):
    """`lanes` consecutive elements from `offset`; lanes where `mask` is false yield 0."""

    type: Type
    buffer: str
    offset: Value
    mask: Value | None = None


@dataclass(frozen=True)
class Gather(Value):
    """One element per lane from a vector of int64 offsets; masked lanes yield 0."""

    type: Type
    buffer: str
    offsets: Value
    mask: Value | None = None


@dataclass(frozen=True)
class Splat(Value):
    """A scalar broadcast to every lane."""

    type: Type
    argument: Value


@dataclass(frozen=True)
class Iota(Value):
    """0, 1, 2, ... lanes-1."""

    type: Type


@dataclass(frozen=True)
class Reduce(Value):
    """All lanes reduced by 'add', 'mul', 'min', 'max' to a scalar (any order)."""

    type: Type
    function: str
    argument: Value


@dataclass(frozen=True)
class Shuffle(Value):
    """Lanes selected from left (0..n-1) and right (n..2n-1)."""

    type: Type
    left: Value
    right: Value
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class Permute(Value):
    """Lanes selected by int32 indices: from left (0..n-1) and right (n..2n-1), modulo 2n.

    The indices are computed at run time, on a machine that `permutes`.
    """

    type: Type
    left: Value
    right: Value
    places: Value


@dataclass(frozen=True)
class Extract(Value):
    """One lane as a scalar."""

    type: Type
    argument: Value
    lane: int


@dataclass(frozen=True)
class Address(Value):
    """The address of an element: an int64, or the argument for a pointer parameter of a `Call`."""

    buffer: str
    offset: Value

    type = INDEX


@dataclass(frozen=True)
class LoadAt(Value):
    """The scalar at an address, plus `offset` elements of its type."""

    type: Type
    address: Value
    offset: Value


@dataclass(frozen=True)
class Item(Value):
    """Index of the work-item in its group: 0, 1, ... `Kernel.group` - 1."""

    type = INDEX


# ---- constructors ------------------------------------------------------------------------------


def number(dtype: DType, value: int | float | bool, lanes: int = 1) -> Const:
    """A constant of an element type."""
    if dtype == boolean:
        value = bool(value)
    else:
        value = float(value) if dtype.is_float else int(value)
    return Const(Type(dtype, lanes), value)


def constant(value: int | float | bool, dtype: DType = int64, lanes: int = 1) -> Value:
    """A constant, int64 by default."""
    return number(dtype, value, lanes)


def as_value(value: Like, dtype: DType = int64) -> Value:
    """A value unchanged, a plain number as a constant."""
    return value if isinstance(value, Value) else number(dtype, value)


def variable(name: str) -> Var:
    """An int64 parameter, loop variable or Let."""
    return Var(INDEX, name)


START, STOP = variable("start"), variable("stop")  # the part of its range that a call runs


def variables(record: type[Record]) -> Record:
    """A record of variables: each field is the variable of its name."""
    return record(**{name: variable(name) for name in record.__annotations__})


def register(name: str) -> Get:
    """The current value of an int64 register."""
    return Get(INDEX, name)


def iota(lanes: int, dtype: DType = int64) -> Value:
    """0, 1, 2, ... one per lane."""
    return Iota(Type(dtype, lanes))


def shuffle(left: Value, right: Value, lanes: tuple[int, ...]) -> Value:
    """Lanes selected from left (0..n-1) and right (n..2n-1)."""
    return Shuffle(Type(left.dtype, len(lanes)), left, right, lanes)


def for_pairs(value: Value) -> Value:
    """A float32 as bfloat16 for products of pairs, which take subnormal numbers as zeros."""
    return Convert(Type(bfloat16, value.type.lanes), value, fits=True)


def splat(value: Value, lanes: int) -> Value:
    """A scalar broadcast to every lane; a vector of `lanes` lanes is returned unchanged."""
    if value.type.lanes == lanes:
        return value
    kind = Type(value.dtype, lanes)
    return Const(kind, value.value) if isinstance(value, Const) else Splat(kind, value)


def convert(value: Value, dtype: DType) -> Value:
    """A value converted to another element type (numpy's astype); constants are converted here."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Const) and (dtype.is_float or _fits_small(value.value, dtype)):
        return number(dtype, value.value, value.type.lanes)
    return Convert(Type(dtype, value.type.lanes), value)


def _fits_small(value: int | float | bool, dtype: DType) -> bool:
    """Whether a type represents a small constant: -5 of int8 is 251 as uint8."""
    return abs(value) < 2**7 and (value >= 0 or dtype.kind != "uint")


def operate(function: str, *arguments: Value) -> Value:
    """An Op with the result type of its function; all arguments have the same lanes and type."""
    last = arguments[-1].type
    row = FUNCTIONS.get(function)
    if row is not None and row.result == "bool":
        return Op(Type(boolean, last.lanes), function, arguments)
    return Op(last, function, arguments)


def _sum(left: Value, right: Value) -> Value:
    """Sum of two index values; constants are folded and come last."""
    if isinstance(left, Const):
        left, right = right, left
    if isinstance(right, Const):
        if isinstance(left, Const):
            return Const(INDEX, left.value + right.value)
        if right.value == 0:
            return left
    return Op(INDEX, "add", (left, right))


def _difference(left: Value, right: Value) -> Value:
    if isinstance(right, Const):
        return _sum(left, Const(INDEX, -right.value))
    return Op(INDEX, "sub", (left, right))


def _product(left: Value, right: Value) -> Value:
    """Product of two index values; constants are folded and come last."""
    if isinstance(left, Const):
        left, right = right, left
    if isinstance(right, Const):
        if isinstance(left, Const):
            return Const(INDEX, left.value * right.value)
        if right.value in (0, 1):
            return left if right.value else right
    return Op(INDEX, "mul", (left, right))


_FOLDED = {"add": _sum, "sub": _difference, "mul": _product}
