"""The files that a compilation reads, with their states: dependencies of its result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from anydim.base.records import dataclass


@dataclass(frozen=True)
class FileState:
    """The stat data of a file; any change of its contents changes it, unless within the resolution
    of the file system's clock."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    device: int
    inode: int

    @staticmethod
    def of(path: str | os.PathLike[str]) -> FileState:
        """The state of a file now; raises OSError."""
        full = os.path.abspath(path)
        found = os.stat(full)
        return FileState(
            full, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino
        )


CLOCK_NS = 2_000_000_000  # the coarsest clock of a file system


def boot() -> str:
    """The system's boot id, or ''.

    Files written before a boot may have lost data if the machine stopped without warning.
    """
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()
    return ""


_noted: ContextVar[dict[str, FileState] | None] = ContextVar("anydim_reads", default=None)


@contextmanager
def reads_noted() -> Iterator[dict[str, FileState]]:
    """Collect the files that are read inside the block, by absolute path, in order."""
    files: dict[str, FileState] = {}
    token = _noted.set(files)
    try:
        yield files
    finally:
        _noted.reset(token)


def note_read(path: str | os.PathLike[str]) -> None:
    """Record a file before it is read; raises OSError if it is missing."""
    files = _noted.get()
    if files is not None:
        state = FileState.of(path)
        files.setdefault(state.path, state)
