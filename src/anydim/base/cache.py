"""Disk cache: results stored under the hash of everything they depend on.

Several processes may share a folder: files are replaced atomically by rename, and a file with a
wrong checksum counts as missing. The least recently used files are removed above a size limit. A
folder that cannot be used, or a damaged file, costs time and one warning, never an error.
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
_SHARE = 4  # maximum share of the limit for one file is 1 / 4
_WITH_WEIGHTS = ("programs", "models", "packed")
_BETWEEN_TRIMS = 3600  # seconds
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NAME = __name__.partition(".")[0]
SHIPPED = os.path.join(_PACKAGE, "shipped")  # objects in the package (`release/shipped.py`)
_CODE = (".py", ".tc")
_GENERATORS = ("kernels", "targets", "native")  # of the compiler: they write code by its name
_ROOMS = ("base", "sizes", "runtime", "lang", *(f"compiler/{name}" for name in _GENERATORS))


def key_of(*parts: str) -> str:
    """The key of a result that depends on these texts."""
    state = sha256(size=sum(map(len, parts)))
    for part in parts:
        data = part.encode(errors="surrogatepass")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


@dataclass(frozen=True)
class DiskCache:
    """A subfolder of the cache; `limit` is in bytes."""

    folder: str
    limit: int

    @property
    def root(self) -> str:
        """The folder of the cache."""
        return os.path.dirname(self.folder)

    def get(self, key: str) -> bytes | None:
        """The stored payload, also from the package; None if missing or damaged."""
        path = self.path(key)
        data = contents(path, self.limit)
        if data is None:
            return self._shipped(key)
        payload = data[len(_MAGIC) + _DIGEST :]
        if data != _file_content(key, payload):
            self.discard_damaged(path, os.path.basename(path))
            return None
        used(path)
        return payload

    def _shipped(self, key: str) -> bytes | None:
        if os.path.basename(self.folder) != _OBJECTS:
            return None
        data = contents(os.path.join(SHIPPED, key), self.limit)
        payload = b"" if data is None else data[len(_MAGIC) + _DIGEST :]
        return payload if data == _file_content(key, payload) else None

    def put(self, key: str, payload: bytes) -> None:
        """Store a payload, if the folder is writable."""
        data = _file_content(key, payload)
        keep(self.root, self.path(key), lambda name: _write(name, data))

    def discard_damaged(self, path: str, why: object) -> None:
        """Remove a damaged file, with a warning."""
        remove(path)
        say(self.folder, "damaged", f"{self.folder}: a damaged file was replaced ({why})")

    def tidy(self) -> None:
        """Trim if the last time is an hour ago: walking a full folder takes seconds.

        The folder may exceed the limit by the files of that hour.
        """
        if long_ago(os.path.join(self.folder, "trimmed"), _BETWEEN_TRIMS):
            self.trim()

    def trim(self) -> None:
        """Remove the least recently used files until the rest is within the limit."""
        trim(self.folder, self.limit)

    def admits(self, bytes: int) -> bool:
        """Whether a file of this size is acceptable for the limit and the disk's free space."""
        return bytes <= min(self.limit, free_bytes(self.root)) // _SHARE

    def path(self, key: str) -> str:
        """The path of the file of a key."""
        return os.path.join(self.folder, key[:2], key[2:])


def _write(name: str, data: bytes) -> None:
    with open(name, "wb") as file:
        file.write(data)


def _file_content(key: str, payload: bytes) -> bytes:
    """The content of a file: magic, digest of key and payload, payload."""
    state = sha256(key.encode(), len(payload))
    state.update(payload)
    return _MAGIC + state.digest() + payload


def disk_cache(name: str) -> DiskCache | None:
    """The named part of the cache; None if the cache is off."""
    root = cache_folder()
    if root is None:
        return None
    limit = settings.program_limit_mb if name in _WITH_WEIGHTS else settings.cache_limit_mb
    return DiskCache(os.path.join(root, name), limit * 1024**2)


def user_cache() -> DiskCache | None:
    """The cache of compiled code in the configured folder."""
    return disk_cache(_OBJECTS)


# ---- the version of the code -------------------------------------------------------------------


@cache
def code_version() -> str:
    """A hash of the code that generates modules, as part of the keys of its results.

    Reading all files takes 5 ms, so the hash is cached by their sizes and times.
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


def version() -> str:
    """The version of the package, as `anydim.__version__`."""
    return str(sys.modules[_NAME].__version__)


def package_version() -> str:
    """A string that changes with any change of the package.

    An installer writes RECORD, with the digest of every file, after the files: its state identifies
    an installed package. Files of a checkout are edited in place, so the sizes and times of all of
    them are hashed, which takes 3 ms.
    """
    known = version()
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
    """Path, size and change times of every source file of these packages."""
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
