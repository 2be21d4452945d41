"""Promise: a device in the memory of the host works on inputs and results of a call where they are.

What a call gives is the caller's own, as ever, at every size; nothing is written but results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import anydim as ad
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.device import Device
from anydim.runtime.devices.opencl.opened import open_opencl
from tests.kernel_targets import needs_device
from tests.unit.runtime.devices.test_placed_programs import mixed

SIZES = (0, 1, 15, 16, 17, 61, 4096, 20_011)  # of the last ones, results are handed over


class OnHost(CpuDevice):
    """The processor, as a device in the memory of the host, by way of Python."""

    on_host = True


OPENERS = [OnHost, pytest.param(open_opencl, marks=needs_device)]


@pytest.fixture(params=OPENERS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    made = request.param()
    if not made.on_host:
        pytest.skip("the OpenCL device has memory of its own")
    yield made
    made.synchronise()


def softened(g: ad.Builder, x: ad.Builder, on: str) -> None:
    with g.on(on):
        g.output("y", g.softmax(x))


def several(g: ad.Builder, x: ad.Builder, on: str) -> None:
    """Results that the device reads again, that the host reads, and that are inputs."""
    with g.on(on):
        top = mixed(g, x)
        low = g.softmax(top)
    g.output("top", top)
    g.output("again", top)
    g.output("host", g.exp(low))
    with g.on(on):
        g.output("low", g.tanh(top) + low)
    g.output("x2", g.identity(x))


def unread(g: ad.Builder, x: ad.Builder, on: str) -> None:
    """What the device does last is of no result that the host waits for."""
    with g.on(on):
        g.output("early", g.exp(x))
    g.output("sum", g.reduce_sum(x, axes=(0,)))
    with g.on(on):
        g.output("late", g.softmax(mixed(g, x)))


def looped(g: ad.Builder, x: ad.Builder, on: str) -> None:
    def body(b: ad.Builder, t: object, state: ad.Builder) -> ad.Builder:
        with b.on(on):
            b.stack(b.tanh(state))
            return b.tanh(mixed(b, state)) + x

    with g.on(on):
        end, all = g.loop(body, x, trips=3)
    g.output("end", end)
    g.output("all", all)


def model_of(make: Callable[..., None], device: Device | None) -> ad.Model:
    g = ad.Builder("lent")
    x = g.input("x", ad.float32, (g.dim("n", 0, 1 << 20), 4))
    make(g, x, "a" if device else "")
    return ad.compile(g, devices={"a": device} if device else None)


def given(n: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((n, seed)).standard_normal((n, 4)).astype(numpy.float32)


def same(came: dict[str, numpy.ndarray], expected: dict[str, numpy.ndarray]) -> None:
    assert came.keys() == expected.keys()
    for name, value in expected.items():
        # what is not fused adds four numbers in another order
        numpy.testing.assert_allclose(came[name], value, rtol=2e-6, atol=2e-6, err_msg=name)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("make", [softened, several, unread, looped])
def test_results_are_those_of_the_host(device: Device, make: Callable[..., None]) -> None:
    model, host = model_of(make, device), model_of(make, None)
    held = []
    for seed, n in enumerate((*SIZES, 20_011, 1, 0, 20_011)):
        x = given(n, seed)
        before = x.copy()
        came, expected = dict(model(x)), dict(host(x))
        same(came, expected)
        numpy.testing.assert_array_equal(x, before)
        held.append((came, expected))
    for came, expected in held:  # later calls have not touched them
        same(came, expected)
    assert model.executable.leaked == 0


def test_nothing_is_copied(device: Device) -> None:
    model = model_of(softened, device)
    before = device.counters
    for n in SIZES:
        model(given(n))
    now = device.counters
    assert (now.copies_in, now.copies_out) == (before.copies_in, before.copies_out)
    assert now.waits - before.waits == len(SIZES)


def test_a_device_with_memory_of_its_own_copies() -> None:
    device = CpuDevice()
    model_of(softened, device)(given(5))
    assert (device.counters.copies_in, device.counters.copies_out) == (1, 1)


def test_results_are_written_where_the_caller_wants_them(device: Device) -> None:
    model, host = model_of(softened, device), model_of(softened, None)
    x, y = given(20_011), numpy.zeros((20_011, 4), numpy.float32)
    model.executable({"x": x}, {"y": y})
    same({"y": y}, dict(host(x)))


def test_arrays_that_lie_oddly(device: Device) -> None:
    model, host = model_of(several, device), model_of(several, None)
    whole = given(3 * 61)
    same(dict(model(whole[::3])), dict(host(whole[::3])))
    bytes = numpy.zeros(61 * 16 + 1, numpy.uint8)
    odd = bytes[1:].view(numpy.float32).reshape(61, 4)
    odd[:] = given(61)
    same(dict(model(odd)), dict(host(odd)))


def test_eight_threads_call_one_model(device: Device) -> None:
    model, host = model_of(several, device), model_of(several, None)

    def work(seed: int) -> None:
        for n in numpy.random.default_rng(seed).integers(0, 9000, 12):
            x = given(int(n), seed)
            same(dict(model(x)), dict(host(x)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert model.executable.leaked == 0


class Failing(OnHost):
    """Fails in its second launch of a call."""

    launched = 0
    fails = False

    def _launch(self, launch: object) -> None:
        self.launched += 1
        if self.fails and self.launched % 2 == 0:
            raise RuntimeError("fell off the bus")
        super()._launch(launch)  # type: ignore[arg-type]


def test_a_device_that_fails_leaves_nothing() -> None:
    device = Failing("mine")
    model, host = model_of(several, device), model_of(several, None)
    same(dict(model(given(61))), dict(host(given(61))))
    device.fails, device.launched = True, 0
    with pytest.raises(ad.DeviceError, match="fell off"):
        model(given(20_011))
    device.fails = False
    same(dict(model(given(20_011))), dict(host(given(20_011))))
    assert model.executable.leaked == 0
