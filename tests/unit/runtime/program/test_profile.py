"""Promise: a profile has every launch with its time and work, and calls are as they were."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.text import time_text
from anydim.compiler.targets.machine_peak import fastest
from anydim.runtime.program.profile import limits
from anydim.runtime.program.profile.limits import Limits

KEPT = limits.read_limits


@pytest.fixture(autouse=True)
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured in a test that does not ask for it."""
    known = "anydim.runtime.program.profile.limits.read_limits"
    monkeypatch.setattr(known, lambda threads: Limits(threads, 1e18, ((1, 1e18),)))


def encoder(threads: int = 1) -> ad.Model:
    graph = ad.Builder("encoder")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 4096), 32))
    hidden = graph.matmul(x, graph.constant(numpy.ones((32, 64), numpy.float32)))
    graph.output("y", graph.softmax(graph.softmax(hidden, axis=-1), axis=0))
    return ad.compile(graph, threads=threads)


def looping() -> ad.Model:
    """A loop of n iterations with a matrix product in each, and a branch that is not taken."""
    graph = ad.Builder("looping")
    n = graph.dim("n", 0, 9)
    x = graph.input("x", ad.float32, (n, 16))
    up = graph.input("up", ad.boolean, ())
    square = graph.constant(numpy.eye(16, dtype=numpy.float32))
    end = graph.loop(lambda b, t, state: b.matmul(state, square), x, trips=n)
    made = graph.branch(up, lambda b: b.exp(end), lambda b: b.softmax(end, axis=-1))
    graph.output("y", made)
    return ad.compile(graph)


def test_all_launches_of_a_call() -> None:
    model = encoder()
    profile = model.profile(n=100, repeat=3)
    assert [launch.kernel for launch in profile.launches] == [
        site.kernel for site in model.program.sites
    ]
    assert all(launch.runs == 1 and launch.seconds > 0 for launch in profile.launches)
    planned = model.plan(n=100)
    assert sum(launch.flops for launch in profile.launches) == planned.flops
    assert sum(launch.moved for launch in profile.launches) == sum(
        launch.moved for launch in planned.launches
    )
    assert (profile.calls, profile.sizes, profile.name) == (3, {"n": 100}, "encoder")
    spent = [launch.seconds for launch in profile.costliest()]
    assert spent == sorted(spent, reverse=True) and len(profile.costliest(2)) == 2


@pytest.mark.parametrize("size", [0, 1, 7])
def test_at_every_size(size: int) -> None:
    profile = encoder().profile(n=size, repeat=2)
    text = str(profile)
    assert f"encoder at n = {size}, 1 thread" in text
    assert all(launch.runs == 1 or size == 0 for launch in profile.launches)


def test_on_inputs_by_name_and_in_order() -> None:
    model, x = encoder(), numpy.ones((5, 32), numpy.float32)
    for inputs in ({"x": x}, x):
        assert model.profile(inputs, repeat=1).sizes == {"n": 5}


def test_threads_do_parts_of_one_launch() -> None:
    profile = encoder(threads=2).profile(n=4096, repeat=2)
    parts = [len(launch.parts) for launch in profile.last.launches]
    assert len(parts) == len(profile.launches) and max(parts) == 2
    assert {event["tid"] for event in profile.trace()["traceEvents"]} <= {0, 1}


@pytest.mark.parametrize("size", [0, 1, 5])
def test_loops_and_branches_count_what_ran(size: int) -> None:
    model = looping()
    inputs = {"x": numpy.ones((size, 16), numpy.float32), "up": numpy.array(True)}
    profile = model.profile(inputs, repeat=2)
    runs = {launch.source.split(": ")[-1]: launch.runs for launch in profile.launches}
    assert runs["matmul"] == size * bool(size)
    assert runs["softmax"] == 0
    assert all(launch.runs or not launch.flops for launch in profile.launches)


def test_loaded_models(tmp_path: Path) -> None:
    encoder().save(tmp_path / "encoder.anydim")
    profile = ad.load(tmp_path / "encoder.anydim").profile(n=9, repeat=1)
    assert all(launch.runs == 1 for launch in profile.launches)
    assert {launch.source for launch in profile.launches} >= {"matmul"}


def test_calls_go_on_as_ever() -> None:
    model, x = encoder(), numpy.ones((64, 32), numpy.float32)
    before = {word: table.tolist() for word, table in model.executable.entries.items()}
    expected, wrong = model(x)["y"].copy(), []

    def calls() -> None:
        for _ in range(200):
            if not numpy.array_equal(model(x)["y"], expected):
                wrong.append(1)

    thread = threading.Thread(target=calls)
    thread.start()
    model.profile(n=64, repeat=20)
    thread.join()
    assert not wrong
    assert {w: table.tolist() for w, table in model.executable.entries.items()} == before


def test_bodies_that_a_strategy_chose_stay_with_calls() -> None:
    graph = ad.Builder("chosen")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 64), 32))
    graph.output("y", graph.matmul(x, graph.constant(numpy.ones((32, 64), numpy.float32))))
    model = ad.compile(graph, strategy="exact")
    model.prepare(n=8)
    profile = model.profile(n=8, repeat=1)
    assert profile.chosen == model.executable.chosen
    assert ("a strategy chooses" in str(profile)) == profile.chosen
    assert all(launch.runs == 1 for launch in profile.launches)


def test_as_a_document_and_a_trace(tmp_path: Path) -> None:
    profile = encoder().profile(n=33, repeat=2)
    document = json.loads(profile.json())
    assert document["sizes"] == {"n": 33} and document["calls"] == 2
    assert len(document["launches"]) == len(profile.launches)
    assert document["launches"][0]["of_limit"] > 0
    profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    (call,) = [event for event in spans if event["cat"] == "call"]
    for span in spans:
        assert span["ts"] >= 0 and span["dur"] >= 0
        assert span["ts"] + span["dur"] <= call["dur"] + 1e-6
    assert [span["args"]["kernel"] for span in spans if span is not call] == [
        launch.kernel for launch in profile.launches
    ]
    with pytest.raises(ad.OptionError, match="cannot be written"):
        profile.save_trace(tmp_path / "missing" / "trace.json")


def test_wrong_arguments() -> None:
    model, x = encoder(), numpy.ones((5, 32), numpy.float32)
    with pytest.raises(ad.OptionError, match="inputs or sizes"):
        model.profile(x, n=5)
    with pytest.raises(ad.OptionError, match="repeat is 0"):
        model.profile(x, repeat=0)
    with pytest.raises(ad.DimError, match="n"):
        model.profile(n=5000)
    with pytest.raises(ad.DimError):
        model.profile()
    with pytest.raises(ad.InputError):
        model.profile({"y": x})
    with pytest.raises(ad.InputError):
        model.profile(numpy.ones((5, 31), numpy.float32))


def test_limits_are_kept_and_measured_again_when_they_are_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [limits_of(10.0, 5.0), limits_of(8.0, 9.0), limits_of(9.0, 20.0), limits_of(1e18, 1e18)]
    monkeypatch.setattr("anydim.runtime.program.profile.limits.read_limits", KEPT)
    monkeypatch.setattr(
        "anydim.compiler.targets.machine_peak.fastest", lambda threads: found.pop(0)
    )
    model = encoder()
    with settings.override(cache_dir=tmp_path, use_cache=True):
        assert limits.read_limits(1) is None
        assert model._limits(1, [(9.0, 0.0, 1.0)]) == limits_of(10.0, 5.0) == limits.read_limits(1)
        assert model._limits(1, [(9.0, 5.0, 1.0)]) == limits_of(10.0, 5.0)
        assert model._limits(1, [(11.0, 0.0, 1.0)]) == limits_of(10.0, 9.0) == limits.read_limits(1)
        assert (
            model._limits(1, [(1.0, 19.0, 1.0)]) == limits_of(10.0, 20.0) == limits.read_limits(1)
        )
        assert model.profile(n=5, repeat=9).limits == limits_of(1e18, 1e18)
        assert limits.read_limits(2) is None


def limits_of(flops: float, bytes: float) -> Limits:
    return Limits(1, flops, ((1, 2 * bytes), (1 << 20, bytes)))


def test_bytes_are_compared_with_what_holds_them() -> None:
    known = Limits(1, 1e30, ((1 << 14, 100.0), (1 << 18, 50.0), (1 << 22, 60.0), (1 << 27, 10.0)))
    rates = {0: 100.0, 1 << 14: 100.0, 1 << 17: 100.0, 1 << 18: 60.0, 1 << 23: 60.0, 1 << 30: 10.0}
    assert {size: known.rate(size) for size in rates} == rates
    assert known.bytes == 10.0
    assert known.seconds(0, 1 << 10) == (1 << 10) / 100.0


def test_no_launch_is_nearer_to_a_limit_than_all_of_it() -> None:
    """Work that is counted and not done, or a busy machine, give no share above 1."""
    model = encoder()
    profile = model.profile(n=300, repeat=5)
    slow = replace(profile, limits=Limits(profile.threads, 1.0, ((1, 1.0),)))
    assert {slow.share(launch) for launch in slow.launches} == {1.0}
    assert "100 %" in str(slow)


def test_the_rest_is_that_of_calls_with_a_clock() -> None:
    """A call that waited for the machine does not make the host code slower."""
    profile = encoder().profile(n=30, repeat=9)
    late = replace(profile, seconds=5.0, spread=(4.0, 6.0))
    rest = next(line for line in str(late).splitlines() if "the rest" in line)
    assert profile.beside < 0.05 and rest in str(profile)
    parts = replace(profile, beside=profile.in_launches)
    assert f"with clocks {time_text(2 * profile.in_launches)}" in str(parts).replace("  ", " ")
    assert "calls took from 4 s to 6 s: the machine is busy" in str(late)


@pytest.mark.slow
def test_what_the_machine_can_do() -> None:
    found = fastest(1)
    assert found.flops > 1e8 and found.bytes > 1e7 and found.threads == 1
    assert found.rate(1 << 14) >= found.bytes and len(found.reads) > 3
