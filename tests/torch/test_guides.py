"""Promise: the code of pages that need torch runs when pasted, and prints what is below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.test_guides import TORCH, run_page


@pytest.mark.parametrize("page", TORCH)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(page, tmp_path, monkeypatch, capsys)
