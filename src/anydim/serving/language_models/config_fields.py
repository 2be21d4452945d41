"""Fields of configurations, which are not trusted: each has its type, and sizes have bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from anydim.base.errors import ModelError
from anydim.base.read_files import open_regular
from anydim.base.user_values import short_repr
from anydim.sizes import LARGEST

MOST_BYTES = 1 << 26  # of a file of JSON or a chat template; vocabularies take some millions
MOST_LAYERS = 4096


class Config:
    """Fields by name, with an error that names a missing or wrong one.

    Raises ModelError for a field of another type; one that is null is missing.
    """

    def __init__(self, fields: Mapping[str, Any], path: str) -> None:
        self.fields, self._path = fields, path

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of some fields that is there and not null."""
        for name in names:
            if self.fields.get(name) is not None:
                return self.fields[name]
        return default

    def whole(self, *names: str, default: int | None = None, most: int = LARGEST) -> int:
        """A size: an integer of at least 1."""
        found = self.get(*names, default=default)
        if type(found) is not int or not 1 <= found <= most:
            bound = "of at least 1" if most == LARGEST else f"from 1 to {most}"
            self._refuse(names[0], found, f"an integer {bound}")
        return int(found)

    def index(self, *names: str, default: int | None = None) -> int:
        """An integer of at least 0."""
        found = self.get(*names, default=default)
        if type(found) is not int or not 0 <= found <= LARGEST:
            self._refuse(names[0], found, "an integer of at least 0")
        return int(found)

    def number(
        self, *names: str, default: float | None = None, above: float | None = None
    ) -> float:
        """A finite number, above a bound if there is one."""
        found = self.get(*names, default=default)
        is_number = type(found) in (int, float) and abs(found) < 1e300 and isfinite(found)
        if not is_number or (above is not None and found <= above):
            bound = "" if above is None else f" above {above:g}"
            self._refuse(names[0], found, f"a finite number{bound}")
        return float(found)

    def numbers(self, name: str) -> list[float]:
        """A list of finite numbers."""
        items = self.get(name)
        if type(items) is not list:
            self._refuse(name, items, "a list of numbers")
        return [Config({name: each}, self._path).number(name) for each in items]

    def flag(self, *names: str, default: bool) -> bool:
        """True or False."""
        found = self.get(*names, default=default)
        if type(found) is not bool:
            self._refuse(names[0], found, "true or false")
        return bool(found)

    def text(self, *names: str, default: str | None = None) -> str:
        """A text."""
        found = self.get(*names, default=default)
        if type(found) is not str:
            self._refuse(names[0], found, "a text")
        return str(found)

    def part(self, name: str) -> Config:
        """The fields of an object inside; none where there is none."""
        found = self.get(name, default={})
        if not isinstance(found, Mapping):
            self._refuse(name, found, "an object")
        return Config(found, self._path)

    def items(self, name: str, kind: type, expected: str) -> list[Any] | None:
        """A list whose items have a type; None where there is none."""
        found = self.get(name)
        if found is not None and (
            type(found) is not list or any(type(each) is not kind for each in found)
        ):
            self._refuse(name, found, expected)
        return found

    def _refuse(self, name: str, found: Any, expected: str) -> None:
        raise ModelError(f"'{name}' of '{self._path}' is {short_repr(found)}",
                         f"expected {expected}")  # fmt: skip


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The contents of a file. Raises ModelError if it cannot be read, or has too many bytes."""
    try:
        with open_regular(str(path)) as file:
            found = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"'{path}' cannot be read: {reason}") from None
    if len(found) > most:
        raise ModelError(f"'{path}' has more than {most} bytes")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """An object of JSON. Raises ModelError if the file holds something else."""
    try:
        found = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"'{path}' is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"'{path}' is not an object of JSON")
    return found
