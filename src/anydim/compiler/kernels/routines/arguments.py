"""Checks of operator arguments, which raise GraphError, and guards on sizes at run time."""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.base.text import count_of
from anydim.compiler.kernels.routines.routine import Types
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, Truth, as_size, prove


def axis_of(operator: str, axis: object, rank: int) -> int:
    """An axis as a nonnegative index."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "none: it is a scalar"
        raise GraphError(
            f"operator '{operator}': axis {axis} of a tensor with {rank} axes",
            f"axes that exist: {allowed}",
        )
    return axis % rank


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
