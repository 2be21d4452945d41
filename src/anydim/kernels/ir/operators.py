"""Python's operators, for whatever stands for a value of loop IR.

Comparisons are `<`, `<=`, `>`, `>=`, `a.equals(b)`, `a.differs(b)`; flags combine by `&`, `|`, `~`.
Plain numbers take the type of what they meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from anydim.base.dtypes import DType, boolean

Number: TypeAlias = int | float | bool
V = TypeVar("V", bound="Operators[Any]")
_OF_FLAGS = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor", "bit_not": "not"}


class Operators(Generic[V]):
    """What has them says what a number is among its kind, and applies a function."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def dtype(self) -> DType: ...
        def like(self, other: V | Number) -> V: ...
        def applied(self, function: str, arguments: tuple[V, ...]) -> V: ...

    # ---- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: V | Number) -> V:
        return apply("add", self, self.like(other))

    def __radd__(self, other: V | Number) -> V:
        return apply("add", self.like(other), self)

    def __sub__(self, other: V | Number) -> V:
        return apply("sub", self, self.like(other))

    def __rsub__(self, other: V | Number) -> V:
        return apply("sub", self.like(other), self)

    def __mul__(self, other: V | Number) -> V:
        return apply("mul", self, self.like(other))

    def __rmul__(self, other: V | Number) -> V:
        return apply("mul", self.like(other), self)

    def __truediv__(self, other: V | Number) -> V:
        return apply("div", self, self.like(other))

    def __rtruediv__(self, other: V | Number) -> V:
        return apply("div", self.like(other), self)

    def __floordiv__(self, other: V | Number) -> V:
        return apply("floordiv", self, self.like(other))

    def __mod__(self, other: V | Number) -> V:
        return apply("mod", self, self.like(other))

    def __lshift__(self, other: V | Number) -> V:
        return apply("shift_left", self, self.like(other))

    def __rshift__(self, other: V | Number) -> V:
        return apply("shift_right", self, self.like(other))

    def __and__(self, other: V | Number) -> V:
        return apply("bit_and", self, self.like(other))

    def __or__(self, other: V | Number) -> V:
        return apply("bit_or", self, self.like(other))

    def __xor__(self, other: V | Number) -> V:
        return apply("bit_xor", self, self.like(other))

    def __neg__(self) -> V:
        return apply("neg", self)

    def __abs__(self) -> V:
        return apply("abs", self)

    def __invert__(self) -> V:
        return apply("bit_not", self)

    # ---- comparisons ---------------------------------------------------------------------------

    def __lt__(self, other: V | Number) -> V:
        return apply("less", self, self.like(other))

    def __le__(self, other: V | Number) -> V:
        return apply("less_equal", self, self.like(other))

    def __gt__(self, other: V | Number) -> V:
        return apply("greater", self, self.like(other))

    def __ge__(self, other: V | Number) -> V:
        return apply("greater_equal", self, self.like(other))

    def equals(self, other: V | Number) -> V:
        return apply("equal", self, self.like(other))

    def differs(self, other: V | Number) -> V:
        return apply("not_equal", self, self.like(other))


def apply(function: str, *arguments: Any) -> Any:
    """A function of `lang/functions.py`, or 'fma', lane by lane, of arguments of one kind."""
    last = arguments[-1]
    if last.dtype == boolean:
        function = _OF_FLAGS.get(function, function)
    return last.applied(function, arguments)


def select(condition: V, yes: V | Number, no: V | Number) -> V:
    """`yes` where the condition holds, else `no`; one of them is no plain number."""
    kind: Any = yes if isinstance(yes, Operators) else no
    chosen: V = apply("select", condition, kind.like(yes), kind.like(no))
    return chosen


def fma(left: V, right: V | Number, more: V | Number) -> V:
    """left * right + more: one rounding where the machine has it, else two."""
    made: V = apply("fma", left, left.like(right), left.like(more))
    return made


def least(left: V | Number, right: V | Number) -> V:
    """The smaller one; one of them is no plain number."""
    kind: Any = left if isinstance(left, Operators) else right
    smaller: V = apply("min", kind.like(left), kind.like(right))
    return smaller


def greatest(left: V | Number, right: V | Number) -> V:
    """The larger one; one of them is no plain number."""
    kind: Any = left if isinstance(left, Operators) else right
    larger: V = apply("max", kind.like(left), kind.like(right))
    return larger
