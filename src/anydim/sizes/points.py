"""Points of a box: what holds at one of them and fails at another is neither proved nor refuted.

Looking there first spares the enclosure of sizes that no bound will settle, as those of broadcasts
between dims that have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a box holds its points
    from anydim.sizes.box import Box

_MOST_TRIES = 16
_STEPS = (0, 0, 1, 1, 2, 3, 5, 8, 17, 40)  # how far above its lower bound a dim is put


class Points:
    """Some points of a box, found when they are asked for; none where chance finds none."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._found: list[Mapping[str, int]] = []
        self._tried = 0

    def __iter__(self) -> Iterator[Mapping[str, int]]:
        yield from self._found
        while self._tried < _MOST_TRIES:
            point = self._candidate(self._tried)
            self._tried += 1
            if self._box.contains(point):
                self._found.append(point)
                yield point

    def _candidate(self, number: int) -> dict[str, int]:
        """All dims at their least, one above it, all different; then by chance."""
        ranges = self._box.enclosure.ranges
        chance = Random(number)
        point = {}
        for place, dim in enumerate(self._box.dims):
            within = ranges[dim.name]
            step = number if number < 2 else place + 2 if number == 2 else chance.choice(_STEPS)
            low = dim.lo if within.lo is None else within.lo
            point[dim.name] = low + step if within.hi is None else min(low + step, within.hi)
        return point
