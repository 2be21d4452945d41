"""Figures and tables as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(seconds: float) -> str:
    """1.31 s, 4.52 ms, 17.0 us."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us"


def amount(value: int, unit: str) -> str:
    """1.50 MB, 320 kB, 7 B."""
    for factor, prefix in _LARGE:
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {prefix}{unit}"
    return f"{value} {unit}"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """batch=2, seq=16"""
    return ", ".join(f"{name}={value}" for name, value in sizes.items()) or "its only size"


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, margin: str = "  "
) -> str:
    """Lines with aligned columns: the first `left` ones to the left, the others to the right."""
    lines = [list(headers), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        margin
        + "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
