"""Sample points of a box: a relation that holds at one and fails at another is undecided.

Testing these first avoids bounding sizes that no bound decides, such as those of broadcasts
between unrelated dims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a box holds its points
    from anydim.sizes.box import Box

_MAX_TRIES = 16
_STEPS = (0, 0, 1, 1, 2, 3, 5, 8, 17, 40)  # distances of a dim from its lower bound


class Points:
    """Sample points of a box, found lazily; none where random sampling finds none."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._found: list[Mapping[str, int]] = []
        self._tried = 0

    def __iter__(self) -> Iterator[Mapping[str, int]]:
        yield from self._found
        while self._tried < _MAX_TRIES:
            point = self._candidate(self._tried)
            self._tried += 1
            if self._box.contains(point):
                self._found.append(point)
                yield point

    def _candidate(self, number: int) -> dict[str, int]:
        """All dims at their minimum, at minimum + 1, all different; then random."""
        ranges = self._box.enclosure.ranges
        chance = Random(number)
        point = {}
        for position, dim in enumerate(self._box.dims):
            within = ranges[dim.name]
            step = number if number < 2 else position + 2 if number == 2 else chance.choice(_STEPS)
            low = dim.lo if within.lo is None else within.lo
            point[dim.name] = low + step if within.hi is None else min(low + step, within.hi)
        return point
