"""Work that makes many objects, and few that only a collector could free, runs without it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused(lasting: bool = False) -> Iterator[None]:
    """Inside, garbage that refers to itself waits.

    Looking for it takes a seventh of a compile, and of a load in a fresh process. Where all that is
    made is `lasting`, as modules are, it counts as old at the end, so that the collector does not
    look at it next.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if lasting and enabled and gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()  # puts everything into the oldest generation
        if enabled:
            gc.enable()
