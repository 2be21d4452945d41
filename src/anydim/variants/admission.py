"""Which sizes get a body where more come than there is room for: the admission policy of TinyLFU.

A newcomer takes the room of the body that is used least, if it comes more often than that one;
counts are halved after a sample of launches, so that they are those of late (Einziger, Friedman,
Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", 2017). Code is dearer than a cached
page, so there are two conditions more: a margin, which chance does not cross, and a backoff. A size
whose body was dropped has to come twice as often as the last time. So n launches of a size
compile it 1 + log2(1 + n/after) times at most, whatever comes between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anydim.runtime.variant_tables import Key

_MARGIN = 2  # a newcomer comes so many times as often as the body that it drops
_SAMPLE = 10  # of TinyLFU: a sample has so many times the launches that fill the cache
_MOST_DROPPED = 4096  # sizes whose drops are known
_MOST_DOUBLED = 40


class Admission:
    """How often sizes came of late to the launches of one recipe, and which were dropped.

    What is counted elsewhere comes in as `count`, which only grows, or begins again from 0.
    """

    def __init__(self) -> None:
        self._base: dict[Key, int] = {}  # of a count, what is not of late
        self._drops: dict[Key, int] = {}

    def frequency(self, key: Key, count: int) -> int:
        """How often sizes came of late."""
        base = self._base.get(key, 0)
        if count < base:
            base = self._base[key] = 0
        return count - base

    def needed(self, key: Key, after: int) -> int:
        """How often sizes have to come before they get a body, the first one after `after`."""
        return after << min(self._drops.get(key, 0), _MOST_DOUBLED)

    def took(self, key: Key, frequency: int) -> None:
        """Sizes have a new body, whose launches are counted from 0: they are as frequent as this.

        That is the most that any sizes without a body came, or it would be the next one to go.
        """
        self._base[key] = -frequency

    def drop(self, key: Key) -> None:
        """The body of these sizes goes."""
        self._base.pop(key, None)
        self._drops[key] = self._drops.pop(key, 0) + 1
        if len(self._drops) > _MOST_DROPPED:
            del self._drops[next(iter(self._drops))]

    def dropped(self, key: Key) -> bool:
        """Whether sizes had a body once."""
        return key in self._drops

    def age(self, counts: Mapping[Key, int], limit: int, after: int) -> None:
        """Halve all frequencies once they sum up to a sample; `limit` bodies are full."""
        late = {key: self.frequency(key, count) for key, count in counts.items()}
        if sum(late.values()) >= _SAMPLE * limit * after:
            self._base = {key: count - late[key] // 2 for key, count in counts.items()}


class Room:
    """The room for bodies of a strategy: `used` are the frequencies of those that there are."""

    def __init__(self, limit: int, used: Iterable[int]) -> None:
        self._used = sorted(used)
        self._free = limit - len(self._used)

    def takes(self, frequency: int) -> bool:
        """Whether there is room for one body more, of sizes that come so often."""
        if self._free > 0:
            self._free -= 1
            return True
        if self._used and frequency >= _MARGIN * self._used[0]:
            del self._used[0]
            return True
        return False
