"""Whether the values of a size stay inside a range of integers.

A dim without an upper bound is bounded by addressable memory; narrower checks assume the sizes that
calls usually have.
"""

from __future__ import annotations

from anydim.sizes.box import Box, Dim
from anydim.sizes.expression import Size

ADDRESSABLE = 1 << 48  # maximum number of elements in memory
USUAL = 1 << 12  # assumed maximum of a dim in 64-bit products
SHORT = 1 << 24  # assumed maximum of a single dim in 32 bits


def fits(size: Size, low: int, high: int, box: Box, most: int = ADDRESSABLE) -> bool:
    """Whether a size is in low..high wherever no dim is above `most`; sizes are >= 0."""
    value = size.constant
    if value is not None:
        return low <= value <= high
    if size.symbols.difference(box.names):  # sizes of a definition are not dims of the box
        box = box.also(*map(Dim, sorted(size.symbols.difference(box.names))))
    within = box.at_most(most)
    rough = within.enclosure.roughly(size)
    if rough.low >= low and rough.high <= high:
        return True
    where = within.interval(size)
    return where.low >= low and where.high <= high


def wrapped(size: Size, low: int, high: int) -> Size:
    """The integer in low..high that is congruent to a size modulo the length of that range."""
    return (size - low) % (high - low + 1) + low
