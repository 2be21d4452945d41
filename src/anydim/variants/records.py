"""Schedules that tuning found, for whoever compiles: read once, from the file of the ledger.

It is looked at where there is such a file, and only then anything is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.base import settings
from anydim.base.cache_folder import cache_folder, is_there

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
    """What changes with the schedules that were found, here for any processor; '' for none."""
    if not _is_there():
        return ""
    found: str = import_module("anydim.variants.ledger").ledger("").state()
    return found


def _is_there() -> bool:
    folder = cache_folder()
    return settings.tuned and folder is not None and is_there(os.path.join(folder, FILE))
