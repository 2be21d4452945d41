"""The folder of the cache, as the settings name it: every touch of a file there goes through here.

A folder that cannot be used (of another user, read-only, full, a file, a name too long) costs time
and one warning a process, never an error: what cannot be read is not there, and what cannot be
written is not kept.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator

from anydim.base import settings
from anydim.base.errors import UserError

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe waits for who writes it
_BETWEEN_USES = 3600.0  # seconds
_said: set[tuple[str, str]] = set()  # of what was warned


def cache_folder() -> str | None:
    """Where things are kept; None where nothing is."""
    return str(settings.cache_dir) if settings.use_cache else None


def is_there(path: str) -> bool:
    """Whether there is a plain file that may be seen."""
    return os.path.isfile(path)


def contents(path: str, most: int) -> bytes | None:
    """The bytes of a plain file; None for anything that opening would wait for, too."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > most:
                return None
            return file.read(most + 1)
    except OSError:
        return None


def keep(root: str, path: str, write: Callable[[str], object]) -> None:
    """Have `write` make a file below the folder `root`, which appears whole, if that lets us."""
    import tempfile  # 6 ms that a process which only reads does without

    try:
        folder = os.path.dirname(path)
        make_folder(folder)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
        os.close(handle)
        try:
            write(name)
            os.replace(name, path)  # of a pipe, too
        except BaseException:
            remove(name)
            raise
    except OSError as error:
        hint = "ANYDIM_CACHE_DIR names another folder, ANYDIM_USE_CACHE=0 is for none"
        what = f"{root}: nothing is kept there, so that it is made in every process"
        not_kept(root, f"{what} ({hint}): {error.strerror or error}")


def make_folder(path: str) -> None:
    """Make a folder and those around it, unless it is there. Raises OSError."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in ("", path):
            raise
        make_folder(above)
        _make_one(path)
    except OSError:
        if not os.path.isdir(path):
            raise


def _make_one(path: str) -> None:
    """Create a folder whose parent exists; file systems such as /proc report the parent missing."""
    try:
        os.mkdir(path)
    except OSError:
        if not os.path.isdir(path):
            raise


def saved_to(name: str, save: Callable[..., object], *values: object) -> None:
    """Have `save(name, *values)` write a file; an OSError behind what it raises is raised itself,
    so that `keep` warns of it."""
    try:
        save(name, *values)
    except UserError as error:
        raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def not_kept(root: str, text: str) -> None:
    """Warn that something cannot be kept in a folder, unless that was warned of before."""
    say(root, "not kept", text)


def say(path: str, kind: str, text: str) -> None:
    """Warn, once a process and kind. Where warnings are errors, nobody is there to catch this."""
    if (path, kind) not in _said:
        _said.add((path, kind))
        with contextlib.suppress(Warning):
            warnings.warn(text, RuntimeWarning, stacklevel=1)


def free_bytes(folder: str) -> int:
    """The free space of the disk that a folder is on, or will be on."""
    import shutil

    above, place = "", os.path.abspath(folder)
    while place != above:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(place).free
        above, place = place, os.path.dirname(place)
    return 0


def used(path: str) -> bool:
    """A file was used now; whether its times changed, which they do once an hour at most."""
    with contextlib.suppress(OSError):
        if abs(time.time() - os.stat(path).st_mtime) > _BETWEEN_USES:
            os.utime(path)
            return True
    return False


def remove(path: str) -> None:
    """A file goes, if the folder lets us."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def long_ago(mark: str, seconds: float) -> bool:
    """Whether a mark was set so long ago, or in the future; it is set now."""
    with contextlib.suppress(OSError):
        if not os.path.exists(mark) or abs(time.time() - os.stat(mark).st_mtime) > seconds:
            with open(mark, "ab"):
                os.utime(mark)
            return True
    return False


def files_of(folder: str) -> Iterator[os.DirEntry[str]]:
    """The files of the folders in one; raises OSError where there is no such folder."""
    with os.scandir(folder) as rooms:
        for room in rooms:
            if room.is_dir():
                with os.scandir(room.path) as entries:
                    yield from (entry for entry in entries if entry.is_file())


def trim(folder: str, limit: int) -> None:
    """Remove the least recently used files of the folders in one until the rest fits a limit."""
    with contextlib.suppress(OSError):
        files = [(each.path, each.stat()) for each in files_of(folder)]
        total = sum(about.st_size for _, about in files)
        for file, about in sorted(files, key=lambda entry: entry[1].st_mtime_ns):
            if total <= limit:
                return
            remove(file)
            total -= about.st_size
