"""Run-time bounds checks of indices that are not proved, wherever their value is used.

`inside(i, n, k)` is i, and an error of the call unless 0 <= i < n. Definitions cannot write it:
`instantiate` wraps every index that is data-dependent or unproved in it, so the check stays with
the index when passes rewrite the read around it. `k` is the number of the node that requires the
check, and inside a launch the number of the check.

A check applies only where the value is used: the operand of a select that is not selected, the
right side of a && that failed, and an unused default are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.lang.functions import INSIDE
from anydim.lang.tree import Apply, Cast, Expr, Literal, Read, SizeTerm, TensorType
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Size, as_size, product


def inside(index: Expr, size: Size, number: int = 0) -> Apply:
    """Wrap an index in the check that it is in 0:size."""
    return Apply(INSIDE, (index, SizeTerm(size), Literal(number, int64)))


def is_inside(expr: Expr) -> bool:
    """Whether an expression is a checked index itself."""
    return isinstance(expr, Apply) and expr.function == INSIDE


def size_of(check: Apply) -> Size:
    """The exclusive upper bound of a checked index."""
    size = check.arguments[1]
    assert isinstance(size, SizeTerm)
    return size.size


def number_of(check: Apply) -> int:
    """The number of the node, or of the check in its launch."""
    number = check.arguments[2]
    assert isinstance(number, Literal)
    return int(number.value)


@lru_cache(maxsize=1 << 18)
def has_checks(expr: Expr) -> bool:
    """Whether any index in an expression is checked."""
    if isinstance(expr, Apply):
        return expr.function == INSIDE or any(has_checks(a) for a in expr.arguments)
    if isinstance(expr, Cast):
        return has_checks(expr.argument)
    if isinstance(expr, Read):
        return any(has_checks(i) for i in expr.indices) or (
            expr.default is not None and has_checks(expr.default)
        )
    return False


def checks(expr: Expr, tensor: str = "") -> Iterator[tuple[str, Apply]]:
    """Yield every checked index with the tensor it indexes, inner ones first."""
    if isinstance(expr, Apply):
        for argument in expr.arguments:
            yield from checks(argument, tensor)
        if expr.function == INSIDE:
            yield tensor, expr
    elif isinstance(expr, Cast):
        yield from checks(expr.argument, tensor)
    elif isinstance(expr, Read):
        for index in expr.indices:
            yield from checks(index, expr.tensor)
        if expr.default is not None:
            yield from checks(expr.default, tensor)


def renumber_checks(expr: Expr, number: Callable[[Apply], int]) -> Expr:
    """Renumber the checks of an expression; `number` sees inner ones already renumbered."""
    if not has_checks(expr):
        return expr

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Apply) or part.function != INSIDE:
            return None
        return inside(part.arguments[0], size_of(part), number(part))

    return rewrite(expr, change)


def index_from_end(check: Apply) -> Expr | None:
    """For `e < 0 ? e + n : e` below n, where negative numbers count from the end: e."""
    index = check.arguments[0]
    if not isinstance(index, Apply) or index.function != "select":
        return None
    condition, moved, plain = index.arguments
    negative = Apply("less", (plain, SizeTerm(as_size(0))))
    counted = Apply("add", (plain, check.arguments[1]))
    return plain if (condition, moved) == (negative, counted) else None


def index_tensor(check: Apply) -> str:
    """The tensor that holds the indices unmodified; empty when they are computed."""
    plain = index_from_end(check)
    index = check.arguments[0] if plain is None else plain
    while isinstance(index, Cast):
        index = index.argument
    return index.tensor if isinstance(index, Read) else ""


# ---- conditions of checks ----------------------------------------------------------------------


def within(index: Expr, size: Size) -> Expr:
    """The condition that an index is in 0:size."""
    low = Apply("greater_equal", (index, Literal(0, int64)))
    return Apply("and", (low, Apply("less", (index, SizeTerm(size)))))


def position_inside(read: Read, shape: tuple[Size, ...]) -> Expr:
    """The condition that a read of a tensor of `shape` is in bounds."""
    extents = (product(shape),) if read.flat else shape
    conditions = [within(index, extent) for index, extent in zip(read.indices, extents)]
    return reduce(lambda left, right: Apply("and", (left, right)), conditions)


@dataclass(frozen=True)
class Check:
    """A check whose value is used: where `failing` holds, `index` is out of bounds.

    `always`: whether its value is used unconditionally.
    """

    failing: Expr
    index: Expr
    number: int
    always: bool


def active_checks(
    expr: Expr, types: Mapping[str, TensorType], when: Expr | None = None
) -> Iterator[Check]:
    """Yield the checks of an expression, each under the conditions on which its value is used."""
    if not has_checks(expr):
        return
    if isinstance(expr, Cast):
        yield from active_checks(expr.argument, types, when)
    elif isinstance(expr, Read):
        for index in expr.indices:
            yield from active_checks(index, types, when)
        if expr.default is not None and has_checks(expr.default):
            found = position_inside(expr, types[expr.tensor].shape)
            needed = _both(when, Apply("not", (found,)))
            yield from active_checks(expr.default, types, needed)
    elif isinstance(expr, Apply):
        for argument, condition in zip(expr.arguments, conditions(expr)):
            yield from active_checks(argument, types, _both(when, condition))
        if expr.function == INSIDE:
            outside = Apply("not", (within(expr.arguments[0], size_of(expr)),))
            failing = _both(when, outside)
            assert failing is not None
            yield Check(failing, expr.arguments[0], number_of(expr), when is None)


def conditions(expr: Apply) -> tuple[Expr | None, ...]:
    """The condition on which each argument's value is used; None: always."""
    first = expr.arguments[0]
    if expr.function == "select":
        return None, first, Apply("not", (first,))
    if expr.function == "and":
        return None, first
    if expr.function == "or":
        return None, Apply("not", (first,))
    return (None,) * len(expr.arguments)


def _both(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return right if left is None else left
    return Apply("and", (left, right))
