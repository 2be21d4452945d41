"""Promise: a lock waits for a process that works, and for none that is stopped or does not run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anydim.base import locks
from anydim.base.locks import lock_path

pytestmark = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="no /proc")
HOLD = """
import os, signal, sys, time
from anydim.base.locks import lock_path
with lock_path({path!r}, lambda: False, 60.0) as held:
    assert held
    print("held", flush=True)
    {then}
"""
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
IDLE = "time.sleep(60)"
WORK = "[0 for _ in iter(lambda: time.process_time() < 1.0, False)]"


@contextmanager
def holder(path: Path, then: str) -> Iterator[None]:
    """A process that holds a lock, and then does something."""
    code = HOLD.format(path=str(path), then=then)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield
    finally:
        process.kill()
        process.communicate()


def asked(most: int) -> Callable[[], bool]:
    """Whether another process is done: it never is, and it is asked a number of times at most."""
    times = iter(range(most))

    def done() -> bool:
        assert next(times, None) is not None, "the wait does not end"
        return False

    return done


@pytest.mark.parametrize("then", (STOP, IDLE), ids=("stopped", "idle"))
def test_a_holder_that_does_not_go_on_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(locks, "_STOPPED", 0.2)
    monkeypatch.setattr(locks, "_IDLE", 0.2)
    path = tmp_path / "lock"
    with holder(path, then), lock_path(str(path), asked(300), 60.0) as held:
        assert not held


def test_a_holder_that_works_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_IDLE", 0.5)
    path = tmp_path / "lock"
    with holder(path, WORK), lock_path(str(path), lambda: False, 60.0) as held:
        assert held
    assert not path.exists()


@pytest.mark.parametrize("note", (b"", b"nothing", b"1", b"1 elsewhere", b"\xff" * 300))
def test_a_holder_that_is_not_known_is_waited_for(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(note)
    with open(path, "rb") as file:
        assert locks._progress(file.fileno()) is None
