"""Checks of operator arguments, which raise GraphError, and guards on sizes at run time."""

from __future__ import annotations

from typing import Any

from anydim.base.errors import GraphError, UserError
from anydim.base.text import count_of
from anydim.base.user_values import short_repr
from anydim.compiler.kernels.routines.routine import Types
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, Truth, as_size, prove


def axis_of(operator: str, axis: object, rank: int) -> int:
    """An axis as a nonnegative index."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "none: it is a scalar"
        raise GraphError(
            f"operator '{operator}': axis {short_repr(axis)} of a tensor with {rank} axes",
            f"axes that exist: {allowed}",
        )
    return axis % rank


def sizes_of(operator: str, name: str, values: Any) -> list[Size]:
    """Sizes of an attribute."""
    try:
        return [as_size(value) for value in values]
    except UserError:
        raise
    except Exception:  # any error of the object
        problem = f"operator '{operator}': {name} is {short_repr(values)}"
        raise GraphError(problem, "give a list of sizes") from None


def expect_inputs(operator: str, types: Types, low: int, high: int) -> None:
    """Check that the number of inputs is between `low` and `high`."""
    if not low <= len(types) <= high:
        wanted = count_of(low, "input") if low == high else f"{low} to {high} inputs"
        raise GraphError(f"operator '{operator}' takes {wanted}, not {len(types)}")


def expect_ordered(operator: str, kind: TensorType) -> None:
    """Check that elements can be compared."""
    if kind.dtype.stored:
        raise GraphError(f"operator '{operator}' does not order elements of type {kind.dtype}")


def at_most(size: Size, most: Size | int, message: str, box: Box) -> tuple[Guard, ...]:
    """The guard that a size is at most `most`; empty where proven."""
    proven = prove(size, "<=", most, box) is Truth.PROVED
    return () if proven else (Guard(size, "<=", as_size(most), message),)
