"""The files that a compilation reads, with their states: dependencies of its result.

A file is known by the path that the user gave, which may lead through links, and by the stat data
of the file that it leads to: a switched link, a rename or a new mount leads to another file, and a
write changes the times. Equal stat data prove equal contents if the file system sets the change
time of a file at each write, and the last write was longer ago than its clock may hide. They prove
nothing:

- within `CLOCK_NS` of the last change;
- for a change time in whole seconds: that of an image whose builder set all times;
- on Windows, where it is the time of creation.

Such files are read again. Not noticed are writes that leave all times: by a process that has the
file mapped, until the system writes its pages back, and by other machines while a network file
system holds stat data. The setting `verify_sources` has every file read at every start.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import ENOENT
from io import FileIO

from anydim.base import settings
from anydim.base.digest import sha256
from anydim.base.records import dataclass
from anydim.base.user_values import absolute

CLOCK_NS = 2_000_000_000  # the coarsest clock of a file system
_SECOND = 1_000_000_000
_HAS_CHANGE_TIMES = os.name != "nt"
_BLOCK = 1 << 20
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe waits for no writer


@dataclass(frozen=True)
class FileState:
    """The stat data of the file that a path leads to."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    device: int
    inode: int

    @staticmethod
    def of(path: str | os.PathLike[str], found: os.stat_result | None = None) -> FileState:
        """The state of a file now, or of an open one with stat data `found`; raises OSError."""
        full = absolute(path)
        try:
            about = os.stat(full) if found is None else found
        except ValueError:  # no file can have such a name
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), full) from None
        return FileState(
            full, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_dev, about.st_ino
        )

    def is_settled(self, noted_ns: int) -> bool:
        """Whether any later change would differ from this state, which was noted at a time."""
        is_old = max(self.modified_ns, self.changed_ns) + CLOCK_NS <= noted_ns
        return is_old and bool(self.changed_ns % _SECOND) and _HAS_CHANGE_TIMES

    def is_same_file(self, other: FileState) -> bool:
        """Whether it is the same file, as it was at its last write: it may have other links."""
        mine = self.device, self.inode, self.size, self.modified_ns
        return mine == (other.device, other.inode, other.size, other.modified_ns)


@dataclass(frozen=True)
class FileRead:
    """A file that was read: its state and digest, and the time of the digest."""

    state: FileState
    digest: str
    noted_ns: int

    @staticmethod
    def of(path: str) -> FileRead:
        """Read a file and its digest. Raises OSError."""
        state, noted_ns = FileState.of(path), time.time_ns()
        digest, block = sha256(size=state.size), memoryview(bytearray(_BLOCK))
        left = state.size
        with open_regular(path) as file:
            while left and (count := file.readinto(block[:left])):
                digest.update(block[:count])
                left -= count
        if FileState.of(path) != state:
            raise OSError("it changed while it was read")
        return FileRead(state, digest.hexdigest(), noted_ns)

    def digest_now(self) -> FileRead:
        """The same for the current file, which is read again in case of doubt. Raises OSError."""
        now = FileState.of(self.state.path)
        is_known = now == self.state and _is_proof(self.state, self.noted_ns)
        return self if is_known else FileRead.of(now.path)


def open_regular(path: str) -> FileIO:
    """Open a regular file; OSError for others, such as pipes and devices, which may never end."""
    file = FileIO(path, opener=lambda name, flags: os.open(name, flags | _AT_ONCE))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is not a regular file")
    return file


def _is_proof(state: FileState, noted_ns: int) -> bool:
    return state.is_settled(noted_ns) and not settings.verify_sources


def boot() -> str:
    """The system's boot id, or ''.

    Files written before a boot may have lost data if the machine stopped without warning.
    """
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()
    return ""


_noted: ContextVar[dict[str, FileRead] | None] = ContextVar("anydim_reads", default=None)


@contextmanager
def reads_noted() -> Iterator[dict[str, FileRead]]:
    """Collect the files that are read inside the block, by absolute path, in order.

    Their digest is '' if their state proves what was read.
    """
    files: dict[str, FileRead] = {}
    token = _noted.set(files)
    try:
        yield files
    finally:
        _noted.reset(token)


def note_read(path: str | os.PathLike[str], found: os.stat_result | None = None) -> None:
    """Record a file before it is read: `found` are the stat data of the opened file.

    Raises OSError if it is missing.
    """
    files = _noted.get()
    if files is None:
        return
    state, now = FileState.of(path, found), time.time_ns()
    if state.path not in files:
        digest = "" if _is_proof(state, now) else _digest_of(state)
        files[state.path] = FileRead(state, digest, now)


def _digest_of(state: FileState) -> str:
    """Digest a file that has this state; "changed", which is no digest, if it has another now."""
    with suppress(OSError):
        read = FileRead.of(state.path)
        if read.state == state:
            return read.digest
    return "changed"


def was_read(noted: FileRead, now: FileRead) -> bool:
    """Whether a file noted in `reads_noted` still has the contents that were read then."""
    return noted.state == now.state and noted.digest in ("", now.digest)
