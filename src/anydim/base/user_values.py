"""What users give where a number, a text, a path or a function is expected: read, refused, shown.

Each raises OptionError with the name of the argument; `whole` alone raises TypeError.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import index
from typing import Any

from anydim.base.errors import OptionError

_LONGEST = 60  # characters of a value in an error


def whole(value: Any) -> int:
    """An integer of any type, but no bool; raises TypeError."""
    if isinstance(value, bool):
        raise TypeError("a bool is no number")
    try:
        return index(value)
    except Exception:  # whatever a strange object raises
        raise TypeError("no integer") from None


def whole_within(name: str, value: Any, least: int, most: int, hint: str) -> int:
    """An option that is an integer from `least` to `most`; raises OptionError with the hint."""
    try:
        number = whole(value)
    except TypeError:
        raise OptionError(f"{name} is {shown(value)}", hint) from None
    if not least <= number <= most:
        raise OptionError(f"{name} is {shown(number)}", hint)
    return number


def text_of(name: str, value: Any, hint: str = "") -> str:
    """A text."""
    if not isinstance(value, str):
        raise OptionError(f"{name} is {shown(value)}, expected a text", hint)
    return str(value)


def path_of(name: str, value: Any) -> str:
    """A path that the system can be asked for."""
    try:
        path = os.fspath(value)
        path = os.fsdecode(path)
        known = isinstance(value, (str, bytes, os.PathLike)) and "\0" not in path
        os.fsencode(path)
    except Exception:  # whatever a strange object raises
        known, path = False, ""
    if not known:
        raise OptionError(f"{name} is {shown(value)}, expected a path")
    return path


def function_of(name: str, value: Any) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        raise OptionError(f"{name} is {shown(value)}, expected a function")


def flag_of(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {shown(value)}, expected True or False")
    return value


def by_names(name: str, value: Any) -> dict[str, Any]:
    """A mapping whose keys are texts; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{name} is {shown(value)}, expected a mapping by name")
    return dict(value)


def shown(value: Any) -> str:
    """A value in few characters: texts and lists may be long, numbers have many digits."""
    try:
        text = repr(value)
    except Exception:  # a number of too many digits, or a `__repr__` that fails
        return f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST else f"a {type(value).__name__}, {text[:_LONGEST]}..."
