"""Promise: later compiles take a schedule that was found for all sizes, in the same bits."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.api.program_cache import load_or_compile
from anydim.base import settings
from anydim.base.cache_folder import LEDGER
from anydim.compiler.kernels.schedule import parse_options, print_schedule
from anydim.compiler.targets.targets import target
from anydim.compiler.variants import general_search
from anydim.compiler.variants.general_search import search_whole
from anydim.compiler.variants.ledger import Ledger, Verdict, ledger, name_of
from anydim.compiler.variants.tuning import SAMPLES, RecordedLaunch, samples
from tests.unit.compiler.variants.models import Here, here

__all__ = ["here"]
N, K = 70, 33


def dense(**options: object) -> ad.Model:
    """A matrix product with constant weights over free rows."""
    weights = numpy.random.default_rng(0).standard_normal((K, N)).astype(numpy.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ad.compile(model.SerializeToString(), **options)  # type: ignore[arg-type]


def rows(count: int) -> numpy.ndarray:
    return numpy.random.default_rng(count).standard_normal((count, K)).astype(numpy.float32)


def changed(schedule: str) -> str:
    """The same but for the blocks of columns."""
    kind, options = parse_options(schedule)
    return print_schedule(kind(**{**options, "block_columns_bytes": 1 << 15}))


@pytest.fixture
def cache(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A cache folder of its own, with tuned schedules in use."""
    with settings.override(cache_dir=tmp_path / "cache", tuned=True):
        yield tmp_path / "cache"


def test_a_search_gives_schedules_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.25)  # as many candidates on a slow machine as on a fast one
    monkeypatch.setattr(general_search, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    program, code = dense().program, target("llvm")
    (site,) = program.sites
    assert site.recipe is not None
    recipe = program.recipes[site.recipe]
    keys = [tuple(s.evaluate({"m": m}) for s in (*site.sizes, site.parallel)) for m in (1, 7, 40)]
    found = search_whole(recipe, [(key, 1.0) for key in keys[:2]], keys[2:], code, 2, 2.0)
    assert len(found) > 3 and found[-1].ratio is not None and found[-1].ratio <= 1
    assert all(each.schedule.startswith("contraction(") or each.ratio is None for each in found)
    assert search_whole(recipe, [((3, 4), 1.0)], [], code, 1, 1.0) == []


def test_a_search_forces_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.01)
    monkeypatch.setattr(general_search, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    g = ad.Builder("net")
    n, m = g.dim("n", 0, 999), g.dim("m", 0, 999)
    g.output("y", g.transpose(g.input("x", ad.float32, (n, m)), perm=(1, 0)))
    program, code = ad.compile(g, threads=1).program, target("llvm")
    (site,) = program.sites
    assert site.recipe is not None
    recipe = program.recipes[site.recipe]
    key = tuple(s.evaluate({"n": 40, "m": 3}) for s in (*site.sizes, site.parallel))
    found = search_whole(recipe, [(key, 1.0)], [], code, 1, 0.5)
    texts = [each.schedule for each in found if each.ratio is not None]
    assert any("version=squares" in text for text in texts)
    assert any("version=deinterleaved3" in text for text in texts)


def test_later_compiles_take_a_schedule_that_was_found(cache: Path) -> None:
    before = dense(threads=1)
    (site,), (recipe,) = before.program.sites, before.program.recipes
    book = ledger(name_of(target("llvm")))
    text = changed(site.schedule)
    book.keep_tuned(recipe.subject, 1, Verdict(text, 0.5))
    after = dense(threads=1)
    assert after.program.sites[0].schedule == text
    assert "tuned for recorded sizes" in " ".join(after.explain(details=True).split())
    assert after.program.recipes[0].subject == recipe.subject
    for count in (0, 1, 7, 8, 9, 97):
        numpy.testing.assert_array_equal(before(x=rows(count))["y"], after(x=rows(count))["y"])
    assert dense(threads=2).program.sites[0].schedule == site.schedule
    with settings.override(tuned=False):
        assert dense(threads=1).program.sites[0].schedule == site.schedule


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("text", ["", "contraction(rows=99)", "no schedule", "("])
def test_records_that_do_not_fit_are_left_aside(cache: Path, text: str) -> None:
    before = dense(threads=1)
    book = ledger(name_of(target("llvm")))
    book.keep_tuned(before.program.recipes[0].subject, 1, Verdict(text, 0.5))
    assert dense(threads=1).program.sites[0].schedule == before.program.sites[0].schedule


def test_what_is_found_is_there_for_another_folder(here: Here, cache: Path, tmp_path: Path) -> None:
    model, path = dense(threads=1), tmp_path / "sizes.jsonl"
    with model.record(path):
        model(x=rows(5))
    schedule = changed(model.program.sites[0].schedule)
    here.whole = (schedule, 0.5)
    found = model.tune(path, 60.0)
    assert [each.schedule for each in found.whole] == [
        schedule
    ] and found.saved >= 0.5 * found.seconds
    copied = tmp_path / "other" / LEDGER
    copied.parent.mkdir()
    shutil.copy(tmp_path / "v", copied)  # the fixture's ledger
    with settings.override(cache_dir=copied.parent):
        assert dense(threads=1).program.sites[0].schedule == schedule


def test_models_that_are_kept_on_disk_are_made_anew_with_what_was_found(cache: Path) -> None:
    def schedule() -> str:
        return load_or_compile(["dense"], lambda: dense(threads=1)).program.sites[0].schedule

    first, before = schedule(), dense(threads=1)
    assert schedule() == first
    book = ledger(name_of(target("llvm")))
    book.keep_tuned(before.program.recipes[0].subject, 1, Verdict(changed(first), 0.5))
    assert schedule() == schedule() == changed(first) != first


def test_records_of_another_file_are_merged(tmp_path: Path) -> None:
    one, two = (Ledger(tmp_path / name, "t") for name in ("one", "two"))
    one.keep_tuned("a", 2, Verdict("x", 0.5))
    one.keep_tuned("b", 2, Verdict("x", 0.5))
    two.keep_tuned("a", 2, Verdict("y", 0.4))
    two.keep_tuned("b", 2, Verdict("y", 0.9))
    two.keep("r", (1, 2), Verdict("z", 0.7))
    assert one.merge(tmp_path / "two") == 3
    assert {k: v.schedule for k, v in one.tuned_schedules(2).items()} == {"a": "y", "b": "x"}
    assert one.find("r", (1, 2)) == Verdict("z", 0.7)
    (tmp_path / "three").write_bytes((tmp_path / "two").read_bytes()[:700])
    for name in ("three", "none"):
        with pytest.raises(ad.OptionError):
            one.merge(tmp_path / name)


def test_a_few_sizes_stand_for_all() -> None:
    wanted = [RecordedLaunch(0, (n,), 1.0, float(n)) for n in range(100)]
    found = samples(wanted)
    assert len(found) == SAMPLES and sum(weight for _, weight in found) == pytest.approx(100)
    assert [sizes[0] for sizes, _ in found] == sorted(sizes[0] for sizes, _ in found)
    assert samples([RecordedLaunch(0, (3,), 0.0, 1.0)]) == (((3,), 0.0),)
