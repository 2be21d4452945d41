"""Promise: a file of verdicts that is damaged, locked or of others costs trials and one warning."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
import warnings
from pathlib import Path

import pytest

from anydim.base import cache_folder, read_files, settings
from anydim.compiler.variants import ledger, records
from anydim.compiler.variants.ledger import Ledger, Verdict

GOOD = Verdict("rows()", 0.5)
FILE = "verdicts"
HERE = "llvm here" + " " * 500
COUNT = 30
HEADER = 100  # bytes


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of some pages."""
    path = tmp_path_factory.mktemp("verdicts") / FILE
    book = Ledger(path, HERE)
    for number in range(COUNT):
        book.keep("recipe", (1, number), GOOD)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, contents: bytes) -> Path:
    (tmp_path / FILE).write_bytes(contents)
    return tmp_path / FILE


def test_what_was_kept_is_found(path: Path) -> None:
    assert Ledger(path, HERE).find("recipe", (1, 2)) == GOOD
    assert Ledger(path, "llvm there").find("recipe", (1, 2)) is None
    assert Ledger(path, HERE).find("recipe", (2, 2)) is None


def works_after_one_warning(path: Path, words: str) -> None:
    """A damaged file is begun anew; it is said once."""
    cache_folder._said.clear()
    book = Ledger(path, HERE)
    with pytest.warns(RuntimeWarning, match=words) as said:
        for _ in range(3):
            found = [book.find("recipe", (1, number)) for number in range(COUNT)]
            assert set(found) <= {None, GOOD}
        book.keep("recipe", (1, 2), Verdict("rows()", 0.25))
    assert len(said) == 1, [str(each.message) for each in said]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Ledger(path, HERE).find("recipe", (1, 2)) == Verdict("rows()", 0.25)


def test_a_damaged_file_is_begun_anew(path: Path) -> None:
    whole = path.read_bytes()
    garbage = random.Random(0).randbytes(len(whole) - HEADER)
    for damaged in (b"no database" * 1000, whole[:5000], whole[:HEADER] + garbage):
        path.write_bytes(damaged)
        works_after_one_warning(path, "damaged")


@pytest.mark.skipif(sys.platform != "linux", reason="such files are those of Linux")
def test_what_is_no_file_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "folder", tmp_path / "pipe", Path("/proc/anydim/verdicts")):
        cache_folder._said.clear()
        book = Ledger(path, HERE)
        with pytest.warns(RuntimeWarning, match="not stored") as said:
            book.keep("recipe", (1, 2), GOOD)
            assert book.find("recipe", (1, 2)) is None
        assert len(said) == 1


def test_a_flipped_bit_of_a_row_is_not_believed(path: Path) -> None:
    whole = path.read_bytes()
    at = whole.index(b"rows()")
    path.write_bytes(whole.replace(b"rows()", b"rowt()"))
    book = Ledger(path, HERE)
    assert at and all(book.find("recipe", (1, number)) is None for number in range(COUNT))
    for change in ("ratio = 0.25", "ratio = 'fast'", "schedule = 5"):
        path.write_bytes(whole)
        with sqlite3.connect(path) as file:
            file.execute(f"update trials set {change}")
        assert Ledger(path, HERE).find("recipe", (1, 2)) is None


def test_other_versions(path: Path) -> None:
    with sqlite3.connect(path) as file:  # an older one has nothing to say
        file.execute("pragma user_version = 0")
    assert Ledger(path, HERE).find("recipe", (1, 2)) is None
    with sqlite3.connect(path) as file:
        file.execute("create table later (x)")
        file.execute("pragma user_version = 1000")
    cache_folder._said.clear()
    book = Ledger(path, HERE)
    with pytest.warns(RuntimeWarning, match="newer version") as said:
        book.keep("recipe", (1, 2), GOOD)
        assert book.find("recipe", (1, 2)) is None
    assert len(said) == 1
    with sqlite3.connect(path) as file:
        assert file.execute("select count(*) from later").fetchone() == (0,)


def test_tables_of_others(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("drop table trials")
        file.execute("create table trials (x)")
    cache_folder._said.clear()
    book = Ledger(path, HERE)
    with pytest.warns(RuntimeWarning, match="not stored") as said:
        book.keep("recipe", (1, 2), GOOD)
        assert book.find("recipe", (1, 2)) is None
    assert len(said) == 1


def test_a_file_that_another_process_holds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_WAIT", 0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    cache_folder._said.clear()
    book = Ledger(path, HERE)
    with pytest.warns(RuntimeWarning, match="locked") as said:
        book.keep("recipe", (1, 2), Verdict("rows()", 0.25))
        assert book.find("recipe", (1, 2)) is None
    assert len(said) == 1
    other.execute("rollback")
    other.close()
    assert book.find("recipe", (1, 2)) == GOOD


def test_warnings_that_are_errors_reach_nobody(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Ledger(tmp_path, HERE).find("recipe", (1, 2)) is None


def test_too_many_rows_are_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_MAX_ROWS", 20)
    Ledger(path, HERE).keep("recipe", (1, COUNT), GOOD)
    with sqlite3.connect(path) as file:
        assert file.execute("select count(*) from trials").fetchone()[0] <= 21


def test_the_state_of_tuned_schedules_is_kept_for_an_unchanged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is not opened for it again, until it has changed."""
    monkeypatch.setattr(read_files, "CLOCK_NS", 0)
    with settings.override(cache_dir=tmp_path, use_cache=True, tuned=True):
        known = ledger.ledger("here")
        known.keep_tuned("a recipe", 2, ledger.Verdict("rows()", 0.5))
        time.sleep(0.02)
        first = records.tuned_state()
        assert first
        with monkeypatch.context() as closed:
            closed.setattr(ledger.Ledger, "state", None)
            assert records.tuned_state() == first
        known.keep_tuned("another", 2, ledger.Verdict("rows()", 0.5))
        assert records.tuned_state() not in ("", first)
