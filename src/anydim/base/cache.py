"""What was made once and is kept on disk, found again by the hash of everything it depends on.

Several processes may use one folder: files appear whole by rename, and a file that does not match
its checksum counts as missing. The least recently used files go when the folder is too large. A
folder that cannot be used, or a file that is damaged, costs time and one warning, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from anydim.base import settings
from anydim.base.records import dataclass

_MAGIC = b"anydim-object-2\n"
_DIGEST = 32
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe waits for who writes it
_BETWEEN_TRIMS = 3600  # seconds
_PACKAGE = Path(__file__).parents[1]
_said: set[tuple[Path, str]] = set()  # folders, and what was warned of
_ROOMS = ("base", "sizes", "runtime", "lang", "kernels", "targets", "program", "native")


def key_of(*parts: str) -> str:
    """The name of what depends on these texts."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


@dataclass(frozen=True)
class DiskCache:
    """A folder of such things; `limit` is in bytes."""

    folder: Path
    limit: int

    def get(self, key: str) -> bytes | None:
        """What was put, or None when it is not there whole."""
        path = self.path(key)
        try:
            data = _contents(path, self.limit)
        except OSError:
            return None
        payload = data[len(_MAGIC) + _DIGEST :]
        if data != _filed(key, payload):
            self.damaged(path, path.name)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep something, if the folder lets us."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_filed(key, payload))
                os.replace(name, path)
            except OSError:
                os.unlink(name)
                raise
        except OSError as error:
            self._say(
                "nothing is kept there, so that it is compiled in every process (ANYDIM_CACHE_DIR "
                "names another folder, ANYDIM_USE_CACHE=0 is for none)", str(error.strerror),
            )  # fmt: skip

    def damaged(self, path: Path, why: object) -> None:
        """Remove a file that is not what was put there, with a warning."""
        with contextlib.suppress(OSError):
            path.unlink()
        self._say("a file was damaged, and made again", str(why))

    def _say(self, what: str, why: str) -> None:
        """Warn, once a process; a folder that cannot be used is no error."""
        if (self.folder, what) not in _said:
            _said.add((self.folder, what))
            with contextlib.suppress(Warning):
                warnings.warn(f"{self.folder}: {what} ({why})", RuntimeWarning, stacklevel=1)

    def tidy(self) -> None:
        """Trim when the last time is an hour ago: a full folder takes seconds to walk.

        The folder may be too large by what is put within that hour.
        """
        mark = self.folder / "trimmed"
        with contextlib.suppress(OSError):
            if not mark.exists() or abs(time.time() - mark.stat().st_mtime) > _BETWEEN_TRIMS:
                mark.touch()
                self.trim()

    def trim(self) -> None:
        """Remove the least recently used files until the rest fits into the limit."""
        with contextlib.suppress(OSError):
            files = [(f, f.stat()) for f in self.folder.glob("*/*") if f.is_file()]
            total = sum(about.st_size for _, about in files)
            for file, about in sorted(files, key=lambda entry: entry[1].st_mtime_ns):
                if total <= self.limit:
                    return
                with contextlib.suppress(OSError):
                    file.unlink()
                total -= about.st_size

    def path(self, key: str) -> Path:
        """Where the file of a key is, or would be."""
        return self.folder / key[:2] / key[2:]


def _filed(key: str, payload: bytes) -> bytes:
    """What a file holds: the digest says whose it is, too."""
    state = hashlib.sha256(key.encode())
    state.update(payload)
    return _MAGIC + state.digest() + payload


def _contents(path: Path, most: int) -> bytes:
    """The bytes of a plain file; raises OSError for anything that opening would wait for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            raise OSError("no file of ours")
        return file.read(most + 1)


def user_cache() -> DiskCache | None:
    """The cache that the settings ask for."""
    if not settings.use_cache:
        return None
    return DiskCache(Path(settings.cache_dir) / "objects", settings.cache_limit_mb * 1024**2)


# ---- the version of the code -------------------------------------------------------------------


@cache
def code_version() -> str:
    """A hash of the code that writes modules: part of the key of what it makes of something else.

    Reading it all takes 5 ms, so the hash of files of these sizes and times is kept.
    """
    files = sorted(_code_files(_ROOMS))
    kept = user_cache()
    if kept is None:
        return _hash_of(files)
    key = key_of("code", *(f"{path} {times}" for path, *times in files))
    data = kept.get(key)
    if data is None:
        data = _hash_of(files).encode()
        kept.put(key, data)
    return data.decode()


def package_version() -> str:
    """A hash of the sizes and times of all files of the package: what any change of it changes."""
    files = sorted(_code_files(("",)))
    return key_of(*(f"{path} {times}" for path, *times in files))


def _code_files(rooms: Iterable[str]) -> Iterator[tuple[str, int, int, int]]:
    """Path, size and times of change of every file of these rooms."""
    folders = [str(_PACKAGE / room) for room in rooms if (_PACKAGE / room).is_dir()]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".lark", ".tc")):
                    found = entry.stat()
                    yield entry.path, found.st_size, found.st_mtime_ns, found.st_ctime_ns
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)


def _hash_of(files: list[tuple[str, int, int, int]]) -> str:
    return key_of(*(Path(path).read_text("utf-8") for path, *_ in files))
