"""The cache folder of the settings: all file accesses in it go through this module.

A folder that cannot be used (owned by another user, read-only, full, a file, a name too long) costs
time and one warning per process, never an error: unreadable files count as missing, and files that
cannot be written are not stored.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache

from anydim.base import settings
from anydim.base.errors import UserError

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for a writer
_BETWEEN_USES = 3600.0  # seconds
LEDGER = "variants.sqlite"  # the file of tuned schedules (`variants/ledger.py`)
_MOST_TEXT = 4096  # bytes of a file of limits
_said: set[tuple[str, str]] = set()  # warnings already issued


def cache_folder() -> str | None:
    """The cache folder; None if the cache is off."""
    return str(settings.cache_dir) if settings.use_cache else None


def limits_path() -> str | None:
    """The file of the limits that `anydim calibrate` measured here; None if the cache is off."""
    folder = cache_folder()
    return None if folder is None else os.path.join(folder, f"limits-{_cpu()}.txt")


def limits_text() -> str:
    """The limits of the settings, else those measured on this machine, else ""."""
    path = limits_path()
    if settings.limits or path is None:
        return str(settings.limits)
    return (contents(path, _MOST_TEXT) or b"").decode("ascii", "replace").strip()


@lru_cache(maxsize=1)
def _cpu() -> str:
    """The processor's name in letters for a file, for folders that machines share."""
    name = os.uname().machine if hasattr(os, "uname") else ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line for line in file if line.startswith("model name")), name)
    name = name.rpartition(":")[2].strip()
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name)


def is_there(path: str) -> bool:
    """Whether a path is a visible regular file."""
    return os.path.isfile(path)


def contents(path: str, most: int) -> bytes | None:
    """The bytes of a regular file of at most `most` bytes; None for others, such as pipes."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > most:
                return None
            return file.read(most + 1)
    except OSError:
        return None


def map_file(path: str, size: int) -> mmap.mmap | None:
    """The memory of a regular file of `size` bytes, shared and read-only; None for others."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size != size:
                return None
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None


def keep(root: str, path: str, write: Callable[[str], object]) -> None:
    """Let `write` create a file below `root` atomically; warns if that is not possible."""
    import tempfile  # 6 ms that a reading process saves

    try:
        folder = os.path.dirname(path)
        make_folder(folder)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
        os.close(handle)
        try:
            write(name)
            os.replace(name, path)  # also replaces a pipe
        except BaseException:
            remove(name)
            raise
    except OSError as error:
        hint = "set ANYDIM_CACHE_DIR to another folder, or ANYDIM_USE_CACHE=0"
        what = f"{root}: not writable, so results are computed again in every process"
        not_kept(root, f"{what} ({hint}): {error.strerror or error}")


def make_folder(path: str) -> None:
    """Create a folder and its parents, if missing. Raises OSError."""
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
    """Call `save(name, *values)`; raises the OSError behind a UserError itself, so that `keep`
    warns about it."""
    try:
        save(name, *values)
    except UserError as error:
        raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def not_kept(root: str, text: str) -> None:
    """Warn once that a folder is not usable for storing."""
    say(root, "not kept", text)


def say(path: str, kind: str, text: str) -> None:
    """Warn once per process and kind. Suppresses warnings as errors: no caller catches them."""
    if (path, kind) not in _said:
        _said.add((path, kind))
        with contextlib.suppress(Warning):
            warnings.warn(text, RuntimeWarning, stacklevel=1)


def free_bytes(folder: str) -> int:
    """The free space of the disk of a folder, which may not exist yet."""
    import shutil

    above, path = "", os.path.abspath(folder)
    while path != above:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(path).free
        above, path = path, os.path.dirname(path)
    return 0


def used(path: str) -> bool:
    """Mark a file as used; returns whether its times changed, at most once an hour."""
    with contextlib.suppress(OSError):
        if abs(time.time() - os.stat(path).st_mtime) > _BETWEEN_USES:
            os.utime(path)
            return True
    return False


def remove(path: str) -> None:
    """Remove a file, ignoring errors."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def long_ago(mark: str, seconds: float) -> bool:
    """Whether a mark is older than `seconds`, in the future, or missing; if so, sets it."""
    with contextlib.suppress(OSError):
        if not os.path.exists(mark) or abs(time.time() - os.stat(mark).st_mtime) > seconds:
            with open(mark, "ab"):
                os.utime(mark)
            return True
    return False


def files_of(folder: str) -> Iterator[os.DirEntry[str]]:
    """The files in the subfolders of a folder; raises OSError if it is missing."""
    with os.scandir(folder) as rooms:
        for room in rooms:
            if room.is_dir():
                with os.scandir(room.path) as entries:
                    yield from (entry for entry in entries if entry.is_file())


def trim(folder: str, limit: int) -> None:
    """Remove least recently used files in subfolders until the rest is within a limit."""
    with contextlib.suppress(OSError):
        files = [(each.path, each.stat()) for each in files_of(folder)]
        total = sum(about.st_size for _, about in files)
        for file, about in sorted(files, key=lambda entry: entry[1].st_mtime_ns):
            if total <= limit:
                return
            remove(file)
            total -= about.st_size
