"""Promise: `tune` says what it needs, and carries what was found from folder to folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.cli.tuning import tune
from anydim.targets.targets import target
from anydim.variants.ledger import Verdict, ledger, name_of


def test_records_are_carried_to_another_folder(tmp_path: Path) -> None:
    file, verdict = tmp_path / "tuned.sqlite", Verdict("rows()", 0.5)
    with settings.override(cache_dir=tmp_path / "one"):
        ledger(name_of(target("llvm"))).keep_tuned("subject", 2, verdict)
        done = CliRunner().invoke(tune, ["m.onnx", "--export", str(file)])
        assert done.exit_code == 0 and "1 record" in done.output
    with settings.override(cache_dir=tmp_path / "two"):
        done = CliRunner().invoke(tune, ["m.onnx", "--import", str(file)])
        assert done.exit_code == 0 and "1 record" in done.output
        assert ledger(name_of(target("llvm"))).tuned(2) == {"subject": verdict}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["m.onnx"], "needs sizes"),
        (["m.onnx", "--profile", "no.jsonl"], "cannot be read"),
        (["m.onnx", "--import", "no.sqlite"], "cannot be read"),
        (["m.onnx", "--export", "no/folder/x.sqlite"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_an_error(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with settings.override(cache_dir=tmp_path / "cache"):
        done = CliRunner().invoke(tune, words)
    assert isinstance(done.exception, OptionError) and problem in str(done.exception)
