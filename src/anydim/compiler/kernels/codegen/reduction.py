"""Accumulation of reductions: function, type, initial value and steps."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType, bfloat16, boolean, float16, float32, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.ir import convert, fma, number, operate, select
from anydim.lang.tree import Apply, Expr


def accumulator_of(combine: str, dtype: DType) -> tuple[str, DType]:
    """The function and the type that a reduction accumulates with.

    Bools count as small numbers; a sum of halves accumulated in half precision stops growing at
    2048.
    """
    if dtype == boolean:
        return {"add": "max", "mul": "min"}.get(combine, combine), uint8
    if dtype in (float16, bfloat16) and combine in ("add", "mul"):
        return combine, float32
    return combine, dtype


def identity(function: str, dtype: DType) -> int | float:
    """The neutral element of a reduction."""
    if function in ("add", "mul"):
        return 0 if function == "add" else 1
    if dtype.is_float:
        return float("inf") if function == "min" else float("-inf")
    low, high = dtype.range
    return high if function == "min" else low


def neutral_element(function: str, dtype: DType, lanes: int = 1) -> ir.Const:
    """The neutral element of a reduction, in every lane."""
    return number(dtype, identity(function, dtype), lanes)


def is_product(body: Expr) -> bool:
    """Whether an expression is a multiplication."""
    return isinstance(body, Apply) and body.function == "mul"


def factors_of(scope: ScalarLowering, body: Expr, function: str, dtype: DType) -> tuple[Expr, ...]:
    """The factors of a product that is accumulated by fused multiply-adds; else ()."""
    fused = function == "add" and dtype.is_float and is_product(body)
    return body.arguments if fused and scope.dtype(body) == dtype else ()  # type: ignore[union-attr]


def terms_of(
    scope: ScalarLowering, body: Expr, function: str, dtype: DType, own: DType,
    mask: ir.Value | None = None,
) -> tuple[ir.Value, ...]:  # fmt: skip
    """The terms that an element of type `own` adds to a reduction: its two factors, or its value.

    Lanes off in `mask` add the neutral element.
    """
    factors = factors_of(scope, body, function, dtype) if mask is None else ()
    if factors:
        return tuple(scope.value(factor, dtype) for factor in factors)
    value = scope.name(convert(scope.value(body, own), dtype))
    if mask is not None:
        value = scope.name(select(mask, value, neutral_element(function, dtype, mask.type.lanes)))
    return (value,)


def accumulate(function: str, old: ir.Value, terms: Sequence[ir.Value]) -> ir.Value:
    """The accumulator combined with the terms of one more element."""
    if len(terms) == 2:
        left, right = terms
        return fma(left, right, old)
    both = (*terms, old) if function == "fast_max" else (old, *terms)
    return operate(function, *both)


def combine_pairwise(function: str, parts: Sequence[ir.Value]) -> ir.Value:
    """Several accumulators combined into one, pairwise."""
    while len(parts) > 1:
        pairs = [operate(function, *pair) for pair in zip(parts[::2], parts[1::2])]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]
