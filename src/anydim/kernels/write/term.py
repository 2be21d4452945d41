"""Values of loop IR with Python's operators: `(a + 1) * b < c` instead of nested `ir.Op`s.

Plain numbers take the type of what they meet, scalars meet vectors in every lane. Comparisons are
`<`, `<=`, `>`, `>=`, `a.equals(b)`, `a.differs(b)`; flags combine by `&`, `|`, `~`.
"""

from __future__ import annotations

from typing import Any, TypeVar, Union

from anydim.base.dtypes import DTYPES, DType, boolean, int64
from anydim.base.errors import InternalError
from anydim.kernels import ir
from anydim.kernels.write.values import convert, number, operate, splat

Like = Union["Term", int, float, bool]
T = TypeVar("T", bound="Term")
_UNSIGNED = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor", "bit_not": "not"}  # of flags


class Term:
    """A value of the loop IR."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def lanes(self) -> int:
        return self.value.type.lanes

    def of(self: T, value: ir.Value) -> T:
        """Another value, of this kind of terms."""
        return type(self)(value)

    def like(self: T, other: Like) -> T:
        """Another value as one of this type: numbers become constants."""
        found: Any = other if isinstance(other, Term) else self.of(number(self.dtype, other))
        return found

    def applied(self: T, function: str, arguments: tuple[T, ...]) -> T:
        """A function, lane by lane, of arguments of which this is the last."""
        values = [argument.value for argument in arguments]
        lanes = max([value.type.lanes for value in values])
        if lanes > 1:
            values = [splat(value, lanes) for value in values]
        return self.of(operate(function, *values))

    # ---- arithmetic ----------------------------------------------------------------------------

    def __add__(self: T, other: Like) -> T:
        return apply("add", self, self.like(other))

    def __radd__(self: T, other: Like) -> T:
        return apply("add", self.like(other), self)

    def __sub__(self: T, other: Like) -> T:
        return apply("sub", self, self.like(other))

    def __rsub__(self: T, other: Like) -> T:
        return apply("sub", self.like(other), self)

    def __mul__(self: T, other: Like) -> T:
        return apply("mul", self, self.like(other))

    def __rmul__(self: T, other: Like) -> T:
        return apply("mul", self.like(other), self)

    def __truediv__(self: T, other: Like) -> T:
        return apply("div", self, self.like(other))

    def __rtruediv__(self: T, other: Like) -> T:
        return apply("div", self.like(other), self)

    def __floordiv__(self: T, other: Like) -> T:
        return apply("floordiv", self, self.like(other))

    def __mod__(self: T, other: Like) -> T:
        return apply("mod", self, self.like(other))

    def __lshift__(self: T, other: Like) -> T:
        return apply("shift_left", self, self.like(other))

    def __rshift__(self: T, other: Like) -> T:
        return apply("shift_right", self, self.like(other))

    def __and__(self: T, other: Like) -> T:
        return apply("bit_and", self, self.like(other))

    def __or__(self: T, other: Like) -> T:
        return apply("bit_or", self, self.like(other))

    def __xor__(self: T, other: Like) -> T:
        return apply("bit_xor", self, self.like(other))

    def __neg__(self: T) -> T:
        return apply("neg", self)

    def __abs__(self: T) -> T:
        return apply("abs", self)

    def __invert__(self: T) -> T:
        return apply("bit_not", self)

    # ---- comparisons ---------------------------------------------------------------------------

    def __lt__(self: T, other: Like) -> T:
        return apply("less", self, self.like(other))

    def __le__(self: T, other: Like) -> T:
        return apply("less_equal", self, self.like(other))

    def __gt__(self: T, other: Like) -> T:
        return apply("greater", self, self.like(other))

    def __ge__(self: T, other: Like) -> T:
        return apply("greater_equal", self, self.like(other))

    def equals(self: T, other: Like) -> T:
        return apply("equal", self, self.like(other))

    def differs(self: T, other: Like) -> T:
        return apply("not_equal", self, self.like(other))

    def __bool__(self) -> bool:
        raise InternalError("loop IR is not decided in Python: use code.when")

    # ---- other forms of it ---------------------------------------------------------------------

    def as_(self, dtype: DType) -> Term:
        """Converted, as numpy's astype does it."""
        return Term(convert(self.value, dtype))

    def bits(self, dtype: DType) -> Term:
        """The same bits as another type of that width."""
        if dtype == self.dtype:
            return self
        return Term(ir.Bitcast(ir.Type(dtype, self.lanes), self.value))

    def spread(self, lanes: int) -> Term:
        """In every lane."""
        return Term(splat(self.value, lanes))

    def lane(self, number: int) -> Term:
        return Term(ir.Extract(ir.Type(self.dtype), self.value, number))

    def combined(self, function: str) -> Term:
        """All lanes by 'add', 'mul', 'min' or 'max'."""
        return Term(ir.Reduce(ir.Type(self.dtype), function, self.value))

    @property
    def any(self) -> Term:
        """Whether a flag holds in some lane."""
        return self if self.lanes == 1 else self.combined("max")

    @property
    def flags(self) -> Term:
        """8, 16, 32 or 64 flags as the bits of an unsigned integer."""
        return Term(ir.Bitcast(ir.Type(DTYPES[f"uint{self.lanes}"]), self.value))

    @property
    def ones(self) -> Term:
        """How many bits are 1."""
        return apply("ones", self)

    @property
    def truth(self) -> Term:
        """Whether it is not 0; NaN is not."""
        return self if self.dtype == boolean else self.differs(0)


def apply(function: str, *arguments: T) -> T:
    """A function of `lang/functions.py`, or 'fma', lane by lane."""
    last = arguments[-1]
    if last.dtype == boolean:
        function = _UNSIGNED.get(function, function)
    return last.applied(function, arguments)


def select(condition: T, yes: Like, no: Like) -> T:
    """`yes` where the condition holds, else `no`; one of them must be a Term."""
    kind: Any = yes if isinstance(yes, Term) else no
    return apply("select", condition, kind.like(yes), kind.like(no))


def fma(left: T, right: Like, more: Like) -> T:
    """left * right + more: one rounding where the machine has it, else two."""
    return apply("fma", left, left.like(right), left.like(more))


def smaller(left: Term, right: Like) -> Term:
    return apply("min", left, left.like(right))


def larger(left: Term, right: Like) -> Term:
    return apply("max", left, left.like(right))


def constant(value: int | float | bool, dtype: DType = int64, lanes: int = 1) -> Term:
    return Term(number(dtype, value, lanes))


def iota(lanes: int, dtype: DType = int64) -> Term:
    """0, 1, 2, ... one for each lane."""
    return Term(ir.Iota(ir.Type(dtype, lanes)))


def shuffle(left: Term, right: Term, lanes: tuple[int, ...]) -> Term:
    """Lanes picked from left (0..n-1) and right (n..2n-1)."""
    return Term(ir.Shuffle(ir.Type(left.dtype, len(lanes)), left.value, right.value, lanes))
