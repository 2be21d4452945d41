"""The store of compiled programs: what was compiled before is loaded from disk.

    models/XX/KEY        a program stored by a caller that names its dependencies itself: sessions
                         of `anydim.ort`, `anydim.sentence_transformers`
    programs/XX/KEY      a saved program; KEY is the digest of everything that it depends on
    sources/XX/NAME      for a source and arguments of `compile`: the files read, with their
                         digests, and the state of the program's file at its last verification

A program depends on the contents of the files that its import reads (the model, external data,
texts of definitions), the arguments of `compile`, settings, the processor, tuned schedules, and the
code of anydim. `structures.py` makes that of a source which differs in its weights alone. A file
whose path leads to the file of its last digest, with its size and times, is not read again, unless
those prove nothing (`base/read_files.py`). A program holds its key: files of the cache that were
exchanged are compiled again.
A program is verified against its digests once after each boot of the machine, and again when the
state of its file changes. Otherwise, only its manifest and its records are read.
One process compiles a program; other processes that need it wait for the result.
"""

from __future__ import annotations

import builtins
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import astuple
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.api.compile_options import Facts, Request
from anydim.base import log, settings
from anydim.base.cache import DiskCache, disk_cache, key_of, package_version
from anydim.base.cache_folder import is_there, keep, limits_text, saved_to, used
from anydim.base.collector import collector_paused
from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError, OptionError, UserError
from anydim.base.read_files import FileRead, FileState, boot, reads_noted, was_read
from anydim.base.user_values import text_of
from anydim.compiler.variants.records import tuned_state
from anydim.deploy.load import LoadedModel, load, load_kept
from anydim.runtime.cpu import this_level
from anydim.runtime.threads import known_threads
from anydim.sizes import given_dims

if TYPE_CHECKING:  # not needed to load a program
    from anydim.api.model import Model
    from anydim.api.structures import Source
    from anydim.runtime.program.callable_program import CallableProgram

# settings that change the code of a program
_SETTINGS = ("winograd", "layout", "target", "c_compiler", "vector_bits", "most_nodes")
_LONGEST_WAIT = 600.0  # seconds to wait for another process that compiles
_ADDRESS = " at 0x"
Save = Callable[[str, Mapping[str, Any]], None]


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
    target = usual if given.target is None else text_of("target", given.target)
    if target != usual or settings.target != usual:
        return None
    data = _in_memory(request.source) if path is None else None
    if path is None and data is None:
        return None
    fields = {
        **given.as_picklable().program_fields,
        "dims": sorted(given_dims(given.dims).items()),
        "threads": known_threads(given.threads),
        "target": usual,
        "external_data": given.external_data or settings.external_data,
    }
    try:
        words = [f"{name}={value!r}" for name, value in sorted(fields.items())]
    except Exception:  # a wrong option without a repr, which `compile` refuses
        return None
    if any(_ADDRESS in word for word in words):  # an object without its own repr
        return None
    try:
        request_key = program_key(*words)
    except OSError:  # the files of the package cannot be listed
        return None
    return Entry(programs, sources, request_key, path, data, fields["external_data"] == "follow")


def _in_memory(source: Any) -> bytes | memoryview | None:
    """The contents of a source in memory; None for other sources."""
    if isinstance(source, (bytes, bytearray)):  # of an ONNX file; loads no frontend
        return memoryview(source)
    frontend = import_module("anydim.compiler.frontends.table").find_frontend(source)
    found: bytes | memoryview | None = None if frontend is None else frontend.contents(source)
    return found


class Entry:
    """The cache entry of one program; `path` is the path of a source file.

    `request` covers all dependencies besides path and contents, `data` is a source in memory.
    `follows`: links of its external data may lead anywhere.
    """

    def __init__(
        self, programs: DiskCache, sources: DiskCache, request: str, path: str | None,
        data: bytes | memoryview | None, follows: bool = False,
    ) -> None:  # fmt: skip
        self._programs, self._sources = programs, sources
        self._path, self._data, self._follows = path, data, follows
        self._structure = request
        self._request = key_of(request, "" if path is None else os.path.basename(path))
        self._found: str | None = None
        self._last: FileRead | None = None  # the source, without a digest on disk
        self._reads: list[FileRead] = []
        self._compared: list[Any] = []  # the state of the program's file at its last verification
        self._own = [] if data is None else [sha256(data).hexdigest()]
        self._name = key_of(self._request, path or self._own[0])
        self._lock = f"{sources.path(self._name)}.lock"

    @collector_paused(lasting=True)
    def find(self) -> tuple[LoadedModel, Facts, float] | None:
        """Load the program, if stored; also returns the seconds it took.

        A damaged file is removed, with a warning.
        """
        start, key = time.perf_counter(), self._key()
        path = "" if key is None else self._programs.path(key)
        if key is None or not is_there(path):
            return None
        try:
            state = compared_state(path)
            known = bool(state) and state == self._compared
            found = load_kept(path, known)  # damaged programs are compiled again
            facts = _facts(found.about, key)
            if used(path):
                state = compared_state(path)
        except (UserError, OSError) as error:
            self._programs.discard_damaged(path, error)
            return None
        if state != self._compared:
            self._note(state)
        self._found, self._data = key, None
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
        locked = import_module("anydim.base.locks").lock_path
        held: AbstractContextManager[bool] = locked(self._lock, self._is_there, _LONGEST_WAIT)
        return held

    def keep(
        self, save: Save, facts: Facts, files: Mapping[str, FileRead], bytes: int,
        record: builtins.bytes = b"",
    ) -> bool:  # fmt: skip
        """Save a program compiled from these files, unless they changed; return whether saved.

        `bytes` is the size of its constants; programs too large for the cache are not saved.
        `record` is that of their derivations, if other weights may have the same code.
        """
        with suppress(UserError, OSError):
            key = self._store(save, _facts_as_json(facts), files, bytes)
            if key and record:
                with reads_noted() as read:
                    structure = self._open_structure()
                if {*read} == {*files}:  # it read no other files, such as definitions
                    structure.keep(key, record)
            return bool(key)
        return False

    def exchange_weights(self) -> bool:
        """Store the program of this source, made from one of its structure; whether it could be."""
        try:
            with reads_noted() as files:
                structure = self._open_structure()
            for made in structure.exchange_weights(self._programs):
                return bool(self._store(made.save, made.facts, files, made.container.length))
        except (UserError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            log.info("%s: compiled anew: %s", self._path or "the model", error)
        return False

    def _open_structure(self) -> Source:
        found: Source = import_module("anydim.api.structures").Source(
            self._path, self._data, self._structure, self._follows
        )
        return found

    def _store(
        self, save: Save, facts: Mapping[str, Any], files: Mapping[str, FileRead], bytes: int
    ) -> str:
        """Save a program and return its key; '' if a file changed, or for the limits of the cache.

        Raises UserError, OSError.
        """
        if not self._programs.admits(bytes):
            return ""
        reads = [self._read_now(path) for path in self._source_first(files)]
        if not all(was_read(files[each.state.path], each) for each in reads):
            return ""
        key = self._key_of([each.digest for each in reads])
        path = self._programs.path(key)
        if not write_program(self._programs, path, save, {"facts": facts, "key": key}):
            return ""
        self._reads = reads
        self._note(compared_state(path))
        return key

    def _read_now(self, path: str) -> FileRead:
        """A file as it is now; the source was read before. Raises OSError."""
        return self._source()[0] if path == self._path else FileRead.of(path)

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
        before, self._compared = self._read_note()
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
        elif not self._are_in_place(now):
            return None  # the import decides whether it may read them
        self._reads = now
        if now and (before is None or any(new is not old for new, old in zip(now, before))):
            self._note(self._compared)
        return key

    def _source(self) -> list[FileRead]:
        """The source file, if any; a waiting process reads it once."""
        if self._path is None:
            return []
        self._last = FileRead.of(self._path) if self._last is None else self._last.digest_now()
        return [self._last]

    def _are_in_place(self, reads: Iterable[FileRead]) -> bool:
        """Whether data are inside of the folders that external data may lie in.

        Also files with the state of before: a folder above them may have moved out and left a
        link. Files outside of the model's folder are no external data: definitions of operators.
        """
        others = [each.state.path for each in reads if each.state.path != self._path]
        if self._path is None or self._follows or not others:
            return True
        found = os.path.dirname(self._path), os.path.dirname(os.path.realpath(self._path))
        named = tuple(os.path.join(folder, "") for folder in found)
        inside = tuple(os.path.join(os.path.realpath(folder), "") for folder in found)
        data = (path for path in others if path.startswith(named))
        return all(os.path.realpath(path).startswith(inside) for path in data)

    def _key_of(self, digests: Sequence[str]) -> str:
        return key_of(self._request, *self._own, *digests)

    def _source_first(self, files: Iterable[str]) -> list[str]:
        """The files, the source first."""
        return sorted(files, key=lambda path: (path != self._path, path))

    # ---- files of a source ---------------------------------------------------------------------

    def _note(self, compared: Sequence[Any]) -> None:
        """Store the files of the source, and the verified state of a program's file."""
        rows = [[*astuple(each.state), each.digest, each.noted_ns] for each in self._reads]
        self._sources.put(self._name, json.dumps([rows, compared]).encode())

    def _read_note(self) -> tuple[list[FileRead] | None, list[Any]]:
        """The stored files and state; None if not stored."""
        data = self._sources.get(self._name)
        if data is None:
            return None, []
        rows, compared = json.loads(data)  # verified by its digest
        return [FileRead(FileState(*row[:6]), row[6], row[7]) for row in rows], compared


def compared_state(path: str) -> list[Any]:
    """The state that shows that a verified file is unchanged; empty if unknown."""
    known = boot()
    return [known, *astuple(FileState.of(path))] if known else []


def program_key(*parts: str) -> str:
    """The key of a program: of these parts, settings, processor, tuning results, code of anydim."""
    level = this_level()
    return key_of(
        *parts, level.architecture, *sorted(level.flags), package_version(), tuned_state(),
        limits_text(), *(f"{name}={settings.get(name)}" for name in _SETTINGS),
    )  # fmt: skip


def write_program(cache: DiskCache, path: str, save: Save, facts: Mapping[str, Any]) -> bool:
    """Saves a program with facts in its manifest, and trims the cache; whether it is there."""
    keep(cache.root, path, lambda name: saved_to(name, save, facts))
    cache.tidy()
    return is_there(path)


def _facts_as_json(facts: Facts) -> dict[str, Any]:
    return {
        "expected": dict(facts.expected),
        "host_sites": facts.host_sites,
        "findings": list(facts.findings),
    }


def _facts(about: Mapping[str, Any], key: str) -> Facts:
    """The facts in a saved program; raises ArtefactError if missing, or of another key."""
    found: Any = about.get("facts")
    if about.get("key") != key:
        raise ArtefactError("it is the program of another key")
    try:
        return Facts(found["expected"], found["host_sites"], tuple(found["findings"]))
    except (TypeError, KeyError):
        raise ArtefactError("it was not stored by `compile`") from None


# ---- programs of callers that name the dependencies ------------------------------------------


def load_or_compile(
    parts: Iterable[str | memoryview], make: Callable[[], Model]
) -> CallableProgram:
    """Loads the model made of these parts before, or else calls `make()`, whose errors propagate.

    `parts` are all dependencies besides anydim and the machine; only read if there is a cache.
    """
    return load_or_compile_at(path_of_parts(parts), make)


def path_of_parts(parts: Iterable[str | memoryview]) -> str | None:
    """The file of the model made of these parts; None without a cache."""
    folder = disk_cache("models")
    if folder is None:
        return None
    state = import_module("hashlib").sha256()
    for part in parts:  # weights, one at a time
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    try:
        return folder.path(program_key(state.hexdigest()))
    except OSError:  # the files of the package cannot be listed
        return None


def load_or_compile_at(path: str | None, make: Callable[[], Model]) -> CallableProgram:
    """Loads the model at a path of `path_of_parts`, or else calls `make()` and stores its result.

    Models with strings, or with weights too large for the cache, are not stored.
    """
    if path is None:
        return make()
    key = "".join(path.split(os.sep)[-2:])
    found = _load_stored(path, key)
    if found is not None:
        return found
    made, folder = make(), disk_cache("models")
    if folder is None or made.on_strings or not folder.admits(made.executable.constant_bytes):
        return made
    with suppress(UserError):  # errors of the folder are ignored
        write_program(
            folder, path, lambda name, facts: made._write(name, facts=facts), {"key": key}
        )
    return made


def _load_stored(path: str, key: str) -> CallableProgram | None:
    """Loads the model at a path; None if it is not there, damaged, or that of another key."""
    if is_there(path):
        with suppress(UserError, OSError):
            found = load(path, verify="checksums")
            if found.about.get("key") == key:
                used(path)
                return found
    return None
