"""The models of a server: files and folders of versions, loaded and unloaded while it runs.

    encoder.anydim            model `encoder`, version 1
    encoder=path/to/file      the same, under a name
    models/                   each file in it, and each folder `name/1/`, `name/2/` with a file

Of a folder with versions, the newest is served. A file is read into memory, so that it may be
replaced or overwritten while it is served; `load` reads it again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.runtime.program.callable_program import CallableProgram

SAVED = ".anydim"
SUFFIXES = (SAVED, ".onnx")
Open = Callable[[str], CallableProgram]


@dataclass(frozen=True)
class Source:
    """Where versions of a model are: a file each, by number. `in_folder`: it was found in a folder
    of models, and was not named itself."""

    name: str
    versions: Mapping[int, Path]
    in_folder: bool = False

    @property
    def newest(self) -> int:
        """The version that is served."""
        return max(self.versions)


@dataclass(frozen=True)
class Loaded:
    """A model that is served."""

    name: str
    version: int
    path: Path
    model: CallableProgram


class Repository:
    """The sources of models, and which of them are loaded.

    `open` reads a file, `add` and `remove` begin and end serving a model.
    """

    def __init__(
        self, words: Sequence[str], open: Open, add: Callable[[str, CallableProgram], None],
        remove: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._words, self._open, self._add, self._remove = tuple(words), open, add, remove
        self.loaded: dict[str, Loaded] = {}
        self.reasons: dict[str, str] = {}  # why a model is not loaded
        self._lock = threading.Lock()  # one load at a time
        self.sources()  # a word that names no model is an error at the start

    def sources(self) -> dict[str, Source]:
        """What there is to load; raises OptionError for a word that names nothing."""
        found: dict[str, Source] = {}
        for word in self._words:
            for source in _sources(word):
                check_name(source.name)
                if source.name in found:
                    raise OptionError(f"two models are called '{source.name}'",
                                      "name one: NAME=PATH")  # fmt: skip
                found[source.name] = source
        return found

    def load(self, name: str) -> Loaded:
        """Load a model, or load it again; raises OptionError for an unknown one, UserError kinds
        for a file that is none. An earlier one is served until the new one is ready."""
        with self._lock:
            sources = self.sources()
            source = sources.get(name)
            if source is None:
                raise unknown(name, sources)
            version = source.newest
            path = source.versions[version]
            try:
                model = self._open(str(path))
                if not model.on_strings:  # the protocol has no complex tensors, and no state
                    model = model.bare
                self._add(name, model)
            except Exception as error:
                self.reasons[name] = str(error).split("\n")[0]
                raise
            self.reasons.pop(name, None)
            self.loaded[name] = made = Loaded(name, version, path, model)
            return made

    def unload(self, name: str) -> None:
        """Stop serving a model; raises OptionError if it is not served."""
        with self._lock:
            if self.loaded.pop(name, None) is None:
                raise unknown(name, self.loaded)
            self.reasons[name] = "unloaded"
        self._remove(name)

    def find(self, name: str, version: str = "") -> Loaded:
        """A model that is served; raises OptionError for another name or version."""
        found = self.loaded.get(name)
        if found is None:
            raise unknown(name, self.loaded)
        if version and version != str(found.version):
            raise OptionError(f"model '{name}' has no version '{version}' that is served",
                              f"version {found.version} is served")  # fmt: skip
        return found

    def index(self) -> list[dict[str, str]]:
        """All models and versions with their states, as the protocol lists them."""
        rows = []
        for name, source in self.sources().items():
            loaded = self.loaded.get(name)
            for version in sorted(source.versions):
                is_ready = loaded is not None and loaded.version == version
                reason = "" if is_ready else self.reasons.get(name, "it is not the newest version")
                state = "READY" if is_ready else "UNAVAILABLE"
                rows.append({"name": name, "version": str(version), "state": state,
                             "reason": reason})  # fmt: skip
        return rows


def check_name(name: str) -> None:
    """Raise OptionError for a name that no path of a request can have."""
    if not name or "/" in name:
        raise OptionError(f"'{name}' is no name of a model",
                          "it is a part of paths: not empty, and without '/'")  # fmt: skip


def check_load(parameters: Collection[str]) -> None:
    """Raise InputError for parameters of a request to load a model: another configuration, or other
    files than the server has."""
    if parameters:
        raise InputError(f"a load takes no parameter '{next(iter(parameters))}'",
                         "change the files of the server, and load without parameters")  # fmt: skip


def unknown(name: str, known: Mapping[str, Any]) -> OptionError:
    """The error for an unknown model."""
    hint = suggestion(name, known) or f"models: {quote_list(known) or 'none'}"
    return OptionError(f"there is no model '{name}'", hint)


def _sources(word: str) -> Iterator[Source]:
    name, equals, rest = word.partition("=")
    path = Path(rest if equals else word)
    if not path.exists():
        raise OptionError(f"there is no file or folder {path}", "name saved models or ONNX files")
    if not path.is_dir():
        yield Source(name if equals else path.stem, {1: path})
        return
    versions = _versions(path)
    if versions:
        yield Source(name if equals else path.resolve().name, versions)
        return
    if equals:
        raise OptionError(f"{path} has no folders 1, 2, ... with a model", "name a file")
    yield from _of_folder(path)


def _of_folder(path: Path) -> Iterator[Source]:
    any_found = False
    for each in sorted(path.iterdir()):
        if each.is_file() and each.suffix in SUFFIXES:
            any_found = True
            yield Source(each.stem, {1: each}, True)
        elif each.is_dir() and (versions := _versions(each)):
            any_found = True
            yield Source(each.name, versions, True)
    if not any_found:
        raise OptionError(f"{path} holds no model", "models are files .anydim or .onnx")


def _versions(path: Path) -> dict[int, Path]:
    """The model files of folders whose names are numbers."""
    found = {}
    for each in os.scandir(path):
        if each.name.isdecimal() and each.is_dir():
            files = [file for file in Path(each.path).iterdir() if file.suffix in SUFFIXES]
            if files:
                found[int(each.name)] = min(files)
    return found
