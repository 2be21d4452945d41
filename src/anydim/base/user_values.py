"""Validation of user arguments: numbers, texts, paths, functions.

Each function raises OptionError with the name of the argument; `whole` raises TypeError, and
`check_text` InputError.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf, nan
from numbers import Real
from operator import index
from threading import TIMEOUT_MAX
from typing import Any

from anydim.base.errors import InputError, OptionError
from anydim.base.text import article

ABOVE_ZERO = 5e-324  # the least float above 0
_LONGEST = 60  # characters of a value in an error


def integer_of(value: Any) -> int:
    """An integer of any type except bool; raises TypeError for other values."""
    if isinstance(value, bool):
        raise TypeError("a bool is not a number")
    try:
        return index(value)
    except Exception:  # any error of the object
        raise TypeError("no integer") from None


def whole_within(name: str, value: Any, least: int, most: int, hint: str) -> int:
    """Validate an integer from `least` to `most`; raises OptionError with the hint."""
    try:
        number = integer_of(value)
    except TypeError:
        raise OptionError(f"{name} is {short_repr(value)}", hint) from None
    if not least <= number <= most:
        raise OptionError(f"{name} is {short_repr(number)}", hint)
    return number


def is_real(value: Any) -> bool:
    """Whether a value is a real number, of Python or numpy; a bool is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def number_within(name: str, value: Any, least: float, most: float, hint: str) -> float:
    """Validate a real number from `least` to `most`; raises OptionError with the hint."""
    try:
        number = float(value) if is_real(value) else nan
    except OverflowError:
        number = inf
    if not least <= number <= most:
        raise OptionError(f"{name} is {short_repr(value)}", hint)
    return number


def seconds_of(name: str, value: Any) -> float | None:
    """Validate seconds to wait at most, 0 or more; None is no limit."""
    if value is None:
        return None
    return number_within(name, value, 0, TIMEOUT_MAX, "give seconds, or None for no limit")


def items_of(name: str, value: Any, hint: str) -> list[Any]:
    """Validate something to iterate over; raises InputError with the hint."""
    try:
        return list(value)
    except Exception:  # any error of the object
        raise InputError(f"{name} are {short_repr(value)}", hint) from None


def text_of(name: str, value: Any, hint: str = "") -> str:
    """Validate a text."""
    if not isinstance(value, str):
        raise OptionError(f"{name} is {short_repr(value)}, expected a text", hint)
    return str(value)


def texts_of(name: str, value: Any) -> list[str]:
    """Validate a text, or several."""
    several = isinstance(value, (list, tuple, set, frozenset))
    texts = [text_of(name, each) for each in (value if several else (value,))]
    return sorted(texts) if isinstance(value, (set, frozenset)) else texts


def path_of(name: str, value: Any, hint: str = "") -> str:
    """Validate a path that can be encoded for the system."""
    try:
        path = os.fspath(value)
        path = os.fsdecode(path)
        known = isinstance(value, (str, bytes, os.PathLike)) and "\0" not in path
        os.fsencode(path)
    except Exception:  # any error of the object
        known, path = False, ""
    if not known:
        raise OptionError(f"{name} is {short_repr(value)}, expected a path", hint)
    return path


def function_of(name: str, value: Any) -> None:
    """Validate a function, or None."""
    if value is not None and not callable(value):
        raise OptionError(f"{name} is {short_repr(value)}, expected a function")


def is_auto(value: Any) -> bool:
    """Whether a value is the text "auto"; others may have no truth when compared."""
    return isinstance(value, str) and value == "auto"


def flag_of(name: str, value: Any) -> bool:
    """Validate True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {short_repr(value)}, expected True or False")
    return value


def by_names(name: str, value: Any) -> dict[str, Any]:
    """Validate a mapping with text keys; None becomes an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{name} is {short_repr(value)}, expected a mapping by name")
    return dict(value)


def short_repr(value: Any) -> str:
    """The repr of a value, truncated for error texts."""
    kind = article(type(value).__name__)
    try:
        text = repr(value)
    except Exception:  # an integer with too many digits, or a failing `__repr__`
        return kind
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST else f"{kind}, {text[:_LONGEST]}..."


def absolute(path: str | os.PathLike[str]) -> str:
    """The path from the root that leads to the same file.

    `..` stays in it: after a link, it leads to the folder above the link's target.
    """
    if os.name == "nt":
        return os.path.abspath(path)
    return os.path.join(os.getcwd(), os.fspath(path))


def check_text(text: Any) -> None:
    """Raise InputError for what is no text, or has half of a character (a lone surrogate)."""
    if not isinstance(text, str):
        raise InputError(f"a text is {short_repr(text)}", "give a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise InputError(f"character {error.start} of a text is {found!a}, half of a character",
                         "give whole characters") from None  # fmt: skip
