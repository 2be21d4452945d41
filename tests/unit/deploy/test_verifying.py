"""Promise: damaged constants are found before the first result, or right after the first calls."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anydim as ad
import anydim.ort as ort
from anydim.cli.app import main
from anydim.deploy import verifying
from anydim.deploy.container import FORMAT, Container
from anydim.ort.errors import Fail, InvalidProtobuf
from tests.unit.deploy.kinds import KINDS

X = {"x": np.ones((3, 40), np.float32)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "wide.anydim"
    ad.compile(KINDS["wide"].build()).save(path)
    return path


def constant(path: Path, floats: bool) -> tuple[int, int]:
    """Where the large constant of floats lies, or that of indices, and its bytes."""
    container = Container(str(path))
    parts = [part for name, part in container.parts.items() if name.startswith("constants/")]
    wanted = max if floats else min
    part = wanted((part for part in parts if part.checksum), key=lambda each: each.length)
    return part.offset, part.length


def damaged(good: Path, folder: Path, floats: bool = True) -> Path:
    """One bit of a large constant is another one."""
    data, path = bytearray(good.read_bytes()), folder / "bad.anydim"
    offset, length = constant(good, floats)
    data[offset + length // 2] ^= 4
    path.write_bytes(data)
    return path


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "BACKGROUND", 1 << 16)


def verified(model: object) -> None:
    """Wait for the thread that compares, if there is one."""
    for thread in threading.enumerate():
        if thread.name == "anydim verify":
            thread.join()


@pytest.mark.parametrize("verify", ["auto", "checksums", "digests", True])
def test_a_damaged_weight_is_refused(good: Path, tmp_path: Path, verify: bool | str) -> None:
    with pytest.raises(ad.ArtefactError, match=r"bad.anydim: 'constants/.* does not match its"):
        ad.load(damaged(good, tmp_path), verify=verify)


@pytest.mark.parametrize("verify", ["auto", "headers", "checksums", True, False])
def test_damaged_indices_are_refused(
    good: Path, tmp_path: Path, verify: bool | str, beside: None
) -> None:
    with pytest.raises(ad.ArtefactError, match=r"does not match its"):
        ad.load(damaged(good, tmp_path, floats=False), verify=verify)


@pytest.mark.parametrize("verify", ["headers", False])
def test_signed_files_may_leave_weights_out(good: Path, tmp_path: Path, verify: bool | str) -> None:
    model = ad.load(damaged(good, tmp_path), verify=verify)
    assert model.executable.guard is None
    assert (model(**X)["y"] != ad.load(good)(**X)["y"]).sum() == 3  # one column


def test_large_weights_are_compared_beside_the_first_calls(
    good: Path, tmp_path: Path, beside: None
) -> None:
    model = ad.load(damaged(good, tmp_path))
    model(**X)
    verified(model)
    for _ in range(2):
        with pytest.raises(ad.ArtefactError, match=r"bad.anydim: 'constants/.* not match its"):
            model(**X)


def test_good_ones_are_compared_once(good: Path, beside: None) -> None:
    model = ad.load(good)
    assert model.executable.guard is not None
    expected = model(**X)["y"]
    verified(model)
    assert model.executable.guard is None
    assert (model(**X)["y"] == expected).all()


def test_without_threads_they_are_compared_at_once(
    good: Path, tmp_path: Path, beside: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(verifying.threading.Thread, "start", refuse)
    assert ad.load(good)(**X)["y"].shape == (3, 1280)
    model = ad.load(damaged(good, tmp_path))
    model(**X)
    with pytest.raises(ad.ArtefactError, match=r"not match its"):
        model(**X)


def test_sessions_and_the_command_line_refuse_it(good: Path, tmp_path: Path, beside: None) -> None:
    path = str(damaged(good, tmp_path))
    with pytest.raises(Fail, match="not match its"):  # beside the first runs
        session = ort.InferenceSession(path)
        for _ in range(2):
            session.run(None, X)
            verified(session)
    done = CliRunner().invoke(main, ["run", path, "--at", "n=3"])
    assert done.exit_code == 2 and "not match its" in done.output
    Path(path).write_bytes(good.read_bytes()[:-10])
    with pytest.raises(InvalidProtobuf, match="expected"):
        ort.InferenceSession(path)
    done = CliRunner().invoke(main, ["run", path, "--at", "n=3"])
    assert done.exit_code == 2 and "expected" in done.output


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_compares_for_itself(good: Path, tmp_path: Path, beside: None) -> None:
    model = ad.load(damaged(good, tmp_path))
    child = os.fork()
    if not child:
        try:
            model(**X)
            verified(model)
            model(**X)
        except ad.ArtefactError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("verify", [1, None, "all", b"auto"])
def test_what_is_no_way_to_verify(good: Path, verify: object) -> None:
    with pytest.raises(ad.OptionError, match=r"verify is .*\n.*'auto', 'headers', 'checksums'"):
        ad.load(good, verify=verify)


# ---- lengths and formats ---------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["auto", "headers"])
@pytest.mark.parametrize("change", [-1, -10, -4096, 1, 10])
def test_a_file_of_another_length_is_refused(
    good: Path, tmp_path: Path, change: int, verify: str
) -> None:
    data, path = good.read_bytes(), tmp_path / "other.anydim"
    path.write_bytes(data[:change] if change < 0 else data + bytes(change))
    with pytest.raises(ad.ArtefactError, match=rf"it has \d+ bytes, expected {len(data)}"):
        ad.load(path, verify=verify)
    with pytest.raises(ad.ArtefactError, match=r"expected"):
        ad.inspect(path)


def test_the_format_before_is_named(good: Path, tmp_path: Path) -> None:
    data, path = bytearray(good.read_bytes()), tmp_path / "older.anydim"
    start = 30 + len("manifest.json")
    data[start + 4] = FORMAT - 1
    data[28] = 44  # its field of the first header was shorter
    path.write_bytes(data)
    with pytest.raises(ad.ArtefactError, match=f"has format {FORMAT - 1}.*\n.*save the model"):
        ad.load(path)


# ---- copies ----------------------------------------------------------------------------------


def test_a_copy_outlives_what_happens_to_the_file(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "copied.anydim"
    path.write_bytes(good.read_bytes())
    expected = ad.load(good)(**X)["y"]
    model = ad.load(path, copy=True)
    os.truncate(path, 0)
    assert (model(**X)["y"] == expected).all()
    path.write_bytes(bytes(1 << 20))
    assert (model(**X)["y"] == expected).all()
    assert "wide" in model.explain(details=True)


def test_a_copy_is_verified_too(good: Path, tmp_path: Path) -> None:
    for floats in (False, True):
        with pytest.raises(ad.ArtefactError, match=r"does not match its"):
            ad.load(damaged(good, tmp_path, floats), copy=True)
    with pytest.raises(ad.OptionError, match=r"copy is 1"):
        ad.load(good, copy=1)


def test_saving_again_leaves_who_has_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "wide.anydim"
    ad.compile(KINDS["wide"].build()).save(path)
    model, before = ad.load(path), os.stat(path).st_ino
    expected = model(**X)["y"]
    ad.compile(KINDS["encoder"].build()).save(path)
    assert os.stat(path).st_ino != before
    assert (model(**X)["y"] == expected).all()
    assert [each.name for each in tmp_path.iterdir()] == ["wide.anydim"]
