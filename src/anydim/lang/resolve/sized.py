"""Integer types of index expressions, and their effect on sizes and bounds.

An index is computed in the types given by its text: `uint8(N)` is `N % 256` where N may be 256 or
more. Integers in an index are sizes, so they are int64.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, int64
from anydim.lang.resolve.binding import fold_sizes
from anydim.lang.tree import Apply, Cast, Expr, Literal, SizeTerm
from anydim.lang.tree.typing import promote
from anydim.sizes import Box, Size, as_size, fits, wrapped

Span = tuple[Size, Size, bool]  # minimum and maximum, and whether they are attained


def with_sizes(expr: Expr, box: Box) -> Expr:
    """Fold the parts of an index expression that consist of sizes and casts to sizes."""
    if not _casts(expr):
        return expr
    size = _size(expr, box)
    if size is not None:
        return SizeTerm(size)
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(with_sizes(a, box) for a in expr.arguments))
    assert isinstance(expr, Cast)
    return Cast(expr.dtype, with_sizes(expr.argument, box))


def _casts(expr: Expr) -> bool:
    if isinstance(expr, Apply):
        return any(map(_casts, expr.arguments))
    return isinstance(expr, Cast)


def _size(expr: Expr, box: Box) -> Size | None:
    """The value of an expression in its type; None where it is not a size."""
    if isinstance(expr, SizeTerm):
        return expr.size
    if isinstance(expr, Literal):
        return as_size(expr.value) if type(expr.value) is int else None
    if isinstance(expr, Cast):
        size = _size(expr.argument, box) if expr.dtype.is_integer else None
        return None if size is None else _in_type(size, expr.dtype, box)
    if not isinstance(expr, Apply):
        return None
    parts = [_size(argument, box) for argument in expr.arguments]
    known = [part for part in parts if part is not None]
    folded = fold_sizes(expr.function, known) if len(known) == len(parts) else None
    return None if folded is None else _in_type(folded, index_type(expr), box)


def _in_type(size: Size, dtype: DType, box: Box) -> Size | None:
    """Wrap a size to an integer type; None if no size expression represents the result."""
    low, high = dtype.range
    if fits(size, low, min(high, int64.range[1]), box):
        return size
    if dtype.bits == 64:
        return size if low else None
    return wrapped(size, low, high)


def index_type(expr: Expr) -> DType:
    """The integer type in which an index expression without reads is computed."""
    if isinstance(expr, Cast):
        return expr.dtype
    if isinstance(expr, Apply):
        arms = expr.arguments[1 if expr.function == "select" else 0 :]
        return promote([index_type(arm) for arm in arms])
    return int64


def span_in_type(span: Span, dtype: DType, box: Box) -> Span | None:
    """Bounds of a value in an integer type; the bounds of the type where it may wrap."""
    low, high, _ = span
    if dtype.bits == 64:
        return span if dtype == int64 or fits(low, 0, int64.range[1], box) else None
    if fits(low, *dtype.range, box) and fits(high, *dtype.range, box):
        return span
    return as_size(dtype.range[0]), as_size(dtype.range[1]), False
