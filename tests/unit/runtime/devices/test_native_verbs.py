"""Promise: programs ask devices for work natively; verbs happen in order, count, fail in words."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DeviceError, DeviceMemoryError
from anydim.runtime import slots
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.device import Device
from anydim.runtime.devices.libcuda import Library
from anydim.runtime.devices.opencl import state
from anydim.runtime.devices.opencl.device import OpenClDevice
from anydim.runtime.devices.opencl.opened import open_opencl
from anydim.runtime.devices.opencl.shared import SharedOpenClDevice
from tests.kernel_targets import has_device, needs_compiler, needs_device, needs_two_devices
from tests.unit.runtime.devices.fake_cuda import FakeCuda
from tests.unit.runtime.devices.native_verbs import Native, forbidden
from tests.unit.runtime.devices.test_opencl import add_one
from tests.unit.runtime.devices.test_placed_programs import (
    arrays,
    chosen,
    diamond,
    graph_of,
    iterated,
)

SIZES = (0, 1, 7, 8, 9, 31, 64)
BYTES = 4 * 61  # of a block
OPENERS = {"cpu": CpuDevice, **({"opencl": open_opencl} if has_device() else {})}


@pytest.fixture
def shared() -> Iterator[SharedOpenClDevice]:
    device = open_opencl()
    if not isinstance(device, SharedOpenClDevice):
        pytest.skip("the OpenCL device has memory of its own")
    yield device
    device.synchronise()


@pytest.mark.parametrize("kind", OPENERS)
def test_calls_ask_for_nothing_by_way_of_python(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = OPENERS[kind]()
    if not device.native:
        pytest.skip("it has no native verbs")
    cases = ((diamond, "a", "", "a", "a"), (iterated, "a"), (chosen, "a", ""))
    models = [ad.compile(graph_of(make, *on), devices={"a": device}) for make, *on in cases]
    hosts = [ad.compile(graph_of(make, *("" for _ in on))) for make, *on in cases]
    forbidden(monkeypatch, device)
    for n in (*SIZES, 1, 64, 0):
        for model, host in zip(models, hosts):
            came, expected = model(**arrays(n)), host(**arrays(n))
            for name, value in expected.items():
                # what is not fused adds four numbers in another order
                numpy.testing.assert_allclose(came[name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", OPENERS)
def test_what_native_verbs_are_asked_for_is_counted(kind: str) -> None:
    device = OPENERS[kind]()
    model = ad.compile(graph_of(diamond, "a", "", "a", "a"), devices={"a": device})
    before = device.counters
    for _ in range(3):
        model(**arrays(9))
    now = device.counters
    assert now.launches - before.launches == 3 * len(
        [s for segment in model.program.segments if segment.device for s in segment.sites]
    )
    crossings = 1 if device.on_host else 2  # x and what the host makes of it; what it reads, and y
    assert now.copies_in - before.copies_in == 3 * crossings
    assert now.copies_out - before.copies_out == 3 * crossings
    assert now.bytes_in - before.bytes_in == 3 * crossings * 9 * 4 * 4
    assert now.waits - before.waits == 3 * 2


def test_verbs_of_a_subclass_are_its_own() -> None:
    class Mine(CpuDevice):
        """Verbs that are written anew are used."""

    assert CpuDevice().native and not Mine("mine").native


@pytest.mark.parametrize(
    "make", [*OPENERS.values(), pytest.param(OpenClDevice, marks=needs_device)]
)
def test_eight_threads_call_one_model(make: Callable[[], Device]) -> None:
    device = make()
    model = ad.compile(graph_of(diamond, "a", "", "a", "a"), devices={"a": device})
    host = ad.compile(graph_of(diamond, "", "", "", ""))

    def work(seed: int) -> None:
        for n in numpy.random.default_rng(seed).integers(0, 65, 40):
            given = arrays(int(n))
            expected = host(**given)["y"]
            numpy.testing.assert_allclose(model(**given)["y"], expected, rtol=1e-6, atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert model.executable.leaked == 0


class Sequential:
    """A device and what its verbs mean one after the other: blocks of floats."""

    def __init__(self, device: Device, verbs: Native, blocks: int, code: bytes = b"") -> None:
        self.device, self.verbs = device, verbs
        name, text = add_one()
        self.entry = device.load({name: code or text}, [name])[name]
        self.blocks = [device.allocate(BYTES) for _ in range(blocks)]
        self.meant = [numpy.zeros(BYTES // 4, numpy.float32) for _ in range(blocks)]
        for block in self.blocks:
            verbs.fill(block, 0, BYTES)
        self.coming: list[tuple[numpy.ndarray, numpy.ndarray]] = []
        self.events: list[tuple[int, list[tuple[numpy.ndarray, numpy.ndarray]]]] = []

    def step(self, chance: random.Random) -> None:
        number, other = chance.sample(range(len(self.blocks)), 2)
        first = chance.randrange(BYTES // 4 + 1)
        count = chance.randrange(BYTES // 4 - first + 1)
        part = slice(first, first + count)
        at, source = self.blocks[number] + 4 * first, self.blocks[other] + 4 * first
        match chance.choice(("in", "out", "within", "fill", "launch", "launch", "record", "wait")):
            case "in":
                given = numpy.full(count, chance.randrange(100), numpy.float32)
                self.meant[number][part] = given
                self.verbs.copy_in(at, given.ctypes.data, given.nbytes)
                given[:] = -1  # its bytes were taken
            case "out":
                came = numpy.full(count, -1, numpy.float32)
                self.coming.append((came, self.meant[number][part].copy()))
                self.verbs.copy_out(came.ctypes.data, at, came.nbytes)
            case "within":
                self.meant[number][part] = self.meant[other][part]
                self.verbs.copy_within(at, source, 4 * count)
            case "fill":
                self.meant[number][part] = 0
                self.verbs.fill(at, 0, 4 * count)
            case "launch":
                self.meant[number][part] += 1
                arguments = (ctypes.c_int64 * 2)(at, count)
                given = (ctypes.addressof(arguments), 1, 1, count, chance.choice((1, 7, 99)))
                self.verbs.launch(self.entry, *given, 0, 0, 0, 0)
                arguments[:] = -1, -1
            case "record":
                self.record()
            case "wait" if self.events:
                self.wait(chance.randrange(len(self.events)))

    def record(self) -> None:
        self.events.append((self.verbs.record(), self.coming))
        self.coming = []

    def wait(self, last: int) -> None:
        """For the event of a number; what came before it is there too."""
        self.verbs.wait(self.events[last][0])
        for _, coming in self.events[: last + 1]:
            for came, meant in coming:
                numpy.testing.assert_array_equal(came, meant)
        del self.events[: last + 1]

    def end(self) -> None:
        self.record()
        self.wait(len(self.events) - 1)


@pytest.mark.sampled(most=6)
@needs_device
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("code", ["llvm", pytest.param("c", marks=needs_compiler)])
def test_verbs_happen_as_if_in_order(shared: SharedOpenClDevice, seed: int, code: str) -> None:
    chance = random.Random(seed)
    work = Sequential(shared, Native(shared, code), chance.randrange(2, 6))
    for _ in range(400):
        work.step(chance)
    work.end()
    for block in work.blocks:
        shared.free(block)
    assert shared.counters.blocks == 0 and not shared.words[state.STAGED]


def added(words: Sequence[int], blocks: int, items: int) -> None:
    """The kernel of `add_one` in Python."""
    address, count, *_ = words
    numpy.ctypeslib.as_array((ctypes.c_float * count).from_address(address))[:] += 1


@pytest.mark.parametrize("graphs", [0, 3])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("code", ["llvm", pytest.param("c", marks=needs_compiler)])
def test_verbs_of_cuda_happen_as_if_in_order(graphs: int, seed: int, code: str) -> None:
    chance, fake, name = random.Random(seed), FakeCuda(), add_one()[0]
    fake.kernels[name] = added
    device = CudaDevice("cuda:0", 0, Library(fake), graphs=graphs)
    work = Sequential(device, Native(device, code), chance.randrange(2, 6), f"{name}+".encode())
    for _ in range(400):
        work.step(chance)
    work.end()
    for block in work.blocks:
        device.free(block)
    device.trim()
    assert not fake.blocks and not fake.graphs and device.counters.blocks == 0


@needs_device
def test_verbs_of_several_threads(shared: SharedOpenClDevice) -> None:
    """Each has blocks of its own; events and pending copies of one are not the other's."""
    verbs = Native(shared)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        mine = Sequential(shared, verbs, 3)
        for _ in range(200):
            mine.step(chance)
        mine.end()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@needs_two_devices
@pytest.mark.parametrize("seed", range(4))
def test_copies_between_devices_come_in_order(shared: SharedOpenClDevice, seed: int) -> None:
    chance, second = random.Random(seed), open_opencl("opencl:1", 1)
    assert isinstance(second, SharedOpenClDevice)
    devices = [Sequential(device, Native(device), 3) for device in (shared, second)]
    for _ in range(300):
        work, other = chance.sample(devices, 2)
        if chance.random() < 0.7:
            work.step(chance)
            continue
        number, count = chance.randrange(3), chance.randrange(BYTES // 4 + 1)
        work.meant[number][:count] = other.meant[number][:count]
        target, source = work.blocks[number], other.blocks[number]
        given = (target, other.device.context, source, 4 * count, 0)
        assert work.verbs.copy_from(*given) == 0
    for work in devices:
        work.end()
    second.synchronise()


@needs_two_devices
def test_devices_of_a_platform_copy_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = {"a": "opencl:0", "b": "opencl:1"}
    model = ad.compile(graph_of(diamond, "a", "b", "a", "b"), devices=devices)
    if not all(each.on_host for each in model.devices.values()):
        pytest.skip("the OpenCL devices have memory of their own")
    host = ad.compile(graph_of(diamond, "", "", "", ""))
    forbidden(monkeypatch, model.devices["a"])
    constants = [each.counters.copies_in for each in model.devices.values()]
    for n in (*SIZES, 1, 64, 0):
        before = [each.counters.waits for each in model.devices.values()]
        came = model(**arrays(n))["y"]
        numpy.testing.assert_allclose(came, host(**arrays(n))["y"], rtol=1e-6, atol=1e-6)
        waits = [each.counters.waits for each in model.devices.values()]
        assert [now - then for now, then in zip(waits, before)] == [1, 1]  # x is free again; y
    counts = [each.counters for each in model.devices.values()]
    assert counts[0].copies_out == counts[1].copies_in - constants[1] > 0
    assert counts[1].copies_out == counts[0].copies_in - constants[0]


def test_the_processors_devices_copy_from_each_other() -> None:
    devices = {"a": "cpu:0", "b": "cpu:1"}
    model = ad.compile(graph_of(diamond, "a", "b", "a", "b"), devices=devices)
    host = ad.compile(graph_of(diamond, "", "", "", ""))
    for n in SIZES:
        came, expected = model(**arrays(n))["y"], host(**arrays(n))["y"]
        numpy.testing.assert_allclose(came, expected, rtol=1e-6, atol=1e-6)
    assert model.devices["b"].counters.waits == len(SIZES)  # for y alone
    assert model.devices["a"].counters.waits == 0


def test_what_one_device_cannot_take_from_another_goes_by_the_host() -> None:
    class Mine(CpuDevice):
        """Nobody knows what its memory is."""

    first, second = Mine("mine"), CpuDevice("cpu:1")
    block = [device.allocate(64) for device in (first, second)]
    assert not second.copy_from(block[1], first, block[0], 64)
    assert first.copy_from(block[0], second, block[1], 64)
    given = (block[1], first.context, block[0], 64, 0)
    assert Native(second).copy_from(*given) == slots.BY_HOST
    assert second.counters.copies_in == 0 and first.counters.copies_in == 1
    for device, each in zip((first, second), block):
        device.free(each)


@needs_device
def test_an_event_that_was_long_ago(shared: SharedOpenClDevice) -> None:
    verbs = Native(shared)
    work = Sequential(shared, verbs, 2)
    came = numpy.full(BYTES // 4, -1, numpy.float32)
    arguments = (ctypes.c_int64 * 2)(work.blocks[0], BYTES // 4)
    given = (ctypes.addressof(arguments), 1, 1, BYTES // 4, 1, 0, 0, 0, 0)
    verbs.launch(work.entry, *given)
    verbs.copy_out(came.ctypes.data, work.blocks[0], BYTES)
    first = verbs.record()
    for _ in range(state.RING_ROWS + 3):
        verbs.record()
    verbs.wait(first)
    assert (came == 1).all()


def failing(code: int) -> object:
    return ctypes.CFUNCTYPE(ctypes.c_int)(lambda: code)


@needs_device
@pytest.mark.parametrize(("code", "error", "text"), [
    (-36, DeviceError, "launch failed: ClError: clEnqueueNDRangeKernel gave -36, CL_INVALID_COMM"),
    (-5, DeviceMemoryError, r"no memory, \d+ in use: clEnqueueNDRangeKernel gave -5"),
])  # fmt: skip
def test_what_fails_is_an_error_of_ours(
    shared: SharedOpenClDevice, code: int, error: type[Exception], text: str
) -> None:
    model = ad.compile(graph_of(diamond, "a", "", "a", "a"), devices={"a": shared})
    expected = model(**arrays(9))["y"]
    right, wrong = shared.words[state.ENQUEUE], failing(code)
    shared.words[state.ENQUEUE] = ctypes.cast(wrong, ctypes.c_void_p).value  # type: ignore
    with pytest.raises(error, match=text):
        model(**arrays(9))
    shared.words[state.ENQUEUE] = right
    numpy.testing.assert_array_equal(model(**arrays(9))["y"], expected)
    assert model.executable.leaked == 0


@needs_device
def test_a_launch_of_too_many_arguments(shared: SharedOpenClDevice) -> None:
    verbs = Native(shared)
    arguments = (ctypes.c_int64 * 300)()
    with pytest.raises(DeviceError, match=r"clSetKernelArg gave -51"):
        verbs.launch(0, ctypes.addressof(arguments), 150, 150, 1, 1, 0, 0, 0, 0)


def test_devices_know_what_they_are_asked_for_by_python_too() -> None:
    device: Device = CpuDevice()
    verbs = Native(device)
    block, given = device.allocate(64), numpy.arange(16, dtype=numpy.float32)
    device.copy_in(block, given.ctypes.data, 64)
    verbs.copy_in(block, given.ctypes.data, 32)
    assert (device.counters.copies_in, device.counters.bytes_in) == (2, 96)
    device.free(block)
