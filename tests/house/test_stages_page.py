"""Promise: docs/kernel-stages.md shows what the compiler makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import stages_page
from tests.golden.record import why_not

PAGE = Path(__file__).parents[2] / "docs/kernel-stages.md"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_the_page_is_up_to_date() -> None:
    hint = "run: python -m tests.golden.stages_page docs/kernel-stages.md"
    assert PAGE.read_text("utf-8") == stages_page.page(), hint
