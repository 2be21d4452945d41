"""Figures as text for people."""

from __future__ import annotations

from collections.abc import Mapping

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(seconds: float) -> str:
    """1.31 s, 4.52 ms, 17.0 us."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us"


def amount(value: int, unit: str) -> str:
    """1.50 Mflop, 320 kflop, 7 flop."""
    for factor, prefix in _LARGE:
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {prefix}{unit}"
    return f"{value} {unit}"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """batch=2, seq=16"""
    return ", ".join(f"{name}={value}" for name, value in sizes.items()) or "its only size"


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
