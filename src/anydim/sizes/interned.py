"""Tables in which equal sizes are one object, and the results of operations on such objects.

An object has a number that no other one ever has, so results are looked up by numbers and no tree
is hashed. The objects live as long as somebody uses them. Results are strong references: there is a
limit of their number, and `forget_results` drops them once a program is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from itertools import count
from threading import RLock
from typing import TypeVar
from weakref import WeakValueDictionary

from anydim.base.fork_locks import fork_lock

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
_MOST_RESULTS = 1 << 14  # of one operation
# not a plain lock: a garbage collection inside may run code that makes sizes
_LOCK = fork_lock(sys.modules[__name__], "_LOCK", RLock)
new_number = count().__next__


def unique(table: WeakValueDictionary[Key, T], key: Key, made: T) -> T:
    """The object that a table has for a key: `made`, unless another thread was first."""
    with _LOCK:
        return table.setdefault(key, made)


class Results(dict[Hashable, T]):
    """Results of one operation, by the numbers of its operands."""

    def __init__(self) -> None:
        super().__init__()
        _ALL.append(self)

    def keep(self, key: Hashable, result: T) -> T:
        """Keep a result and return it."""
        if len(self) >= _MOST_RESULTS:
            self.clear()
        self[key] = result
        return result


_ALL: list[Results] = []


def forget_results() -> None:
    """Drop the kept results of all operations; sizes without other users go with them."""
    for results in _ALL:
        results.clear()
