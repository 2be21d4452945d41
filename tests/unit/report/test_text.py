"""Promise: figures read well at every magnitude, tables line up."""

from __future__ import annotations

import pytest

from anydim.base.text import table
from anydim.report.console import folded
from anydim.report.text import amount, duration, sizes_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 us"), (17e-6, "17.0 us"), (999e-6, "999 us"), (1e-3, "1.00 ms"),
        (4.523e-3, "4.52 ms"), (0.0999, "99.9 ms"), (0.09996, "100 ms"), (1.309, "1.31 s"),
        (123.4, "123 s"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9301632, "9.30 MB"), (10**13, "10.0 TB")],
)
def test_amounts(value: int, text: str) -> None:
    assert amount(value, "B") == text


def test_sizes() -> None:
    assert sizes_text({"batch": 2, "seq": 16}) == "batch=2, seq=16"
    assert sizes_text({}) == "its only size"


def test_a_table_lines_up_without_trailing_spaces() -> None:
    text = table(("name", "size"), [("a", "1"), ("longer", "1000")])
    assert text == "  name    size\n  a          1\n  longer  1000"
    assert table(("name", "size"), []) == "  name  size"


def test_long_lines_go_on_below() -> None:
    assert folded("short\n  one two three", 11) == "short\n  one two\n      three"
