"""Work that makes many objects, and few that only a collector could free, runs without it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Inside, garbage that refers to itself waits.

    Looking for it takes a seventh of a compile, and a tenth of a load in a fresh process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
