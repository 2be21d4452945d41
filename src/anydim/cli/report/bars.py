"""Bars of blocks in a terminal, eight steps to a character."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 30  # characters
_STEPS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def bar(share: float, width: int = WIDTH) -> str:
    """A bar that is full at 1, with blanks up to `width` characters."""
    eighths = round(8 * width * max(0.0, min(1.0, share)))
    eighths = max(eighths, 1) if share > 0 else 0
    return f"{'█' * (eighths // 8) + _STEPS[eighths % 8]:{width}}"


def bins(values: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Each value on its own, or where there are many, equal parts of all between their ends."""
    distinct = sorted(set(values))
    if len(distinct) <= most:
        return [(value, value) for value in distinct]
    low, high = distinct[0], distinct[-1]
    step = -(-(high - low + 1) // most)
    return [(at, min(high, at + step - 1)) for at in range(low, high + 1, step)]
