"""Folders of caches that begin with the compiled code of all tests, and without their models."""

from __future__ import annotations

from pathlib import Path

from anydim.base import settings


def empty_cache(folder: Path) -> Path:
    """Make a cache folder; its compiled code, found by content, is that of the tests' own cache."""
    objects = Path(settings.cache_dir, "objects")
    objects.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True)
    (folder / "objects").symlink_to(objects, target_is_directory=True)
    return folder
