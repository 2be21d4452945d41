"""Promise: a file holds what was put into it, aligned and in the same bytes, or is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from anydim.base.errors import ArtefactError
from anydim.deploy.archive import Member, write
from anydim.deploy.container import FORMAT, Container

MEMBERS = [
    Member("text", b"hello"), Member("nothing", b""), Member("page", b"\xcc" * 5000, 4096),
    Member("constants/a", memoryview(bytes(range(256)) * 3)), Member("far", b"code", 1 << 16),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "made.anydim"
    write(str(made), {"name": "some"}, MEMBERS)
    return made


def test_members_come_back_where_they_should_lie(path: Path) -> None:
    container = Container(str(path))
    assert container.about == {"name": "some"}
    for member in MEMBERS:
        assert container.view(member.name) == member.data
        assert container.part(member.name).offset % member.alignment == 0


def test_the_same_members_make_the_same_bytes(path: Path, tmp_path: Path) -> None:
    write(str(tmp_path / "other"), {"name": "some"}, MEMBERS)
    assert (tmp_path / "other").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made.anydim", "other"]


def test_others_can_unpack_it(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", *(member.name for member in MEMBERS)]
        for member in MEMBERS:
            assert archive.read(member.name) == member.data


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        write(str(tmp_path / "missing" / "file"), {}, MEMBERS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write(str(tmp_path / "folder"), {}, MEMBERS)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_file_cut_anywhere_is_refused(path: Path, tmp_path: Path) -> None:
    whole, cut = path.read_bytes(), tmp_path / "cut"
    end = len(whole)
    for length in [*range(200), *range(200, end, 977), *range(end - 30, end)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ArtefactError, match="cut"):
            Container(str(cut))


def test_every_byte_of_a_member_counts(path: Path, tmp_path: Path) -> None:
    whole, other = bytearray(path.read_bytes()), tmp_path / "other"
    start = Container(str(path)).part("constants/a").offset
    for at in (start, start + 100, start + 767):
        whole[at] ^= 1
        other.write_bytes(whole)
        with pytest.raises(ArtefactError, match="not match its"):
            Container(str(other)).verify_member("constants/a")
        whole[at] ^= 1


def test_another_format_is_refused_first(path: Path, tmp_path: Path) -> None:
    whole = bytearray(path.read_bytes())
    place = 30 + len("manifest.json") + 4
    assert whole[place] == FORMAT
    whole[place] = FORMAT + 1
    whole[200] ^= 1  # whatever its manifest says
    (tmp_path / "newer").write_bytes(whole)
    with pytest.raises(ArtefactError, match=f"has format {FORMAT + 1}.*reads format {FORMAT}"):
        Container(str(tmp_path / "newer"))


@pytest.mark.parametrize("data", [b"", b"PK", b"\0" * 5000, b"PK\3\4" + b"\xff" * 5000])
def test_other_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(data)
    with pytest.raises(ArtefactError, match="other"):
        Container(str(tmp_path / "other"))


def test_an_ordinary_archive_and_no_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "plain.zip", "w") as archive:
        archive.writestr("manifest.json", b"{}")
    with pytest.raises(ArtefactError, match="no model that anydim saved"):
        Container(str(tmp_path / "plain.zip"))
    with pytest.raises(ArtefactError, match="No such file"):
        Container(str(tmp_path / "missing"))
    with pytest.raises(ArtefactError, match="directory"):
        Container(str(tmp_path))
