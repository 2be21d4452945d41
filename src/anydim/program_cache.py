"""The program cache: a source that was compiled before is loaded from disk.

    programs/XX/KEY      a saved program; KEY is the digest of everything that it depends on
    sources/XX/NAME      for a source and arguments of `compile`: the files read, with their
                         digests, and the state of the program's file at its last verification

A program depends on the contents of the files that its import reads (the model, external data,
texts of definitions), the arguments of `compile`, settings, the processor, tuned schedules, and the
code of anydim. A file with the size and times of its last digest is not read again, unless it was
written so shortly before that digest that the clock of a file system may hide a change.
A program is verified against its digests once after each boot of the machine, and again when the
state of its file changes. Otherwise, only its manifest and its records are read.
One process compiles a program; other processes that need it wait for the result.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import astuple
from importlib import import_module
from typing import Any

from anydim.base import settings
from anydim.base.cache import DiskCache, disk_cache, key_of, package_version
from anydim.base.cache_folder import is_there, keep, limits_text, saved_to, used
from anydim.base.collector import collector_paused
from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError, OptionError, UserError
from anydim.base.read_files import CLOCK_NS, FileState, boot
from anydim.base.records import dataclass
from anydim.compile_request import Facts, Request
from anydim.deploy.load import LoadedModel, load_kept
from anydim.runtime.cpu import this_level
from anydim.runtime.threads import known_threads
from anydim.sizes import given_dims
from anydim.variants.records import tuned_state

_SETTINGS = ("winograd", "layout", "vector_bits", "most_nodes")
_LONGEST_WAIT = 600.0  # seconds to wait for another process that compiles
_BLOCK = 1 << 20
_ADDRESS = " at 0x"
Save = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class _Read:
    """A file read by the import: its state and digest, and the time of the digest."""

    state: FileState
    digest: str
    noted_ns: int

    def digest_now(self) -> _Read:
        """The same for the current file, which is read again in case of doubt. Raises OSError."""
        now = FileState.of(self.state.path)
        recent = max(now.modified_ns, now.changed_ns) + CLOCK_NS > self.noted_ns
        return self if now == self.state and not recent else _read(now.path)


def entry(request: Request) -> Entry | None:
    """The cache entry of a request; None for one that is compiled in every process.

    Cached are programs for the host only, compiled by LLVM from a file, its bytes, an
    onnx.ModelProto or a Graph.
    """
    path, programs, sources = request.path, disk_cache("programs"), disk_cache("sources")
    if programs is None or sources is None or not settings.keep_programs:
        return None
    if settings.verify or settings.dump or settings.time:  # the compiler is observed
        return None
    given = request.options
    if not given.may_be_kept or request.known.formed:
        return None
    usual = settings.USUAL_TARGET
    if given.target not in (None, usual) or settings.target != usual:
        return None
    data = _in_memory(request.source) if path is None else None
    if path is None and data is None:
        return None
    fields = {
        **given.as_picklable().program_fields,
        "dims": sorted(given_dims(given.dims).items()),
        "threads": known_threads(given.threads),
        "target": usual,
    }
    words = [f"{name}={value!r}" for name, value in sorted(fields.items())]
    words.append("" if path is None else os.path.basename(path))
    if any(_ADDRESS in word for word in words):  # an object without its own repr
        return None
    try:
        request_key = request_of(*words)
    except OSError:  # the files of the package cannot be listed
        return None
    return Entry(programs, sources, request_key, path, data)


def _in_memory(source: Any) -> bytes | memoryview | None:
    """The contents of a source in memory; None for other sources."""
    if isinstance(source, (bytes, bytearray)):  # of an ONNX file; loads no frontend
        return memoryview(source)
    frontend = import_module("anydim.frontends.table").find_frontend(source)
    found: bytes | memoryview | None = None if frontend is None else frontend.contents(source)
    return found


class Entry:
    """The cache entry of one program; `path` is the path of a source file.

    `request` covers all dependencies besides contents, `data` is a source in memory.
    """

    def __init__(
        self, programs: DiskCache, sources: DiskCache, request: str, path: str | None,
        data: bytes | memoryview | None,
    ) -> None:  # fmt: skip
        self._programs, self._sources = programs, sources
        self._request, self._path = request, path
        self._found: str | None = None
        self._last: _Read | None = None  # the source, without a digest on disk
        self._reads: list[_Read] = []
        self._compared: list[Any] = []  # the state of the program's file at its last verification
        self._own = [] if data is None else [sha256(data).hexdigest()]
        self._name = key_of(request, path or self._own[0])
        self._lock = f"{sources.path(self._name)}.lock"

    @collector_paused(lasting=True)
    def find(self) -> tuple[LoadedModel, Facts, float] | None:
        """Load the program, if stored; also returns the seconds it took.

        A damaged file is removed, with a warning.
        """
        start, key = time.perf_counter(), self._key()
        path = None if key is None else self._programs.path(key)
        if path is None or not is_there(path):
            return None
        try:
            state = _compared_state(path)
            known = bool(state) and state == self._compared
            found = load_kept(path, known)  # damaged programs are compiled again
            facts = _facts(found.about)
            if used(path):
                state = _compared_state(path)
        except (UserError, OSError) as error:
            self._programs.damaged(path, error)
            return None
        if state != self._compared:
            self._note(state)
        self._found = key
        return found, facts, time.perf_counter() - start

    def check_unchanged(self) -> None:
        """Raise OptionError if the files of the source have changed since compilation."""
        if self._key() != self._found:
            raise OptionError(f"{self._path} has changed since it was compiled", "compile it again")

    def is_compiled_elsewhere(self) -> bool:
        """Whether another process seems to compile this source for the first time.

        Its digest, which a waiter then need not compute, will be in the record.
        """
        return is_there(self._lock) and not is_there(self._sources.path(self._name))

    def locked_entry(self) -> AbstractContextManager[bool]:
        """Hold the lock of this program; returns early once another process has stored it."""
        locked = import_module("anydim.base.locks").locked
        held: AbstractContextManager[bool] = locked(self._lock, self._is_there, _LONGEST_WAIT)
        return held

    def keep(self, save: Save, facts: Facts, files: Mapping[str, FileState], bytes: int) -> bool:
        """Save a program compiled from these files, unless they changed; return whether saved.

        `bytes` is the size of its constants; programs too large for the cache are not saved.
        """
        if not self._programs.admits(bytes):
            return False
        with suppress(UserError, OSError):
            reads = [_read(path) for path in self._ordered(files)]
            if any(each.state != files[each.state.path] for each in reads):
                return False
            path = self._programs.path(self._key_of([each.digest for each in reads]))
            facts_too = {"facts": _facts_as_json(facts)}
            keep(self._programs.root, path, lambda name: saved_to(name, save, facts_too))
            if not is_there(path):
                return False
            self._reads = reads
            self._note(_compared_state(path))
            self._programs.tidy()
            return True
        return False

    # ---- keys ----------------------------------------------------------------------------------

    def _is_there(self) -> bool:
        """Whether another process has stored the program since `find`; waiters ask this often."""
        if not is_there(self._sources.path(self._name)):
            return False
        key = self._key()
        return key is not None and is_there(self._programs.path(key))

    def _key(self) -> str | None:
        """The key of the program; None if the files that the import reads are unknown.

        A file that was not compiled yet may have the contents of one that was.
        """
        before, self._compared = self._noted()
        try:
            now = self._source() if before is None else [each.digest_now() for each in before]
        except OSError:
            return None
        key = self._key_of([each.digest for each in now])
        if before is None:
            if not is_there(self._programs.path(key)):
                return None
        elif self._path is not None and now[0].digest != before[0].digest:
            return None  # it may refer to other files
        self._reads = now
        if now and (before is None or any(new is not old for new, old in zip(now, before))):
            self._note(self._compared)
        return key

    def _source(self) -> list[_Read]:
        """The source file, if any; a waiting process reads it once."""
        if self._path is None:
            return []
        self._last = _read(self._path) if self._last is None else self._last.digest_now()
        return [self._last]

    def _key_of(self, digests: Sequence[str]) -> str:
        return key_of(self._request, *self._own, *digests)

    def _ordered(self, files: Mapping[str, FileState]) -> list[str]:
        """The files, the source first."""
        return sorted(files, key=lambda path: (path != self._path, path))

    # ---- files of a source ---------------------------------------------------------------------

    def _note(self, compared: Sequence[Any]) -> None:
        """Store the files of the source, and the verified state of a program's file."""
        rows = [[*astuple(each.state), each.digest, each.noted_ns] for each in self._reads]
        self._sources.put(self._name, json.dumps([rows, compared]).encode())

    def _noted(self) -> tuple[list[_Read] | None, list[Any]]:
        """The stored files and state; None if not stored."""
        data = self._sources.get(self._name)
        if data is None:
            return None, []
        rows, compared = json.loads(data)  # verified by its digest
        return [_Read(FileState(*row[:6]), row[6], row[7]) for row in rows], compared


def _compared_state(path: str) -> list[Any]:
    """The state that shows that a verified file is unchanged; empty if unknown."""
    known = boot()
    return [known, *astuple(FileState.of(path))] if known else []


def _read(path: str) -> _Read:
    """Read a file and its digest. Raises OSError."""
    state, noted_ns, digest = FileState.of(path), time.time_ns(), sha256(size=os.path.getsize(path))
    block = memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    if FileState.of(path) != state:
        raise OSError("it changed while it was read")
    return _Read(state, digest.hexdigest(), noted_ns)


def request_of(*parts: str) -> str:
    """The digest of all dependencies of a program besides the contents of files."""
    level = this_level()
    return key_of(
        *parts, level.architecture, *sorted(level.flags), package_version(), tuned_state(),
        limits_text(), *(f"{name}={settings.get(name)}" for name in _SETTINGS),
    )  # fmt: skip


def _facts_as_json(facts: Facts) -> dict[str, Any]:
    return {
        "expected": dict(facts.expected),
        "host_sites": facts.host_sites,
        "findings": list(facts.findings),
    }


def _facts(about: Mapping[str, Any]) -> Facts:
    """The facts in a saved program; raises ArtefactError if missing."""
    found: Any = about.get("facts")
    try:
        return Facts(found["expected"], found["host_sites"], tuple(found["findings"]))
    except (TypeError, KeyError):
        raise ArtefactError("it was not stored by `compile`") from None
