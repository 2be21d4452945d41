"""Promise: a loop that never ends stops at a time limit and at Ctrl-C, and the model works on."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

import anydim as ad
from anydim.base import dtypes

FOREVER = np.array(2**62)
X = np.ones(3, np.float32)


def counting(name: str, inner: bool) -> ad.Model:
    """m times x and x together; with another loop, of one iteration, in each of them."""
    g = ad.Builder(name)
    n = g.dim("n")
    m, x = g.input("m", dtypes.int64, ()), g.input("x", dtypes.float32, (n,))
    trips = g.find(m, "trips")

    def body(b, t, state):
        return b.loop(lambda c, u, deep: deep + x, state, trips=1) if inner else state + x

    g.output("y", g.loop(body, x, trips=trips))
    return ad.compile(g)


@pytest.fixture(scope="module", params=["one loop", "a loop inside"])
def model(request: pytest.FixtureRequest) -> ad.Model:
    return counting("sums", request.param == "a loop inside")


@pytest.fixture(autouse=True)
def works_on(model: ad.Model):
    yield
    model.limit_time(None)
    assert (model(m=np.array(4), x=X)["y"] == 5).all()


def test_a_time_limit_ends_a_loop(model):
    model.limit_time(0.05)
    with pytest.raises(ad.TimeLimitError, match="exceeded its time limit") as caught:
        model(m=FOREVER, x=X)
    assert "check for an endless loop; otherwise raise the limit" in str(caught.value)
    with pytest.raises(TimeoutError):
        model(m=FOREVER, x=X)
    assert (model(m=np.array(4), x=X)["y"] == 5).all()


def test_a_time_limit_holds_on_other_threads(model):
    model.limit_time(0.05)
    found = []

    def call():
        with pytest.raises(ad.TimeLimitError):
            model(m=FOREVER, x=X)
        found.append(True)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "2", True, 10**400])
def test_what_is_no_time_limit(model, seconds):
    with pytest.raises(ad.OptionError, match="timeout is"):
        model.limit_time(seconds)


@pytest.fixture
def interrupted(model):
    """Ctrl-C, in a moment; a process in the background of a shell may have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
    model.limit_time(30)  # where it does not come
    yield timer.start
    timer.cancel()
    timer.join()
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_loop(model, interrupted):
    interrupted()
    with pytest.raises(KeyboardInterrupt):
        model(m=FOREVER, x=X)


def test_what_a_handler_of_the_user_raises_ends_a_loop(model, interrupted):
    def handler(number, frame):
        raise LookupError("enough")

    before = signal.signal(signal.SIGINT, handler)
    try:
        interrupted()
        with pytest.raises(LookupError, match="enough"):
            model(m=FOREVER, x=X)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_runs_and_the_loop_goes_on(model, interrupted):
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        model.limit_time(0.3)
        interrupted()
        with pytest.raises(ad.TimeLimitError):
            model(m=FOREVER, x=X)
    finally:
        signal.signal(signal.SIGINT, before)
    assert came == [True]


def test_a_saved_model_stops_too(model, tmp_path, interrupted):
    model.save(tmp_path / "sums.anydim")
    loaded = ad.load(tmp_path / "sums.anydim")
    loaded.limit_time(0.02)
    with pytest.raises(ad.TimeLimitError):
        loaded(m=FOREVER, x=X)
    loaded.limit_time(30)
    interrupted()
    with pytest.raises(KeyboardInterrupt):
        loaded(m=FOREVER, x=X)
