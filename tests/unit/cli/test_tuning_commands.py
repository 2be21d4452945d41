"""Promise: recordings are shown and added up; `tune` carries what was found elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.cli.app import main
from anydim.cli.report.bars import WIDTH, bar, bins
from anydim.cli.sizes import histogram, sizes
from anydim.cli.tuning import tune
from anydim.compiler.targets.targets import target
from anydim.compiler.variants.ledger import Verdict, ledger, name_of
from anydim.runtime.program.recording import Recorded, read_recorded
from anydim.runtime.program.site_recording import RecordedSite, read_sites


def test_records_are_carried_to_another_folder(tmp_path: Path) -> None:
    file, verdict = tmp_path / "tuned.sqlite", Verdict("rows()", 0.5)
    with settings.override(cache_dir=tmp_path / "one"):
        ledger(name_of(target("llvm"))).keep_tuned("subject", 2, verdict)
        done = CliRunner().invoke(tune, ["m.onnx", "--export", str(file)])
        assert done.exit_code == 0 and "1 record" in done.output
    with settings.override(cache_dir=tmp_path / "two"):
        done = CliRunner().invoke(tune, ["m.onnx", "--import", str(file)])
        assert done.exit_code == 0 and "1 record" in done.output
        assert ledger(name_of(target("llvm"))).tuned_schedules(2) == {"subject": verdict}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["m.onnx"], "needs recorded sizes"),
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


def recording(path: Path, last: int = 3) -> Path:
    """A file with calls and launches."""
    rows = [Recorded("m", {"n": n}, n, float(n), 0.5).line() for n in range(1, last + 1)]
    site = RecordedSite("m", "rows_1", "s", ("n", "parallel"), (3, 1), 4, 0.5, "exact rows()")
    path.write_text("\n".join([*rows, site.line(), ""]), "utf-8")
    return path


def test_profiles_of_recordings_are_those_of_sizes(tmp_path: Path) -> None:
    path = str(recording(tmp_path / "sizes.jsonl"))
    plain = CliRunner().invoke(sizes, [path])
    other = CliRunner().invoke(main, ["profile", path], standalone_mode=False)
    assert other.output == plain.output and "3 sizes, 6 calls" in other.output
    assert "exact 100 %" in other.output and other.exit_code == 0
    both = tmp_path / "both.jsonl"
    done = CliRunner().invoke(main, ["profile", "merge", path, path, "-o", str(both)])
    assert done.exit_code == 0
    assert [row.count for row in read_recorded([both])] == [6, 4, 2]
    assert [row.count for row in read_sites([both])] == [8]
    done = CliRunner().invoke(main, ["profile", "merge", path, "-o", str(path)])  # in its place
    assert done.exit_code == 0 and len(read_recorded([path])) == 3


def test_a_run_says_what_a_second_one_would_gain(tmp_path: Path) -> None:
    text = "def twice(float(N) x) -> (y) { y(n) = x(n) + x(n) }"
    (tmp_path / "a.tc").write_text(text, "utf-8")
    path = tmp_path / "sizes.jsonl"
    path.write_text(Recorded("twice", {"N": 9}, 3, 0.5, 0.1).line(), "utf-8")
    with settings.override(cache_dir=tmp_path / "cache"):
        done = CliRunner().invoke(sizes, [str(path), "--model", f"{tmp_path / 'a.tc'}:twice"])
    assert done.exit_code == 0, done.output
    assert "0 of 1" in done.output and "100.0 % of the time is of sizes" in done.output


def test_many_sizes_of_a_dim_are_shown_as_ranges() -> None:
    rows = [Recorded("m", {"n": n}, 1, 1.0, 1.0) for n in range(100)]
    lines = list(histogram("n", rows))
    assert len(lines) <= 16 and lines[0].split()[0] == "0..6" and "7 calls" in lines[0]
    assert bins([5], 4) == [(5, 5)] and bins([], 4) == []
    assert bar(1.0) == "█" * WIDTH and bar(0.0).strip() == "" and bar(1e-9).strip() == "▏"
