"""Promise: recordings have launches too; what pays for recorded sizes is made ahead of time."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.runtime.program.recording import read_recorded
from anydim.runtime.program.site_recording import RecordedSite, read_sites
from tests.unit.compiler.variants.models import Here, depthwise, here, image

__all__ = ["here"]


def found_places() -> ad.Model:
    """Exponentials of what is kept: data decides how many."""
    g = ad.Builder()
    n = g.dim("n", 0, 64)
    x, keep = g.input("x", ad.float32, (n,)), g.input("keep", ad.boolean, (n,))
    g.output("y", g.exp(g.compress(x, keep, axis=0)))
    return ad.compile(g)


def test_launches_are_recorded_beside_calls(tmp_path: Path) -> None:
    model, path = depthwise("generic"), tmp_path / "sizes.jsonl"
    with model.record(path, sites=True):
        for height in (3, 4, 3, 3):
            model(x=image(height))
    calls, sites = read_recorded([path]), read_sites([path, path])
    assert {row.dims["h"]: row.count for row in calls} == {3: 3, 4: 1}
    kernels = {site.kernel for site in model.program.sites}
    assert {row.kernel for row in sites} == kernels and len(sites) == 2 * len(kernels)
    assert sorted(row.count for row in sites) == [2, 2, 6, 6]
    assert all(row.names[-1] == "parallel" and row.body == "generic" for row in sites)
    seconds = sum(row.seconds for row in calls)
    assert sum(row.seconds for row in sites) == pytest.approx(2 * seconds, rel=1e-3)
    assert not model.executable.chosen


def test_sizes_that_data_decides_are_counted_and_tuned_for(here: Here, tmp_path: Path) -> None:
    model, path = found_places(), tmp_path / "sizes.jsonl"
    with model.record(path, sites=True):
        for count in (3, 3, 7):
            given = {"x": numpy.ones(9, numpy.float32), "keep": numpy.arange(9) < count}
            assert model(**given)["y"].shape == (count,)
    assert not model.executable.chosen
    rows = [row for row in read_sites([path]) if row.seconds == 0]
    counts = {row.sizes[-1]: row.count for row in rows}
    assert counts[3] == 2 and counts[7] == 1
    here.ratio = 0.5
    model.tune(path, 60.0)
    asked = {order.sizes for order in here.orders if not order.samples}
    assert {row.sizes for row in rows} <= asked


def test_lines_of_launches_survive_a_cut_at_any_byte(tmp_path: Path) -> None:
    row = RecordedSite("m", "k", "s", ("n", "parallel"), (3, 1), 2, 0.5, "generic")
    text = f"{row.line()}\n{RecordedSite('m', 'k', 's', ('n',), (4,), 1, 0.1, 'b').line()}\n"
    path = tmp_path / "sizes.jsonl"
    for end in range(len(text)):
        path.write_text(text[:end], "utf-8")
        found = read_sites([path])
        assert len(found) <= 2 and all(each in (row, *found[1:]) for each in found[:1])
    wrong = ['{"site": 1}', '{"site": "k", "names": ["n"], "sizes": []}', "[]", "null", text]
    path.write_text("\n".join(wrong), "utf-8")
    assert read_sites([path, path])[0].count == 4


def test_what_pays_is_made_by_compile(here: Here, tmp_path: Path) -> None:
    first, path = depthwise("generic"), tmp_path / "sizes.jsonl"
    with first.record(path):
        for height in (9, 9, 4):
            first(x=image(height))
    here.ratio, told = 0.5, []
    source = first._made
    assert source is not None
    model = source()
    count = model.prepare_recorded(path, progress=lambda *given: told.append(given))
    assert count == len(model.variants()) == 4 and told[-1][:2] == (4, 4)
    assert told[-1][2] == pytest.approx(0.5)
    numpy.testing.assert_array_equal(model(x=image(9))["y"], first(x=image(9))["y"])
    assert sum(variant.hits for variant in model.variants()) == 2
    for _ in range(40):  # nothing else is made
        model(x=image(5))
    assert len(model.variants()) == 4


@pytest.mark.parametrize("limits", [{"seconds": 0.0}, {"mebibytes": 0.0}])
def test_budgets_are_kept(here: Here, tmp_path: Path, limits: dict[str, float]) -> None:
    model, path = depthwise("generic"), tmp_path / "sizes.jsonl"
    with model.record(path):
        model(x=image(9))
    here.ratio = 0.5
    assert model.prepare_recorded(path, **limits) == 0 == len(here.orders)
    with pytest.raises(ad.OptionError, match=next(iter(limits))):
        model.prepare_recorded(path, **dict.fromkeys(limits, -1.0))
