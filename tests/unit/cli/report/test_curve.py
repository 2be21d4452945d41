"""Promise: a curve in a terminal has its greatest value at the top, and both ends of time."""

from __future__ import annotations

from anydim.cli.report.curve import HEIGHT, WIDTH, curve


def test_a_curve_rises_to_its_greatest_value() -> None:
    lines = curve([(0.0, 0.0), (10.0, 0.5), (20.0, 1.0)], "{:.0%}").split("\n")
    assert len(lines) == HEIGHT + 1 and lines[0].startswith("100%") and lines[-1].endswith("20 s")
    assert lines[HEIGHT - 1].count("█") == WIDTH // 2 + 1
    assert lines[0].count("█") == 1 and max(map(len, lines)) == WIDTH + 5


def test_nothing_is_no_curve() -> None:
    assert curve([]) == curve([(0.0, 0.0)]) == curve([(0.0, 0.0), (3.0, 0.0)]) == ""
