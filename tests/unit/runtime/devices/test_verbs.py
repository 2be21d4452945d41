"""Promise: a device does what its verbs say, counts it, and fails in words of ours."""

from __future__ import annotations

import ctypes

import numpy
import pytest

from anydim.base.errors import DeviceError, DeviceMemoryError, OutOfMemoryError
from anydim.runtime.devices.addresses import OFFSET_BITS, Blocks
from anydim.runtime.devices.device import Launch
from anydim.runtime.devices.null import NullDevice, TimeModel
from anydim.runtime.devices.table import DRIVERS, open_device


@pytest.mark.parametrize("name", ["cpu", "null"])
def test_what_is_copied_in_comes_out(name: str) -> None:
    device = open_device(name)
    given, came = numpy.arange(100, dtype=numpy.int32), numpy.full(100, -1, numpy.int32)
    blocks = [device.allocate(400), device.allocate(400)]
    device.copy_in(blocks[0], given.ctypes.data, 400)
    device.copy_within(blocks[1], blocks[0], 400)
    device.fill(blocks[1] + 200, 0, 200)
    device.copy_out(came.ctypes.data, blocks[1], 400)
    device.wait(device.record())
    expected = numpy.where(given < 50, given, 0) if name == "cpu" else 0
    numpy.testing.assert_array_equal(came, expected)
    counted = device.counters
    assert (counted.copies, counted.bytes_in, counted.bytes_out) == (2, 400, 400)
    assert (counted.blocks, counted.bytes, counted.most_bytes) == (2, 800, 800)
    for block in blocks:
        assert block % 64 == 0
        device.free(block)
    counted = device.counters
    assert (counted.blocks, counted.bytes, counted.most_bytes) == (0, 0, 800)


def test_memory_that_there_is_not_is_an_error_of_ours() -> None:
    device = NullDevice("null:3", capacity=1000)
    block = device.allocate(600)
    with pytest.raises(DeviceMemoryError, match="'null:3': no memory for 500 bytes, 600 in use"):
        device.allocate(500)
    with pytest.raises(OutOfMemoryError):
        device.allocate(500)
    device.free(block)
    device.free(device.allocate(1000))
    assert device.counters.blocks == 0


def test_the_text_of_the_device_stands_in_the_error() -> None:
    device = NullDevice()
    block = device.allocate(8)
    with pytest.raises(DeviceError, match="copy within failed: IndexError: bytes 0:9 of a block"):
        device.copy_within(block, block, 9)


@pytest.mark.parametrize("name", ["gpu", "cpu:x", "cpu:-1", "null:", "cpu:99999999999"])
def test_devices_that_there_are_not(name: str) -> None:
    with pytest.raises(DeviceError, match="there is no device"):
        open_device(name)


def test_every_driver_opens_a_device_of_its_name() -> None:
    assert {open_device(name).name for name in ("cpu", "null")} == {"cpu:0", "null:0"}
    assert {"cpu", "null"} <= DRIVERS.keys()


def test_a_time_model_says_how_long_work_takes() -> None:
    time = TimeModel(latency=1.0, copy_latency=0.5, bandwidth=10.0, memory=100.0,
                     flops={"contraction": 1000.0, "": 10.0})  # fmt: skip
    device = NullDevice(time=time)
    entries = device.load({}, ["contraction_0a1b", "rows_ff"])
    block = device.allocate(64)
    arguments = (ctypes.c_int64 * 1)(block)
    memory = numpy.zeros(64, numpy.uint8)
    device.copy_in(block, memory.ctypes.data, 20)
    assert device.seconds == 2.5
    at = ctypes.addressof(arguments)
    device.launch(Launch(entries["contraction_0a1b"], at, 1, 0, 1, flops=2000))
    assert device.seconds == 5.5
    device.launch(Launch(entries["rows_ff"], at, 1, 0, 1, flops=20, moved=400))
    assert device.seconds == 10.5
    device.launch(Launch(entries["rows_ff"], at, 1, 0, 0, flops=20, moved=400))
    assert (device.seconds, device.counters.launches) == (10.5, 3)


def test_virtual_addresses_are_never_those_of_another_block() -> None:
    blocks: Blocks[str] = Blocks()
    first, second = blocks.add("a"), blocks.add("b")
    assert blocks.find(first + 5) == ("a", 5) and blocks.find(second) == ("b", 0)
    assert (first >> OFFSET_BITS, second >> OFFSET_BITS) == (1, 2)
    blocks.remove(first)
    assert blocks.add("c") not in (first, second)
    with pytest.raises(KeyError):
        blocks.find(first)
