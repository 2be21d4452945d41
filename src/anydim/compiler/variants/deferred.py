"""Deferred strategies: start compiling variants only after a model has served for a while.

A script that calls a model a few times ends before a variant could pay off, and should not start
threads or processes. So a model under `adaptive(patience=2)` runs generic kernels, and reads the
clock every sixteenth call, until that many seconds have passed since the first reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.runtime.executable import Executable

if TYPE_CHECKING:
    from concurrent.futures import Future

_CALLS = 16  # between two readings of the clock


class Later:
    """Callback of an executable that calls `start` on another thread after `seconds`."""

    def __init__(
        self, executable: Executable[Any], seconds: float, start: Callable[[Later], None]
    ) -> None:
        self._executable, self._seconds, self._start = executable, seconds, start
        self._first: float | None = None
        executable.served, executable.until_served = self, _CALLS

    def __call__(self) -> None:
        """Read the clock; start if the time has come."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        self._executable.until_served = _CALLS
        if now - self._first >= self._seconds:
            import_module("anydim.compiler.variants.background").run_in_background(self)

    def poll(self) -> Iterable[Future[Any]]:
        """Start the strategy; orders no variants itself."""
        self._start(self)
        return ()
