"""Schedules that tuning found, for whoever compiles: read once, from the file of the ledger.

It is looked at where there is such a file, and only then anything is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.base import settings
from anydim.base.cache import key_of, user_cache
from anydim.base.cache_folder import cache_folder, is_there
from anydim.base.read_files import CLOCK_NS, FileState

if TYPE_CHECKING:  # a process that loads its program needs none of it
    from anydim.program.recipe import Recipe
    from anydim.targets.target import Target

FILE = "variants.sqlite"  # in the folder of the cache


def tuned_for(target: Target, threads: int) -> Callable[[Recipe], str]:
    """What tells the schedule that was found for a recipe on this processor; '' for none."""
    if not _is_there():
        return lambda recipe: ""
    made = import_module("anydim.variants.ledger")
    found = made.ledger(made.name_of(target)).tuned(threads)
    known = {subject: verdict.schedule for subject, verdict in found.items()}
    return lambda recipe: known.get(recipe.subject, "")


def tuned_state() -> str:
    """What changes with the schedules that were found, here for any processor; '' for none.

    It is kept for a file of this state: opening a ledger takes as long as a quarter of a load.
    """
    path, kept = _path(), user_cache()
    if path is None or kept is None or not is_there(path):
        return ""
    try:
        state = FileState.of(path)
    except OSError:
        return ""
    settled = max(state.modified_ns, state.changed_ns) + CLOCK_NS < time.time_ns()
    key = key_of("tuned", repr(state))
    known = kept.get(key) if settled else None
    if known is not None:
        return known.decode()
    found: str = import_module("anydim.variants.ledger").ledger("").state()
    if settled:
        kept.put(key, found.encode())
    return found


def _is_there() -> bool:
    path = _path()
    return path is not None and is_there(path)


def _path() -> str | None:
    folder = cache_folder()
    return os.path.join(folder, FILE) if settings.tuned and folder is not None else None
