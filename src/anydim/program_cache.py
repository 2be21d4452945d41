"""Compiled programs on disk: a source that was compiled before is loaded instead.

    programs/XX/KEY      a saved program; KEY is the digest of everything that it depends on
    sources/XX/NAME      for a source and arguments of `compile`: the files read, with their
                         digests, and the state of the program's file when all of it was compared

A program depends on the contents of the files that its import reads (the model, external data,
texts of definitions), the arguments of `compile`, settings, the processor, tuned schedules, and the
code of anydim. A file whose size and times are those of its last digest is not read again, unless
it was written so shortly before that digest that the clock of a file system may hide a change.
A program is compared with its digests once after each start of the machine, and again when the
state of its file is another. Between, and after it was written, nothing but its manifest and its
records is read.
One process compiles a program, others that ask for it meanwhile wait for its result.
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
from anydim.base.cache_folder import is_there, keep, saved_to, used
from anydim.base.collector import collector_paused
from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError, OptionError, UserError
from anydim.base.read_files import CLOCK_NS, FileState, boot
from anydim.base.records import dataclass
from anydim.compile_request import Facts, Request, absolute
from anydim.deploy.load import LoadedModel, load_kept
from anydim.runtime.cpu import this_level
from anydim.runtime.threads import known_threads
from anydim.sizes import given_dims
from anydim.variants.records import tuned_state

_SETTINGS = ("winograd", "layout", "vector_bits", "most_nodes")
_LONGEST_WAIT = 600.0  # seconds for another process that compiles
_BLOCK = 1 << 20
_TARGET = "llvm"
_ADDRESS = " at 0x"
Save = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class _Read:
    """A file that the import read: its state when its digest was taken, the digest, and when."""

    state: FileState
    digest: str
    noted_ns: int

    def digest_now(self) -> _Read:
        """The same for the file as it is now, which is read in case of doubt. Raises OSError."""
        now = FileState.of(self.state.path)
        recent = max(now.modified_ns, now.changed_ns) + CLOCK_NS > self.noted_ns
        return self if now == self.state and not recent else _read(now.path)


def entry(request: Request) -> Entry | None:
    """Where the program of a request is kept; None for one that is compiled in every process.

    Kept are programs for the host alone, made by LLVM from a file, the bytes of one, an
    onnx.ModelProto or a Graph.
    """
    path, programs, sources = request.path, disk_cache("programs"), disk_cache("sources")
    if programs is None or sources is None or not settings.keep_programs:
        return None
    if settings.verify or settings.dump or settings.time:  # somebody watches the compiler
        return None
    if request.devices or request.placement or request.fallback or request.known.formed:
        return None
    if request.target not in (None, _TARGET) or settings.target != _TARGET:
        return None
    words = [
        repr(sorted(given_dims(request.dims).items())), repr(request.options),
        repr(absolute(request.operators)), str(request.precision), str(request.on_overflow),
        str(known_threads(request.threads)), "" if path is None else os.path.basename(path),
    ]  # fmt: skip
    if any(_ADDRESS in word for word in words):  # of an object without a text of its own
        return None
    data = _in_memory(request.source) if path is None else None
    if path is None and data is None:
        return None
    return Entry(programs, sources, request_of(*words), path, data)


def _in_memory(source: Any) -> bytes | memoryview | None:
    """The contents of a source that is in no file; None for one that has none."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source).cast("B")
    kind = type(source)
    room = kind.__module__.partition(".")[0]
    if room == "anydim" and kind.__name__ == "Graph":
        contents: bytes = import_module("anydim.graph.text").contents(source)
        return contents
    if room == "onnx" and kind.__name__ == "ModelProto":
        with suppress(ValueError):  # more than a message holds
            serialised: bytes = source.SerializeToString(deterministic=True)
            return serialised
    return None


class Entry:
    """The place of one program in the cache; `path` is that of a source in a file.

    `request` is all that the program depends on beside contents, `data` a source in memory.
    """

    def __init__(
        self, programs: DiskCache, sources: DiskCache, request: str, path: str | None,
        data: bytes | memoryview | None,
    ) -> None:  # fmt: skip
        self._programs, self._sources = programs, sources
        self._request, self._path = request, path
        self._found: str | None = None
        self._last: _Read | None = None  # of the source, of which no digest was on disk
        self._reads: list[_Read] = []
        self._compared: list[Any] = []  # the state of the program's file when it was compared
        self._own = [] if data is None else [sha256(data).hexdigest()]
        self._name = key_of(request, path or self._own[0])

    @collector_paused(lasting=True)
    def find(self) -> tuple[LoadedModel, Facts, float] | None:
        """The program, if it was kept, and the seconds that it took to load.

        A damaged file is removed, with a warning.
        """
        start, key = time.perf_counter(), self._key()
        path = None if key is None else self._programs.path(key)
        if path is None or not is_there(path):
            return None
        try:
            state = _compared_state(path)
            known = bool(state) and state == self._compared
            found = load_kept(path, known)  # what is damaged is compiled again
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
        """Raise OptionError when the files of the source are not those of the program any more."""
        if self._key() != self._found:
            raise OptionError(f"{self._path} has changed since it was compiled", "compile it again")

    def alone(self) -> AbstractContextManager[bool]:
        """Hold the lock of this program; give up when another process has made it."""
        path = f"{self._sources.path(self._name)}.lock"
        locked = import_module("anydim.base.locks").locked
        held: AbstractContextManager[bool] = locked(path, self._is_there, _LONGEST_WAIT)
        return held

    def keep(self, save: Save, facts: Facts, files: Mapping[str, FileState], bytes: int) -> bool:
        """Save a program that was made from these files, unless they changed meanwhile; whether it
        was saved.

        `bytes` are those of its constants: one that the cache does not admit is not kept.
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
        key = self._key()
        return key is not None and is_there(self._programs.path(key))

    def _key(self) -> str | None:
        """The key of the program; None where it is not known which files the import reads.

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
            return None  # other files may belong to it
        self._reads = now
        if now and (before is None or any(new is not old for new, old in zip(now, before))):
            self._note(self._compared)
        return key

    def _source(self) -> list[_Read]:
        """The file of the source, if it is one; a process that waits reads it once."""
        if self._path is None:
            return []
        self._last = _read(self._path) if self._last is None else self._last.digest_now()
        return [self._last]

    def _key_of(self, digests: Sequence[str]) -> str:
        return key_of(self._request, *self._own, *digests)

    def _ordered(self, files: Mapping[str, FileState]) -> list[str]:
        """The source first."""
        return sorted(files, key=lambda path: (path != self._path, path))

    # ---- files of a source ---------------------------------------------------------------------

    def _note(self, compared: Sequence[Any]) -> None:
        """Note the files of the source, and the state of a program's file that was compared."""
        rows = [[*astuple(each.state), each.digest, each.noted_ns] for each in self._reads]
        self._sources.put(self._name, json.dumps([rows, compared]).encode())

    def _noted(self) -> tuple[list[_Read] | None, list[Any]]:
        """What was noted; None where that is nothing."""
        data = self._sources.get(self._name)
        if data is None:
            return None, []
        rows, compared = json.loads(data)  # its digest holds
        return [_Read(FileState(*row[:6]), row[6], row[7]) for row in rows], compared


def _compared_state(path: str) -> list[Any]:
    """What shows that a file is as it was when it was compared; empty where nothing does."""
    known = boot()
    return [known, *astuple(FileState.of(path))] if known else []


def _read(path: str) -> _Read:
    """A file with the digest of its contents. Raises OSError."""
    state, noted_ns, digest = FileState.of(path), time.time_ns(), sha256(size=os.path.getsize(path))
    block = memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    if FileState.of(path) != state:
        raise OSError("it changes while it is read")
    return _Read(state, digest.hexdigest(), noted_ns)


def request_of(*parts: str) -> str:
    """Everything that a program depends on beside the contents of files, as a digest."""
    level = this_level()
    return key_of(
        *parts, level.architecture, *sorted(level.flags), package_version(), tuned_state(),
        *(f"{name}={settings.get(name)}" for name in _SETTINGS),
    )  # fmt: skip


def _facts_as_json(facts: Facts) -> dict[str, Any]:
    return {
        "expected": dict(facts.expected),
        "host_sites": facts.host_sites,
        "findings": list(facts.findings),
    }


def _facts(about: Mapping[str, Any]) -> Facts:
    """What a saved program carries; raises ArtefactError where that is missing."""
    found: Any = about.get("facts")
    try:
        return Facts(found["expected"], found["host_sites"], tuple(found["findings"]))
    except (TypeError, KeyError):
        raise ArtefactError("it was not kept by `compile`") from None
