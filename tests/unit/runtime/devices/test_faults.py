"""Promise: a device that fails is an error in words, nothing is left, and the model works on."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy
import pytest

import anydim as ad
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.device import Device
from anydim.runtime.devices.null import NullDevice
from tests.unit.runtime.devices.queued import QueuedDevice
from tests.unit.runtime.devices.test_placed_programs import (
    W,
    arrays,
    chosen,
    diamond,
    graph_of,
    iterated,
)

VERBS = ("_allocate", "_copy_in", "_copy_out", "_launch", "_record", "_wait")


class Failing(CpuDevice):
    """Fails once, when it is asked for a verb for the n-th time; `left` counts down."""

    verb, left = "", 0
    error: BaseException = RuntimeError("fell off the bus")

    def __getattribute__(self, name: str) -> object:
        if name in VERBS and name == self.verb:
            self.left -= 1
            if self.left == 0:
                return self.fail
        return super().__getattribute__(name)

    def fail(self, *given: int) -> int:
        raise self.error


@pytest.mark.parametrize("verb", VERBS)
def test_a_device_that_fails_in_the_middle(verb: str) -> None:
    device = Failing("mine")
    model = ad.compile(graph_of(iterated, "a"), devices={"a": device})
    given = arrays(9)
    expected = model(**given)
    blocks = device.counters.blocks
    for number in (1, 2, 4):
        device.verb, device.left = verb, number
        model.trim()  # so that there is something to allocate
        if verb == "_allocate" or number > 1:  # memory is asked for again when all was given back
            with suppress(ad.DeviceError):
                model(**given)
        else:
            with pytest.raises(ad.DeviceError, match=r"'mine': .* failed: RuntimeError: fell off"):
                model(**given)
        device.verb = ""
        for name, value in model(**given).items():
            numpy.testing.assert_array_equal(value, expected[name])
        assert device.counters.blocks == blocks
    assert model.executable.leaked == 0


def test_what_is_no_error_of_a_device_comes_through() -> None:
    device = Failing("mine")
    device.error = KeyboardInterrupt()
    model = ad.compile(graph_of(diamond, "a", "a", "a", "a"), devices={"a": device})
    device.verb, device.left = "_launch", 1
    with pytest.raises(KeyboardInterrupt):
        model(**arrays(3))
    assert model(**arrays(3))["y"].shape == (3, 4)


def test_memory_that_a_device_has_not() -> None:
    device = NullDevice("small", capacity=20_000)
    model = ad.compile(graph_of(iterated, "a"), devices={"a": device})
    for n in (1, 24, 5, 24):
        model(**arrays(n))
    device.capacity = device.counters.bytes  # whatever is kept is all there is: it is given back
    model(**arrays(23))
    device.capacity = 2000  # less than what is kept, which serves no larger size
    with pytest.raises(ad.DeviceMemoryError, match=r"'small': no memory for .* bytes"):
        model(**arrays(64))
    with pytest.raises(ad.OutOfMemoryError):
        model(**arrays(64))
    assert model(**arrays(1))["end"].shape == (1, 4)


def test_constants_that_do_not_fit_are_an_error_of_the_compilation() -> None:
    device = NullDevice("tiny", capacity=10)
    with pytest.raises(ad.DeviceMemoryError, match="'tiny'"):
        ad.compile(graph_of(diamond, "a", "a", "a", "a"), devices={"a": device})
    model = ad.compile(graph_of(diamond, "a", "a", "a", "a"), devices={"a": "cpu"})
    assert model(**arrays(3))["y"].shape == (3, 4)


class Broken(NullDevice):
    def _load(self, code: object, symbols: object) -> dict[str, int]:
        raise RuntimeError("error: unknown instruction")


def test_code_that_a_device_does_not_take() -> None:
    with pytest.raises(ad.DeviceError, match="load failed: RuntimeError: error: unknown instr"):
        ad.compile(graph_of(diamond, "a", "a", "a", "a"), devices={"a": Broken("x")})


def test_a_thousand_calls_leave_nothing_on_a_device() -> None:
    devices: dict[str, Device] = {"a": NullDevice("a"), "b": CpuDevice("b")}
    models = [
        ad.compile(graph_of(make, *names), devices=devices)
        for make, names in ((iterated, "a"), (chosen, "ab"), (diamond, "abab"))
    ]
    held = [device.counters.blocks for device in devices.values()]  # constants
    sizes = numpy.random.default_rng(0).integers(0, 65, 1000)
    for number, n in enumerate(sizes):
        models[number % 3](**arrays(int(n)))
    for model in models:
        assert model.executable.leaked == 0
        model.trim()
    assert [device.counters.blocks for device in devices.values()] == held
    assert all(device.counters.most_bytes < 60_000 for device in devices.values())
    del models, model
    gc.collect()
    assert [device.counters.blocks for device in devices.values()] == [0, 0]


def test_several_threads_call_one_model() -> None:
    devices = {"a": QueuedDevice("a"), "b": QueuedDevice("b")}
    model = ad.compile(graph_of(diamond, "a", "b", "", "a"), devices=devices)
    host = ad.compile(graph_of(diamond, "", "", "", ""))

    def work(seed: int) -> None:
        for n in numpy.random.default_rng(seed).integers(0, 65, 25):
            given = arrays(int(n))
            numpy.testing.assert_allclose(
                model(**given)["y"], host(**given)["y"], rtol=1e-6, atol=1e-6
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert model.executable.leaked == 0


def test_the_host_waits_for_a_device_that_takes_its_time() -> None:
    devices = {"a": QueuedDevice("a", delay=0.01), "b": QueuedDevice("b", delay=0.005)}
    given = arrays(9)
    for make, names in ((diamond, "ab b"), (iterated, "a"), (chosen, "ab")):
        placed = [name.strip() for name in names]
        model = ad.compile(graph_of(make, *placed), devices=devices)
        host = ad.compile(graph_of(make, *("" for _ in placed)))
        expected = host(**given)
        for name, value in model(**given).items():
            numpy.testing.assert_allclose(value, expected[name], rtol=1e-6, atol=1e-6)
    assert W.shape == (4, 4)
