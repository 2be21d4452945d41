"""Promise: the CUDA driver's verbs do what they say, its failures are errors of ours.

The library is one in Python: what a real one makes of the same calls is for `make test-gpu`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import numpy
import pytest

from anydim.base import settings
from anydim.base.errors import DeviceError, DeviceMemoryError
from anydim.runtime.devices import captured
from anydim.runtime.devices.cuda import CudaDevice, Library, list_cuda_devices
from anydim.runtime.devices.device import Launch
from tests.unit.runtime.devices.fake_cuda import FakeCuda


def doubled(words: Sequence[int], blocks: int, items: int) -> None:
    """A kernel on a range: every worker doubles its part."""
    address, count, parallel, part, _, _ = words
    values = numpy.ctypeslib.as_array((ctypes.c_float * max(count, 1)).from_address(address))
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


def opened(**options: int) -> tuple[FakeCuda, CudaDevice]:
    fake = FakeCuda(**options)
    fake.kernels |= {"doubled": doubled, "numbered": numbered, "noted": noted}
    return fake, CudaDevice("cuda:0", 0, Library(fake))


def launched(device: CudaDevice, symbol: str, words: Sequence[int], **options: int) -> None:
    entry = device.load({"m": b"doubled+ numbered noted+"}, [symbol])[symbol]
    block = (ctypes.c_int64 * len(words))(*words)
    device.launch(Launch(entry, ctypes.addressof(block), 1, len(words) - 1, **options))


def test_devices_are_listed() -> None:
    (shown,) = list_cuda_devices(Library(FakeCuda()))
    assert (shown.name, shown.architecture, shown.multiprocessors) == ("Fake", "sm_90", 4)


@pytest.mark.parametrize("count", [1, 3, 63, 64, 65, 1000, 300_000])
def test_what_is_copied_in_comes_out(count: int) -> None:
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
def test_kernels_on_ranges_share_them_out(count: int, grain: int) -> None:
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
def test_workers_have_scratch_of_their_own(count: int, grain: int) -> None:
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


def test_groups_are_blocks() -> None:
    fake, device = opened()
    block = device.allocate(8 * 37)
    launched(device, "numbered", [block], parallel=37)
    made = numpy.empty(37, numpy.int64)
    device.copy_out(made.ctypes.data, block, made.nbytes)
    assert fake.launches == [("numbered", 37, 64)]
    assert made.tolist() == list(range(37))


def test_memory_that_is_not_there() -> None:
    _, device = opened(capacity=1 << 12)
    block = device.allocate(4000)
    with pytest.raises(DeviceMemoryError, match=r"no memory for 4096 bytes, 4000 in use: out of"):
        device.allocate(4096)
    device.free(block)
    assert device.allocate(4096)


@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuModuleLoadData"])
def test_what_fails_is_an_error_with_the_drivers_text(call: str) -> None:
    fake, device = opened()
    block = device.allocate(64)
    fake.fails = call
    with pytest.raises(DeviceError, match=f"'cuda:0': .*{call}: unspecified launch failure"):
        device.copy_in(block, block, 64)
        launched(device, "numbered", [block], parallel=1)
    fake.fails = None
    launched(device, "numbered", [block], parallel=1)


def test_code_that_is_none_and_kernels_that_are_not_there() -> None:
    _, device = opened()
    with pytest.raises(DeviceError, match=r"load failed: .*invalid argument"):
        device.load({"m": b"broken"}, ["doubled"])
    with pytest.raises(DeviceError, match="no module has the kernel 'other'"):
        device.load({"m": b"doubled"}, ["other"])


def test_a_number_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="no device 'cuda:3': the CUDA driver shows 1"):
        CudaDevice("cuda:3", 3, Library(FakeCuda()))


def test_threads_have_the_context_and_events_are_given_back() -> None:
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
    device.wait(device.record())
    assert not fake.events


# ---- captured graphs ---------------------------------------------------------------------------


class Doubling:
    """A device that keeps so many graphs, and blocks of 64 numbers that are doubled."""

    def __init__(self, graphs: int) -> None:
        self.fake = FakeCuda()
        self.fake.kernels["doubled"] = doubled
        self.device = CudaDevice("cuda:0", 0, Library(self.fake), graphs=graphs)
        self.entry = self.device.load({"m": b"doubled+"}, ["doubled"])["doubled"]
        ones = numpy.ones(64, numpy.float32)
        self.blocks = [self.device.allocate(256) for _ in range(3)]
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


def test_calls_that_take_turns_with_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "_ADDRESSES", 2)
    work, powers = Doubling(graphs=2), [0, 0, 0]
    # the first is launched; then a graph for each of two blocks; a third one takes the older graph
    for block, expected in (
        (0, (0, 0, 0)), (0, (1, 0, 1)), (1, (2, 0, 2)), (0, (2, 0, 3)), (1, (2, 0, 4)),
        (2, (2, 1, 5)), (1, (2, 1, 6)), (2, (2, 1, 7)), (0, (2, 2, 8)),
    ):  # fmt: skip
        work.call(block, 64, 4)
        powers[block] += 4
        assert work.first(block) == [2.0 ** powers[block]] * 2
        counts = work.fake.counts
        assert (counts["instances"], counts["updates"], counts["replays"]) == expected
    work.device.trim()
    assert not work.fake.graphs


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
    device, (one, two, three) = work.device, work.blocks
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


def test_a_graph_that_does_not_fit_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "_ADDRESSES", 1)
    work = Doubling(graphs=2)
    for block in (0, 0, 1):
        work.call(block, 64, 4)
        work.device.synchronise()
        work.fake.fails = "cuGraphExecUpdate_v2"
    assert work.first(1) == [16.0, 16.0]
    assert (work.fake.counts["instances"], work.fake.counts["updates"]) == (2, 0)


@pytest.mark.parametrize("graphs", [0, 2])
def test_graphs_are_kept_where_the_setting_says_so(graphs: int) -> None:
    with settings.override(cuda_graphs=graphs):
        fake, device = opened()
    entry = device.load({"m": b"numbered"}, ["numbered"])["numbered"]
    words = (ctypes.c_int64 * 1)(device.allocate(64))
    for _ in range(3):
        for _ in range(4):
            device.launch(Launch(entry, ctypes.addressof(words), 1, 0, 8))
        device.synchronise()
    assert len(fake.launches) == 12
    assert fake.counts["replays"] == graphs
