"""Promise: a lock that another thread held at a fork is free in the child."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anydim.base import fork_locks, records
from anydim.base.fork_locks import fork_lock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Owner:
    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self.lock = fork_lock(self, "lock", make)


def in_child(work: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def held_elsewhere(lock: Any) -> Callable[[], None]:
    """Hold a lock in another thread; the result ends that."""
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def leave() -> None:
        end.set()
        thread.join()

    return leave


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_it_is_free_in_the_child_alone(make: Callable[[], Any]) -> None:
    owner = Owner(make)
    leave = held_elsewhere(owner.lock)
    try:
        assert in_child(lambda: owner.lock.acquire(timeout=5))
        assert not owner.lock.acquire(blocking=False)
    finally:
        leave()
    assert owner.lock.acquire(blocking=False)


def test_a_block_that_forks_leaves_its_own_lock() -> None:
    owner = Owner()

    def work() -> bool:
        return owner.lock.acquire(timeout=5)

    with owner.lock:
        child = os.fork()
        free = child != 0 or work()
    if child == 0:
        os._exit(0 if free else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not owner.lock.locked()


def test_a_module_has_one_too() -> None:
    leave = held_elsewhere(records._FINDING)
    try:
        assert in_child(lambda: records._FINDING.acquire(timeout=5))
    finally:
        leave()


def test_owners_are_not_kept() -> None:
    before = len(fork_locks._known)
    owners = [Owner() for _ in range(100)]
    assert len(fork_locks._known) == before + 100
    del owners
    gc.collect()
    assert len(fork_locks._known) == before
