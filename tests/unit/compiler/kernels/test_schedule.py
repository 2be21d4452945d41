"""Schedules print, parse back, and refuse what they do not know."""

from __future__ import annotations

import pytest

from anydim.base.errors import OptionError
from anydim.compiler.kernels.rows.pointwise import Pointwise
from anydim.compiler.kernels.rows.row_template import Rows
from anydim.compiler.kernels.schedule import parse_schedule, print_schedule


@pytest.mark.parametrize("schedule", (Rows(16), Rows(4, 2, True), Pointwise(8, 1)))
def test_round_trip(schedule: object) -> None:
    assert parse_schedule(print_schedule(schedule)) == schedule


def test_defaults_may_be_left_out() -> None:
    assert parse_schedule(" rows( lanes = 8 ) ") == Rows(8)


@pytest.mark.parametrize(
    "text", ("rows", "rows(8)", "rows(lanes=)", "rows(width=8)", "rows(lanes=8, lanes=8)",
             "columns(lanes=8)", "rows()", "rows(lanes=8);"),
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_schedule(text)
