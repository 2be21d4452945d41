"""The compiled decoder of a language model, stored with its tokenizer and its chat template.

A start that finds it reads no file of the model, and imports no compiler: the files that decide the
results are known by their states, or by their digests in case of doubt (`base/read_files.py`). What
is stored is verified once after each boot.
"""

from __future__ import annotations

import gc
import json
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from anydim.api.cached_rows import CachedRows
from anydim.api.program_cache import compared_state, program_key, write_program
from anydim.base.cache import DiskCache, disk_cache, key_of
from anydim.base.cache_folder import is_there, used
from anydim.base.collector import collector_paused
from anydim.base.errors import UserError
from anydim.base.read_files import FileRead, FileState
from anydim.base.records import dataclass
from anydim.base.user_values import absolute
from anydim.deploy.load import load_kept
from anydim.runtime.frames import trim_system
from anydim.serving.language_models.decoder_compile import compile_decoder
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.saved_model import STEP, read_language, rows_of

_FILES = ("*.json", "*.jinja", "1_Pooling/config.json")  # of a folder, beside weights


@dataclass(frozen=True)
class Source:
    """The arguments of `language_model` that decide what is compiled."""

    place: Path
    context: int | None
    quantize: str | None
    tokenizer: Path | None
    cache: str
    threads: int | str
    precision: str | None

    def open_files(self) -> OpenedModel:
        """Read the files of the model; raises UserError kinds."""
        from anydim.serving.language_models.opening import open_files

        return open_files(self.place, self.context, self.quantize, self.tokenizer, self.cache)

    def files(self) -> list[str]:
        """The files that decide the results. Raises ModelError for a folder without weights."""
        own = [self.place]
        if self.place.is_dir():
            from anydim.serving.language_models.weight_files import weight_paths

            own = sorted(path for form in _FILES for path in self.place.glob(form))
            own += weight_paths(self.place)
        return [absolute(path) for path in (*own, self.tokenizer) if path is not None]

    def words(self) -> str:
        """All but the contents of files."""
        given = self.context, self.quantize, self.cache, self.threads, self.precision
        return f"language model {given!r} {self.tokenizer is not None}"


def open_compiled(source: Source) -> tuple[OpenedModel, CachedRows]:
    """A language model and its decoder, loaded or compiled."""
    models, notes = disk_cache("models"), disk_cache("sources")
    stored = None if models is None or notes is None else _Stored(source, models, notes)
    found = None if stored is None else stored.load()
    if found is not None:
        return found
    if stored is None:
        return _compile(source)
    with collector_paused():
        made = _compile_to(stored, source)
    if made is not None:
        return made
    gc.collect(1)  # the compiled objects are in cycles, and young: the collector was paused
    trim_system()
    found = stored.load()
    return _compile(source) if found is None else found  # it was removed meanwhile


def _compile(source: Source) -> tuple[OpenedModel, CachedRows]:
    """A language model and its decoder, compiled."""
    opened = source.open_files()
    model = compile_decoder(opened, source.threads, source.precision)
    return opened, rows_of(model, opened.spec)


@collector_paused()
def _compile_to(stored: _Stored, source: Source) -> tuple[OpenedModel, CachedRows] | None:
    """Compile and store a language model; the model if it could not be stored."""
    made = _compile(source)
    return None if stored.keep(*made) else made


class _Stored:
    """What is stored of a language model, by the contents of its files."""

    def __init__(self, source: Source, models: DiskCache, notes: DiskCache) -> None:
        self._source, self._models, self._notes = source, models, notes
        self._note = key_of(source.words(), absolute(source.place), str(source.tokenizer))
        self._compared: list[Any] = []  # the state of the stored file at its last verification
        self._reads: list[FileRead] = []
        with suppress(UserError, OSError):  # reading them for compilation says why
            paths = source.files()
            before = {each.state.path: each for each in self._read_note()}
            self._reads = [
                before[path].digest_now() if path in before else FileRead.of(path) for path in paths
            ]

    def load(self) -> tuple[OpenedModel, CachedRows] | None:
        """The model, if it is stored. A damaged file is removed, with a warning."""
        path, key = self._place()
        if not path or not is_there(path):
            return None
        try:
            state = compared_state(path)
            known = bool(state) and state == self._compared
            model = load_kept(path, known)
            if model.about.get("key") != key:
                return None
            name = self._source.place
            opened, rows = read_language(
                model.container, lambda: model, name.stem if name.is_file() else name.resolve().name
            )
            if used(path):
                state = compared_state(path)
        except (UserError, OSError) as error:
            self._models.discard_damaged(path, error)
            return None
        if state != self._compared:
            self._write_note(state)
        return replace(opened, reopen=self._source.open_files), rows

    def keep(self, opened: OpenedModel, rows: CachedRows) -> bool:
        """Store a compiled model; whether it is there."""
        from anydim.serving.language_models.saving import language_members

        path, key = self._place()
        model: Any = rows.model
        if not path or not self._models.admits(model.executable.constant_bytes):
            return False
        with suppress(UserError, OSError):  # errors of the folder are ignored
            if [FileState.of(each.state.path) for each in self._reads] == [
                each.state for each in self._reads
            ]:
                facts = {STEP: str(rows.step_formula), "key": key}
                members = language_members(opened)
                return write_program(
                    self._models, path,
                    lambda name, facts: model._write(name, facts=facts, members=members), facts,
                )  # fmt: skip
        return False

    def _place(self) -> tuple[str, str]:
        """The path of the stored file, and its key; empty if the files cannot be read."""
        if not self._reads:
            return "", ""
        names = [f"{Path(each.state.path).name} {each.digest}" for each in self._reads]
        try:
            key = program_key(self._source.words(), *names)
        except OSError:  # the files of the package cannot be listed
            return "", ""
        return self._models.path(key), key

    def _read_note(self) -> list[FileRead]:
        data = self._notes.get(self._note)
        if data is None:
            return []
        rows, self._compared = json.loads(data)  # verified by its digest
        return [FileRead(FileState(*row[:6]), row[6], row[7]) for row in rows]

    def _write_note(self, state: list[Any]) -> None:
        rows = [[*astuple(each.state), each.digest, each.noted_ns] for each in self._reads]
        self._notes.put(self._note, json.dumps([rows, state]).encode())
