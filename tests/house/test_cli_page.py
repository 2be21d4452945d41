"""Promise: docs/cli.md lists every command and option that the command line has."""

from __future__ import annotations

import pathlib

from anydim.cli.app import COMMANDS
from anydim.cli.page import page

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    hint = "run: python -m anydim.cli.page docs/cli.md"
    assert PAGE.read_text("utf-8") == page(), hint


def test_every_command_has_a_section() -> None:
    text = PAGE.read_text("utf-8")
    for name in COMMANDS:
        assert f"\n## {name}\n\n    anydim {name} " in text
