"""Pause the garbage collector for work that creates many objects and few cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_frozen_by_others = False  # noted once: counting frozen objects takes time for each


@contextmanager
def collector_paused(lasting: bool = False) -> Iterator[None]:
    """Disable the cyclic garbage collector inside the block.

    It takes a seventh of a compilation, and of a load in a fresh process. If all new objects are
    `lasting`, such as modules, they are moved to the oldest generation at the end, so that the next
    collection skips them.
    """
    global _frozen_by_others
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if lasting and enabled and not _frozen_by_others:
            _frozen_by_others = gc.get_freeze_count() > 0
            if not _frozen_by_others:
                gc.freeze()
                gc.unfreeze()  # moves all objects to the oldest generation
        if enabled:
            gc.enable()
