"""Sizes in integer types: unchanged if the box proves that they fit, else wrapped.

A wrapped size is a different expression, `(n + 128) % 256 - 128` for n in int8: exact at every
size, and unequal to the sizes of other shapes. Files that compute shapes in 32 bits would lose
proofs because of sizes that do not occur. So 32-bit contents have a second form in addition to the
exact one: the unwrapped sizes, with the guards under which they are right. Data always uses the
exact form; sizes use the second one with its guards (`Assumed`).

int64 keeps a size unchanged if it fits at usual sizes; a call in which it does not fit is rejected
if it is used as a size, and wraps if it is data.
"""

from __future__ import annotations

from dataclasses import field

import numpy

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.sizes import (
    LARGEST,
    SHORT,
    USUAL,
    Atom,
    Box,
    Guard,
    Size,
    as_size,
    bounds,
    fits,
    wrapped,
)

_DEEPEST = 6  # nested remainders above which contents are data


class Undecided(Exception):
    """Contents that depend on run-time data."""


@dataclass(frozen=True, eq=False)
class Assumed:
    """Contents whose sizes are assumed to fit the 32-bit types that they passed through.

    `guards` state the assumption; `likely`: they hold if no dim is above 2**24.
    """

    array: numpy.ndarray
    guards: tuple[Guard, ...]
    likely: bool


@dataclass
class Fitted:
    """Converts sizes to integer types exactly."""

    box: Box
    changed: bool = False  # whether a 32-bit size was wrapped

    def __call__(self, size: Size, dtype: DType) -> Size:
        """The value of a size in an integer type; Undecided if it is no size expression."""
        low, high = dtype.range
        value = size.constant
        if value is not None:
            return as_size((value - low) % (1 << dtype.bits) + low)
        if fits(size, low, min(high, LARGEST), self.box):
            return size
        if dtype.bits == 64:
            if low and self._counts(size):
                return size
            raise Undecided(f"{size} in {dtype}")
        return self.outside(size, dtype)

    def outside(self, size: Size, dtype: DType) -> Size:
        """The wrapped value of a size that may be out of range of a type of at most 32 bits."""
        low, high = dtype.range
        self.changed = self.changed or dtype.bits == 32
        made = wrapped(size, low, high)
        if made.depth > _DEEPEST or not all(map(self._counts, _operands(made))):
            raise Undecided(f"{size} in {dtype}")
        return made

    def _counts(self, size: Size) -> bool:
        """Whether 64 bits hold a size if all dims are in the usual range."""
        return fits(size, -LARGEST, LARGEST, self.box, USUAL)


@dataclass
class Assuming(Fitted):
    """Keeps sizes that may be out of range of a 32-bit type, and records guards for it."""

    source: str = ""
    guards: list[Guard] = field(default_factory=list)
    likely: bool = True

    def outside(self, size: Size, dtype: DType) -> Size:
        if dtype.bits < 32:
            return super().outside(size, dtype)
        self.likely = self.likely and fits(size, *dtype.range, self.box, SHORT)
        self.guards += guards_of(size, dtype, self.box, self.source)
        return size


def _operands(size: Size) -> list[Size]:
    """The operands of the remainders (`%`) in a size, of which 64 bits must hold each.

    The normal form drops nested remainders, so operands may be larger than the original ones.
    """
    atoms = (atom for monomial in size.coefficients for atom in monomial)
    return [part for atom in atoms if isinstance(atom, Atom) for part in atom.arguments]


def guards_of(size: Size, dtype: DType, box: Box, source: str) -> list[Guard]:
    """The guards for a size to be in the range of an integer type."""
    low, high = dtype.range
    where = bounds(size, box)
    message = f"{source}: a size is counted in {dtype}"
    found = [] if where.low >= low else [Guard(as_size(low), "<=", size, message)]
    return found if where.high <= high else [*found, Guard(size, "<=", as_size(high), message)]
