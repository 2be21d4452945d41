"""Python's operators for loop IR values and their counterparts.

Comparisons are `<`, `<=`, `>`, `>=`, `a.equals(b)`, `a.differs(b)`; flags combine by `&`, `|`, `~`.
Plain numbers take the type of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from anydim.base.dtypes import DType, boolean

Number: TypeAlias = int | float | bool
V = TypeVar("V", bound="Operators[Any]")
_OF_FLAGS = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor", "bit_not": "not"}


def _of_two(function: str, backwards: bool = False) -> Callable[[Operators[V], V | Number], V]:
    """A binary operator that applies a function; with `backwards`, `other` is the left operand."""

    def operator(own: Operators[V], other: V | Number) -> V:
        pair = (own.like(other), own) if backwards else (own, own.like(other))
        made: V = apply(function, *pair)
        return made

    return operator


class Operators(Generic[V]):
    """Mixin: subclasses convert numbers to their own kind (`like`) and apply functions."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def dtype(self) -> DType: ...
        def like(self, other: V | Number) -> V: ...
        def apply_function(self, function: str, arguments: tuple[V, ...]) -> V: ...

    __add__ = _of_two("add")
    __radd__ = _of_two("add", backwards=True)
    __sub__ = _of_two("sub")
    __rsub__ = _of_two("sub", backwards=True)
    __mul__ = _of_two("mul")
    __rmul__ = _of_two("mul", backwards=True)
    __truediv__ = _of_two("div")
    __rtruediv__ = _of_two("div", backwards=True)
    __floordiv__ = _of_two("floordiv")
    __mod__ = _of_two("mod")
    __lshift__ = _of_two("shift_left")
    __rshift__ = _of_two("shift_right")
    __and__ = _of_two("bit_and")
    __or__ = _of_two("bit_or")
    __xor__ = _of_two("bit_xor")
    __lt__ = _of_two("less")
    __le__ = _of_two("less_equal")
    __gt__ = _of_two("greater")
    __ge__ = _of_two("greater_equal")
    equals = _of_two("equal")
    differs = _of_two("not_equal")

    def __neg__(self) -> V:
        return apply("neg", self)

    def __abs__(self) -> V:
        return apply("abs", self)

    def __invert__(self) -> V:
        return apply("bit_not", self)


def apply(function: str, *arguments: Any) -> Any:
    """A function of `lang/functions.py`, or 'fma', lane by lane, to arguments of one kind."""
    last = arguments[-1]
    if last.dtype == boolean:
        function = _OF_FLAGS.get(function, function)
    return last.apply_function(function, arguments)


def select(condition: V, yes: V | Number, no: V | Number) -> V:
    """`yes` where the condition holds, else `no`; at least one of them is not a plain number."""
    kind: Any = yes if isinstance(yes, Operators) else no
    chosen: V = apply("select", condition, kind.like(yes), kind.like(no))
    return chosen


def fma(left: V, right: V | Number, more: V | Number) -> V:
    """left * right + more: rounded once where the machine has FMA, else twice."""
    made: V = apply("fma", left, left.like(right), left.like(more))
    return made


def dot_pairs(left: V, right: V, more: V) -> V:
    """more + the products of the two bfloat16 in the bits of left and right, upper ones first."""
    made: V = apply("dot_bfloat16", left, right, more)
    return made


def least(left: V | Number, right: V | Number) -> V:
    """The minimum; at least one argument is not a plain number."""
    kind: Any = left if isinstance(left, Operators) else right
    smaller: V = apply("min", kind.like(left), kind.like(right))
    return smaller


def greatest(left: V | Number, right: V | Number) -> V:
    """The maximum; at least one argument is not a plain number."""
    kind: Any = left if isinstance(left, Operators) else right
    larger: V = apply("max", kind.like(left), kind.like(right))
    return larger
