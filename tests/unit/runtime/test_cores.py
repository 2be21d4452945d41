"""Promise: a call takes the cores that its process may use, and no others, unless it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import anydim as ad
from anydim.runtime import cores
from anydim.runtime.cores import available_cores
from anydim.runtime.threads import known_threads

PINNED = 16


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with 16 cores and no quota."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(PINNED)), raising=False)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def quota(root: Path, group: str, **files: str) -> None:
    folder = root / "sys/fs/cgroup" / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        folder.joinpath(name.replace("__", ".")).write_text(text + "\n", "utf-8")


def member(root: Path, *lines: str) -> None:
    (root / "proc/self/cgroup").write_text("\n".join(lines) + "\n", "utf-8")


def test_without_a_quota_all_cores_that_the_process_is_pinned_to(root: Path) -> None:
    assert available_cores(root) == PINNED
    member(root, "0::/")
    quota(root, "", cpu__max="max 100000")
    assert available_cores(root) == PINNED


@pytest.mark.parametrize("text,expected", [
    ("300000 100000", 3), ("250000 100000", 2), ("50000 100000", 1), ("max 100000", PINNED),
    ("", PINNED), ("nonsense", PINNED), ("100000 0", PINNED), ("9999999 100000", PINNED),
])  # fmt: skip
def test_quota_of_version_2(root: Path, text: str, expected: int) -> None:
    member(root, "0::/service/job")
    quota(root, "service/job", cpu__max=text)
    assert available_cores(root) == expected


def test_a_group_has_no_more_than_those_around_it(root: Path) -> None:
    member(root, "0::/service/job")
    quota(root, "service/job", cpu__max="800000 100000")
    quota(root, "service", cpu__max="200000 100000")
    assert available_cores(root) == 2


def test_quota_of_version_1(root: Path) -> None:
    member(root, "4:memory:/job", "3:cpu,cpuacct:/job", "1:name=systemd:/")
    quota(root, "cpu/job", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert available_cores(root) == PINNED
    quota(root, "cpu", cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    assert available_cores(root) == 4


def test_a_path_of_a_group_cannot_leave_its_folder(root: Path) -> None:
    member(root, "0::/../../outside")
    quota(root, "../outside", cpu__max="100000 100000")
    assert available_cores(root) == PINNED


@pytest.mark.parametrize("text,expected", [("3", 3), ("2,4", 2), ("", 7), ("0", 7), ("x", 7)])
def test_what_libraries_agree_on(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert known_threads("auto") == expected


def test_models_and_definitions_take_it_where_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    graph = ad.Builder("twice")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 64),))
    graph.output("y", graph.add(x, x))
    assert ad.compile(graph).executable.threads == 3
    assert ad.compile(graph, threads=1).executable.threads == 1
    lib = ad.define("def f(float(N) x) -> (y) { y(i) = x(i) + 3 }")
    assert lib.f.model([1.0]).executable.threads == 3


def test_a_saved_model_takes_no_more_cores_than_there_are(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = ad.Builder("twice")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 64),))
    graph.output("y", graph.add(x, x))
    ad.compile(graph, threads=4).save(tmp_path / "twice.anydim")
    monkeypatch.delenv(cores.REQUESTED, raising=False)
    assert ad.load(tmp_path / "twice.anydim").executable.threads == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert ad.load(tmp_path / "twice.anydim").executable.threads == 2


@pytest.mark.parametrize("threads", ["all", "AUTO", 0, None, 1.5])
def test_no_number_of_threads(threads: object) -> None:
    with pytest.raises(ad.OptionError, match='or "auto"'):
        known_threads(threads)
