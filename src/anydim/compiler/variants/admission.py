"""Admission policy for variants when sizes exceed the capacity, after TinyLFU.

A new size evicts the least used variant if it is more frequent; counts are halved after a sample of
launches, so that they reflect recent use (Einziger, Friedman, Manes, "TinyLFU: A Highly Efficient
Cache Admission Policy", 2017). Compiled code costs more than a cached page, so there are two more
conditions: a margin against noise, and a backoff: a size whose variant was dropped needs double the
launches of the last time. So n launches of a size compile it at most 1 + log2(1 + n/after)
times, whatever comes between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anydim.runtime.variant_tables import Key

_MARGIN = 2  # minimum ratio of a new size's frequency to that of the variant it evicts
_SAMPLE = 10  # of TinyLFU: sample length as a multiple of the launches that fill the cache
_MAX_DROPPED = 4096  # sizes whose drops are recorded
_MAX_DOUBLED = 40


class Admission:
    """Recent frequencies of sizes at the launches of one recipe, and dropped sizes.

    Counts come from outside as `count`, which only grows or restarts at 0.
    """

    def __init__(self) -> None:
        self._base: dict[Key, int] = {}  # part of a count that is not recent
        self._drops: dict[Key, int] = {}

    def frequency(self, key: Key, count: int) -> int:
        """The recent frequency of sizes."""
        base = self._base.get(key, 0)
        if count < base:
            base = self._base[key] = 0
        return count - base

    def launches_needed(self, key: Key, after: int) -> int:
        """The count of launches before sizes get a variant; the first time `after`."""
        return after << min(self._drops.get(key, 0), _MAX_DOUBLED)

    def record_variant(self, key: Key, frequency: int) -> None:
        """Record a new variant, whose launch count starts at 0, with its frequency so far.

        That is the maximum of all sizes without a variant; otherwise it would be evicted next.
        """
        self._base[key] = -frequency

    def drop(self, key: Key) -> None:
        """Record that the variant of these sizes is dropped."""
        self._base.pop(key, None)
        self._drops[key] = self._drops.pop(key, 0) + 1
        if len(self._drops) > _MAX_DROPPED:
            del self._drops[next(iter(self._drops))]

    def had_variant(self, key: Key) -> bool:
        """Whether sizes had a variant before."""
        return key in self._drops

    def age(self, counts: Mapping[Key, int], limit: int, after: int) -> None:
        """Halve all frequencies once their sum reaches a sample; `limit` is the capacity."""
        late = {key: self.frequency(key, count) for key, count in counts.items()}
        if sum(late.values()) >= _SAMPLE * limit * after:
            self._base = {key: count - late[key] // 2 for key, count in counts.items()}


class Capacity:
    """The capacity for variants of a strategy; `used` are frequencies of existing variants."""

    def __init__(self, limit: int, used: Iterable[int]) -> None:
        self._used = sorted(used)
        self._free = limit - len(self._used)

    def admits(self, frequency: int) -> bool:
        """Whether to admit one more variant, of sizes with this frequency."""
        if self._free > 0:
            self._free -= 1
            return True
        if self._used and frequency >= _MARGIN * self._used[0]:
            del self._used[0]
            return True
        return False
