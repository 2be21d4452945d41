"""Promise: the settings `verify`, `dump` and `time` show what the compiler does."""

from __future__ import annotations

import pathlib
from dataclasses import replace

import pytest

import anydim as ad
from anydim.base.errors import InternalError, OptionError
from anydim.compiler.passes.fuse import Fuse


def small() -> ad.Builder:
    g = ad.Builder("small")
    x = g.input("x", ad.float32, (g.dim("n", 0, 8),))
    g.output("y", g.exp(x) + 1)
    return g


def test_the_texts_of_stages_that_changed_something_go_to_a_folder(tmp_path: pathlib.Path) -> None:
    with ad.settings.override(dump=tmp_path / "texts"):
        ad.compile(small())
    names = sorted(path.stem.split("-")[1] for path in (tmp_path / "texts").iterdir())
    assert {"import", "lower", "fuse", "kernels", "llvm"} <= set(names)
    assert "integers" not in names  # no pass over bytes has anything to do here
    assert "exp(" in next((tmp_path / "texts").glob("*-lower.txt")).read_text("utf-8")


def test_or_to_the_standard_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    with ad.settings.override(dump="-", time=True):
        ad.compile(small())
    shown = capsys.readouterr().err
    assert "# ---- lower ----" in shown and "# ---- integers ----" not in shown
    assert "native" in shown and "100.0" not in shown and " all " in shown


def test_a_folder_that_cannot_be_written_is_an_error_of_the_user(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with ad.settings.override(dump=tmp_path / "file"), pytest.raises(OptionError, match="dump"):
        ad.compile(small())


def test_a_pass_that_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fuse = Fuse.run

    def broken(self: Fuse, graph):
        made = fuse(self, graph)
        return made.replace(nodes=tuple(replace(node, outputs=("lost",)) for node in made.nodes))

    monkeypatch.setattr(Fuse, "run", broken)
    with ad.settings.override(verify=True), pytest.raises(InternalError, match="pass 'fuse'"):
        ad.compile(small())


def test_graphs_are_well_formed_after_every_pass() -> None:
    with ad.settings.override(verify=True):
        ad.compile(small())
