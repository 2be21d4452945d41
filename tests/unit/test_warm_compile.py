"""Promise: what was compiled before is taken from disk, unless it is damaged or code changed."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.graph import operator
from anydim.compiler.targets import target
from anydim.compiler.targets.llvm import compiler, render
from anydim.lang.surface import parser


def encoder() -> ad.Builder:
    """A product with a constant, and softmax of its rows."""
    graph = ad.Builder("encoder")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 24))
    weight = numpy.linspace(-1, 1, 24 * 33, dtype=numpy.float32).reshape(24, 33)
    graph.output("y", graph.softmax(graph.matmul(x, weight)))
    return graph


def check(model: ad.Model) -> None:
    x = numpy.random.default_rng(5).standard_normal((7, 24), numpy.float32)
    weight = numpy.linspace(-1, 1, 24 * 33).reshape(24, 33)
    powers = numpy.exp(x @ weight)
    expected = powers / powers.sum(axis=1, keepdims=True)
    numpy.testing.assert_allclose(model(x)["y"], expected, rtol=1e-4, atol=1e-6)


def forget() -> None:
    """Go on as in another process, which has parsed nothing yet."""
    for memo in (operator._definition, operator._instantiate, parser._parse_linked):
        memo.cache_clear()


@pytest.fixture
def warm(tmp_path: Path) -> tuple[Path, int]:
    """A cache that holds the whole model, and of how many modules."""
    forget()
    with settings.override(cache_dir=tmp_path, use_cache=True):
        report = ad.compile(encoder()).report
    assert report.compiled > 0
    assert report.cached == 0
    return tmp_path, report.compiled


def test_nothing_is_written_or_compiled(
    warm: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, modules = warm
    for module, name in (
        (render, "render"), (compiler, "_compile"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    forget()
    with settings.override(cache_dir=folder, use_cache=True):
        model = ad.compile(encoder())
    assert (model.report.compiled, model.report.cached) == (0, modules)
    check(model)


def test_damaged_objects_are_made_again(warm: tuple[Path, int]) -> None:
    folder, modules = warm
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    with settings.override(cache_dir=folder, use_cache=True):
        model = ad.compile(encoder())
        assert (model.report.compiled, model.report.cached) == (modules, 0)
        assert ad.compile(encoder()).report.compiled == 0
    check(model)


def test_objects_of_other_code_are_not_taken(
    warm: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, modules = warm
    monkeypatch.setattr(target, "code_version", lambda: "another")
    with settings.override(cache_dir=folder, use_cache=True):
        model = ad.compile(encoder())
    assert 0 < model.report.compiled <= modules
    check(model)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        ad.compile(encoder())
        assert gc.isenabled() is enabled
        with pytest.raises(ad.OptionError):
            ad.compile(encoder(), threads=0)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
