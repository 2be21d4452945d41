"""Promise: worker threads never keep a process, a fork or a dropped model from ending."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy
import pytest

from anydim.runtime import threads as pools
from anydim.sizes import Box, Dim
from tests.unit.runtime.program.tiny import adder, executable

BOX = Box.of(Dim("n", 0, 100_000))
X = numpy.ones(50_000, numpy.float32)
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX threads")


def workers() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("anydim-worker")}


def soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def calls(run, count: int = 1) -> bool:
    return all((run({"a": X, "b": X})["y"] == 3).all() for _ in range(count))


def test_workers_start_when_a_launch_can_use_them_and_end_with_the_model() -> None:
    before = workers()
    run = executable(adder(BOX, "n", threads=4))
    run({"a": X[:3], "b": X[:3]})
    assert not workers() - before
    assert calls(run)
    assert len(workers() - before) == 3
    del run
    gc.collect()
    assert soon(lambda: not workers() - before)


@pytest.mark.parametrize("spins", [0, 1, 1000])
def test_sleeping_and_spinning_workers_take_part(
    spins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_spins", lambda worker: spins)
    run = executable(adder(BOX, "n", threads=3))
    for pause in (0.0, 0.002, 0.0, 0.02):
        assert calls(run, 50)
        time.sleep(pause)
    assert run._pool is not None
    memory = pools._Pool.from_address(run._pool.address)
    assert soon(lambda: memory.sleepers == 2)


def test_a_model_works_after_fork() -> None:
    run = executable(adder(BOX, "n", threads=2))
    assert calls(run, 3)
    child = os.fork()
    if child == 0:
        os._exit(0 if calls(run, 3) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert calls(run, 3)


def test_no_threads_means_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[int]:
        raise OSError("no threads here")

    monkeypatch.setattr(pools, "_system_functions", refuse)
    run = executable(adder(BOX, "n", threads=4))
    before = workers()
    assert calls(run, 3)
    assert not workers() - before


EXITS = {
    "plain": "",
    "held by a module": "import sys; sys.modules['held'] = run",
    "after many calls": "[run({'a': X, 'b': X}) for _ in range(200)]",
    "while threads call": """
import threading
for _ in range(3):
    work = lambda: [run({'a': X, 'b': X}) for _ in range(5000)]
    threading.Thread(target=work, daemon=True).start()""",
    "in a forked child": "import os; os.fork()",
    "by an error": "raise SystemExit(0)",
}


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("ending", EXITS.values(), ids=EXITS.keys())
def test_the_interpreter_exits(ending: str) -> None:
    script = f"""
import numpy
from tests.unit.runtime.program.tiny import adder, executable
from anydim.sizes import Box, Dim
run = executable(adder(Box.of(Dim("n", 0, 100_000)), "n", threads=4))
X = numpy.ones(50_000, numpy.float32)
assert (run({{"a": X, "b": X}})["y"] == 3).all()
{ending}
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_little_work_wakes_workers_in_a_row_of_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = executable(adder(BOX, "n", threads=2))
    assert calls(run) and run._pool is not None
    pool, clock = run._pool, [100.0]
    monkeypatch.setattr(pools.time, "perf_counter", lambda: clock[0])
    pool.ended = clock[0]
    clock[0] += pools.SPINNING / 2
    assert pool.worth(1) > 1 and pool.worth(40) > 40
    clock[0] += pools.SPINNING
    assert pool.worth(1) == 1 and pool.worth(40) == 40
