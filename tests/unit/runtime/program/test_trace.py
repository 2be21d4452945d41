"""Promise: a trace has every launch, copy and wait of a call, in Chrome's format."""

from __future__ import annotations

import gc
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DeviceError
from anydim.cli.report.trace_page import page
from anydim.compiler.targets.evaluated import EvaluatedDevice
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.device import Device, Launch
from anydim.runtime.program.profile.trace import CALL, COPY, KINDS, LAUNCH, MEMORY, WAIT, Trace
from tests.unit.runtime.devices.queued import QueuedDevice

W = numpy.random.default_rng(0).standard_normal((8, 8)).astype(numpy.float32)
DEVICES = {"a": "cpu:0", "b": "cpu:1"}


def on_host(threads: int = 1) -> ad.Model:
    g = ad.Builder("host")
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096), 8))
    g.output("y", g.softmax(g.softmax(g.matmul(x, W), axis=-1), axis=0))
    return ad.compile(g, threads=threads)


def placed(devices: Any = None) -> ad.Model:
    """Host, then both devices, then the host; an index is checked on the second one."""
    g = ad.Builder("placed <&>")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 8))
    with g.on("a"):
        top = g.matmul(x, W)
    left = g.softmax(top)
    with g.on("b"):
        right = g.tanh(top) * 0.5
    g.output("y", g.matmul(left, W) + right)
    return ad.compile(g, devices=devices or DEVICES)


def looping(device: str) -> ad.Model:
    """n iterations on a device, then a branch that is not taken."""
    g = ad.Builder("looping")
    n = g.dim("n", 0, 9)
    x, up = g.input("x", ad.float32, (n, 8)), g.input("up", ad.boolean, ())

    def body(b: ad.Builder, t: Any, state: Any) -> Any:
        with b.on(device):
            return b.tanh(b.matmul(state, W))

    end = g.loop(body, x, trips=n)
    g.output("y", g.branch(up, lambda b: b.exp(end), lambda b: b.softmax(end, axis=-1)))
    return ad.compile(g, devices=DEVICES if device else None)


def check(document: dict[str, Any]) -> None:
    """What the description of the format asks of complete events and of metadata."""
    document = json.loads(json.dumps(document, allow_nan=False))
    assert document["displayTimeUnit"] in ("ms", "ns")
    named: dict[str, set[tuple[int, int]]] = {"process_name": set(), "thread_name": set()}
    for event in document["traceEvents"]:
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["name"], str) and event["name"] and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in (*named, "process_sort_index", "thread_sort_index")
            if event["name"] in named:
                assert isinstance(event["args"]["name"], str)
                named[event["name"]].add((event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X" and event["cat"] in KINDS
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert (event["pid"], event["tid"]) in named["thread_name"]
        assert (event["pid"], 0) in named["process_name"]


def launched(trace: Trace, device: str | None = None) -> list[str]:
    spans = trace.of(LAUNCH, device)
    return [span.about["kernel"] for span in spans if span.about.get("part", 1) == 1]


def sites(model: ad.Model, device: str) -> list[str]:
    segments = [each for each in model.program.segments if each.device == device]
    return [site.kernel for segment in segments for site in segment.sites]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_launch_of_the_plan(threads: int) -> None:
    model = on_host(threads)
    trace, planned = model.trace(n=4096, calls=2), model.plan(n=4096)
    check(trace.document())
    assert launched(trace) == 2 * [launch.kernel for launch in planned.launches]
    assert trace.launches() == 2 * len(planned.launches)
    spans = [span for span in trace.of(LAUNCH) if span.about.get("part", 1) == 1]
    for span, launch in zip(spans, planned.launches):
        assert (span.about["flops"], span.about["bytes"]) == (launch.flops, launch.moved)
        assert span.about["schedule"] == launch.schedule
    first, second = trace.of(CALL)
    assert first.begin == 0 and first.end <= second.begin
    assert all(span.end <= second.end for span in trace.spans)
    assert trace.lanes[0] == ("", "caller") and len(trace.lanes) <= threads
    assert str(trace).startswith(f"host at n = 4096, {threads} thread")


@pytest.mark.parametrize("n", [1, 7, 8, 9, 31, 64])
def test_sizes_are_those_that_kernels_were_called_with(n: int) -> None:
    model = placed()
    trace = model.trace(n=n)
    for device in ("", "a", "b"):
        spans = iter(trace.of(LAUNCH, device))
        for segment in model.program.segments:
            for site in segment.sites if segment.device == device else ():
                expected = {
                    str(size): size.evaluate({"n": n})
                    for size in site.sizes if size.constant is None
                }  # fmt: skip
                assert next(spans).about.get("sizes", {}) == expected
        assert next(spans, None) is None


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("n", [0, 1, 7, 64])
@pytest.mark.parametrize("make", [
    lambda: DEVICES, lambda: {"a": "cpu:0", "b": "cpu:0"}, lambda: {"a": "null", "b": "null:1"},
    lambda: {"a": EvaluatedDevice(), "b": QueuedDevice()},
], ids=["two", "one", "null", "mixed"])  # fmt: skip
def test_copies_and_waits_are_those_that_devices_count(make: Any, n: int) -> None:
    model = placed(make())
    opened = {id(device): device for device in model.devices.values()}
    x = numpy.ones((n, 8), numpy.float32)
    expected = model(x)["y"]
    trace = model.trace(inputs=x)
    before = {key: asdict(device.counters) for key, device in opened.items()}
    assert numpy.array_equal(model(x)["y"], expected)
    check(trace.document())
    for key, device in opened.items():
        names = [name for name, each in model.devices.items() if each is device]
        assert all(trace.devices[name] == device.name for name in names)
        now = asdict(device.counters)
        grown = {name: now[name] - before[key][name] for name in now}
        copies = [span for name in names for span in trace.of(COPY, name)]
        for verb, counter in (("copy in", "in"), ("copy out", "out"), ("copy within", "within")):
            found = [span.about["bytes"] for span in copies if span.name == verb]
            assert len(found) == grown[f"copies_{counter}"]
            assert sum(found) == grown[f"bytes_{counter}"]
        assert sum(len(trace.of(WAIT, name)) for name in names) == grown["waits"]
        assert sum(trace.launches(name) for name in names) == grown["launches"]
    for name in model.devices:
        assert launched(trace, name) == sites(model, name)
    assert n == 0 or launched(trace, "") == sites(model, "")


@pytest.mark.parametrize("device", ["", "a"])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_loops_and_branches_have_what_ran(device: str, n: int) -> None:
    model = looping(device)
    given = {"x": numpy.ones((n, 8), numpy.float32), "up": numpy.array(True)}
    trace = model.trace(inputs=given)
    check(trace.document())
    nodes = [span.about["nodes"] for span in trace.of(LAUNCH)]
    assert sum("matmul" in each for each in nodes) == n
    assert not any("softmax" in each for each in nodes)


def test_what_is_waited_for_has_the_time_of_the_device() -> None:
    queued = QueuedDevice("queued", 0.003)
    trace = placed({"a": queued, "b": queued}).trace(n=5, waited=True)
    begun = [*trace.of(LAUNCH, "a"), *trace.of(COPY, "a"), *trace.of(LAUNCH, "b")]
    assert begun and all(span.seconds >= queued.delay for span in begun)
    assert "has accepted" not in str(trace) and trace.waited
    assert not queued.failures


def test_devices_and_calls_are_as_they_were() -> None:
    model, x = placed(), numpy.ones((9, 8), numpy.float32)
    expected = model(x)["y"].copy()
    for _ in range(3):
        model.trace(n=9)
    gc.collect()
    before = {name: each.counters.bytes for name, each in model.devices.items()}
    for _ in range(10):
        model.trace(n=64)
    gc.collect()
    assert {name: each.counters.bytes for name, each in model.devices.items()} == before
    assert numpy.array_equal(model(x)["y"], expected)
    assert model.trace(n=64).of(MEMORY) == ()  # arenas stay from the call before


def test_saved_models(tmp_path: Path) -> None:
    placed().save(tmp_path / "placed.anydim")
    model = ad.load(tmp_path / "placed.anydim", devices=DEVICES)
    trace = model.trace(tmp_path / "trace.json", n=9)
    written = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    assert written == json.loads(trace.json())
    assert launched(trace) and {span.device for span in trace.spans} == {"", "a", "b"}


class Failing(CpuDevice):
    """Its launches fail while `broken`."""

    broken = False

    def _launch(self, launch: Launch) -> None:
        if self.broken:
            raise RuntimeError("it burns")
        super()._launch(launch)


def test_a_device_that_fails_says_so() -> None:
    device: Device = Failing("failing")
    model, x = placed({"a": device, "b": "cpu"}), numpy.ones((3, 8), numpy.float32)
    expected = model(x)["y"]
    device.broken = True  # type: ignore[attr-defined]
    with pytest.raises(DeviceError, match=r"launch failed.*it burns"):
        model.trace(n=3)
    device.broken = False  # type: ignore[attr-defined]
    assert numpy.array_equal(model(x)["y"], expected)
    assert model.trace(n=3).launches("a") == 1


def test_a_page_is_complete_in_itself() -> None:
    trace = placed().trace(n=9, calls=2)
    text = page(trace)
    assert "placed &lt;&amp;&gt; at n = 9" in text and "placed <&>" not in text
    assert "<script" not in text and "href" not in text and "src=" not in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert text.count('class="span"') == len(trace.spans)
    for lane in ("host: calls", "host: caller", "a: work", "a: copies", "a: waits", "b: work"):
        assert f"<div>{lane}</div>" in text


@pytest.mark.parametrize("wrong, problem", [
    ({"calls": 0}, "calls is 0"), ({"seed": -1}, "seed is -1"), ({"waited": 3}, "waited is 3"),
    ({"path": 3}, "path is 3"), ({"path": "/nowhere/trace.json"}, "cannot be written"),
    ({"inputs": numpy.ones((9, 8), numpy.float32)}, "inputs or sizes"),
])  # fmt: skip
def test_wrong_options(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(ad.OptionError, match=problem):
        on_host().trace(**{"n": 9, **wrong})


def test_wrong_sizes_and_inputs() -> None:
    model = on_host()
    for sizes in ({}, {"n": 5000}, {"m": 1}):
        with pytest.raises(ad.DimError):
            model.trace(None, None, **sizes)  # type: ignore[arg-type]
    for inputs in ({"y": W}, numpy.ones((5, 7), numpy.float32)):
        with pytest.raises(ad.InputError):
            model.trace(inputs=inputs)
