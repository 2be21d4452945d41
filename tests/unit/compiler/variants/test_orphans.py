"""Promise: a worker process ends with its parent, however that ends and who holds its pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from anydim.compiler.variants import child_process
from anydim.compiler.variants.workers import Workers
from tests.unit.compiler.variants.test_workers import orders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
_SECONDS = 30.0  # this machine may be busy
_LOOKS = """
assert not tied[1]
from anydim.compiler.variants.child_process import end_with_parent
end_with_parent(tied)
import time
print(1, flush=True)
time.sleep(100)
"""
_SEARCH = """
    import dataclasses, os, signal, sys, time
    from anydim.compiler.variants.workers import Workers
    from tests.unit.compiler.variants.test_workers import orders
    made = Workers(1, polite={polite})
    (order,) = orders(9)
    made.submit(order).result(300)  # a polite worker waits for a busy machine
    made.submit(dataclasses.replace(order, most=0.0, budget=100.0))
    if {forks} and os.fork() == 0:
        print("fork", os.getpid(), flush=True)  # holds the pipes of the worker open
        time.sleep(100)
        os._exit(0)
    time.sleep(0.2)
    print("worker", made.processes()[0].pid, flush=True)
    {ends}
    time.sleep(100)
"""


@contextmanager
def parent(text: str) -> Iterator[subprocess.Popen[str]]:
    """A process of this interpreter that runs a text."""
    words = [sys.executable, "-c", textwrap.dedent(text)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], lines: int = 1) -> dict[str, int]:
    """Processes that a process names in so many lines."""
    assert process.stdout is not None
    words = [process.stdout.readline().split() for _ in range(lines)]
    return {name: int(pid) for name, pid in words}


def is_there(pid: int) -> bool:
    """Whether a process runs: one that ended may wait for whoever asks how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_ends(pid: int) -> None:
    end = time.monotonic() + _SECONDS
    while is_there(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_there(pid)


@contextmanager
def load() -> Iterator[None]:
    """A busy process for each core that this one may use, and one more."""
    with ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0)) + 1):
            stack.enter_context(parent("while True: pass"))
        yield


SLOW = [pytest.param(end, marks=pytest.mark.slow) for end in ("terminate", "os._exit(3)")]


@pytest.mark.parametrize("end", ["kill", "sys.exit(3)", *SLOW])
def test_a_worker_ends_with_its_parent(end: str) -> None:
    inside = end if "exit" in end else "pass"
    with parent(_SEARCH.format(polite=True, forks=False, ends=inside)) as process:
        worker = said(process)["worker"]
        if end == inside:
            process.wait(_SECONDS)
        else:
            assert is_there(worker)
            getattr(process, end)()
        assert_ends(worker)


def test_a_worker_ends_though_a_fork_holds_its_pipes_on_busy_cores() -> None:
    with parent(_SEARCH.format(polite=True, forks=True, ends="pass")) as process:
        found = said(process, 2)
        with load():
            process.kill()
            process.wait(_SECONDS)
            try:
                assert_ends(found["worker"])
                assert is_there(found["fork"])
            finally:
                os.kill(found["fork"], signal.SIGKILL)


def test_a_worker_ends_whose_parent_ended_before_its_first_step() -> None:
    """One that has gone, and one that has ended without anybody who asks how."""
    with parent("print('parent', __import__('os').getpid())") as process:
        ended = said(process)["parent"]
        while is_there(ended):
            time.sleep(0.01)
        for pid in (ended, 1 << 22):
            text = child_process.beginning(pid, polite=True) + "import time; time.sleep(100)"
            done = subprocess.run([sys.executable, "-c", text], timeout=_SECONDS, check=False)
            assert done.returncode == 0


def test_a_worker_that_another_process_started_works() -> None:
    text = (
        child_process.beginning(os.getppid(), polite=False)
        + "raise SystemExit(7 if tied[1] == 0 else 8)"
    )
    done = subprocess.run([sys.executable, "-c", text], timeout=_SECONDS, check=False)
    assert done.returncode == 7


def test_a_worker_without_the_signal_looks_whether_its_parent_is_there() -> None:
    text = f"""
        import os, subprocess, sys, time
        from anydim.compiler.variants.child_process import beginning
        looks = beginning(os.getpid(), False).replace("prctl", "none") + {_LOOKS!r}
        made = subprocess.Popen([sys.executable, "-c", looks], stdin=subprocess.PIPE, stdout=-1)
        made.stdout.readline()
        if os.fork() == 0:
            time.sleep(20)  # holds the pipes of the other one open
            os._exit(0)
        print("worker", made.pid, flush=True)
        time.sleep(100)
    """
    with parent(text) as process:
        worker = said(process)["worker"]
        process.kill()
        start = time.monotonic()
        assert_ends(worker)
        assert time.monotonic() - start < 20


def test_a_worker_outlives_the_thread_that_asked_for_it() -> None:
    made, replies, (first, second) = Workers(1), [], orders(3, 4)
    thread = threading.Thread(target=lambda: replies.append(made.submit(first).result(60)))
    thread.start()
    thread.join()
    (process,) = made.processes()
    time.sleep(0.2)
    assert process.poll() is None and replies[0].made is not None
    assert made.submit(second).result(60).made is not None
    assert made.processes() == [process]
    made.close()
