"""Checks of what an operator is given, which raise GraphError, and of sizes when it runs."""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.kernels.routines.routine import Types
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, Truth, as_size, prove


def axis_of(operator: str, axis: object, rank: int) -> int:
    """An axis counted from the front."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "none: it is a scalar"
        raise GraphError(
            f"operator '{operator}': axis {axis} of a tensor with {rank} axes",
            f"axes that exist: {allowed}",
        )
    return axis % rank


def expect_inputs(operator: str, types: Types, low: int, high: int) -> None:
    """So many inputs, at least and at most."""
    if not low <= len(types) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise GraphError(f"operator '{operator}' takes {wanted} inputs, not {len(types)}")


def expect_ordered(operator: str, kind: TensorType) -> None:
    """Elements that can be compared."""
    if kind.dtype.stored:
        raise GraphError(f"operator '{operator}' does not order elements of type {kind.dtype}")


def at_most(size: Size, most: Size | int, message: str, box: Box) -> tuple[Guard, ...]:
    """The guard that a size is not larger; nothing where that is proven."""
    proven = prove(size, "<=", most, box) is Truth.PROVED
    return () if proven else (Guard(size, "<=", as_size(most), message),)
