"""Promise: a file takes the place of another whole or not at all, and of nothing but a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anydim.base.cache_folder import make_folder
from anydim.base.files import replace_file, write_text


def write(path: Path, text: str) -> None:
    with replace_file(str(path)) as new:
        Path(new).write_text(text, "utf-8")


def test_a_file_is_replaced_and_a_link_kept(tmp_path: Path) -> None:
    write(tmp_path / "file", "first")
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link", "second")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text("utf-8") == "second"
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_what_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    write(tmp_path / "file", "old")
    with pytest.raises(ZeroDivisionError), replace_file(str(tmp_path / "file")) as new:
        Path(new).write_text("half", "utf-8")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text("utf-8") == "old"


def test_texts_replace_files_and_are_written_to_devices(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "file", "half \ud800")
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text("utf-8") == "old"
    write_text(os.devnull, "text")


@pytest.mark.skipif(os.name == "nt", reason="needs pipes in the file system")
def test_folders_pipes_and_devices_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="it is a"):
            write(path, "text")
    assert os.listdir(tmp_path) == ["pipe"] and (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_a_file_system_that_creates_no_folders_is_an_error() -> None:
    with pytest.raises(OSError):
        make_folder("/proc/anydim/objects")
