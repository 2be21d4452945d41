"""Promise: a start gives what a compilation without a cache gives, in whatever way the files of the
model have changed; links of external data lead out of its folder only if the user says so."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.api.program_cache import load_or_compile, path_of_parts
from anydim.base import read_files, settings
from anydim.base.read_files import FileRead, FileState
from anydim.base.user_values import absolute
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder
from anydim.ort import InferenceSession, SessionOptions
from anydim.serving.server.repository import Repository
from tests.caches import empty_cache

W = numpy.arange(1, 7, dtype=numpy.float32).reshape(3, 2)
X = numpy.ones((1, 3), numpy.float32)
TICK = 0.02  # seconds, longer than that of a file system's clock


def save(folder: Path, scale: float, bias: float = 0.0, data: str = "w.bin") -> Path:
    """y = x @ w + bias: `w` in a file of its own, the bias in the graph."""
    folder.mkdir(parents=True, exist_ok=True)
    weight = numpy_helper.from_array(W, "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=data)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [weight, numpy_helper.from_array(numpy.full(2, bias, numpy.float32), "b")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (folder / "e.onnx").write_bytes(proto.SerializeToString())
    (folder / data).write_bytes((W * numpy.float32(scale)).tobytes())
    return folder / "e.onnx"


def scale_of(model: Any) -> float:
    return float(model(x=X)["y"][0, 0]) / 9


def loaded(path: Path | str, **options: Any) -> float:
    return scale_of(ad.compile(path, **options))


def session(path: Path | str) -> float:
    return float(InferenceSession(str(path)).run(None, {"x": X})[0][0, 0]) / 9


def served(path: Path | str) -> float:
    models: dict[str, Any] = {}
    Repository((f"e={path}",), ad.compile, models.__setitem__, models.pop).load("e")
    return scale_of(models["e"])


STARTS = pytest.mark.parametrize("start", [loaded, session, served])


def switch(link: Path, target: str) -> None:
    """Replace a link as a deployment does."""
    new = link.with_name(".new")
    os.symlink(target, new)
    os.replace(new, link)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Files are old at once, so that their times are trusted."""
    monkeypatch.setattr(read_files, "CLOCK_NS", -(10**12))
    folder = empty_cache(tmp_path / "cache")
    with settings.override(cache_dir=folder, use_cache=True, keep_programs=True):
        yield tmp_path / "cache"


# ---- links -------------------------------------------------------------------------------------


@STARTS
def test_a_release_link_that_is_switched(tmp_path: Path, start: Callable[..., float]) -> None:
    for number in (1, 2):
        save(tmp_path / f"v{number}", number)
    for number in (1, 2, 1, 2):
        switch(tmp_path / "current", f"v{number}")
        assert start(tmp_path / "current" / "e.onnx") == number


@STARTS
def test_a_volume_whose_files_are_links(tmp_path: Path, start: Callable[..., float]) -> None:
    """As a cluster mounts them: `w.bin -> ..data/w.bin`, `..data -> ..2024`."""
    for number in (1, 2):
        save(tmp_path / "mounted" / f"..{number}", number)
    for name in ("e.onnx", "w.bin"):
        os.symlink(f"..data/{name}", tmp_path / "mounted" / name)
    for number in (1, 2, 1):
        switch(tmp_path / "mounted" / "..data", f"..{number}")
        assert start(tmp_path / "mounted" / "e.onnx") == number


@STARTS
def test_a_store_whose_files_are_named_by_contents(
    tmp_path: Path, start: Callable[..., float]
) -> None:
    """As the hub of Hugging Face keeps them: links of a snapshot into one folder of files."""
    for number in (1, 2):
        path = save(tmp_path / "made", number)
        (tmp_path / "blobs").mkdir(exist_ok=True)
        snapshot = tmp_path / "snapshots" / str(number)
        snapshot.mkdir(parents=True)
        for each in (path, path.with_name("w.bin")):
            os.rename(each, tmp_path / "blobs" / f"{number}-{each.name}")
            os.symlink(f"../../blobs/{number}-{each.name}", snapshot / each.name)
        assert start(snapshot / "e.onnx") == number


def test_a_path_that_goes_up_from_a_link(tmp_path: Path, monkeypatch: Any) -> None:
    """`link/..` is the folder above the link's target."""
    save(tmp_path / "far" / "models", 1)
    save(tmp_path / "near" / "models", 2)
    os.symlink("../far/models", tmp_path / "near" / "link")
    assert loaded(tmp_path / "near" / "link" / ".." / "models" / "e.onnx") == 1
    monkeypatch.chdir(tmp_path / "near")
    for path in ("link/../models/e.onnx", "link/../models/e.onnx", "../far/models/e.onnx"):
        assert loaded(path) == session(path) == 1
    assert loaded("models/e.onnx") == 2
    assert os.path.samefile(absolute("link/../models"), tmp_path / "far" / "models")


# ---- links out of the folder -------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A model whose data are a link out of its folder."""
    path = save(tmp_path / "models", 1)
    os.rename(path.with_name("w.bin"), tmp_path / "w.bin")
    os.symlink("../w.bin", path.with_name("w.bin"))
    return path


def test_a_link_out_of_the_folder_needs_the_users_word(outside: Path) -> None:
    for _ in range(2):
        with pytest.raises(ad.ModelError, match="is a link out of the model's folder"):
            loaded(outside)
        with pytest.raises(Exception, match="is a link out of the model's folder"):
            session(outside)
        assert loaded(outside, external_data="follow") == 1
        assert scale_of(ad.compile(outside, options=ad.Options(external_data="follow"))) == 1
        with settings.override(external_data="follow"):
            assert loaded(outside) == session(outside) == served(outside) == 1
            with pytest.raises(ad.ModelError, match="link out"):
                loaded(outside, external_data="inside")
    options = SessionOptions()
    options.compile_options = ad.Options(external_data="follow")
    assert InferenceSession(str(outside), options).run(None, {"x": X})[0][0, 0] == 9


def test_a_followed_link_is_noticed_when_it_is_switched(tmp_path: Path, outside: Path) -> None:
    assert loaded(outside, external_data="follow") == 1
    (tmp_path / "w2.bin").write_bytes((W * 2).tobytes())
    switch(outside.with_name("w.bin"), "../w2.bin")
    model = ad.compile(outside, external_data="follow")
    assert scale_of(model) == 2
    assert model.report.stages  # compiled again, with the same links


def test_a_kept_program_needs_that_word_too(tmp_path: Path) -> None:
    """The link leads to equal contents, so the program would be found by its digests."""
    path = save(tmp_path / "models", 1)
    data, other = path.with_name("w.bin"), tmp_path / "w.bin"
    assert loaded(path) == loaded(path, external_data="follow") == 1
    shutil.copy(data, other)
    data.unlink()
    os.symlink("../w.bin", data)
    for _ in range(2):
        with pytest.raises(ad.ModelError, match="is a link out of the model's folder"):
            loaded(path)
        model = ad.compile(path, external_data="follow")
        assert scale_of(model) == 1 and "load" in model.report.seconds
    os.replace(other, path.with_name("inside.bin"))
    switch(data, "inside.bin")
    assert loaded(path) == 1


def test_a_folder_of_data_that_moved_out(tmp_path: Path) -> None:
    """The files are the same ones as before, with the same states."""
    (tmp_path / "models" / "data").mkdir(parents=True)
    path = save(tmp_path / "models", 1, data="data/w.bin")
    assert loaded(path) == loaded(path, external_data="follow") == 1
    os.rename(path.with_name("data"), tmp_path / "data")
    os.symlink("../data", path.with_name("data"))
    for _ in range(2):
        with pytest.raises(ad.ModelError, match="is a link out of the model's folder"):
            loaded(path)
        assert loaded(path, external_data="follow") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("read", [loaded, session, ad.inspect])
def test_a_model_that_is_a_pipe(tmp_path: Path, read: Callable[..., Any]) -> None:
    """A pipe without a writer is not waited for."""
    os.mkfifo(tmp_path / "e.onnx")
    with pytest.raises(Exception, match="not a regular file"):
        read(tmp_path / "e.onnx")


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "missing"])
def test_data_that_are_no_file_any_more(tmp_path: Path, kind: str) -> None:
    """Neither a pipe without a writer nor a device without an end is waited for."""
    path = save(tmp_path, 1)
    data = path.with_name("w.bin")
    assert loaded(path) == 1
    data.unlink()
    make: dict[str, Callable[[], Any]] = {
        "pipe": lambda: os.mkfifo(data),
        "zero": lambda: os.symlink("/dev/zero", data),
        "folder": data.mkdir,
        "missing": lambda: None,
    }
    make[kind]()
    for options in ({}, {"external_data": "follow"}):
        with pytest.raises(ad.ModelError, match=r"w\.bin' (is not a file|cannot be opened)"):
            loaded(path, **options)
    with pytest.raises(OSError):
        FileRead.of(str(data))


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin"])
def test_no_word_allows_a_location_out_of_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "models" / "a").mkdir(parents=True)
    proto = onnx.load(save(tmp_path / "models", 1), load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    onnx.save(proto, tmp_path / "models" / "e.onnx")
    with pytest.raises(ad.ModelError, match=r"absolute|leaves the folder"):
        loaded(tmp_path / "models" / "e.onnx", external_data="follow")


@pytest.mark.parametrize("value", ["", "all", 1, True, ["follow"]])
def test_a_value_that_external_data_does_not_take(tmp_path: Path, value: Any) -> None:
    path = save(tmp_path, 1)
    with pytest.raises(ad.OptionError, match=r"argument 'external_data' is .*inside or follow"):
        ad.compile(path, external_data=value)
    with pytest.raises(ad.OptionError, match=r"setting 'external_data' is .*inside or follow"):
        settings.override(external_data=value).__enter__()


# ---- files that change while they are read -----------------------------------------------------


def test_a_folder_that_is_switched_during_the_import(tmp_path: Path, monkeypatch: Any) -> None:
    """Graph and data are of one release, and the program is not kept for the other."""
    for number in (1, 2):
        save(tmp_path / f"v{number}", number, bias=number)
    switch(tmp_path / "current", "v1")
    first, opened = DataFolder.open, list[str]()

    def switched(self: DataFolder, location: str, where: str) -> Any:
        opened.append(location)
        if len(opened) == 2:  # after the search for a program of the same structure
            switch(tmp_path / "current", "v2")
        return first(self, location, where)

    monkeypatch.setattr(DataFolder, "open", switched)
    path = tmp_path / "current" / "e.onnx"
    assert ad.compile(path)(x=X)["y"][0, 0] == 9 + 1
    monkeypatch.undo()
    assert ad.compile(path)(x=X)["y"][0, 0] == 18 + 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_switch_at_any_opening_keeps_no_program_for_another_release(
    tmp_path: Path, monkeypatch: Any, number: int
) -> None:
    for release in (1, 2):
        save(tmp_path / f"v{release}", release, bias=release)
    switch(tmp_path / "current", "v1")
    first, opened = DataFolder.open, list[str]()

    def switched(self: DataFolder, location: str, where: str) -> Any:
        opened.append(location)
        if len(opened) == number:
            switch(tmp_path / "current", "v2")
        return first(self, location, where)

    monkeypatch.setattr(DataFolder, "open", switched)
    path = tmp_path / "current" / "e.onnx"
    assert ad.compile(path)(x=X)["y"][0, 0] in (9 + 1, 18 + 2)
    monkeypatch.undo()
    for release, wanted in ((2, 18 + 2), (1, 9 + 1)):
        switch(tmp_path / "current", f"v{release}")
        assert ad.compile(path)(x=X)["y"][0, 0] == wanted


def test_files_that_are_switched_during_the_import(tmp_path: Path, monkeypatch: Any) -> None:
    for number in (1, 2):
        save(tmp_path / f"..{number}", number, bias=number)
    for name in ("e.onnx", "w.bin"):
        os.symlink(f"..data/{name}", tmp_path / name)
    switch(tmp_path / "..data", "..1")
    first, opened = DataFolder.open, list[str]()

    def switched(self: DataFolder, location: str, where: str) -> Any:
        opened.append(location)
        if len(opened) == 2:  # after the search for a program of the same structure
            switch(tmp_path / "..data", "..2")
        return first(self, location, where)

    monkeypatch.setattr(DataFolder, "open", switched)
    with pytest.raises(ad.ModelError, match="onnx has changed while it was read"):
        ad.compile(tmp_path / "e.onnx")
    assert ad.compile(tmp_path / "e.onnx")(x=X)["y"][0, 0] == 18 + 2


def test_a_write_within_the_clock_of_the_file_system(tmp_path: Path, monkeypatch: Any) -> None:
    """Its times say nothing: contents decide what a program is kept for."""
    path = save(tmp_path, 1)
    monkeypatch.setattr(read_files, "CLOCK_NS", 10**15)
    state = FileState.of(path.with_name("w.bin"))
    real = FileState.of

    def of(name: Any, found: Any = None) -> FileState:
        return state if str(name).endswith("w.bin") else real(name, found)

    monkeypatch.setattr(FileState, "of", of)

    def write(stage: str, done: int, total: int) -> None:
        if stage == "done":
            path.with_name("w.bin").write_bytes((W * 2).tobytes())

    ad.compile(path, progress=write)
    assert loaded(path) == 2


# ---- writes that leave the times ----------------------------------------------------------------


def test_the_setting_that_reads_files_at_every_start(tmp_path: Path, monkeypatch: Any) -> None:
    path = save(tmp_path, 1)
    loaded(path)
    state, real = FileState.of(path.with_name("w.bin")), FileState.of
    monkeypatch.setattr(
        FileState, "of",
        lambda name, *found: state if str(name).endswith("w.bin") else real(name, *found),
    )  # fmt: skip
    path.with_name("w.bin").write_bytes((W * 2).tobytes())
    assert loaded(path) == 1  # the documented limit
    with settings.override(verify_sources=True):
        assert loaded(path) == 2
    monkeypatch.setenv("ANYDIM_VERIFY_SOURCES", "1")
    path.with_name("w.bin").write_bytes((W * 3).tobytes())
    assert loaded(path) == 3


def test_states_that_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    second = 10**9
    whole = FileState("/w", 1, 5 * second, 7 * second, 1, 1)
    part = FileState("/w", 1, 5 * second, 7 * second + 1, 1, 1)
    assert part.is_settled(10 * second) and not whole.is_settled(10 * second)
    assert not part.is_settled(8 * second)
    future = FileState("/w", 1, 20 * second, 7 * second + 1, 1, 1)
    assert not future.is_settled(10 * second)


# ---- files of the cache -------------------------------------------------------------------------


def test_two_programs_that_were_exchanged(tmp_path: Path, cache: Path) -> None:
    paths = [save(tmp_path / str(number), number) for number in (1, 2)]
    assert [loaded(path) for path in paths] == [1, 2]
    first, second = (cache / "programs").glob("??/*")
    for old, new in ((first, tmp_path / "kept"), (second, first), (tmp_path / "kept", second)):
        os.rename(old, new)
    with pytest.warns(RuntimeWarning, match="another key"):
        assert [loaded(path) for path in paths] == [1, 2]
    assert [loaded(path) for path in paths] == [1, 2]


def test_two_stored_models_that_were_exchanged(tmp_path: Path, cache: Path) -> None:
    paths = [save(tmp_path / str(number), number) for number in (1, 2)]

    def found() -> list[float]:
        return [scale_of(load_or_compile([str(path)], partial(ad.compile, path))) for path in paths]

    assert found() == [1, 2]
    first, second = (path_of_parts([str(path)]) for path in paths)
    assert first is not None and second is not None
    shutil.copy(first, tmp_path / "kept")
    os.replace(second, first)
    os.replace(tmp_path / "kept", second)
    assert found() == [1, 2]
    assert found() == [1, 2]


# ---- tensors in other places ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["sparse", "unmarked"])
def test_sessions_notice_external_data_in_every_place(tmp_path: Path, place: str) -> None:
    path = save(tmp_path, 1)
    proto = onnx.load(path, load_external_data=False)
    if place == "unmarked":  # its location alone says that it is external
        proto.graph.initializer[0].ClearField("data_location")
    else:
        values = proto.graph.initializer[0]
        del proto.graph.initializer[0], values.dims[:]
        values.dims.append(6)
        indices = numpy_helper.from_array(numpy.arange(6), "i")
        proto.graph.node.insert(0, helper.make_node(
            "Constant", [], ["w"], sparse_value=helper.make_sparse_tensor(values, indices, [3, 2]),
        ))  # fmt: skip
    path.write_bytes(proto.SerializeToString())
    for scale in (1, 2, 1):
        path.with_name("w.bin").write_bytes((W * scale).tobytes())
        assert session(path) == scale


# ---- any sequence of changes --------------------------------------------------------------------


class Releases:
    """Folders of releases, a link to one of them, and ways to change them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        for number in range(3):
            save(root / f"v{number}", number + 1, bias=number % 2)
        switch(root / "current", "v0")
        self.path = root / "current" / "e.onnx"

    def change(self) -> str:
        """Make one change; returns its name."""
        ways = [name for name in dir(self) if name.startswith("do_")]
        name = self.random.choice(ways)
        time.sleep(TICK)
        getattr(self, name)()
        return name

    def any_file(self, name: str = "w.bin") -> Path:
        return self.root / f"v{self.random.randrange(3)}" / name

    def data(self) -> bytes:
        return (W * self.random.randrange(1, 5)).tobytes()

    def do_switch_the_folder(self) -> None:
        switch(self.root / "current", f"v{self.random.randrange(3)}")

    def do_link_a_file(self) -> None:
        name = self.random.choice(["w.bin", "e.onnx"])
        target = self.random.choice([f"../v{self.random.randrange(3)}/{name}", f"other-{name}"])
        switch(self.any_file(name), target)

    def do_write_in_place(self) -> None:
        target = self.any_file()
        if target.exists():
            with target.open("r+b") as file:
                file.write(self.data())

    def do_write_and_set_times_back(self) -> None:
        target = self.any_file()
        if target.exists():
            about = target.stat()
            with target.open("r+b") as file:
                file.write(self.data())
            os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))

    def do_replace_by_rename(self) -> None:
        new = self.root / "new"
        new.write_bytes(self.data())
        about = (self.root / "v0").stat()
        os.utime(new, ns=(about.st_mtime_ns, about.st_mtime_ns))
        os.replace(new, self.any_file())

    def do_exchange_two_folders(self) -> None:
        for old, new in (("v0", "old"), ("v1", "v0"), ("old", "v1")):
            os.rename(self.root / old, self.root / new)

    def do_link_hard(self) -> None:
        source = self.root / "hard"
        source.unlink(missing_ok=True)
        source.write_bytes(self.data())
        target = self.any_file()
        target.unlink(missing_ok=True)
        os.link(source, target)

    def do_write_through_another_name(self) -> None:
        source = self.root / "hard"
        if source.exists():
            with source.open("r+b") as file:
                file.write(self.data())

    def do_remove_data(self) -> None:
        self.any_file().unlink(missing_ok=True)

    def do_write_another_graph(self) -> None:
        folder = self.root / f"v{self.random.randrange(3)}"
        for name in ("e.onnx", "w.bin"):
            (folder / name).unlink(missing_ok=True)
        save(folder, self.random.randrange(1, 5), self.random.randrange(2))


def outcome(path: Path, **options: Any) -> Any:
    """The result of a start, or its error."""
    try:
        return ad.compile(path, threads=1, **options)(x=X)["y"].tolist()
    except ad.ModelError as error:
        return str(error)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_changes(tmp_path: Path, seed: int) -> None:
    releases = Releases(tmp_path, seed)
    done: list[str] = []
    links = ("inside", "follow")[seed % 2]
    for _ in range(10):
        found = outcome(releases.path, external_data=links)
        with settings.override(keep_programs=False):
            assert found == outcome(releases.path, external_data=links), done
        done.append(releases.change())


_MOUNTED = """
import sys, numpy, anydim as ad
from anydim.base import read_files
read_files.CLOCK_NS = -(10**12)
print(ad.compile(sys.argv[1])(x=numpy.ones((1, 3), numpy.float32))["y"][0, 0] / 9)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
def test_a_folder_that_is_mounted_over_another(tmp_path: Path, cache: Path) -> None:
    paths = [save(tmp_path / str(number), number) for number in (1, 2)]
    assert loaded(paths[0]) == 1
    script = f"mount --bind {tmp_path}/2 {tmp_path}/1 && exec {sys.executable} -c '{_MOUNTED}' $0"
    known = {"ANYDIM_CACHE_DIR": str(cache), "ANYDIM_KEEP_PROGRAMS": "1"}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, str(paths[0])], capture_output=True, text=True,
        env={**os.environ, **known},
    )  # fmt: skip
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("this user may not mount")
    assert float(done.stdout) == 2, done.stderr
    assert loaded(paths[0]) == 1
