"""Promise: docs/settings.md says what the table of settings says, and its example runs."""

from __future__ import annotations

import pathlib
import re

from anydim.base.settings import KNOBS
from anydim.cli.report.settings_page import page

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    hint = "run: python -m anydim.cli.report.settings_page docs/settings.md"
    assert PAGE.read_text("utf-8") == page(), hint
    assert all(f"`{knob.variable}`" in page() for knob in KNOBS)


def test_its_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "settings.md", "exec"), {})
