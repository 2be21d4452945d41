"""Promise: the CUDA driver's verbs do what they say, its failures are errors of ours.

The library is one in Python: what a real one makes of the same calls is for `make test-gpu`.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest

from anydim.base import settings
from anydim.base.errors import DeviceError, DeviceMemoryError
from anydim.runtime import slots
from anydim.runtime.devices import cuda_state
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.cuda import CudaDevice, list_cuda_devices
from anydim.runtime.devices.device import Launch
from anydim.runtime.devices.libcuda import Library
from tests.unit.runtime.devices.fake_cuda import FakeCuda
from tests.unit.runtime.devices.native_verbs import Native


def doubled(words: Sequence[int], blocks: int, items: int) -> None:
    """A kernel on a range: every worker doubles its part."""
    address, count, parallel, part, _, _ = words
    values = numpy.ctypeslib.as_array((ctypes.c_float * max(count, 1)).from_address(address))
    values[values > 1e30] = 1
    for worker in range(blocks * items):
        values[worker * part : min((worker + 1) * part, parallel)] *= 2


def numbered(words: Sequence[int], blocks: int, items: int) -> None:
    """A kernel of groups: each writes its number."""
    (ctypes.c_int64 * blocks).from_address(words[0])[:] = range(blocks)


def noted(words: Sequence[int], blocks: int, items: int) -> None:
    """A kernel on a range whose workers note their places in scratch, all at a time."""
    address, _, parallel, part, scratch, stride = words
    result = (ctypes.c_int64 * parallel).from_address(address)
    for step in range(part):
        for worker in range(blocks * items):
            place = ctypes.c_int64.from_address(scratch + worker * stride)
            place.value = worker * part + step
        for worker in range(blocks * items):
            place = ctypes.c_int64.from_address(scratch + worker * stride)
            if place.value < parallel:
                result[place.value] = place.value


class ByNative:
    """A device whose verbs are the native ones."""

    def __init__(self, device: CudaDevice) -> None:
        self.device, self.verbs = device, Native(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def launch(self, launch: Launch) -> None:
        self.verbs.launch(*launch)

    def copy_in(self, target: int, source: int, bytes: int) -> None:
        self.verbs.copy_in(target, source, bytes, 0)

    def copy_out(self, target: int, source: int, bytes: int) -> None:
        self.verbs.copy_out(target, source, bytes, 0)

    def copy_within(self, target: int, source: int, bytes: int) -> None:
        self.verbs.copy_within(target, source, bytes, 0)

    def fill(self, target: int, value: int, bytes: int) -> None:
        self.verbs.fill(target, value, bytes)

    def record(self) -> int:
        return self.verbs.record()

    def wait(self, event: int) -> None:
        self.verbs.wait(event)

    def synchronise(self) -> None:
        self.wait(self.record())


Opener = Callable[..., tuple[FakeCuda, Any]]


@pytest.fixture(params=["python", "native"])
def opened(request: pytest.FixtureRequest) -> Opener:
    """What opens a device of a new library, whose verbs are Python's or native."""

    def opened(**options: int) -> tuple[FakeCuda, Any]:
        fake = FakeCuda(**options)
        fake.kernels |= {"doubled": doubled, "numbered": numbered, "noted": noted}
        device = CudaDevice("cuda:0", 0, Library(fake))
        return fake, ByNative(device) if request.param == "native" else device

    return opened


def launched(device: Any, symbol: str, words: Sequence[int], **options: int) -> None:
    entry = device.load({"m": b"doubled+ numbered noted+"}, [symbol])[symbol]
    block = (ctypes.c_int64 * len(words))(*words)
    device.launch(Launch(entry, ctypes.addressof(block), 1, len(words) - 1, **options))


def test_devices_are_listed() -> None:
    (shown,) = list_cuda_devices(Library(FakeCuda()))
    assert (shown.name, shown.architecture, shown.multiprocessors) == ("Fake", "sm_90", 4)


@pytest.mark.parametrize("count", [1, 3, 63, 64, 65, 1000, 300_000])
def test_what_is_copied_in_comes_out(opened: Opener, count: int) -> None:
    """Small copies are staged, also more than the stage holds; large ones are not."""
    _, device = opened()
    given = numpy.random.default_rng(count).normal(size=count).astype(numpy.float32)
    blocks = [device.allocate(given.nbytes) for _ in range(3)]
    for number, block in enumerate(blocks):
        scaled = given * number
        device.copy_in(block, scaled.ctypes.data, given.nbytes)
        scaled[:] = 0  # they are taken
    for number, block in enumerate(blocks):
        made = numpy.empty_like(given)
        device.copy_out(made.ctypes.data, block, given.nbytes)
        device.wait(device.record())
        assert (made == given * number).all()
        device.free(block)
    assert device.counters.bytes == 0


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 4096, 5003])
@pytest.mark.parametrize("grain", [1, 16, 10_000])
def test_kernels_on_ranges_share_them_out(opened: Opener, count: int, grain: int) -> None:
    fake, device = opened()
    values = numpy.arange(max(count, 1), dtype=numpy.float32)
    block = device.allocate(values.nbytes)
    device.copy_in(block, values.ctypes.data, values.nbytes)
    launched(device, "doubled", [block, count], parallel=count, grain=grain)
    made = numpy.empty_like(values)
    device.copy_out(made.ctypes.data, block, values.nbytes)
    device.synchronise()
    assert (made[:count] == 2 * values[:count]).all()
    assert len(fake.launches) == (count > 0)


@pytest.mark.parametrize(("count", "grain"), [(1, 1), (15, 1), (16, 1), (17, 1), (1000, 100)])
def test_workers_have_scratch_of_their_own(opened: Opener, count: int, grain: int) -> None:
    fake, device = opened()
    assert device.workers == 16
    block = device.allocate(8 * count)
    scratch = device.allocate(64 * device.workers)
    options = {"parallel": count, "grain": grain, "scratch": scratch, "stride": 64}
    launched(device, "noted", [block, count], **options)
    (call,) = fake.launches
    assert call == ("noted", -(-count // -(-count // min(16, -(-count // grain)))), 1)
    made = numpy.empty(count, numpy.int64)
    device.copy_out(made.ctypes.data, block, made.nbytes)
    device.synchronise()
    assert made.tolist() == list(range(count))


def test_groups_are_blocks(opened: Opener) -> None:
    fake, device = opened()
    block = device.allocate(8 * 37)
    launched(device, "numbered", [block], parallel=37)
    made = numpy.empty(37, numpy.int64)
    device.copy_out(made.ctypes.data, block, made.nbytes)
    assert fake.launches == [("numbered", 37, 64)]
    assert made.tolist() == list(range(37))


def test_memory_that_is_not_there(opened: Opener) -> None:
    _, device = opened(capacity=1 << 12)
    block = device.allocate(4000)
    with pytest.raises(DeviceMemoryError, match=r"no memory for 4096 bytes, 4000 in use: out of"):
        device.allocate(4096)
    device.free(block)
    assert device.allocate(4096)


@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuModuleLoadData"])
def test_what_fails_is_an_error_with_the_drivers_text(opened: Opener, call: str) -> None:
    fake, device = opened()
    block = device.allocate(64)
    fake.fails = call
    with pytest.raises(DeviceError, match=f"'cuda:0': .*{call}: unspecified launch failure"):
        device.copy_in(block, block, 64)
        launched(device, "numbered", [block], parallel=1)
    fake.fails = None
    launched(device, "numbered", [block], parallel=1)


def test_code_that_is_none_and_kernels_that_are_not_there(opened: Opener) -> None:
    _, device = opened()
    with pytest.raises(DeviceError, match=r"load failed: .*invalid argument"):
        device.load({"m": b"broken"}, ["doubled"])
    with pytest.raises(DeviceError, match="no module has the kernel 'other'"):
        device.load({"m": b"doubled"}, ["other"])


def test_a_number_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="no device 'cuda:3': the CUDA driver shows 1"):
        CudaDevice("cuda:3", 3, Library(FakeCuda()))


def test_threads_have_the_context_and_share_events(opened: Opener) -> None:
    fake, device = opened()
    block = device.allocate(64)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                device.fill(block, 3, 64)
                device.wait(device.record())
        except BaseException as error:  # told below
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(fake.events) == cuda_state.RING_ROWS


def test_a_device_of_the_host_is_copied_from() -> None:
    fake = FakeCuda()
    device, host = CudaDevice("cuda:0", 0, Library(fake)), CpuDevice()
    verbs, given = Native(device), numpy.arange(100, dtype=numpy.float32)
    target, source = device.allocate(400), host.allocate(400)
    host.copy_in(source, given.ctypes.data, 400)
    assert verbs.copy_from(target, host.context, source, 400, 0) == 0
    made = numpy.zeros_like(given)
    verbs.copy_out(made.ctypes.data, target, 400, 0)
    numpy.testing.assert_array_equal(made, given)
    assert (device.counters.copies_in, device.counters.bytes_in) == (1, 400)
    assert (host.counters.copies_out, host.counters.bytes_out) == (1, 400)
    other = CudaDevice("cuda:0", 0, Library(fake))
    assert verbs.copy_from(target, other.context, source, 400, 0) == slots.BY_HOST
    host.free(source)


def test_launches_that_no_driver_takes() -> None:
    device = CudaDevice("cuda:0", 0, Library(FakeCuda()))
    entry, verbs = device.load({"m": b"numbered"}, ["numbered"])["numbered"], Native(device)
    words = (ctypes.c_int64 * 600)()
    for sizes, parallel in ((508, 1), (1, 1 << 31), (1, 1 << 40)):
        with pytest.raises(DeviceError, match=r"launch failed: .*cuLaunchKernel: invalid"):
            verbs.launch(entry, ctypes.addressof(words), 1, sizes, parallel, 1, 0, 0, 0, 0)


# ---- captured graphs ---------------------------------------------------------------------------


class Doubling:
    """A device that keeps so many graphs, and blocks of 64 numbers that are doubled."""

    def __init__(self, graphs: int | None) -> None:
        self.fake = FakeCuda()
        self.fake.kernels["doubled"] = doubled
        self.device = ByNative(CudaDevice("cuda:0", 0, Library(self.fake), graphs=graphs))
        self.entry = self.device.load({"m": b"doubled+"}, ["doubled"])["doubled"]
        ones = numpy.ones(64, numpy.float32)
        self.blocks = [self.device.allocate(256) for _ in range(5)]
        for block in self.blocks:
            self.device.copy_in(block, ones.ctypes.data, 256)

    def call(self, block: int, count: int, times: int) -> None:
        """Double `count` numbers of a block so many times."""
        for _ in range(times):
            words = (ctypes.c_int64 * 2)(self.blocks[block], count)  # they change afterwards
            self.device.launch(Launch(self.entry, ctypes.addressof(words), 1, 1, count))
            words[:] = [0, 0]

    def first(self, block: int) -> list[float]:
        """The first and the last of a block's numbers."""
        made = numpy.empty(64, numpy.float32)
        self.device.copy_out(made.ctypes.data, self.blocks[block], 256)
        self.device.wait(self.device.record())
        return [float(made[0]), float(made[-1])]


def test_sequences_that_come_again_are_graphs() -> None:
    work = Doubling(graphs=2)
    counts, power = work.fake.counts, 0
    for calls, expected in enumerate(((0, 0), (1, 1), (1, 2), (1, 3)), 1):
        work.call(0, 64, 5)
        power += 5
        assert work.first(0) == [2.0**power] * 2
        assert (counts["captures"], counts["replays"]) == expected
        assert len(work.fake.launches) == 5 * calls
    assert counts["instances"] == 1


def test_calls_that_take_turns_with_memory() -> None:
    work, powers = Doubling(graphs=6), [0] * 5
    # the first is launched; then a graph for each of four blocks; others take the oldest graph
    for block, expected in (
        (0, (0, 0, 0)), (0, (1, 0, 1)), (1, (2, 0, 2)), (2, (3, 0, 3)), (3, (4, 0, 4)),
        (0, (4, 0, 5)), (1, (4, 0, 6)), (4, (4, 1, 7)), (4, (4, 1, 8)), (3, (4, 1, 9)),
        (2, (4, 2, 10)), (1, (4, 2, 11)), (0, (4, 3, 12)),
    ):  # fmt: skip
        work.call(block, 64, 4)
        powers[block] += 4
        assert work.first(block) == [2.0 ** powers[block]] * 2
        counts = work.fake.counts
        assert (counts["instances"], counts["updates"], counts["replays"]) == expected
    work.device.trim()
    assert not work.fake.graphs


@pytest.mark.parametrize("seed", range(4))
def test_sequences_of_any_order(seed: int) -> None:
    """Kernels, sizes, blocks and copies at random, with few rows for graphs."""
    chance, work = random.Random(seed), Doubling(graphs=3)
    meant = numpy.ones((5, 64), numpy.float32)
    for _ in range(150):
        block, count = chance.choice((0, 0, 0, 1, 2, 3, 4)), chance.choice((1, 5, 5, 64))
        times = chance.choice((1, 4, 4, 5))
        work.call(block, count, times)
        meant[block, :count] *= 2.0**times
        if chance.random() < 0.3:
            ones = numpy.ones(64, numpy.float32)
            work.device.copy_in(work.blocks[block], ones.ctypes.data, 256)
            meant[block] = 1
        if chance.random() < 0.5:
            assert work.first(block) == [meant[block, 0], meant[block, -1]]
        if chance.random() < 0.05:
            work.device.trim()
            assert not work.fake.graphs
    for block in range(5):
        assert work.first(block) == [meant[block, 0], meant[block, -1]]
    counts = work.fake.counts
    assert counts["replays"] >= counts["instances"] > 0
    assert len(work.fake.graphs) <= 3


def test_graphs_are_as_many_as_may_be() -> None:
    work = Doubling(graphs=2)
    for count in (10, 20, 30, 10, 20, 30, 30, 30):
        before = work.first(0)
        work.call(0, count, 4)
        assert work.first(0) == [16 * before[0], before[1]]
        assert len(work.fake.graphs) <= 2
    assert work.fake.counts["instances"] == 1  # the others were forgotten before they came again
    work.device.trim()
    assert not work.fake.graphs
    work.call(0, 30, 4)
    work.device.synchronise()
    assert not work.fake.graphs


def test_few_launches_are_launched() -> None:
    work = Doubling(graphs=2)
    for _ in range(4):
        work.call(0, 64, 2)
        work.device.synchronise()
    assert work.fake.counts["captures"] == 0
    assert work.first(0) == [256.0, 256.0]


@pytest.mark.parametrize("verb", ["copy in", "copy out", "copy within", "fill", "free", "record"])
def test_what_follows_comes_after_launches_that_wait(verb: str) -> None:
    work = Doubling(graphs=2)
    device, (one, two, three, *_) = work.device, work.blocks
    data = numpy.zeros(64, numpy.float32)
    work.call(0, 64, 4)
    assert not work.fake.launches
    {
        "copy in": lambda: device.copy_in(two, data.ctypes.data, 256),
        "copy out": lambda: device.copy_out(data.ctypes.data, one, 256),
        "copy within": lambda: device.copy_within(two, one, 256),
        "fill": lambda: device.fill(two, 0, 256),
        "free": lambda: device.free(three),
        "record": device.record,
    }[verb]()
    assert len(work.fake.launches) == 4
    assert work.first(0) == [16.0, 16.0]


@pytest.mark.parametrize("call", ["cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                                  "cuGraphLaunch", "cuLaunchKernel"])  # fmt: skip
def test_graphs_that_fail_are_errors_and_the_next_call_works(call: str) -> None:
    work = Doubling(graphs=2)
    work.call(0, 64, 4)
    work.device.synchronise()
    work.fake.fails = call
    with pytest.raises(DeviceError, match=f"{call}: unspecified launch failure"):
        work.call(0, 64, 4)
        work.device.synchronise()
    work.fake.fails = work.fake.capture = None
    before = work.first(0)
    for _ in range(2):
        work.call(0, 64, 4)
        work.device.synchronise()
    assert work.first(0) == [256 * before[0], 256 * before[1]]
    work.device.trim()
    assert len(work.fake.graphs) <= 1  # one that could not be given back


def test_a_graph_that_does_not_fit_is_made_anew() -> None:
    work = Doubling(graphs=6)
    work.fake.fails = "cuGraphExecUpdate_v2"
    for block in (0, 0, 1, 2, 3, 4):
        work.call(block, 64, 4)
        work.device.synchronise()
    assert work.first(4) == [16.0, 16.0]
    assert (work.fake.counts["instances"], work.fake.counts["updates"]) == (5, 0)
    work.device.trim()
    assert not work.fake.graphs


def test_more_launches_than_may_wait() -> None:
    work = Doubling(graphs=1)
    most = cuda_state.BUFFER_WORDS // (cuda_state.HEAD + 6)
    work.call(0, 0, 1)  # no launch
    work.call(0, 1, most + 2)
    assert len(work.fake.launches) == most
    work.device.synchronise()
    assert len(work.fake.launches) == most + 2


@pytest.mark.parametrize("graphs", [0, 2])
def test_graphs_are_kept_where_the_setting_says_so(graphs: int) -> None:
    with settings.override(cuda_graphs=graphs):
        work = Doubling(None)
    for _ in range(3):
        work.call(0, 64, 4)
        work.device.synchronise()
    assert len(work.fake.launches) == 12
    assert work.fake.counts["replays"] == graphs
