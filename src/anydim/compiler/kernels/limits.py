"""Limits between versions that a machine determines, as one record.

A limit is the size from which another version is faster. The defaults were measured on processors
with AVX2 and AVX-512; `anydim calibrate` measures some of them on this machine. Versions on both
sides of these limits have the same bits, so a result does not depend on them. Limits of versions
that add in another order are constants of their templates.
"""

from __future__ import annotations

from dataclasses import asdict, fields

from anydim.base import settings
from anydim.base.cache_folder import limits_text
from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion


@dataclass(frozen=True)
class Limits:
    """Positive integers.

    Attributes:
        part_work: Unit operations on elements, or bytes read, that are worth a thread.
        shared_row: Elements of the shortest row that threads share.
        merged_window_rows: Rows of windows that a vector holds, from which they are merged.
        merged_window_gathers: The same where the lanes are gathered.
        single_window_rows: Rows of an image up to which rows share no loads of their windows.
        merged_panel_rows: Rows of positions that a third of a vector's lanes must hold.
        merged_panel_gathers: The same where the lanes are gathered.
        few_byte_rows: Rows of an int8 product up to which B is not packed; at most 4.
        few_byte_vectors: Vectors of columns from which that is so.
        position_images: Images from which those at one position are rows of a product.
        position_count: Positions of an image up to which that is so.
        position_line: Positions of a line up to which that is so.
        merged_panel_channels: Channels from which merged panels need no masks of long rows.
        attention_work: Multiply-adds of attention that are worth a thread.
        product_steps: Steps of a product, of half a microsecond, that are worth a thread.
        few_row_tiles: Row tiles up to which a block of a product has one panel.
        thread_row_tiles: Row tiles of a thread from which threads share the rows of a product only.
        large_factor: Elements of a factor from which that is so where rows are copied.
        wide_columns: Columns per row from which threads share the columns.
        window_panels: Panels of a convolution up to which threads share its rows.
        window_tiles: Row tiles of a convolution from which that is so.
        byte_panels: Panels of an int8 product up to which threads share its rows.
        byte_rows: Rows of an int8 product from which that is so.
        nontemporal_cost: Operations of an element up to which stores may be nontemporal.
        near_lane_bytes: Bytes between lanes of a source up to which panels transpose it.
        kept_source_bytes: Bytes of a source up to which that is so.
        single_range: Elements of a range of a concatenation that are copied one by one.
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
    position_images: int = 4
    position_count: int = 49
    position_line: int = 11
    merged_panel_channels: int = 4
    attention_work: int = 180_000
    product_steps: int = 8
    few_row_tiles: int = 12
    thread_row_tiles: int = 6
    large_factor: int = 1 << 18
    wide_columns: int = 16
    window_panels: int = 4
    window_tiles: int = 16
    byte_panels: int = 4
    byte_rows: int = 128
    nontemporal_cost: int = 14
    near_lane_bytes: int = 512
    kept_source_bytes: int = 1 << 22
    single_range: int = 4

    def __str__(self) -> str:
        """The limits other than the defaults, as `name=value, ...`; `parse_limits` reads it."""
        usual, own = asdict(DEFAULTS), asdict(self)
        return ", ".join(f"{name}={own[name]}" for name in own if own[name] != usual[name])


DEFAULTS = Limits()
RANGES: dict[str, tuple[int, int]] = {
    "part_work": (1 << 16, 1 << 20), "shared_row": (1 << 15, 1 << 18),
    "merged_window_rows": (2, 3), "merged_window_gathers": (6, 8), "single_window_rows": (1, 4),
    "merged_panel_rows": (2, 3), "merged_panel_gathers": (4, 8),
    "few_byte_rows": (3, 4), "few_byte_vectors": (1, 8),
    "position_images": (2, 8), "position_count": (25, 98),
    "position_line": (9, 22), "merged_panel_channels": (2, 8),
    "attention_work": (90_000, 360_000), "product_steps": (4, 16), "few_row_tiles": (6, 24),
    "thread_row_tiles": (3, 12), "large_factor": (1 << 17, 1 << 19), "wide_columns": (8, 32),
    "window_panels": (2, 8), "window_tiles": (8, 32), "byte_panels": (2, 8), "byte_rows": (64, 256),
    "nontemporal_cost": (7, 28), "near_lane_bytes": (256, 1024),
    "kept_source_bytes": (1 << 21, 1 << 23), "single_range": (2, 8),
}  # fmt: skip
"""The least and the largest value of each limit.

Within them a wrong limit that `calibrate` measures costs at most a factor of 1.3 at the sizes of
its probe (`python -m bench.kernels.limits`); `few_byte_rows` 1.34 with vectors of 32 bytes. The
other ranges are half and twice the default. Some limits cannot be moved by a factor of two: next to
their range one version takes more than 1.3 of the time of the other.
"""


def limits_in_use() -> Limits:
    """The limits of the settings, else those measured on this machine, else the defaults.

    Raises OptionError for settings that are no limits.
    """
    return parse_limits(limits_text(), kept=not settings.limits)


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
            hint = suggestion(name, known) or f"limits are {quote_list(known)}"
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
