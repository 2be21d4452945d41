"""Promise: a file for several processors has its weights once; each reads them as if its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.base import cache_folder, settings
from anydim.deploy import repacking, verifying
from anydim.deploy.archive import Member, write
from anydim.deploy.container import LARGE, Container
from anydim.runtime.cpu import this_level

ROOT = Path(__file__).resolve().parents[3]
OTHER = "aarch64" if this_level().architecture == "x86_64" else "x86-64-v3"
X = {"x": np.linspace(-1, 1, 3 * 200, dtype=np.float32).reshape(3, 200)}


def layers() -> ad.Builder:
    """Products by constants of floats, a table that is not packed, small constants."""
    g = ad.Builder("layers")
    random = np.random.default_rng(7)
    first, second = (random.standard_normal(shape).astype(np.float32)
                     for shape in ((200, 300), (300, 157)))  # fmt: skip
    x = g.input("x", ad.float32, (g.dim("n", 0, 100), 200))
    hidden = g.relu(g.matmul(x, first) + np.arange(300, dtype=np.float32))
    g.output("y", g.matmul(hidden, second))
    g.output("z", g.gather(x, random.integers(0, 200, 10_000), axis=1))
    return g


@pytest.fixture(scope="module")
def model() -> ad.Model:
    return ad.compile(layers())


@pytest.fixture
def path(model: ad.Model, tmp_path: Path) -> Iterator[Path]:
    """A file whose weights are in the layout of another machine, and an empty cache."""
    name = tmp_path / "layers.anydim"
    model.save(name, [OTHER, "native"])
    with settings.override(cache_dir=str(tmp_path / "cache")):
        yield name


def packed_files(path: Path) -> list[Path]:
    found = path.parent.joinpath("cache", "packed").glob("*/*")
    return [each for each in found if each.suffix != ".lock"]


def right(loaded: ad.LoadedModel, model: ad.Model) -> bool:
    """Whether both give the same bits."""
    expected, got = model(**X), loaded(**X)
    return all(got[name].tobytes() == array.tobytes() for name, array in expected.items())


def test_weights_are_there_once(model: ad.Model, path: Path) -> None:
    single = path.with_name("single.anydim")
    model.save(single, "native")
    one, both = ad.inspect(single), ad.inspect(path, verify=True)
    assert both.weight_bytes < one.weight_bytes + 4 * LARGE
    moved = {each.level.name: each.repacked_bytes for each in both.levels}
    assert moved[OTHER] == 0 and moved["native"] > (200 * 300 + 300 * 157) * 4
    assert {each.weight_bytes for each in one.levels} == {both.taken.weight_bytes}


def test_the_first_target_reads_its_weights_as_they_are(model: ad.Model, path: Path) -> None:
    model.save(path, ["native", OTHER])
    assert right(ad.load(path), model) and packed_files(path) == []


def test_the_bits_are_those_of_the_compiled_model(model: ad.Model, path: Path) -> None:
    for _ in range(2):
        assert right(ad.load(path), model)
    (file,) = packed_files(path)
    before = file.stat().st_ino
    assert right(ad.load(path, verify=True), model)
    assert packed_files(path)[0].stat().st_ino == before


def quantised(bits: int) -> ad.Builder:
    g = ad.Builder(f"bits{bits}")
    weight = np.random.default_rng(1).integers(-8, 8, (512, 640)).astype(np.int8)
    x = g.input("x", ad.float32, (g.dim("n", 0, 50), 512))
    g.output("y", g.matmul(x, g.cast(g.constant(weight), to=ad.float32)))
    return g


def convolved() -> ad.Builder:
    g = ad.Builder("convolved")
    weight = np.random.default_rng(2).standard_normal((96, 64, 3, 3)).astype(np.float32)
    x = g.input("x", ad.float32, (g.dim("n", 0, 4), 64, g.dim("h", 1, 40), 13))
    g.output("y", g.relu(g.conv(x, g.constant(weight), pads=(1, 1, 1, 1))))
    return g


@pytest.mark.parametrize("build", [lambda: quantised(8), convolved])
def test_other_layouts(build: Callable[[], ad.Builder], path: Path) -> None:
    made = ad.compile(build())
    made.save(path, [OTHER, "native"])
    for _ in range(2):
        loaded = ad.load(path)
        for size in (0, 1, 3):
            shape = [size if name == "n" else 17 for name in ("n",)]
            full = (shape[0], 512) if made.name == "bits8" else (shape[0], 64, 17, 13)
            x = np.random.default_rng(size).standard_normal(full).astype(np.float32)
            assert loaded(x=x)["y"].tobytes() == made(x=x)["y"].tobytes()


# ---- processes -----------------------------------------------------------------------------------

CHILD = """
import sys, json, numpy, anydim as ad
model = ad.load(sys.argv[1])
y = model(x=numpy.linspace(-1, 1, 600, dtype='f4').reshape(3, 200))['y']
maps = [line.split() for line in open('/proc/self/maps') if 'packed' in line]
print(json.dumps([[part[1] for part in maps], y.tobytes().hex()]))
"""


def start(path: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"),
           "ANYDIM_CACHE_DIR": str(path.parent / "cache")}  # fmt: skip
    return subprocess.Popen([sys.executable, "-c", CHILD, str(path)], env=env, text=True,
                            stdout=subprocess.PIPE)  # fmt: skip


def test_processes_that_start_at_once_share_one_file(model: ad.Model, path: Path) -> None:
    for running in [start(path) for _ in range(4)]:
        out, _ = running.communicate(timeout=120)
        modes, digits = json.loads(out)
        assert running.returncode == 0
        assert modes == ["r--s"]  # shared, never written to
        assert bytes.fromhex(digits) == model(**X)["y"].tobytes()
    assert len(packed_files(path)) == 1


# ---- what is damaged, and what cannot be written -------------------------------------------------


@pytest.mark.parametrize("change", ["bit", "cut", "empty", "pipe", "folder"])
def test_a_damaged_file_of_the_cache_is_made_again(
    change: str, model: ad.Model, path: Path
) -> None:
    ad.load(path)
    (file,) = packed_files(path)
    good = file.read_bytes()
    file.unlink()
    if change == "pipe":
        os.mkfifo(file)
    elif change == "folder":
        file.mkdir()
    else:
        bad = bytearray(good)
        bad[len(bad) // 3] ^= 1
        file.write_bytes({"bit": bytes(bad), "cut": good[:-64], "empty": b""}[change])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert right(ad.load(path), model)
    if change != "folder":
        assert file.read_bytes() == good


def test_damage_that_is_found_beside_the_calls(
    model: ad.Model, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "BACKGROUND", 1 << 16)
    ad.load(path)
    (file,) = packed_files(path)
    bad = bytearray(file.read_bytes())
    bad[len(bad) // 3] ^= 1
    file.write_bytes(bad)
    loaded = ad.load(path)
    loaded(**X)
    for thread in threading.enumerate():
        if thread.name == "anydim verify":
            thread.join()
    with pytest.raises(ad.ArtefactError, match=r"packed/.* does not match.*\n.*load the model aga"):
        loaded(**X)
    assert not file.exists()
    assert right(ad.load(path), model)


@pytest.mark.parametrize("verify", ["auto", "headers", "checksums", True])
def test_a_damaged_source_is_refused(path: Path, verify: bool | str) -> None:
    container, data = Container(str(path)), bytearray(path.read_bytes())
    part = max((p for n, p in container.parts.items() if n.startswith("constants/")),
               key=lambda part: part.length if part.length == 200 * 300 * 4 else 0)  # fmt: skip
    data[part.offset + part.length // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(ad.ArtefactError, match=r"constants/.* does not match"):
        ad.load(path, verify=verify)
    assert packed_files(path) == []


@pytest.mark.parametrize("how", ["off", "a file", "full", "copy"])
def test_without_a_usable_cache(
    how: str, model: ad.Model, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "a file":
        (path.parent / "cache").write_text("", "utf-8")
    if how == "full":
        monkeypatch.setattr(repacking.os, "pwrite", _no_space)
    with warnings.catch_warnings(), settings.override(use_cache=how != "off"):
        warnings.simplefilter("ignore")
        assert right(ad.load(path, copy=how == "copy"), model)
    assert packed_files(path) == []


def _no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_one_warning_names_the_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacking.os, "pwrite", _no_space)
    monkeypatch.setattr(cache_folder, "_said", set())
    with pytest.warns(RuntimeWarning, match="cache: not writable.*No space left"):
        ad.load(path)


# ---- lies ----------------------------------------------------------------------------------------


def edited(path: Path, change: Callable[[dict], object]) -> None:
    """Change the records of a moved constant; all digests are right."""
    container = Container(str(path))
    members = []
    for name in container.parts:
        data = bytes(container.view(name))
        if name == "levels/native/start.json":
            whole = json.loads(data)
            change(next(a for a in whole["record"]["arrays"] if "repacking" in a))
            data = json.dumps(whole).encode()
        members.append(Member(name, data, 1 << 16 if name.endswith("/code") else 64))
    write(str(path), container.about, members)


LIES: list[Callable[[dict], object]] = [
    lambda a: a["repacking"].update(source="0" * 64),
    lambda a: a["repacking"]["given"].update(width=3),
    lambda a: a["repacking"]["wanted"].update(width=2**62),
    lambda a: a["repacking"]["wanted"].update(n=[[2**62, 1]]),
    lambda a: a["repacking"]["wanted"].update(k=[[200, 2**40]]),
    lambda a: a["repacking"].update(wanted=None),
    lambda a: a["repacking"].update(wanted={"is": "Dim"}),
    lambda a: a.update(shape=[2**40, 2**20]),
]


@pytest.mark.parametrize("change", LIES)
def test_records_that_lie_are_refused(
    change: Callable[[dict], object], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anydim.deploy.load.stamp", lambda *_: _Any())
    edited(path, change)
    with pytest.raises(ad.ArtefactError):
        ad.load(path)
    assert packed_files(path) == []


class _Any(bytes):
    """Equal to every stamp: the lie is not found by the stamp of the code."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__
