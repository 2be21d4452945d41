"""A strategy that waits: nothing is imported, watched or started before a model has served a while.

A script that calls a model a few times is over before a body could pay, and shall have no thread or
process of ours. So a model under `adaptive(patience=2)` is a generic one, but for a look at the
clock every sixteenth call, until that many seconds have gone by since the first look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.runtime.executable import Executable

if TYPE_CHECKING:
    from concurrent.futures import Future

_CALLS = 16  # between two looks at the clock


class Later:
    """What an executable does after some calls, until it is time to `start`, on another thread."""

    def __init__(
        self, executable: Executable[Any], seconds: float, start: Callable[[Later], None]
    ) -> None:
        self._executable, self._seconds, self._start = executable, seconds, start
        self._first: float | None = None
        executable.served, executable.until_served = self, _CALLS

    def __call__(self) -> None:
        """Look at the clock."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        self._executable.until_served = _CALLS
        if now - self._first >= self._seconds:
            import_module("anydim.variants.background").aside(self)

    def look(self) -> Iterable[Future[Any]]:
        """Start."""
        self._start(self)
        return ()
