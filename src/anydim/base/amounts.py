"""Parsing and printing of byte counts: "512 MiB", 1.5 GB."""

from __future__ import annotations

import re
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.user_values import integer_of, short_repr

_UNITS = {
    "": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_BY_LETTERS = {unit.lower(): factor for unit, factor in _UNITS.items()}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def bytes_of(given: Any, what: str = "memory") -> int:
    """Parse a byte count from an int or a text such as "512 MiB", "1.5 GB" or "65536".

    KiB, MiB, GiB and TiB are powers of 1024; kB, MB, GB and TB of 1000; case does not matter.
    Raises OptionError for other values; `what` names the value in the error.
    """
    hint = 'give bytes as a number, or a text such as "512 MiB" or "1.5 GB"'
    if isinstance(given, str):
        found = _TEXT.fullmatch(given)
        factor = None if found is None else _BY_LETTERS.get(found[2].lower())
        if found is None or factor is None:
            raise OptionError(f"{what} is {short_repr(given)}, expected a number of bytes", hint)
        from decimal import Decimal  # only loaded for such texts

        return int(Decimal(found[1]) * factor)
    try:
        value = integer_of(given)
    except TypeError:
        value = -1
    if value < 0:
        raise OptionError(f"{what} is {short_repr(given)}, expected a number of bytes", hint)
    return value


def bytes_text(value: int) -> str:
    """A byte count as text: 290 MiB, 1.5 GiB, 640 bytes."""
    for unit, factor in _BINARY:
        if value >= factor:
            share = value / factor
            return f"{share:.0f} {unit}" if share >= 1000 else f"{share:.3g} {unit}"
    return f"{value} bytes"


def exact_bytes_text(value: int) -> str:
    """An exact byte count as text: 304087040 bytes (290 MiB)."""
    return f"{value} bytes ({bytes_text(value)})" if value >= _BINARY[-1][1] else f"{value} bytes"
