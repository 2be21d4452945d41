"""Whether the values of a size stay inside a range of integers.

A dim without an upper bound is bounded by what memory can hold; a narrower question asks for the
sizes that calls usually have.
"""

from __future__ import annotations

from anydim.sizes.box import Box, Dim
from anydim.sizes.expression import Size

ADDRESSABLE = 1 << 48  # elements that memory can hold
USUAL = 1 << 12  # of a dim that is multiplied with others in 64 bits
SHORT = 1 << 24  # of a dim by itself in 32 bits


def fits(size: Size, low: int, high: int, box: Box, most: int = ADDRESSABLE) -> bool:
    """Whether a size lies in low..high wherever no dim is above `most`; sizes are 0 or more."""
    value = size.constant
    if value is not None:
        return low <= value <= high
    if size.symbols.difference(box.names):  # sizes of a definition are no dims of a box
        box = box.also(*map(Dim, sorted(size.symbols.difference(box.names))))
    within = box.at_most(most)
    rough = within.enclosure.roughly(size)
    if rough.low >= low and rough.high <= high:
        return True
    where = within.interval(size)
    return where.low >= low and where.high <= high


def wrapped(size: Size, low: int, high: int) -> Size:
    """The integer of low..high that differs from a size by a multiple of their count."""
    return (size - low) % (high - low + 1) + low
