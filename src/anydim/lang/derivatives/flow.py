"""Reverse mode through one scalar expression: what each read of it receives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from anydim.base.records import dataclass
from anydim.lang.derivatives.algebra import call, every, where
from anydim.lang.derivatives.scalar import FLAT, NONE, RULES
from anydim.lang.tree import Apply, Cast, Expr, Literal, Read, SizeTerm, TensorType
from anydim.sizes import Size, as_size, product


class NoDerivative(Exception):
    """Why an expression has no derivative."""


@dataclass(frozen=True)
class Contribution:
    """The cotangent `seed` that the element of a read receives, where all `conditions` hold."""

    read: Read
    seed: Expr
    conditions: tuple[Expr, ...] = ()

    @property
    def value(self) -> Expr:
        """The cotangent; 0 where a condition fails."""
        condition = every(list(self.conditions))
        return self.seed if condition is None else where(condition, self.seed)


def contributions(
    expr: Expr,
    seed: Expr,
    active: Collection[str],
    types: Mapping[str, TensorType],
    conditions: tuple[Expr, ...] = (),
) -> Iterator[Contribution]:
    """The contributions of an expression with cotangent `seed` to its reads of active tensors.

    Raises NoDerivative for a function of them that has none.
    """
    if not carries(expr, active):
        return
    if isinstance(expr, Read):
        yield from _of_read(expr, seed, active, types, conditions)
    elif isinstance(expr, Cast):
        yield from contributions(expr.argument, seed, active, types, conditions)
    elif isinstance(expr, Apply) and expr.function == "select":
        condition, then, otherwise = expr.arguments
        fails = call("not", condition)
        yield from contributions(then, seed, active, types, (*conditions, condition))
        yield from contributions(otherwise, seed, active, types, (*conditions, fails))
    elif isinstance(expr, Apply):
        for argument, part in zip(expr.arguments, _parts(expr, seed)):
            if part is not None:
                yield from contributions(argument, part, active, types, conditions)


def _of_read(
    read: Read, seed: Expr, active: Collection[str], types: Mapping[str, TensorType],
    conditions: tuple[Expr, ...],
) -> Iterator[Contribution]:  # fmt: skip
    if read.tensor in active:
        yield Contribution(read, seed, conditions)
    if read.default is not None and carries(read.default, active):
        inside = every(in_bounds(read, types[read.tensor].shape))
        outside = () if inside is None else (call("not", inside),)
        yield from contributions(read.default, seed, active, types, (*conditions, *outside))


def _parts(expr: Apply, seed: Expr) -> tuple[Expr | None, ...]:
    """The cotangents of the arguments."""
    if expr.function in FLAT:
        return (None,) * len(expr.arguments)
    if expr.function in NONE or expr.function not in RULES:
        raise NoDerivative(f"{expr.function}(...) has no derivative")
    return RULES[expr.function](expr.arguments, seed)


def carries(expr: Expr, active: Collection[str]) -> bool:
    """Whether an expression has the value of an active tensor in it; indices do not count."""
    if isinstance(expr, Read):
        inner = expr.default is not None and carries(expr.default, active)
        return expr.tensor in active or inner
    if isinstance(expr, Cast):
        return expr.dtype.kind == "float" and carries(expr.argument, active)
    if isinstance(expr, Apply):
        if expr.function in FLAT:
            return False
        arguments = expr.arguments[1:] if expr.function == "select" else expr.arguments
        return any(carries(argument, active) for argument in arguments)
    return False


def in_bounds(read: Read, shape: tuple[Size, ...]) -> list[Expr]:
    """The conditions under which a read is in bounds."""
    sizes = (product(shape),) if read.flat else shape
    return [
        condition
        for index, size in zip(read.indices, sizes)
        for condition in within(index, as_size(size))
    ]


def within(index: Expr, size: Size) -> list[Expr]:
    """The conditions of `0 <= index < size`."""
    return [
        call("greater_equal", index, Literal(0)),
        call("less", index, SizeTerm(size)),
    ]
