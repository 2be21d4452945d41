"""Tuned general schedules for the compiler, read once from the ledger file.

Modules are imported only if the file exists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.base import settings
from anydim.base.cache import key_of, user_cache
from anydim.base.cache_folder import LEDGER, cache_folder, is_there
from anydim.base.read_files import FileState

if TYPE_CHECKING:  # not needed to load a program
    from anydim.compiler.targets.target import Target
    from anydim.runtime.program.recipe import Recipe


def tuned_for(target: Target, threads: int) -> Callable[[Recipe], str]:
    """A function from a recipe to its tuned schedule on this processor; '' without one."""
    if not _is_there():
        return lambda recipe: ""
    made = import_module("anydim.compiler.variants.ledger")
    found = made.ledger(made.name_of(target)).tuned_schedules(threads)
    known = {subject: verdict.schedule for subject, verdict in found.items()}
    return lambda recipe: known.get(recipe.subject, "")


def tuned_state() -> str:
    """A digest of the tuned schedules of all processors; '' if none.

    Cached per state of the file: opening a ledger takes a quarter of the time of a load.
    """
    path, kept = _path(), user_cache()
    if path is None or kept is None or not is_there(path):
        return ""
    try:
        state = FileState.of(path)
    except OSError:
        return ""
    settled = state.is_settled(time.time_ns())
    key = key_of("tuned", repr(state))
    known = kept.get(key) if settled else None
    if known is not None:
        return known.decode()
    found: str = import_module("anydim.compiler.variants.ledger").ledger("").state()
    if settled:
        kept.put(key, found.encode())
    return found


def _is_there() -> bool:
    path = _path()
    return path is not None and is_there(path)


def _path() -> str | None:
    folder = cache_folder()
    return os.path.join(folder, LEDGER) if settings.tuned and folder is not None else None
