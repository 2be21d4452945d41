"""Promise: an OpenCL device does what its verbs say, in order, and fails in words of ours."""

from __future__ import annotations

import gc
import pathlib
from collections.abc import Iterator
from functools import partial

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.errors import DeviceError, DeviceMemoryError
from anydim.compiler.targets.opencl.render import render
from anydim.compiler.targets.processor import describe_processor
from anydim.runtime.devices.device import Launch
from anydim.runtime.devices.opencl import inventory, libopencl
from anydim.runtime.devices.opencl.device import OpenClDevice
from anydim.runtime.devices.opencl.opened import open_opencl
from tests.kernel_targets import needs_device
from tests.unit.compiler.targets.test_groups import sums

PROCESSOR = describe_processor("x86-64-v3")


@pytest.fixture(params=[OpenClDevice, open_opencl], ids=["apart", "usual"])
def device(request: pytest.FixtureRequest) -> Iterator[OpenClDevice]:
    """A device as one that has memory of its own, and as what it is."""
    device = request.param()
    yield device
    device.synchronise()
    assert device.counters.blocks == 0


def add_one() -> tuple[str, bytes]:
    """A kernel on a range as `targets/opencl/render.py` writes them: x[i] += 1."""
    text = """
    typedef struct { long at[7]; } words;
    #ifdef IN_MEMORY_OF_HOST
    #define m0 ((__global uchar *)0)
    __kernel void add_one(const words w) {
    #else
    __kernel void add_one(__global uchar *m0, __global uchar *scratch, const words w) {
    #endif
      __global float *x = (__global float *)(m0 + w.at[0]);
      const long first = w.at[2] + (long)get_global_id(0) * w.at[4];
      for (long i = first; i < min(first + w.at[4], w.at[3]); i++) x[i] += 1.0f;
    }
    """
    return "add_one", text.encode()


@needs_device
def test_verbs_happen_in_order(device: OpenClDevice) -> None:
    name, text = add_one()
    entry = device.load({name: text}, [name])[name]
    count = 1001
    given, came = numpy.zeros(count, numpy.float32), numpy.zeros((5, count), numpy.float32)
    blocks = [device.allocate(4 * count + 64) for _ in range(2)]
    words = numpy.zeros(2, numpy.int64)
    for number in range(5):
        block, other = blocks[number % 2], blocks[1 - number % 2]
        given[:] = number  # its bytes are taken when the copy returns
        device.copy_in(block + 64, given.ctypes.data, given.nbytes)
        given[:] = -1
        words[:] = block + 64, count
        for _ in range(3):
            device.launch(Launch(entry, words.ctypes.data, 1, 1, count, 7))
        device.copy_within(other, block + 64, given.nbytes)
        device.fill(other, 0, 40)
        device.copy_out(came[number].ctypes.data, other, given.nbytes)
    device.wait(device.record())
    expected = numpy.repeat(numpy.arange(3.0, 8.0)[:, None], count, 1)
    expected[:, :10] = 0
    numpy.testing.assert_array_equal(came, expected)
    for block in blocks:
        device.free(block)


@needs_device
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (64, 200), (5, 0)])
def test_groups_run_together(device: OpenClDevice, rows: int, columns: int) -> None:
    kernel = sums(8)
    entry = device.load({kernel.name: render(kernel, PROCESSOR).encode()}, [kernel.name])
    x = numpy.random.default_rng(1).random((rows, columns), numpy.float32)
    y = numpy.zeros(rows, numpy.float32)
    blocks = [device.allocate(max(64, array.nbytes)) for array in (x, y)]
    device.copy_in(blocks[0], x.ctypes.data, x.nbytes)
    words = numpy.array([*blocks, columns], numpy.int64)
    device.launch(Launch(entry[kernel.name], words.ctypes.data, 2, 1, rows))
    device.copy_out(y.ctypes.data, blocks[1], y.nbytes)
    device.wait(device.record())
    numpy.testing.assert_allclose(y, x.sum(1, numpy.float64), rtol=1e-5)  # sums of floats
    for block in blocks:
        device.free(block)


@needs_device
def test_many_calls_hold_no_more_memory(device: OpenClDevice) -> None:
    g = ad.Builder("rows")
    n = g.dim("n", 0, 64)
    g.output("y", g.softmax(g.input("x", ad.float32, [n, 8]), axis=-1))
    model = ad.compile(g, devices={"accel": device}, placement={"*": "accel"})
    held = []
    for call in range(1000):
        x = numpy.full((call % 7, 8), call, numpy.float32)
        y = model(x=x)["y"]
        if call % 100 == 99:
            assert numpy.array_equal(y, numpy.full(x.shape, 0.125, numpy.float32))
            held.append(device.counters.bytes)
    assert max(held[5:]) <= max(held[:5])  # what is kept for the next call varies with its size
    assert device.counters.launches <= 1000
    model.trim()
    del model
    gc.collect()


@needs_device
def test_a_text_that_does_not_build(device: OpenClDevice) -> None:
    with pytest.raises(DeviceError, match=r"(?s)cannot build 'f'.*FAILURE.*nothing_of_ours"):
        device.load({"f": b"__kernel void f() { nothing_of_ours; }"}, ["f"])


@needs_device
def test_memory_that_there_is_not(device: OpenClDevice) -> None:
    with pytest.raises(
        DeviceMemoryError, match=r"no memory for \d+ bytes, 0 in use: (clCreateBuf|it has)"
    ):
        device.allocate(1 << 55)


@needs_device
def test_kept_binaries_that_are_damaged(device: OpenClDevice, tmp_path: pathlib.Path) -> None:
    name, text = add_one()
    with settings.override(cache_dir=str(tmp_path), use_cache=True):
        device.load({name: text}, [name])
        (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        before = kept.read_bytes()
        device.load({name: text}, [name])
        assert kept.read_bytes() == before
        kept.write_bytes(before[: len(before) // 2])
        with pytest.warns(RuntimeWarning, match="damaged"):
            device.load({name: text}, [name])
        assert kept.read_bytes()[:16] == before[:16]


@needs_device
def test_devices_that_there_are_not() -> None:
    with pytest.raises(
        DeviceError, match=r"no device 'opencl:99'.* has \d+ devices: 'opencl:0' is"
    ):
        inventory.device(99)


def test_a_loader_that_there_is_not() -> None:
    refused = partial(pytest.raises, DeviceError)
    nowhere, other = "/nowhere/libOpenCL.so", "libm.so.6"  # a library of something else
    with settings.override(opencl_library=nowhere), refused(match=r"'/nowhere.*\n.*\[opencl\]"):
        OpenClDevice()
    with settings.override(opencl_library=other), refused(match="no OpenCL loader 'libm"):
        libopencl.library()
