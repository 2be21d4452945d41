"""Promise: what is on the host of a model with devices has other bodies, and profiles know both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.sizes import Size
from tests.unit.runtime.devices.test_placement import given, net

SIZES = (0, 1, 5, 5, 7, 16, 17, 64, 1)
HALF = {"softmax": "accel", "*": "cpu"}


def placed(placement: object = HALF, **options: object) -> ad.Model:
    return ad.compile(net(), devices={"accel": "cpu:1"}, placement=placement, **options)


def test_launches_on_the_host_have_bodies_of_their_own() -> None:
    alone, model = ad.compile(net(), strategy="generic"), placed(strategy="exact")
    for rows in SIZES:
        assert (model(x=given(rows))["y"] == alone(x=given(rows))["y"]).all()
    host = {site.kernel for site in model.program.host_sites}
    assert {variant.kernel for variant in model.variants()} <= host
    bodies = [launch.body.split()[0] for launch in model.plan(n=5).launches]
    assert bodies == ["exact", "exact", "generic"]


def test_bodies_travel_in_files_and_sizes_are_recorded(tmp_path: Path) -> None:
    alone, model = ad.compile(net(), strategy="generic"), placed(strategy="exact")
    with model.record(tmp_path / "sizes.jsonl", sites=True):
        model(x=given(5))
    rows = [json.loads(line) for line in (tmp_path / "sizes.jsonl").read_text("utf-8").splitlines()]
    assert sum("site" in row for row in rows) == 1  # one kernel on the host
    model.save(tmp_path / "m.anydim")
    loaded = ad.load(tmp_path / "m.anydim", devices={"accel": "cpu:2"})
    assert loaded.variants()
    for rows in SIZES:
        assert (loaded(x=given(rows))["y"] == alone(x=given(rows))["y"]).all()
    bodies = [launch.body.split()[0] for launch in loaded.plan(n=5).launches]
    assert bodies == ["exact", "exact", "generic"]


def test_what_is_on_a_device_has_one_body() -> None:
    assert str(placed({"*": "accel"}).strategy) == "generic()"
    with settings.override(strategy="exact"):
        assert str(placed().strategy).startswith("exact")
    with pytest.raises(OptionError, match="all of net is on devices"):
        placed({"*": "accel"}, strategy="exact")
    with pytest.raises(OptionError, match="'softmax' is on a device"):
        placed(strategies={"softmax": "exact"})


def test_a_profile_has_the_launches_of_devices() -> None:
    found = placed(strategy="generic").profile(n=33, repeat=3)
    assert [each.device for each in found.launches] == ["", "", "accel"]
    assert all(each.runs == 1 and each.seconds > 0 for each in found.launches)
    assert (found.copied.copies, found.copied.bytes) == (2, 2 * 33 * 16 * 4)
    assert found.share(found.launches[2]) is None
    assert "accel: cpu:1" in str(found) and "in 2 copies" in str(found)
    document = json.loads(found.json())
    assert [each["device"] for each in document["launches"]] == ["", "", "accel"]
    assert document["copies"]["bytes"] == 2 * 33 * 16 * 4


def test_a_profile_of_iterations_on_a_device() -> None:
    g = ad.Builder("looped")
    x, m = g.input("x", ad.float32, (g.dim("n", 1, 64),)), g.dim("m", 0, 9)
    times = g.input("times", ad.float32, (m,))
    with g.on("accel"):
        end = g.loop(lambda b, t, state: b.tanh(state), x, trips=Size.symbol("m"))
    g.output("y", end)
    g.output("z", g.neg(times))
    model = ad.compile(g, devices={"accel": "cpu:1"})
    inputs = {"x": numpy.ones(5, numpy.float32), "times": numpy.ones(4, numpy.float32)}
    found = model.profile(inputs, repeat=2)
    assert sum(each.runs for each in found.launches if each.device) >= 4
