"""Limits between versions that a machine determines, as one record.

A limit is a size at which another version becomes faster. Defaults were measured on processors
with AVX2 and AVX-512; `anydim calibrate` measures some limits on this machine. Versions on both
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
    """Sizes at which another version becomes faster; positive integers.

    Attributes:
        part_work: Least unit operations, or bytes read, of a thread's part.
        shared_row: Least elements of a row that threads share.
        merged_window_rows: Least rows in a vector to merge rows of windows.
        merged_window_gathers: The same if lanes are gathered.
        single_window_rows: Most rows of an image to load windows row by row, without sharing.
        merged_panel_rows: Least rows of positions in a third of a vector to merge them in panels.
        merged_panel_gathers: The same if lanes are gathered.
        few_byte_rows: Most rows for int8 products without packing B; at most 4.
        few_byte_vectors: Least column vectors for int8 products without packing B.
        position_images: Least images for products over the images at one output position.
        position_count: Most positions of an image for these products.
        position_line: Most positions of a line for these products.
        merged_panel_channels: Least channels for merged panels that also serve long rows, unmasked.
        attention_work: Least multiply-adds of attention for a thread.
        product_steps: Least steps of a product, half a microsecond each, for a thread.
        few_row_tiles: Most row tiles of a product with one panel in a block.
        thread_row_tiles: Least row tiles per thread to share only the rows of a product.
        large_factor: Elements of B up to which half of `thread_row_tiles` suffice if A is copied.
        wide_columns: Columns per row from which threads share columns, too.
        window_panels: Most panels of a convolution whose rows threads share.
        window_tiles: Least row tiles of a convolution whose rows threads share.
        byte_panels: Most panels of an int8 product whose rows threads share.
        byte_rows: Least rows of an int8 product whose rows threads share.
        nontemporal_cost: Most operations per element with nontemporal stores.
        near_lane_bytes: Most bytes between lanes of a source that is transposed by panels.
        kept_source_bytes: Most bytes of a source that is transposed by panels.
        single_range: Most elements of a concatenated range that are copied one by one.
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
"""The least and largest valid value of each limit.

A wrong limit that `calibrate` measures costs at most a factor of 1.3 within its range, at the sizes
of its probe (`python -m bench.kernels.limits`); `few_byte_rows` 1.34 with vectors of 32 bytes. The
other ranges are half to twice the default. Ranges below a factor of two end where one version takes
more than 1.3 times as long as the other.
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
