"""Limits between versions that a machine determines, as one record.

A limit is the size from which another version is faster. The defaults were measured on processors
with AVX2 and AVX-512; `anydim calibrate` measures some of them on this machine. Versions on both
sides of these limits have the same bits, so a result does not depend on them. Limits of versions
that add in another order are constants of their templates.
"""

from __future__ import annotations

from dataclasses import asdict, fields

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import listed, suggestion


@dataclass(frozen=True)
class Limits:
    """Positive integers.

    Attributes:
        part_work: Unit operations on elements, or bytes read, that are worth a thread.
        shared_row: Elements of the shortest row that threads share.
        single_lanes: Lanes of the vector for rows of at most one vector.
        few_column_rows: Rows that a vector holds, from which a vector has several rows.
        merged_window_rows: Rows of windows that a vector holds, from which they are merged.
        merged_window_gathers: The same where the lanes are gathered.
        single_window_rows: Rows of an image up to which rows share no loads of their windows.
        merged_panel_rows: Rows of positions that a third of a vector's lanes, or so, must hold.
        merged_panel_gathers: The same where the lanes are gathered.
        few_byte_rows: Rows of an int8 product up to which B is not packed; at most 4.
        few_byte_vectors: Vectors of columns from which that is so.
    """

    part_work: int = 1 << 18
    shared_row: int = 1 << 16
    single_lanes: int = 16
    few_column_rows: int = 2
    merged_window_rows: int = 3
    merged_window_gathers: int = 8
    single_window_rows: int = 2
    merged_panel_rows: int = 3
    merged_panel_gathers: int = 8
    few_byte_rows: int = 4
    few_byte_vectors: int = 2

    def __str__(self) -> str:
        """The limits other than the defaults, as `name=value, ...`; `parse_limits` reads it."""
        usual, own = asdict(DEFAULTS), asdict(self)
        return ", ".join(f"{name}={own[name]}" for name in own if own[name] != usual[name])


DEFAULTS = Limits()
_LARGEST = 1 << 40


def parse_limits(text: str) -> Limits:
    """Limits from a text; raises OptionError for unknown names and values that are no limits."""
    known = [field.name for field in fields(Limits)]
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in known:
            hint = suggestion(name, known) or f"limits are {listed(known)}"
            raise OptionError(f"there is no limit '{name[:80]}'", hint)
        if not (value.isascii() and value.isdigit() and 0 < int(value[:20]) <= _LARGEST):
            raise OptionError(f"limit {name} is '{value[:80]}'", "give a positive integer")
        found[name] = int(value)
    return Limits(**found)
