"""Promise: a model loaded before a fork, after it or in a spawned process gives the same bits, with
its own threads and with the weights of the parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
import anydim.ort as ort
from anydim.base import settings
from anydim.runtime.cpu import this_level

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

OTHER = "aarch64" if this_level().architecture == "x86_64" else "x86-64-v3"
SIZES = (0, 1, 64, 301)
WEIGHTS = 2 * 512 * 1024 * 4  # bytes


def layers() -> ad.Builder:
    g = ad.Builder("layers")
    random = np.random.default_rng(7)
    x = g.input("x", ad.float32, (g.dim("n", 0, 512), 512))
    first, second = (random.standard_normal(shape).astype(np.float32)
                     for shape in ((512, 1024), (1024, 512)))  # fmt: skip
    g.output("y", g.matmul(g.relu(g.matmul(x, first)), second))
    return g


def x_of(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 512)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    path = tmp_path_factory.mktemp("saved") / "layers.anydim"
    model = ad.compile(layers(), threads=2)
    model.save(path, [OTHER, "native"])
    return path, {n: model(x_of(n))["y"].tobytes() for n in SIZES}


@pytest.fixture(params=["mapped", "private"])
def path(
    request: pytest.FixtureRequest, expected: tuple[Path, dict[int, bytes]], tmp_path: Path
) -> Iterator[Path]:
    """The file; its weights are mapped from the cache, or in memory of the process."""
    with settings.override(use_cache=request.param == "mapped", cache_dir=str(tmp_path)):
        yield expected[0]


Bits = dict[int, bytes]


def right(model: ad.LoadedModel, bits: Bits) -> bool:
    return all(model(x_of(n))["y"].tobytes() == bits[n] for n in SIZES)


def in_child(work: Callable[[], bool]) -> int:
    """The process of a forked child that ends with 0 if `work` is right."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return child


def ended(*children: int) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def in_threads(model: ad.LoadedModel, bits: Bits, count: int = 3) -> bool:
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(right(model, bits)))
               for _ in range(count)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found == [True] * count


def own_bytes(model: ad.LoadedModel) -> int:
    """Bytes of the weights, and of what lies beside them, that no other process shares."""
    largest = max(model.executable.held.arrays.values(), key=lambda array: array.nbytes)
    assert largest.nbytes >= WEIGHTS // 2
    address, found = largest.ctypes.data, {}
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        first, *rest = line.split()
        if "-" in first:
            begin, end = (int(part, 16) for part in first.split("-"))
            inside, shared = begin <= address < end, rest[0] == "r--s"
            if inside and shared:
                return 0  # pages of a file
        elif inside:
            found[first] = int(rest[0]) << 10 if rest[0].isdecimal() else 0
    return found["Private_Dirty:"]


@pytest.mark.parametrize("called", [False, True])
def test_workers_of_a_server_that_loads_first(
    called: bool, path: Path, expected: tuple[Path, Bits]
) -> None:
    """Loaded once, then forked: no child has weights of its own, each has threads of its own."""
    bits = expected[1]
    model = ad.load(path, threads=2)
    if called:
        assert right(model, bits)

    def work() -> bool:
        if not (right(model, bits) and in_threads(model, bits)):
            return False
        names = [thread.name for thread in threading.enumerate()]
        return "anydim-worker-1" in names and own_bytes(model) < WEIGHTS // 8

    assert ended(*[in_child(work) for _ in range(3)]) == [0, 0, 0]
    assert in_threads(model, bits)


def test_a_child_of_a_child(path: Path, expected: tuple[Path, Bits]) -> None:
    model = ad.load(path, threads=2)
    assert right(model, expected[1])

    def work() -> bool:
        first = right(model, expected[1])
        return first and ended(in_child(lambda: right(model, expected[1]))) == [0]

    assert ended(in_child(work)) == [0]


def test_each_child_loads(path: Path, expected: tuple[Path, Bits]) -> None:
    def work() -> bool:
        return in_threads(ad.load(path, threads=2), expected[1])

    assert ended(*[in_child(work) for _ in range(3)]) == [0, 0, 0]


def test_forks_while_threads_call_and_load(path: Path, expected: tuple[Path, Bits]) -> None:
    bits = expected[1]
    model, stop = ad.load(path, threads=2), threading.Event()

    def busy() -> None:
        while not stop.is_set():
            right(model, bits)
            ad.load(path, threads=2)(x_of(1))

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            assert ended(in_child(lambda: right(model, bits))) == [0]
            assert ended(in_child(lambda: right(ad.load(path), bits))) == [0]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("lock", ["_pool_lock", "_pruning"])
def test_a_lock_that_was_held_at_the_fork(
    lock: str, path: Path, expected: tuple[Path, Bits]
) -> None:
    model = ad.load(path, threads=2)
    held = getattr(model.executable, lock)

    def work() -> bool:
        names = right(model, expected[1]) and [each.name for each in threading.enumerate()]
        return bool(names) and "anydim-worker-1" in names

    inside, end = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            inside.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        assert ended(in_child(work)) == [0]
    finally:
        end.set()
        thread.join()


def test_a_killed_child_disturbs_nobody(path: Path, expected: tuple[Path, Bits]) -> None:
    model = ad.load(path, threads=2)
    assert right(model, expected[1])

    def forever() -> bool:
        while True:
            right(model, expected[1])

    children = [in_child(forever) for _ in range(2)]
    time.sleep(0.2)
    os.kill(children[0], signal.SIGKILL)
    assert ended(children[0]) == [-signal.SIGKILL]
    assert in_threads(model, expected[1])
    os.kill(children[1], signal.SIGTERM)
    assert ended(children[1]) == [-signal.SIGTERM]
    assert ended(in_child(lambda: right(model, expected[1]))) == [0]


def test_a_session_in_forked_children(path: Path, expected: tuple[Path, Bits]) -> None:
    session = ort.InferenceSession(str(path))

    def work() -> bool:
        return all(session.run(None, {"x": x_of(n)})[0].tobytes() == expected[1][n] for n in SIZES)

    assert work()
    assert ended(in_child(work), in_child(work)) == [0, 0]


def spawned(pickled: bytes, bits: Bits) -> tuple[bool, int]:
    model = pickle.loads(pickled)
    return in_threads(model, bits), model.executable.threads


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_model_is_sent_to_other_processes(
    method: str, path: Path, expected: tuple[Path, Bits]
) -> None:
    model = ad.load(path, threads=2)
    assert right(model, expected[1])
    sent = pickle.dumps(model)
    assert len(sent) < 10_000  # its path, not its weights
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.starmap(spawned, [(sent, expected[1])] * 2)
    assert found == [(True, 2)] * 2
