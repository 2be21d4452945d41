"""Promise: arrays on a CUDA device are read and returned there, and exchanged by DLPack.

The library is one in Python, whose memory is the host's; kernels compute nothing but where the test
is slow.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
import tests
from anydim.base.errors import InputError, OptionError
from anydim.runtime.devices import device_array
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.device_array import DeviceArray
from anydim.runtime.devices.libcuda import Library
from tests.cuda_on_host import cuda_on_host, cuda_symbols, has_cxx
from tests.unit.runtime.devices.fake_cuda import STREAM, FakeCuda
from tests.unit.runtime.devices.native_verbs import forbidden

SIZES = (0, 1, 15, 16, 17, 100)


def step() -> ad.Builder:
    """A cache that becomes longer, and a result for the host."""
    g = ad.Builder("step")
    n = g.dim("n", 0, 200)
    past = g.input("past", ad.float32, (n, 8))
    new = g.input("new", ad.float32, (1, 8))
    with g.on("accel"):
        cache = g.concat(past, g.exp(new), axis=0)
        total = g.reduce_sum(cache, axes=(0,))
    g.output("cache", cache)
    g.output("total", total)
    return g


def read_by_host() -> ad.Builder:
    """An input and a result that the host reads, too."""
    g = ad.Builder("both")
    x = g.input("x", ad.float32, (g.dim("n", 0, 200), 8))
    with g.on("accel"):
        y = g.exp(x)
    g.output("y", y)
    g.output("z", g.cum_sum(g.add(x, y), axis=0))
    return g


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    made = FakeCuda(devices=2, capacity=1 << 26)
    made.idle = True
    with cuda_symbols():
        yield made


def compiled(fake: FakeCuda, source: ad.Builder, number: int = 0) -> ad.Model:
    device = CudaDevice(f"cuda:{number}", number, Library(fake))
    return ad.compile(source, devices={"accel": device})


def ones(*shape: int) -> numpy.ndarray:
    return numpy.ones(shape, numpy.float32)


class Foreign:
    """An array of another library on the device, with a view of memory of its own."""

    def __init__(self, of: DeviceArray, strides: tuple[int, ...] = ()) -> None:
        self.of, self.strides, self.streams = of, strides, list[Any]()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.of.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        capsule = self.of.__dlpack__()
        if self.strides:
            tensor = device_array._Tensor.from_address(
                device_array._pointer(id(capsule), b"dltensor")
            )
            self.kept = (ctypes.c_int64 * len(self.strides))(*self.strides)
            tensor.strides = self.kept
        return capsule


def test_results_stay_and_are_arguments_without_copies(fake: FakeCuda) -> None:
    model = compiled(fake, step())
    model.keep_on_device("cache")
    device = model.devices["accel"]
    words: list[list[int]] = []
    fake.every = words.append
    cache: Any = ones(0, 8)
    for length in range(5):
        before = device.counters
        given = cache
        found = model(past=cache, new=ones(1, 8))
        cache = found["cache"]
        assert isinstance(cache, DeviceArray) and cache.shape == (length + 1, 8)
        assert isinstance(found["total"], numpy.ndarray)
        now = device.counters
        assert now.bytes_out - before.bytes_out == 32  # the total alone
        assert now.bytes_in - before.bytes_in == 32  # the new row; the first cache is empty
        if length:
            assert any(given.address in each for each in words)
        assert any(cache.address in each for each in words)
        words.clear()
    assert model.executable.leaked == 0
    del cache, given, found
    model.trim()
    gc.collect()
    assert fake.used == model.memory.constants_on["accel"]
    model.keep_on_device()
    assert isinstance(model(past=ones(3, 8), new=ones(1, 8))["cache"], numpy.ndarray)


@pytest.mark.slow
@pytest.mark.skipif(not has_cxx(), reason="no C++ compiler")
def test_values_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with cuda_on_host():
        fake = FakeCuda(capacity=1 << 28, items=128)
        model, host = compiled(fake, step()), ad.compile(step(), devices={"accel": "cpu:1"})
        model.keep_on_device("cache")
        chance = numpy.random.default_rng(0)
        for rows in SIZES:
            cache: Any = chance.normal(size=(rows, 8)).astype(numpy.float32)
            right = cache
            for _ in range(4):
                new = chance.normal(size=(1, 8)).astype(numpy.float32)
                found, expected = model(past=cache, new=new), host(past=right, new=new)
                cache, right = found["cache"], expected["cache"]
                numpy.testing.assert_allclose(cache.numpy(), right, rtol=1e-6)
                numpy.testing.assert_allclose(
                    found["total"], expected["total"], rtol=1e-5, atol=1e-5
                )


def test_arrays_of_another_library(fake: FakeCuda) -> None:
    model = compiled(fake, step())
    model.keep_on_device("cache")
    forbidden(monkeypatch := pytest.MonkeyPatch(), model.devices["accel"])
    cache = model(past=ones(16, 8), new=ones(1, 8))["cache"]
    foreign = Foreign(cache, (8, 1))
    model.keep_on_device()
    assert model(past=foreign, new=ones(1, 8))["total"].shape == (8,)
    assert foreign.streams == [STREAM]
    monkeypatch.undo()
    for strides, text in (((1, 17), "not contiguous"), ((9, 1), "not contiguous")):
        with pytest.raises(InputError, match=f"input 'past' of step: the array is {text}"):
            model(past=Foreign(cache, strides), new=ones(1, 8))


def test_a_saved_model_and_a_traced_call(fake: FakeCuda, tmp_path: Path) -> None:
    model = compiled(fake, step())
    model.save(tmp_path / "step.anydim")
    device = CudaDevice("cuda:0", 0, Library(fake))
    loaded = ad.load(tmp_path / "step.anydim", devices={"accel": device})
    loaded.keep_on_device("cache")
    cache = loaded(past=ones(16, 8), new=ones(1, 8))["cache"]
    assert loaded(past=cache, new=ones(1, 8))["cache"].shape == (18, 8)
    given = {"past": cache, "new": ones(1, 8)}
    assert "accel: cuda:0" in str(loaded.trace(tmp_path / "trace.json", inputs=given))


def test_results_have_the_library_of_the_arguments(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compiled(fake, step())
    model.keep_on_device("cache")
    cache = model(past=ones(16, 8), new=ones(1, 8))["cache"]
    monkeypatch.setattr(tests, "from_dlpack", lambda array: ("taken", array), raising=False)
    found = model(past=Foreign(cache), new=ones(1, 8))
    assert found["cache"][0] == found["total"][0] == "taken"
    assert found["cache"][1].shape == (18, 8) and found["total"][1].shape == (8,)


def test_capsules_give_their_memory_back(fake: FakeCuda) -> None:
    model = compiled(fake, step())
    model.keep_on_device("cache")
    before = len(device_array._exported)
    cache = model(past=ones(3, 8), new=ones(1, 8))["cache"]
    assert cache.__dlpack_device__() == (2, 0)
    capsule = cache.__dlpack__(stream=1)
    address, used = cache.address, fake.used
    del cache
    gc.collect()
    assert address in fake.blocks and fake.used == used  # the capsule keeps it
    del capsule
    assert address not in fake.blocks and len(device_array._exported) == before


def test_what_cannot_stay_or_be_read_there(fake: FakeCuda) -> None:
    model, both, other = (
        compiled(fake, step()), compiled(fake, read_by_host()), compiled(fake, step(), 1),
    )  # fmt: skip
    model.keep_on_device("cache")
    cache = model(past=ones(16, 8), new=ones(1, 8))["cache"]
    with pytest.raises(InputError, match=r"input 'x' of both: .* not only one device reads"):
        both(x=cache)
    with pytest.raises(InputError, match=r"on device \(2, 0\) of DLPack, .* on 'cuda:1', \(2, 1\)"):
        other(past=cache, new=ones(1, 8))
    with pytest.raises(OptionError, match="result 'y' cannot stay on a device"):
        both.keep_on_device("y")
    with pytest.raises(OptionError, match=r"result 'none' cannot .*\n.*'cache', 'total'"):
        model.keep_on_device("none")
    with pytest.raises(OptionError, match="result 'cache' cannot stay"):
        ad.compile(step(), devices={"accel": "cpu:1"}).keep_on_device("cache")
    with pytest.raises(InputError, match="result 'cache' stays on its device"):
        model(past=cache, new=ones(1, 8), out={"cache": ones(18, 8)})
    device = model.devices["accel"]
    wrong = {
        "expected dtype float32, got int32": DeviceArray(device, 64, (3, 8), numpy.dtype("int32")),
        "expected 2 axes": DeviceArray(device, 64, (3,), numpy.dtype("float32")),
        "not aligned to 64 bytes": DeviceArray(device, 68, (3, 8), numpy.dtype("float32")),
    }
    for text, array in wrong.items():
        with pytest.raises(InputError, match=f"input 'past' of step: .*{text}"):
            model(past=array, new=ones(1, 8))
    with pytest.raises(ad.DimError):
        model(past=DeviceArray(device, 64, (201, 8), numpy.dtype("float32")), new=ones(1, 8))
    assert model(past=cache, new=ones(1, 8))["cache"].shape == (18, 8)
    assert model.executable.leaked == 0


def test_a_limit_counts_results_while_the_call_runs(fake: FakeCuda) -> None:
    model = compiled(fake, step())
    model.keep_on_device("cache")
    model.limit_memory(ad.MemoryLimit(model.memory.at(n=50), per_call=True))
    with pytest.raises(ad.MemoryLimitError):
        model(past=ones(200, 8), new=ones(1, 8))
    cache = model(past=ones(49, 8), new=ones(1, 8))["cache"]
    for _ in range(3):
        assert model(past=cache, new=ones(1, 8))["cache"].shape == (51, 8)
