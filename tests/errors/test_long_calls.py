"""Promise: a call without loops ends at a time limit and at Ctrl-C, and the model works on."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.base import dtypes

LAUNCHES = 40  # more than a function of host code has
LARGE, SMALL = np.eye(900, dtype=np.float32), np.eye(3, dtype=np.float32)  # 0.5 s and more


def powers(threads: int, branch: bool) -> ad.Model:
    """x to a high power, a product a launch; in a branch, or as a straight line."""
    g = ad.Builder("powers")
    n = g.dim("n")
    x = g.input("x", dtypes.float32, (n, n))

    def power(value):
        for _ in range(LAUNCHES):
            value = value @ x
        return value

    if branch:
        chosen = g.input("chosen", dtypes.boolean, ())
        g.output("y", g.branch(chosen, lambda b: power(x), lambda b: x))
    else:
        g.output("y", power(x))
    return ad.compile(g, threads=threads)


class Called:
    """A model of powers, on large and small input."""

    def __init__(self, model: ad.Model) -> None:
        self.model = model
        self.chosen = {"chosen": np.array(True)} if len(model.inputs) > 1 else {}

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.model(x=x, **self.chosen)["y"]


@pytest.fixture(scope="module", params=[(1, False), (2, False), (2, True)], ids=str)
def called(request: pytest.FixtureRequest) -> Called:
    return Called(powers(*request.param))


@pytest.fixture(autouse=True)
def works_on(called: Called):
    yield
    called.model.limit_time(None)
    assert (called(SMALL) == SMALL).all()
    assert (called(2 * SMALL) == 2.0 ** (LAUNCHES + 1) * SMALL).all()


def test_a_time_limit_ends_a_call(called):
    called.model.limit_time(0.03)
    for _ in range(2):
        with pytest.raises(ad.TimeLimitError, match="exceeded its time limit") as caught:
            called(LARGE)
        assert "loop" not in str(caught.value)
        assert "raise the limit with model.limit_time(seconds)" in str(caught.value)
    called.model.limit_time(30)
    assert (called(SMALL) == SMALL).all()


def test_a_stopped_call_keeps_no_memory(called):
    called.model.limit_time(0.01)
    for _ in range(5):
        with pytest.raises(ad.TimeLimitError):
            called(LARGE)
    called.model.trim()
    assert called.model.executable.arena_bytes == 0


def test_a_time_limit_holds_on_other_threads(called):
    called.model.limit_time(0.03)
    found = []

    def call():
        with pytest.raises(ad.TimeLimitError):
            called(LARGE)
        found.append(True)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
def test_what_a_handler_raises_ends_a_call(called, error):
    def handler(number, frame):
        raise error

    before = signal.signal(signal.SIGINT, handler)
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
    try:
        timer.start()
        with pytest.raises(error):
            called(LARGE)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_runs_before_the_call_ends(called):
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(time.monotonic()))
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
    try:
        timer.start()
        assert (called(LARGE) == LARGE).all()
        ended = time.monotonic()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert len(came) == 1 and came[0] < ended


def test_a_saved_model_stops_too(called, tmp_path: Path):
    called.model.save(tmp_path / "powers.anydim")
    loaded = Called(ad.load(tmp_path / "powers.anydim"))
    loaded.model.limit_time(0.03)
    with pytest.raises(ad.TimeLimitError):
        loaded(LARGE)
    loaded.model.limit_time(None)
    assert (loaded(SMALL) == SMALL).all()
