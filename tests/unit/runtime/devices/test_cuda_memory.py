"""Promise: the memory of a call on a CUDA device is its formula, to the byte, and is given back.

The library counts what is allocated and freed; kernels compute nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DeviceMemoryError
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.libcuda import Library
from tests.cuda_on_host import cuda_symbols
from tests.unit.runtime.devices.fake_cuda import FakeCuda
from tests.unit.runtime.devices.native_verbs import forbidden

SIZES = (0, 1, 7, 15, 16, 17, 64, 1000)
MOST = 1000


def net() -> ad.Builder:
    """Products, rows, a reduction across, checked indices: constants, an arena, five results."""
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", 0, MOST), 24))
    w, v = (g.constant(numpy.ones(shape, numpy.float32)) for shape in ((24, 48), (48, 24)))
    h = g.softmax(g.matmul(x, w), axis=-1)
    g.output("y", g.matmul(h, v))
    g.output("total", g.reduce_sum(h, axes=(0,)))
    table = g.constant(numpy.ones((100, 7), numpy.float32))
    places = g.cast(g.reduce_max(h, axes=(1,)), to=ad.int64)
    g.output("rows", g.gather(table, places, axis=0))
    return g


def plain() -> ad.Builder:
    """No constant and no arena."""
    g = ad.Builder("plain")
    g.output("y", g.exp(g.input("x", ad.float32, (g.dim("n", 0, MOST), 24))))
    return g


def mixed() -> ad.Builder:
    """Parts on the device and on the host, in turns."""
    g = ad.Builder("mixed")
    x = g.input("x", ad.float32, (g.dim("n", 0, MOST), 24))
    for number in range(2):
        with g.on("accel"):
            x = g.softmax(g.mul(x, x), axis=-1)
        x = g.cum_sum(x, axis=0)
        g.output(f"y{number}", x)
    return g


GRAPHS = {"net": net, "plain": plain, "mixed": mixed}


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    made = FakeCuda(capacity=1 << 26)
    made.idle = True
    with cuda_symbols():
        yield made


def compiled(fake: FakeCuda, name: str, graphs: int = 0, **options: object) -> ad.Model:
    device = CudaDevice("cuda:0", 0, Library(fake), graphs=graphs)
    placement = None if name == "mixed" else {"*": "accel"}
    return ad.compile(
        GRAPHS[name](), devices={"accel": device}, placement=placement, **options
    )  # fmt: skip


def given(rows: int) -> dict[str, numpy.ndarray]:
    return {"x": numpy.ones((rows, 24), numpy.float32)}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_call_takes_its_formula_and_gives_it_back(fake: FakeCuda, name: str) -> None:
    model = compiled(fake, name)
    memory = model.memory
    assert set(memory.devices) == {"cpu", "accel"}
    assert sum(size.evaluate({"n": 17}) for size in memory.devices.values()) == memory.at(n=17)
    for rows in (*SIZES, 3, 0):
        model(**given(rows))
        model.trim()
        assert fake.used == memory.constants_on["accel"]
        fake.most = 0
        model(**given(rows))
        needed = memory.devices["accel"].evaluate({"n": rows})
        assert fake.used == needed + memory.constants_on["accel"]
        assert fake.most == (fake.used if needed else 0)
    del model
    gc.collect()
    assert fake.used == 0


def test_smaller_and_larger_calls_take_turns(fake: FakeCuda) -> None:
    """Cached blocks serve values of half their bytes or more; under a limit, of all of them."""
    model = compiled(fake, "net")
    memory, sizes = model.memory, numpy.random.default_rng(0).integers(0, 301, 40)
    constants = memory.constants_on["accel"]
    for limited in (False, True):
        if limited:
            model.limit_memory(ad.MemoryLimit(memory.at(n=300), per_call=True))
        most = memory.at(n=300) if limited else 2 * memory.devices["accel"].evaluate({"n": 300})
        for rows in sizes:
            model(**given(int(rows)))
            assert fake.used <= most + constants


def test_what_a_limit_refuses_leaves_nothing(fake: FakeCuda) -> None:
    limit = ad.MemoryLimit(100_000, per_call=True)
    model = compiled(fake, "net", memory_limit=limit)
    fits = model.largest("n")
    assert fits is not None and model.memory.at(n=fits) <= limit.bytes < model.memory.at(n=fits + 1)
    model(**given(fits))
    model.trim()
    blocks, fake.most = dict(fake.blocks), 0
    with pytest.raises(ad.MemoryLimitError, match="above the memory limit"):
        model(**given(MOST))
    assert fake.most <= limit.bytes + model.memory.constants_on["accel"]
    model.trim()
    assert fake.blocks == blocks
    with pytest.raises(ad.MemoryLimitError, match="up to n = "):  # before constants are copied
        compiled(fake, "net", memory_limit=100_000)
    assert fake.blocks == blocks


@pytest.mark.parametrize("room", [0, 100, 4096])
def test_a_device_that_is_full(fake: FakeCuda, room: int) -> None:
    """A call that fails leaves nothing, and the next one works."""
    model = compiled(fake, "net")
    needed = model.memory.devices["accel"].evaluate({"n": 64})
    fake.capacity = model.memory.constants_on["accel"] + needed - 64 - room
    with pytest.raises(DeviceMemoryError, match="no memory for"):
        model(**given(64))
    model.trim()
    assert fake.used == model.memory.constants_on["accel"]
    fake.capacity += 64 + room
    model(**given(64))
    assert fake.taken == fake.capacity


def test_graphs_leave_where_memory_is_short(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compiled(fake, "net", graphs=8)
    forbidden(monkeypatch, model.devices["accel"])
    for rows in (17, 17, 17, 18, 18):
        model(**given(rows))
    assert fake.instances and fake.counts["replays"]
    needed = model.memory.devices["accel"].evaluate({"n": 1000})
    fake.capacity = model.memory.constants_on["accel"] + needed
    model(**given(1000))
    assert not fake.instances and fake.used == fake.capacity
    model(**given(1000))  # a graph has no room: the call is repeated without
    assert not fake.instances
