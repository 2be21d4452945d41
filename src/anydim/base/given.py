"""What users give where a number is expected: read, refused, and shown in an error."""

from __future__ import annotations

from operator import index
from typing import Any

from anydim.base.errors import OptionError

_LONGEST = 60  # characters of a value in an error


def whole(value: Any) -> int:
    """An integer of any type, but no bool; raises TypeError."""
    if isinstance(value, bool):
        raise TypeError("a bool is no number")
    return index(value)


def whole_within(name: str, value: Any, least: int, most: int, hint: str) -> int:
    """An option that is an integer from `least` to `most`; raises OptionError with the hint."""
    try:
        number = whole(value)
    except TypeError:
        raise OptionError(f"{name} is {shown(value)}", hint) from None
    if not least <= number <= most:
        raise OptionError(f"{name} is {shown(number)}", hint)
    return number


def shown(value: Any) -> str:
    """A value in few characters: texts and lists may be long, numbers have many digits."""
    try:
        text = repr(value)
    except Exception:  # a number of too many digits, or a `__repr__` that fails
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"a {type(value).__name__}, {text[:_LONGEST]}..."
