"""What was made once and is kept on disk, found again by the hash of everything it depends on.

Several processes may use one folder: files appear whole by rename, and a file that does not match
its checksum counts as missing. The least recently used files go when the folder is too large. A
folder that cannot be used, or a file that is damaged, costs time and one warning, never an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache

from anydim.base import settings
from anydim.base.cache_folder import (
    cache_folder,
    contents,
    free_bytes,
    keep,
    long_ago,
    remove,
    say,
    trim,
    used,
)
from anydim.base.digest import sha256
from anydim.base.records import dataclass

_MAGIC = b"anydim-object-2\n"
_OBJECTS = "objects"
_DIGEST = 32
_SHARE = 4  # of a limit that one file may take
_WITH_WEIGHTS = ("programs", "models")
_BETWEEN_TRIMS = 3600  # seconds
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NAME = __name__.partition(".")[0]
SHIPPED = os.path.join(_PACKAGE, "shipped")  # objects that came with it (`release/shipped.py`)
_CODE = (".py", ".lark", ".tc")
_ROOMS = ("base", "sizes", "runtime", "lang", "kernels", "targets", "program", "native")


def key_of(*parts: str) -> str:
    """The name of what depends on these texts."""
    state = sha256(size=sum(map(len, parts)))
    for part in parts:
        data = part.encode(errors="surrogatepass")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


@dataclass(frozen=True)
class DiskCache:
    """A folder of such things inside the cache's; `limit` is in bytes."""

    folder: str
    limit: int

    @property
    def root(self) -> str:
        """The folder of the cache."""
        return os.path.dirname(self.folder)

    def get(self, key: str) -> bytes | None:
        """What was put, or came with the package; None when it is not there whole."""
        path = self.path(key)
        data = contents(path, self.limit)
        if data is None:
            return self._shipped(key)
        payload = data[len(_MAGIC) + _DIGEST :]
        if data != _filed(key, payload):
            self.damaged(path, os.path.basename(path))
            return None
        used(path)
        return payload

    def _shipped(self, key: str) -> bytes | None:
        if os.path.basename(self.folder) != _OBJECTS:
            return None
        data = contents(os.path.join(SHIPPED, key), self.limit)
        payload = b"" if data is None else data[len(_MAGIC) + _DIGEST :]
        return payload if data == _filed(key, payload) else None

    def put(self, key: str, payload: bytes) -> None:
        """Keep something, if the folder lets us."""
        data = _filed(key, payload)
        keep(self.root, self.path(key), lambda name: _write(name, data))

    def damaged(self, path: str, why: object) -> None:
        """Remove a file that is not what was put there, with a warning."""
        remove(path)
        say(self.folder, "damaged", f"{self.folder}: a file was damaged, and made again ({why})")

    def tidy(self) -> None:
        """Trim when the last time is an hour ago: a full folder takes seconds to walk.

        The folder may be too large by what is put within that hour.
        """
        if long_ago(os.path.join(self.folder, "trimmed"), _BETWEEN_TRIMS):
            self.trim()

    def trim(self) -> None:
        """Remove the least recently used files until the rest fits into the limit."""
        trim(self.folder, self.limit)

    def admits(self, bytes: int) -> bool:
        """Whether one more file may take so much of the limit, and of the disk's free space."""
        return bytes <= min(self.limit, free_bytes(self.root)) // _SHARE

    def path(self, key: str) -> str:
        """Where the file of a key is, or would be."""
        return os.path.join(self.folder, key[:2], key[2:])


def _write(name: str, data: bytes) -> None:
    with open(name, "wb") as file:
        file.write(data)


def _filed(key: str, payload: bytes) -> bytes:
    """What a file holds: the digest says whose it is, too."""
    state = sha256(key.encode(), len(payload))
    state.update(payload)
    return _MAGIC + state.digest() + payload


def disk_cache(name: str) -> DiskCache | None:
    """The part of the cache that has a name; None where nothing is kept."""
    root = cache_folder()
    if root is None:
        return None
    limit = settings.program_limit_mb if name in _WITH_WEIGHTS else settings.cache_limit_mb
    return DiskCache(os.path.join(root, name), limit * 1024**2)


def user_cache() -> DiskCache | None:
    """The cache of compiled code, as the settings name it."""
    return disk_cache(_OBJECTS)


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
    """What any change of the package changes.

    An installer writes RECORD, with the digest of every file, after the files: its state is that of
    an installed package. Files of a checkout are edited in place, so the sizes and times of all of
    them are hashed, which takes 3 ms.
    """
    known = sys.modules[_NAME].__version__
    record = os.path.join(os.path.dirname(_PACKAGE), f"{_NAME}-{known}.dist-info", "RECORD")
    try:
        found = os.stat(record)
    except OSError:
        state = sha256()
        state.update(repr(sorted(_code_files(("",)))).encode(errors="surrogatepass"))
        return str(state.hexdigest())
    times = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino
    return key_of(record, repr(times))


def _code_files(rooms: Iterable[str]) -> Iterator[tuple[str, int, int, int]]:
    """Path, size and times of change of every file of these rooms."""
    named = (os.path.join(_PACKAGE, room) for room in rooms)
    folders = [folder for folder in named if os.path.isdir(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(_CODE):
                    found = entry.stat()
                    yield entry.path, found.st_size, found.st_mtime_ns, found.st_ctime_ns
                elif name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)


def _hash_of(files: list[tuple[str, int, int, int]]) -> str:
    return key_of(*(_text(path) for path, *_ in files))


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
