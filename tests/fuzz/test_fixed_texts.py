"""Promise: a size that is fixed, or a loop beside a statement, changes no range and no result.

`python -m tests.fuzz.fixed_texts` prints the table for all texts at hand.
"""

from __future__ import annotations

import pytest

from anydim.lang.surface.syntax import Definition
from tests.fuzz.fixed_texts import definitions, judged

ALL = dict(definitions())
QUICK = 4  # sizes for each definition


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("ranges")])
def test_ranges_of_statements_that_depend_on_each_other(name: str) -> None:
    _check(name, ALL[name], QUICK)


@pytest.mark.parametrize(
    "name",
    ["language.md 37: ragged", "language.md 41: alternate", "written.tc: edges",
     "written.tc: windows", "retention: retention"],
)  # fmt: skip
def test_fixed_sizes_of_texts_that_were_refused(name: str) -> None:
    _check(name, ALL[name], QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_all_texts_at_hand(name: str) -> None:
    _check(name, ALL[name])


def _check(name: str, definition: Definition, points: int = 10) -> None:
    row = judged(name, definition, points)
    assert not row.wrong, row
    assert row.calls, row
