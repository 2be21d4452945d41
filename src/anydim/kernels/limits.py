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
RANGES: dict[str, tuple[int, int]] = {
    "part_work": (1 << 16, 1 << 20), "shared_row": (1 << 15, 1 << 18),
    "merged_window_rows": (2, 3), "merged_window_gathers": (6, 12), "single_window_rows": (1, 4),
    "merged_panel_rows": (2, 3), "merged_panel_gathers": (4, 8),
    "few_byte_rows": (2, 4), "few_byte_vectors": (1, 8),
}  # fmt: skip
"""The least and the largest value of each limit.

Within them a wrong limit costs at most a factor of 1.3 at any size (`python -m
bench.kernels.limits`). Some limits cannot be moved by a factor of two: next to their range one
version takes more than 1.3 of the time of the other.
"""


def parse_limits(text: str, kept: bool = False) -> Limits:
    """Limits from a text; raises OptionError for unknown names and values outside of `RANGES`.

    Of a text that another version of this package `kept`, unknown names are skipped, and values
    are moved into their ranges.
    """
    known = [field.name for field in fields(Limits)]
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in known and not kept:
            hint = suggestion(name, known) or f"limits are {listed(known)}"
            raise OptionError(f"there is no limit '{name[:80]}'", hint)
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else -1
        low, high = RANGES.get(name, (0, 0))
        if not (low <= number <= high or kept):
            raise OptionError(
                f"limit {name} is '{value[:80]}'", f"give a whole number from {low} to {high}"
            )
        if name in known and number >= 0:
            found[name] = min(max(number, low), high)
    return Limits(**found)
