"""Promise: an OpenCL device that fails is an error in words, holds nothing after it, and the model
works on, there or on the host."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.runtime.devices.opencl import programs, state
from anydim.runtime.devices.opencl.opened import open_opencl
from anydim.runtime.devices.opencl.shared import SharedOpenClDevice
from tests.kernel_targets import needs_device
from tests.unit.runtime.devices.test_placed_programs import (
    arrays,
    chosen,
    diamond,
    graph_of,
    iterated,
)

pytestmark = needs_device

_ENQUEUE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 9)


def test_kernels_that_do_not_build(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = f"{programs._OPTIONS} -D __kernel=nothing_of_ours"
    monkeypatch.setattr(programs, "_OPTIONS", wrong)
    g = graph_of(diamond, "a", "a", "a", "a")
    device = open_opencl()
    with pytest.raises(ad.DeviceError, match=r"(?s)cannot build '.*FAILURE.*devices=\{...: 'cpu'"):
        ad.compile(g, devices={"a": device})
    assert device.counters.blocks == 0
    assert ad.compile(g, devices={"a": "cpu"})(**arrays(3))["y"].shape == (3, 4)


@pytest.fixture
def shared() -> SharedOpenClDevice:
    device = open_opencl()
    if not isinstance(device, SharedOpenClDevice):
        pytest.skip("no OpenCL device that works in the memory of the host")
    return device


def test_memory_that_it_has_not(shared: SharedOpenClDevice) -> None:
    model = ad.compile(graph_of(iterated, "a"), devices={"a": shared})
    expected = model(**arrays(8))
    model.trim()
    whole, held = shared.found, shared.counters.blocks
    shared.found = replace(whole, memory=600)
    with pytest.raises(ad.DeviceMemoryError, match=r"no memory for \d+ bytes.*it has 600 bytes"):
        model(**arrays(64))
    assert shared.counters.blocks == held
    shared.found = whole
    for name, value in model(**arrays(8)).items():
        numpy.testing.assert_array_equal(value, expected[name])
    assert model.executable.leaked == 0


@pytest.mark.parametrize("last", [1, 2, 4])
def test_launches_that_fail_in_the_middle(shared: SharedOpenClDevice, last: int) -> None:
    model = ad.compile(graph_of(iterated, "a"), devices={"a": shared})
    given = arrays(9)
    expected = model(**given)
    held = shared.counters.blocks
    right = shared.words[state.ENQUEUE]
    do, left = _ENQUEUE(right), [last]

    def enqueue(*arguments: int) -> int:
        left[0] -= 1
        return -36 if left[0] == 0 else do(*arguments)

    failing = _ENQUEUE(enqueue)
    shared.words[state.ENQUEUE] = ctypes.cast(failing, ctypes.c_void_p).value or 0
    with pytest.raises(ad.DeviceError, match=r"'opencl:0': launch failed: .*INVALID_COMMAND_QUEUE"):
        model(**given)
    shared.words[state.ENQUEUE] = right
    for name, value in model(**given).items():
        numpy.testing.assert_array_equal(value, expected[name])
    assert shared.counters.blocks == held and model.executable.leaked == 0


def test_a_thousand_calls_of_several_models_leave_nothing() -> None:
    device = open_opencl()
    models = [
        ad.compile(graph_of(make, *("a" * count)), devices={"a": device})
        for make, count in ((iterated, 1), (chosen, 2), (diamond, 4))
    ]
    constants = device.counters.blocks
    for number, n in enumerate(numpy.random.default_rng(0).integers(0, 65, 1000)):
        models[number % 3](**arrays(int(n)))
    assert device.counters.most_bytes < 100_000
    for model in models:
        assert model.executable.leaked == 0
        model.trim()
    assert device.counters.blocks == constants
    del models, model
    gc.collect()
    assert (device.counters.blocks, device.counters.bytes) == (0, 0)
