"""Promise: devices that have a clock tell when they did what a trace shows; copies have values."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.device import Device
from anydim.runtime.devices.opencl.device import OpenClDevice
from anydim.runtime.devices.opencl.opened import open_opencl
from anydim.runtime.devices.opencl.watching import Watched
from anydim.runtime.program.profile.trace import CALL, COPY, LAUNCH
from tests.kernel_targets import needs_device, needs_two_devices
from tests.unit.runtime.devices.test_placed_programs import arrays, diamond, graph_of
from tests.unit.runtime.program.test_trace import check, looping, placed

OPENERS = [OpenClDevice, open_opencl]


@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_copies_say_which_value_they_are_of(n: int) -> None:
    trace = placed().trace(inputs=numpy.ones((n, 8), numpy.float32))
    found = [(s.device, s.about["value"], s.about["makes"]) for s in trace.of(COPY)]
    assert [value for _, value, _ in found[:2]] == ["x", "matmul_2"]
    assert all(value in made for _, value, made in found)
    assert len({made for _, _, made in found if "@" in made}) >= 2


DEVICES = [{"a": "cpu:0", "b": "cpu:1"}, {"a": "null:0", "b": "null:1"},
           pytest.param({"a": "opencl:0", "b": "opencl:1"}, marks=needs_two_devices)]  # fmt: skip


@pytest.mark.parametrize("devices", DEVICES, ids=["cpu", "null", "opencl"])
@pytest.mark.parametrize("n", [0, 1, 61])
def test_copies_between_devices(devices: dict[str, str], n: int) -> None:
    model = ad.compile(graph_of(diamond, "a", "b", "a", "b"), devices=devices)
    trace = model.trace(inputs=arrays(n))
    check(trace.document())
    found = [(s.name, s.about["direction"]) for s in trace.of(COPY) if "value" in s.about]
    assert all(span.about["bytes"] == n * 16 for span in trace.of(COPY))
    direct = [way for name, way in found if name == "copy from"]
    if devices["a"].startswith("null") and n:  # what goes by way of the host is two copies
        assert not direct and ("copy out", "a to host") in found
    else:
        assert direct.count("a to b") == 2  # the top, and a side


def test_a_copy_in_a_branch_has_its_own_value() -> None:
    given = {"x": numpy.ones((3, 8), numpy.float32), "up": numpy.array(True)}
    trace = looping("a").trace(inputs=given)
    assert [s.about["direction"] for s in trace.of(COPY, "a")] == ["host to a", "a to host"]
    assert all(s.about["value"] for s in trace.of(COPY, "a"))


def pointwise(devices: Any) -> ad.Model:
    """The host, then two devices, without products: OpenCL compiles those for seconds."""
    g = ad.Builder("pointwise")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 8))
    with g.on("a"):
        top = g.exp(x * 0.5)
    left = g.softmax(top)
    with g.on("b"):
        right = g.tanh(top) * 0.5
    g.output("y", left + right)
    return ad.compile(g, devices=devices)


@needs_device
@pytest.mark.parametrize("make, calls", (
    (open_opencl, 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        (open_opencl, 1), (OpenClDevice, 1), (OpenClDevice, 3),
    )),
))  # fmt: skip
def test_times_are_the_devices_own(make: Callable[[], Device], calls: int) -> None:
    device = make()
    model = pointwise({"a": device, "b": device})
    x = numpy.ones((9, 8), numpy.float32)
    expected = model(x)["y"]
    trace = model.trace(inputs=x, calls=calls)
    check(trace.document())
    assert set(trace.told) == {"a", "b"} and "own clock" in str(trace)
    assert "has accepted" not in str(trace)
    ends = {span.about.get("call", 1): span.end for span in trace.of(CALL)}
    launches = [*trace.of(LAUNCH, "a"), *trace.of(LAUNCH, "b")]
    assert launches and all(span.about["asking_us"] > 0 for span in launches)
    for name in "ab":
        work = trace.of(LAUNCH, name)
        assert all(one.end <= other.begin for one, other in pairwise(work))
    assert all(0 <= span.begin <= span.end <= max(ends.values()) for span in trace.spans)
    assert numpy.array_equal(model(x)["y"], expected)
    assert device.command_number() == -1 and device.unwatch() == []


@needs_device
@pytest.mark.parametrize("make", OPENERS, ids=["apart", "usual"])
def test_other_calls_go_on_while_one_is_traced(make: Callable[[], Device]) -> None:
    device = make()
    model = pointwise({"a": device, "b": device})
    x = numpy.random.default_rng(0).standard_normal((33, 8)).astype(numpy.float32)
    expected = model(x)["y"]

    def work(seed: int) -> None:
        for _ in range(15 if seed < 2 else 400):
            if seed < 2:
                check(model.trace(inputs=x).document())
            else:
                numpy.testing.assert_array_equal(model(x)["y"], expected)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


class _Events:
    """A library that knows when commands were done, by a clock of its own."""

    def __init__(self, rows: dict[int, tuple[int, int, int]]) -> None:
        self.rows, self.held = rows, 0

    def do(self, name: str, event: int) -> None:
        self.held += 1 if name == "clRetainEvent" else -1

    def number(self, name: str, event: int, what: int) -> int:
        return self.rows[event][{0x1280: 0, 0x1282: 1, 0x1283: 2}[what]]


def test_the_clock_of_a_device_becomes_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that was told of soonest says how far apart they are."""
    library: Any = _Events({1: (1000, 1100, 1200), 2: (2000, 2000, 2500)})
    after = iter((51_400, 52_100))
    monkeypatch.setattr(
        "anydim.runtime.devices.opencl.watching.perf_counter_ns", lambda: next(after)
    )
    watched = Watched(library)
    watched.add(1)
    watched.add(2)
    assert watched.times() == [(51_200, 51_300), (52_100, 52_600)]
    assert library.held == 0 and Watched(library).times() == []


def test_a_device_without_a_clock_tells_nothing() -> None:
    device = CpuDevice()
    assert not device.watch() and device.command_number() == -1 and device.unwatch() == []
    trace = placed({"a": device, "b": device}).trace(n=5)
    assert trace.told == () and "has accepted" in str(trace)
