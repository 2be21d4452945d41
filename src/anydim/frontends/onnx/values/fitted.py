"""What sizes are in an integer type: themselves where the box proves that they fit, wrapped else.

A size that is wrapped is another expression, `(n + 128) % 256 - 128` for n in int8: exact at every
size, and nothing that a shape has elsewhere. Files that hold shapes in 32 bits would lose what is
proved of them for sizes that do not come. So contents of 32 bits have a second form beside the
exact one: the sizes as they are, and the guards under which this is right. Data is always exact;
what takes a size takes the second form, with its guards (`Assumed`).

int64 keeps a size as it is where it fits at usual sizes; a call in which it does not fit is refused
where it is a size, and wraps where it is data.
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

_DEEPEST = 6  # remainders inside each other, from which on contents are data


class Undecided(Exception):
    """Contents that only a run can tell."""


@dataclass(frozen=True, eq=False)
class Assumed:
    """Contents whose sizes stay inside the types of 32 bits that they went through.

    `guards` say so; `likely`: they hold wherever no dim is above 2**24.
    """

    array: numpy.ndarray
    guards: tuple[Guard, ...]
    likely: bool


@dataclass
class Fitted:
    """Brings sizes into integer types, exactly."""

    box: Box
    changed: bool = False  # whether a size of 32 bits was wrapped

    def __call__(self, size: Size, dtype: DType) -> Size:
        """What the integer type holds for a size; Undecided where that is no size expression."""
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
        """What a type of at most 32 bits holds for a size that may be outside of it."""
        low, high = dtype.range
        self.changed = self.changed or dtype.bits == 32
        made = wrapped(size, low, high)
        if made.depth > _DEEPEST or not all(map(self._counts, _operands(made))):
            raise Undecided(f"{size} in {dtype}")
        return made

    def _counts(self, size: Size) -> bool:
        """Whether 64 bits hold a size wherever no dim is out of the usual."""
        return fits(size, -LARGEST, LARGEST, self.box, USUAL)


@dataclass
class Assuming(Fitted):
    """Keeps sizes that may be outside a type of 32 bits, and notes what has to hold for it."""

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
    """The operands of the remainders in a size.

    The normal form drops remainders inside of them, so they may be larger than what they are of.
    """
    atoms = (atom for monomial in size.coefficients for atom in monomial)
    return [part for atom in atoms if isinstance(atom, Atom) for part in atom.arguments]


def guards_of(size: Size, dtype: DType, box: Box, source: str) -> list[Guard]:
    """What has to hold for a size to be inside an integer type."""
    low, high = dtype.range
    where = bounds(size, box)
    message = f"{source}: a size is counted in {dtype}"
    found = [] if where.low >= low else [Guard(as_size(low), "<=", size, message)]
    return found if where.high <= high else [*found, Guard(size, "<=", as_size(high), message)]
