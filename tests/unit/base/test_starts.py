"""Promise: what a start takes to be unchanged is unchanged; what it does without is the same."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import time
from pathlib import Path

import pytest

from anydim.base import cache
from anydim.base.cache import package_version
from anydim.base.collector import collector_paused
from anydim.base.digest import sha256
from anydim.base.lazy_names import late_names


@pytest.mark.parametrize("size", [0, 1, 63, 64, (1 << 17) - 1, 1 << 17, (1 << 17) + 1])
@pytest.mark.parametrize("loaded", [True, False])
def test_digests_with_and_without_openssl(
    size: int, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not loaded:
        monkeypatch.delitem(sys.modules, "hashlib")
    data = bytes(index % 251 for index in range(size))
    expected = hashlib.sha256(data).hexdigest()
    assert sha256(data).hexdigest() == expected
    state = sha256(size=size)
    state.update(memoryview(data)[: size // 2])
    state.update(data[size // 2 :])
    assert state.hexdigest() == expected


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files."""
    made = tmp_path / "anydim"
    (made / "room").mkdir(parents=True)
    (made / "__init__.py").write_text("x = 1\n", "utf-8")
    (made / "room" / "rules.tc").write_text("def f\n", "utf-8")
    monkeypatch.setattr(cache, "_PACKAGE", str(made))
    return made


def test_a_file_of_a_checkout_that_is_edited_in_place(package: Path) -> None:
    """With its size and its time of modification, too; bytecode is no code of the package."""
    seen = {package_version()}
    file = package / "room" / "rules.tc"
    about = file.stat()
    time.sleep(0.02)  # more than a tick of the clock of a file system
    with open(file, "r+", encoding="utf-8") as opened:
        opened.write("def g")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    seen.add(package_version())
    (package / "room" / "more.py").write_text("", "utf-8")
    seen.add(package_version())
    (package / "room" / "__pycache__").mkdir()
    (package / "room" / "__pycache__" / "more.py").write_text("", "utf-8")
    seen.add(package_version())
    assert len(seen) == 3


def test_an_installed_package_is_known_by_its_record(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = package_version()
    about = package.parent / f"anydim-{sys.modules['anydim'].__version__}.dist-info"
    about.mkdir()
    record = about / "RECORD"
    record.write_text("anydim/__init__.py,sha256=one,6\n", "utf-8")
    monkeypatch.setattr(cache, "_code_files", None)  # no file of it is looked at
    first = package_version()
    assert first != checkout and first == package_version()
    new = about / "new"  # as long, and as old
    new.write_text("anydim/__init__.py,sha256=two,6\n", "utf-8")
    os.utime(new, ns=(record.stat().st_atime_ns, record.stat().st_mtime_ns))
    os.replace(new, record)
    assert package_version() != first


def test_what_lasts_is_old_at_once() -> None:
    gc.unfreeze()
    assert gc.isenabled()
    with collector_paused(lasting=True):
        assert not gc.isenabled()
        made = [[number] for number in range(50_000)]
    assert gc.isenabled() and gc.get_freeze_count() == 0
    young = {id(each) for each in gc.get_objects(generation=0)}
    assert not young & {id(each) for each in made}


def test_objects_that_somebody_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with collector_paused(lasting=True):
            pass
        assert gc.get_freeze_count() >= count - 1000 > 0
    finally:
        gc.unfreeze()


def test_a_package_finds_its_names_and_no_others() -> None:
    find = late_names("anydim.sizes", {"box": ("Box",)})
    assert find("Box") is sys.modules["anydim.sizes.box"].Box
    with pytest.raises(AttributeError, match=r"'anydim\.sizes' has no attribute 'Bax'"):
        find("Bax")
