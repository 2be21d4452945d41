"""Sizes derived from others: rounding up, products."""

from __future__ import annotations

from collections.abc import Iterable

from anydim.sizes.atoms import Atom
from anydim.sizes.expression import Size, as_constant


def ceil_div(size: Size | int, by: Size | int) -> Size:
    """size / by rounded up, for by > 0."""
    return (as_constant(size) + by - 1) // by


def negated_if_negative(size: Size | int) -> Size | None:
    """Minus a size whose coefficients are all negative; None for other sizes."""
    size = as_constant(size)
    below = bool(size.coefficients) and all(c < 0 for c in size.coefficients.values())
    return -size if below else None


def align_up(size: Size | int, multiple: int) -> Size:
    """The least multiple of `multiple` that is >= `size`."""
    size = as_constant(size)
    atom = size.atom
    if isinstance(atom, Atom) and atom.function in ("min", "max"):
        if all(align_up(part, multiple) == part for part in atom.arguments):
            return size
    return ceil_div(size, multiple) * multiple


def product(sizes: Iterable[Size | int]) -> Size:
    """The product of all sizes; 1 for none."""
    result = as_constant(1)
    for size in sizes:
        result = result * size
    return result
