"""Promise: what fails around anydim, a disk, a limit, a signal, a fork, has the outcome that
docs/reliability.md says. `make faults` runs all cases."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.errors.faults import ALL, SHORT, outcome

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc are those of Linux")


@LINUX
@pytest.mark.parametrize("case", [case for case in ALL if case.name in SHORT],
                         ids=lambda case: case.name)  # fmt: skip
def test_faults(case):
    assert outcome(case) == "as promised"


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in ALL if case.name not in SHORT],
                         ids=lambda case: case.name)  # fmt: skip
def test_all_faults(case):
    assert outcome(case) == "as promised"


def test_the_page_has_every_case():
    text = PAGE.read_text("utf-8")
    for case in ALL:
        assert f"| `{case.name}` | {case.fault} | {case.promise} |" in text
