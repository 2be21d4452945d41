"""The file of the ledger, whose general schedules compilations use."""

from __future__ import annotations

import os

from anydim.base import settings
from anydim.base.cache_folder import cache_folder, is_there

FILE = "variants.sqlite"  # in the folder of the cache


def tuned_path() -> str | None:
    """The file whose general schedules compilations use; None if they use none."""
    folder = cache_folder()
    return os.path.join(folder, FILE) if settings.tuned and folder is not None else None


def has_tuned() -> bool:
    """Whether this file exists."""
    path = tuned_path()
    return path is not None and is_there(path)
