"""The folder of a model file, and the files that the model may read: its external data.

Locations in a model are untrusted: they are relative, without `..`. Links in the folder are the
user's, but may come with the model: they may lead to files inside the folder of the user's path,
or, if that path is a link to the model, inside the folder of the model's file. With
`external_data="follow"` they lead anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from anydim.base.errors import ModelError
from anydim.base.read_files import FileState, note_read
from anydim.base.user_values import absolute

FOLLOW = "follow"


class DataFolder:
    """The folder of the model at a path, as it was when the model was opened.

    Files are noted by the path through the user's folder, and read where it led at the first time.
    """

    def __init__(self, path: str | os.PathLike[str], follow: bool) -> None:
        folder, name = os.path.split(absolute(path))
        self._given, self._follow = folder, follow
        self._real = Path(folder).resolve(strict=True)
        self.model = self._real / name  # through no link of a folder, which may be switched
        self._inside = [self._real]
        with suppress(OSError, RuntimeError):  # a file without a path, such as an open one
            self._inside.append(self.model.resolve(strict=True).parent)
        self._places: dict[str, Path] = {}
        self._states: dict[str, FileState] = {}
        self._name = name

    def note_model(self, found: os.stat_result) -> None:
        """Note the model, whose opened file has these stat data."""
        self._note(self._name, found)

    @property
    def has_data(self) -> bool:
        """Whether external data were read."""
        return bool(self._places)

    def open(self, location: str, where: str) -> BinaryIO:
        """Open the file of external data at a location; ModelError if there is none, or if it is
        outside of the folders. `check_location` has accepted the location."""
        place = self._places.get(location)
        if place is None:
            place = self._places[location] = self._resolve(location, where)
        try:
            file = place.open("rb")
        except OSError as error:
            problem = f"{where}: external data at {location!r} cannot be opened"
            raise ModelError(f"{problem}: {error.strerror}") from None
        self._note(location, os.fstat(file.fileno()))
        return file

    def check_unchanged(self) -> None:
        """Raise ModelError if links of the folder lead to other files than those that were read,
        which may belong to the release before."""
        for location, state in self._states.items():
            try:
                now = FileState.of(self._real / location)
            except OSError:
                now = None
            if now is None or not now.is_same_file(state):
                raise _error_of_change(state.path)

    def _note(self, location: str, found: os.stat_result) -> None:
        path = os.path.join(self._given, location)
        state = FileState.of(path, found)
        if not self._states.setdefault(location, state).is_same_file(state):
            raise _error_of_change(path)
        note_read(path, found)

    def _resolve(self, location: str, where: str) -> Path:
        try:
            place = (self._real / location).resolve(strict=True)
            is_file = place.is_file()
        except (OSError, RuntimeError, ValueError):
            problem = f"{where}: external data at {location!r} cannot be opened"
            raise ModelError(problem, "the file belongs next to the model: copy both") from None
        if is_file and not (self._follow or any(map(place.is_relative_to, self._inside))):
            problem = f"{where}: external data at {location!r} is a link out of the model's folder"
            raise ModelError(problem, "external_data='follow' allows it, for a trusted model")
        if not is_file:
            problem = "is not a file of the model's folder"
            raise ModelError(f"{where}: external data at {location!r} {problem}")
        return place


def _error_of_change(path: str) -> ModelError:
    return ModelError(f"{path} has changed while it was read", "compile it again")


_PATH_CHECKS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("there is no path", lambda location: not location.strip()),
    ("a path has no control characters", lambda location: any(ord(c) < 32 for c in location)),
    ("a path with '/' as separator is expected", lambda location: "\\" in location),
    ("the path is absolute", lambda location: location.startswith("/") or location[1:2] == ":"),
    ("the path leaves the folder", lambda location: ".." in PurePosixPath(location).parts),
)


def check_location(location: str, where: str) -> None:
    """Raise ModelError for a location that is no relative path inside a folder."""
    problem = next((problem for problem, holds in _PATH_CHECKS if holds(location)), "")
    if problem:
        raise ModelError(f"{where}: external data at {location!r}: {problem}")
