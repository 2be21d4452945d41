"""Promise: a strategy that waits does nothing before a model has served for a while."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from time import sleep

import numpy
import pytest

import anydim as ad
from anydim.api import compile_options as models
from anydim.base import settings
from anydim.compiler.variants import deferred
from tests.unit.compiler.variants.models import Here, depthwise, here, image

__all__ = ["here"]

BEFORE = """
import numpy, sys, threading
import anydim as ad
g = ad.Builder("g")
x = g.input("x", ad.float32, (g.dim("m"), g.dim("n")))
g.output("y", g.softmax(x, axis=-1))
model = ad.compile(g.graph())
assert model.strategy.patience == 60, model.strategy
for rows in range(100):
    model(x=numpy.zeros((3, 5), numpy.float32))
assert [each.name for each in threading.enumerate()] == ["MainThread"]
names = ("serving", "workers", "ledger", "trial", "search")
made = {f"anydim.compiler.variants.{name}" for name in names}
assert not made & set(sys.modules), made & set(sys.modules)
"""


def test_a_script_that_is_soon_over_starts_nothing() -> None:
    with settings.override(strategy="adaptive(after=2, patience=60)"):
        if models.strategy_here(None) == models.GENERIC:
            pytest.skip("one core")
    environment = {"ANYDIM_STRATEGY": "adaptive(after=2, patience=60)"}
    done = subprocess.run(
        [sys.executable, "-c", BEFORE], capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


class Clock:
    """A clock that goes when it is told."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(deferred, "time", made)
    return made


def calls(model: ad.Model, count: int) -> None:
    wanted = depthwise("generic")(x=image(3))["y"]
    for _ in range(count):
        numpy.testing.assert_array_equal(model(x=image(3))["y"], wanted)
    for thread in threading.enumerate():
        if thread.name == "anydim-adaptive":
            thread.join()


def test_bodies_are_made_when_time_has_gone_by(here: Here, clock: Clock) -> None:
    here.ratio = 0.5
    model = depthwise("adaptive(after=4, patience=5)")
    calls(model, 100)
    assert not here.orders and "it starts once" in model.explain(details=True)
    assert str(model.strategy) == "adaptive(limit=8, after=4, most=0.97, patience=5)"
    clock.now = 5.0
    for _ in range(500):  # a busy machine lets the thread wait that orders them
        calls(model, 100)
        if len(model.variants()) == 2:
            break
        sleep(0.01)
    assert len(model.variants()) == 2 and model.strategy.patience == 5


def test_another_strategy_may_come_first(here: Here, clock: Clock) -> None:
    here.ratio = 0.5
    model = depthwise("adaptive(after=4, patience=5)")
    calls(model, 20)
    model.serve_by("generic")
    clock.now = 9.0
    calls(model, 40)
    assert not here.orders and str(model.strategy) == "generic()"
    model.serve_by("adaptive(after=4, patience=5)")
    assert model.prepare(b=1, h=3, q=10) == 2  # who asks does not wait


def test_what_is_said_nothing_of_is_as_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.override(strategy="adaptive(patience=1)"):
        monkeypatch.setattr(models, "available_cores", lambda: 2)
        assert str(models.strategy_here(None)).startswith("adaptive")
        assert str(models.strategy_here("exact")) == "exact(limit=64)"
        with settings.override(forbid_compile=True):
            assert str(models.strategy_here(None)) == "generic()"
        monkeypatch.setattr(models, "available_cores", lambda: 1)
        assert str(models.strategy_here(None)) == "generic()"
    with settings.override(strategy="adaptve"), pytest.raises(ad.OptionError, match="adaptve"):
        models.strategy_here(None)
